"""What `make demo` shows, once its environment stands."""

from __future__ import annotations

import re

from tests.cli.files import ROOT, command, succeeded


def test_the_demonstration_runs_from_any_folder(tmp_path):
    printed = succeeded(command(cwd=tmp_path, script=(ROOT / "tools" / "demo.py",)))
    assert float(re.search(r"single-label/auc = (\d\.\d+)", printed).group(1)) > 0.9
    assert "Most frequent confusions" in printed and (tmp_path / "demo_output" / "report.json").exists()
