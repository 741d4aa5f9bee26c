"""What `make demo` shows, once its environment stands."""

from __future__ import annotations

import re

from tests.helpers.result_files import ROOT, command, succeeded


def test_the_demonstration_runs_from_any_folder(tmp_path):
    done = command(cwd=tmp_path, script=(ROOT / "tools" / "demo.py",))
    printed = succeeded(done)
    assert float(re.search(r"single-label/auc = (\d\.\d+)", printed).group(1)) > 0.9
    assert "Most frequent confusions" in printed and (tmp_path / "demo_output" / "report.json").exists()
    # A newcomer sees the AUC of each epoch, the report, the page and what to try next, and no log of the framework.
    epochs = re.findall(r"^  epoch (\d): single-label/auc (0\.\d+)   binned/auc 0\.\d+$", printed, re.MULTILINE)
    assert [number for number, _ in epochs] == list("12345")
    assert str(tmp_path.resolve() / "demo_output" / "report.html") in printed
    assert re.findall(r"^  (\d)\. (?:In|On) ", printed, re.MULTILINE) == ["1", "2", "3"]
    assert "mmengine - " not in printed + done.stderr and "LoggerHook" not in printed + done.stderr
    assert len(printed.splitlines()) < 90
