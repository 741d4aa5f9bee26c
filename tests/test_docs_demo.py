"""The demonstration of `make demo`, and the help of every script."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys

import pytest

from tests.helpers.result_files import ROOT, command, succeeded


def test_the_demonstration_runs_in_any_folder(tmp_path):
    done = command(cwd=tmp_path, script=(ROOT / "tools" / "demo.py",))
    printed = succeeded(done)
    assert float(re.search(r"single-label/auc = (\d\.\d+)", printed).group(1)) > 0.9
    assert "Most frequent confusions" in printed and (tmp_path / "demo_output" / "report.json").exists()
    # It prints the AUC of each epoch, the report, the page and what to try next, and no log of the framework.
    epochs = re.findall(r"^  epoch (\d): single-label/auc (0\.\d+)   binned/auc 0\.\d+$", printed, re.MULTILINE)
    assert [number for number, _ in epochs] == list("12345")
    assert str(tmp_path.resolve() / "demo_output" / "report.html") in printed
    assert re.findall(r"^  (\d)\. (?:In|On) ", printed, re.MULTILINE) == ["1", "2", "3"]
    assert "mmengine - " not in printed + done.stderr and "LoggerHook" not in printed + done.stderr
    assert len(printed.splitlines()) < 90


RUNNABLE = [
    path
    for folder in ("demo", "tools", "benchmarks")
    for path in sorted((ROOT / folder).glob("*.py"))
    if '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", RUNNABLE, ids=[f"{path.parent.name}/{path.name}" for path in RUNNABLE])
def test_every_script_has_a_help_that_runs_nothing(path, tmp_path, monkeypatch, capsys):
    def refuse(*arguments, **options):
        raise RuntimeError("a process was started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # tools/demo.py and tools/train.py add to it
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(path), run_name="__main__")
    assert left.value.code == 0 and capsys.readouterr().out.startswith("usage: ") and not list(tmp_path.iterdir())
