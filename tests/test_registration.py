"""Importing the package registers the metrics; the launcher of the command starts without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers.result_files import CLASSES, ROOT, command, pair, succeeded

# Modules that the command imports only if it needs them.
HEAVY = ("torch", "mmengine", "mmdet", "matplotlib", "scipy", "sklearn", "plotly")
BUILD = """
from mmengine.registry import METRICS
print(type(METRICS.build(dict(type='SingleLabelAUC'))).__name__)
"""
REGISTERS = f"import mm_metrics_plugin\n{BUILD}"


def run_python(*arguments, cwd):
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)


CHILD = f"import mm_metrics_command\n{REGISTERS}"
PROGRAMS = {
    "a package": ("-m myproj.train", {"myproj/__init__.py": "import mm_metrics_plugin", "myproj/train.py": BUILD}),
    "a script with the name of the command": ("mm-metrics", {"mm-metrics": REGISTERS}),
    "a child process of the command": (
        "program.py",
        {
            "program.py": "import subprocess, sys\nfrom mm_metrics_command import load\nload('mm_metrics_plugin.cli')\n"
            f"sys.exit(subprocess.call([sys.executable, '-c', {CHILD!r}]))"
        },
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_that_imports_the_package_registers_the_metrics(tmp_path, program):
    arguments, sources = PROGRAMS[program]
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = run_python(*arguments.split(), cwd=tmp_path)
    assert done.stdout == "SingleLabelAUC\n", done.stderr


def test_the_command_as_a_module_of_the_package_registers_the_metrics(tmp_path):
    done = run_python("-X", "importtime", "-m", "mm_metrics_plugin.cli", "--version", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("mm-metrics "), done.stderr
    assert "mm_metrics_plugin.metrics.detection" in imported(done)


def imported(done):
    """The modules that a Python with ``-X importtime`` imported."""
    return {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize(
    "program",
    [("-m", "mm_metrics_command"), (ROOT / "tools/detection_report.py",), (ROOT / "tools/classification_report.py",)],
    ids=["module", "detection", "classification"],
)
def test_the_help_of_the_command_imports_nothing_heavy(tmp_path, program):
    done = run_python("-X", "importtime", *program, "--help", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("usage: mm-metrics")
    modules = imported(done)
    assert "mm_metrics_plugin.cli.arguments" in modules
    assert not modules & set(HEAVY)


def test_metrics_are_attributes_of_the_package_inside_the_command(tmp_path):
    code = """
import sys
from mm_metrics_command import load
load('mm_metrics_plugin.cli')
import mm_metrics_plugin
print('torch' in sys.modules, mm_metrics_plugin.DetectionPRF)
"""
    done = run_python("-c", code, cwd=tmp_path)
    assert done.stdout.startswith("False <class"), done.stderr


CONFIG = """
custom_imports = dict(imports=['mm_metrics_plugin', 'user_dataset'], allow_failed_imports=False)
default_scope = 'mmdet'
test_dataloader = dict(
    dataset=dict(type='UserDataset', ann_file='truth.json', data_prefix=dict(img=''), test_mode=True,
                 metainfo=dict(classes={classes!r}), pipeline=[]))
"""
DATASET = """
from mmdet.datasets import CocoDataset
from mmdet.registry import DATASETS
from mmengine.registry import METRICS


@DATASETS.register_module()
class UserDataset(CocoDataset):
    metric = METRICS.build(dict(type='DetectionPRF'))
"""


def test_a_dataset_built_by_the_command_finds_the_metrics(tmp_path):
    pair(tmp_path)
    (tmp_path / "config.py").write_text(CONFIG.format(classes=CLASSES))
    (tmp_path / "user_dataset.py").write_text(DATASET)
    done = command("detection", "config.py", "results.pkl", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert "Most frequent confusions" in succeeded(done)


def test_a_broken_torch_raises_with_the_command_that_checks_it(tmp_path):
    (tmp_path / "torch.py").write_text("raise OSError('libtorch.so: undefined symbol')\n")
    env = {"PYTHONPATH": str(tmp_path)}
    done = command(cwd=tmp_path, script=("-c", "import mm_metrics_plugin"), env=env)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ImportError: mm_metrics_plugin cannot register its metrics")
    assert "OSError: libtorch.so: undefined symbol" in last and last.endswith("python -m mm_metrics_command.check")
    check = command(cwd=tmp_path, script=("-m", "mm_metrics_command.check"), env=env)
    assert check.returncode == 1 and "Traceback" not in check.stdout + check.stderr
    assert "metrics in mmengine: OSError: libtorch.so: undefined symbol" in check.stdout
