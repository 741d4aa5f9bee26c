"""What installing this package asks of somebody's environment."""

from __future__ import annotations

import re
from importlib.metadata import distribution

import mm_metrics_plugin


def test_a_plain_install_touches_nobodys_torch_or_mmlab():
    lines = [line for line in distribution("mm_metrics_plugin").requires if "extra" not in line]
    plain = {re.match(r"[\w.-]+", line).group().lower() for line in lines}
    assert plain == {"mmengine", "numpy", "scipy", "scikit-learn", "matplotlib", "rich"}


def test_ranges_are_wide():
    for line in distribution("mm_metrics_plugin").requires:
        if "extra" not in line:
            assert re.fullmatch(r"[\w-]+>=[\d.]+", line.replace(" ", "")), line


def test_the_version_stands_in_one_place():
    assert distribution("mm_metrics_plugin").version == mm_metrics_plugin.__version__


def test_the_command_is_installed():
    (entry,) = [e for e in distribution("mm_metrics_plugin").entry_points if e.name == "mm-metrics"]
    assert entry.value == "mm_metrics_plugin.cli:main"
