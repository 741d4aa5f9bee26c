"""Every code block of the documents is run in order, unless a comment above it says why not.

Shell commands are run in a temporary folder with links to the project's demo, configs, tools and benchmarks. A block of
text shows what the command before it printed; `…` means omitted lines.
"""

from __future__ import annotations

import ast
import doctest
import inspect
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.registry import HOOKS, METRICS

import mm_metrics_plugin
import mm_metrics_plugin.functional
import mm_metrics_plugin.testing
from mm_metrics_plugin import ClassificationSettings, ComparisonSettings, DetectionSettings
from tests.helpers.documents import DOCUMENTS, ROOT, blocks, name_of, prose

CONFIG = re.compile(r"^(custom_imports|custom_hooks|val_evaluator|default_hooks) = ", re.MULTILINE)
# Chinese documents have the blocks of the English ones; tests/test_documents.py compares them.
RUN = [path for path in DOCUMENTS if "zh" not in name_of(path) and blocks(path)]


def run_python(block, names):
    if CONFIG.search(block.text):
        build_config(block.text)
    elif ">>>" in block.text:
        options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
        test = doctest.DocTestParser().get_doctest(block.text, names, "block", None, block.line)
        output = []
        failures = doctest.DocTestRunner(optionflags=options, verbose=False).run(
            test, out=output.append, clear_globs=False
        )
        names.update(test.globs)
        assert not failures.failed, "".join(output)
    else:
        exec(compile(block.text, f"block at line {block.line}", "exec"), names)  # our own documents


def build_config(text):
    """Loads a config, and builds its metrics and hooks of this package and the checkpoint hook."""
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
    """The output of the commands."""
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
    """Every line of the block was printed, in this order."""
    lines = iter([line.split() for line in printed.splitlines()])
    for line in block.text.splitlines():
        assert line.strip() in ("", "…") or line.split() in lines, f"line {block.line}: not printed here: {line}"


PUBLIC = {
    name: getattr(module, name)
    for module in (mm_metrics_plugin, mm_metrics_plugin.functional, mm_metrics_plugin.testing)
    for name in module.__all__
}
SETTINGS = (ClassificationSettings, ComparisonSettings, DetectionSettings)


def argument_names(function):
    """The arguments of a public function or class, with those of base classes; ``options`` are those of settings."""
    functions = [function]
    if inspect.isclass(function):
        functions = [vars(base)["__init__"] for base in function.__mro__ if "__init__" in vars(base)]
    names = {name for each in functions for name in inspect.signature(each).parameters}
    return names | {field.name for each in SETTINGS for field in fields(each)} if "options" in names else names


def calls(code):
    """Name and keywords of the calls in Python code, and of ``dict(type=NAME, ...)`` in configs."""
    try:
        tree = ast.parse(code.strip())
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            keywords = {keyword.arg: keyword.value for keyword in node.keywords}
            name = getattr(keywords.pop("type", node.func), "value", getattr(node.func, "id", None))
            yield name, {*keywords} - {None}  # without **options


def test_arguments_in_examples_that_are_not_run_exist():
    found, unknown = 0, []
    for document in DOCUMENTS:
        inline = re.findall(r"`([^`]+)`", prose(document))
        for code in [*inline, *(block.text for block in blocks(document) if block.language == "python")]:
            for name, keywords in calls(code):
                if isinstance(name, str) and name in PUBLIC:
                    found += 1
                    unknown += [(name_of(document), code) for _ in keywords - argument_names(PUBLIC[name])]
    assert found > 50 and not unknown


@pytest.mark.parametrize("path", RUN, ids=name_of)
def test_blocks_run(path, tmp_path, monkeypatch):
    for name in ("demo", "configs", "tools", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    # Metrics that a document registers are removed at its end, and names of other tests are free.
    registered = {name: metric for name, metric in METRICS.module_dict.items() if name != "AngleError"}
    monkeypatch.setattr(METRICS, "_module_dict", registered)
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
            assert printed is not None, f"line {block.line}: there is no command before the output"
            compare_text(block, printed)
