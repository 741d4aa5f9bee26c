"""``make`` checks the Python version before it installs anything, and lints as the pre-commit hooks do."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
import yaml

from tests.helpers.result_files import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def make(tmp_path):
    """A function that runs ``make --dry-run`` with these versions of python3, python3.11 and .venv."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    shutil.copy(ROOT / "setup.py", tmp_path)

    def run(*words, **versions):
        places = {"python3": "bin/python3", "python3_11": "bin/python3.11", "venv": ".venv/bin/python"}
        for name, version in {"python3": None, "python3_11": None, **versions}.items():
            path = tmp_path / places[name]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\necho {version}\n" if version else "#!/bin/sh\nexit 127\n")
            path.chmod(0o755)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHON" and "MAKE" not in key}
        environment["PATH"] = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
        return subprocess.run(
            ["make", "--dry-run", *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    return run


@pytest.mark.parametrize(
    ("goal", "versions", "used"),
    [
        ("test", {"python3": "3.11"}, "python3"),
        ("test", {"python3": "3.13", "python3_11": "3.11"}, "python3.11"),
        ("demo", {"python3_11": "3.11"}, "python3.11"),
        ("demo", {"python3": "3.12"}, "python3"),
        ("demo", {"python3": "3.13"}, "python3"),
    ],
)
def test_supported_versions(goal, versions, used, make):
    done = make(goal, **versions)
    assert done.returncode == 0 and f" {used} -m venv .venv" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("goals", "versions", "message"),
    [
        (["test"], {"python3": "3.12"}, "make test needs Python 3.11, but python3 is 3.12:"),
        (["lint"], {"python3": "3.13"}, "make lint needs Python 3.11, but python3 is 3.13:"),
        (["demo"], {"python3": "3.10"}, "make demo needs Python 3.11 to 3.13, but python3 is 3.10:"),
        (["demo"], {}, "make demo needs Python 3.11 to 3.13, but python3 is not there:"),
        (["test"], {"python3": "3.11", "venv": "3.12"}, "make test needs Python 3.11, but .venv/bin/python is 3.12:"),
        (["test", "PYTHON=python3"], {"python3": "3.12", "python3_11": "3.11"}, "but python3 is 3.12"),
    ],
)
def test_other_versions_are_refused_with_one_sentence(goals, versions, message, make):
    done = make(*goals, **versions)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr and "PYTHON=" in done.stderr and done.stderr.count("\n") == 1


def test_help_needs_no_version(make):
    assert make("help").returncode == 0


def test_lint_runs_the_checks_of_the_pre_commit_hooks(make):
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook["entry"].replace(" --force-exclude", "") for repo in config["repos"] for hook in repo["hooks"]]
    done = make("lint", python3="3.11")  # not in a Git repository, so that no file names follow
    commands = [line.strip() for line in done.stdout.splitlines() if line.startswith(".venv/bin/python -m ")]
    assert [line.rstrip(" .") for line in commands if " -m pip " not in line] == hooks
