"""The scripts from another folder, and everything from an installed wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.helpers import result_files as files
from tests.helpers.result_files import ROOT, command, pair, succeeded

pytestmark = pytest.mark.usefixtures("shown_warnings")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("elsewhere")
    pair(place)
    files.write_pickle(place / "classes.pkl", files.samples())
    return place


DETECTION = ("truth.json", "results.pkl", "--format", "csv")
CLASSIFICATION = ("classes.pkl", "--format", "csv")


@pytest.fixture(scope="module")
def expected(folder):
    return (
        succeeded(command("detection", *DETECTION, cwd=folder)),
        succeeded(command("classification", *CLASSIFICATION, cwd=folder)),
    )


def test_the_scripts_work_from_another_folder(folder, expected):
    tools = ROOT / "tools"
    found = (
        succeeded(command(*DETECTION, cwd=folder, script=(tools / "detection_report.py",))),
        succeeded(command(*CLASSIFICATION, cwd=folder, script=(tools / "classification_report.py",))),
    )
    assert found == expected and expected[0].startswith("protocol,name,ground_truths")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with nothing of this package but what its wheel holds."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    source.mkdir()
    for name in (
        "setup.py",
        "pyproject.toml",
        "README.md",
        "model-index.yml",
        "mm_metrics_command",
        "mm_metrics_plugin",
        "requirements",
        "tools",
        "configs",
        "demo",
    ):
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    for line in (
        ["wheel", "--no-deps", "--no-build-isolation", "-w", str(place / "dist"), str(source)],
        ["install", "--no-deps", "--no-index", "--target", str(place / "site"), "--find-links", str(place / "dist")],
    ):
        tail = ["mm_metrics_plugin"] if line[0] == "install" else []
        done = subprocess.run([*pip, *line, *tail], capture_output=True, text=True, cwd=place)
        assert done.returncode == 0, done.stderr
    return place


def test_the_wheel_holds_the_command(installed, folder, expected):
    env = {"PYTHONPATH": str(installed / "site")}
    where = succeeded(command(cwd=folder, env=env, script=("-c", "import mm_metrics_plugin as m; print(m.__file__)")))
    assert where.startswith(str(installed))
    tools = installed / "source" / "tools"
    found = (
        succeeded(command("detection", *DETECTION, cwd=folder, env=env)),
        succeeded(command("classification", *CLASSIFICATION, cwd=folder, env=env)),
    )
    assert found == expected
    script = succeeded(command(*DETECTION, cwd=folder, env=env, script=(tools / "detection_report.py",)))
    assert script == expected[0]
    entry = installed / "site" / "bin" / "mm-metrics"
    assert succeeded(command("detection", *DETECTION, cwd=folder, env=env, script=(entry,))) == expected[0]
    drawn = command("detection", "truth.json", "results.pkl", "out", "--quiet", "--html", cwd=folder, env=env)
    assert succeeded(drawn) == "" and (folder / "out" / "confusion_matrix.png").exists()
    assert "</html>" in (folder / "out" / "report.html").read_text(encoding="utf-8")  # the templates are in the wheel
