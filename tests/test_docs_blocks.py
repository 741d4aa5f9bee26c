"""Every block of code in the documents is run, in order, as a reader would; or a mark above it says why not.

Shell commands are run in a folder of their own, where the project's demo, configs and tools are found as in its own. A
block of text shows what the command before it printed; `…` stands for lines left out.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.registry import HOOKS, METRICS

import mm_metrics_plugin
from tests.helpers.documents import DOCUMENTS, ROOT, blocks, name_of

CONFIG = re.compile(r"^(custom_imports|custom_hooks|val_evaluator|default_hooks) = ", re.MULTILINE)
# Chinese documents have the blocks of the English ones; tests/test_documents.py compares them.
RUN = [path for path in DOCUMENTS if "zh" not in name_of(path) and blocks(path)]


def run_python(block, names):
    if CONFIG.search(block.text):
        build_config(block.text)
    elif ">>>" in block.text:
        options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
        test = doctest.DocTestParser().get_doctest(block.text, names, "block", None, block.line)
        said = []
        failures = doctest.DocTestRunner(optionflags=options, verbose=False).run(
            test, out=said.append, clear_globs=False
        )
        names.update(test.globs)
        assert not failures.failed, "".join(said)
    else:
        exec(compile(block.text, f"block at line {block.line}", "exec"), names)  # our own documents


def build_config(text):
    """Loads a config and builds what is ours in it, and the checkpoint hook that selects by our keys."""
    config = Config.fromstring(text, ".py")
    assert "val_evaluator" in config or "custom_hooks" in config or "custom_imports" in config
    metrics = config.get("val_evaluator", [])
    for entry in metrics if isinstance(metrics, list) else [metrics]:
        if hasattr(mm_metrics_plugin, entry["type"]):
            METRICS.build(entry)
    for entry in config.get("custom_hooks", []):
        HOOKS.build(entry)
    checkpoint = config.get("default_hooks", {}).get("checkpoint")
    if checkpoint:
        HOOKS.build(checkpoint)


def run_bash(block, folder):
    """What the commands print."""
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    path = os.pathsep.join([str(Path(sys.executable).parent), variables["PATH"]])
    done = subprocess.run(
        ["bash", "-e", "-c", block.text],
        cwd=folder,
        env={**variables, "PATH": path, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, f"line {block.line}:\n{block.text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def compare_text(block, printed):
    """Every line shown was printed, in this order."""
    known = iter([" ".join(line.split()) for line in printed.splitlines()])
    for line in block.text.splitlines():
        words = " ".join(line.split())
        if words and words != "…":
            assert words in known, f"line {block.line}: not printed, or not in this place: {line}"


@pytest.mark.parametrize("path", RUN, ids=name_of)
def test_blocks_run(path, tmp_path, monkeypatch):
    for name in ("demo", "configs", "tools", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    # What a document registers is gone when it ends, and a name that another test has registered is free.
    known = {name: found for name, found in METRICS.module_dict.items() if name != "AngleError"}
    monkeypatch.setattr(METRICS, "_module_dict", known)
    names, printed = {"__name__": "document"}, None
    for block in blocks(path):
        if block.not_run:
            continue
        assert block.language in ("python", "bash", "text"), (
            f"line {block.line}: {block.language!r} is not run by any test"
        )
        if block.language == "python":
            run_python(block, names)
        elif block.language == "bash":
            printed = run_bash(block, tmp_path)
        else:
            assert printed is not None, f"line {block.line}: shows what no command printed"
            compare_text(block, printed)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_reasons_are_given_and_nothing_is_hidden_in_indents(path):
    for block in blocks(path):
        assert not block.not_run or len(block.not_run.split()) > 4, f"line {block.line}: {block.not_run}"
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    indented = [line for line in re.findall(r"(?<=\n\n)    \S.*", text) if not line.strip().startswith(("options:",))]
    assert not indented, "code stands in fences, where it is run"
