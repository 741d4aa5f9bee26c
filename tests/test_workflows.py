"""The files of GitHub are valid, and every job of the workflows runs one target that exists."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml

from tests.helpers.result_files import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCHEMAS = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "custom.github-workflows-require-timeout": ".github/workflows/*.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/*_re*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.dependabot": ".github/dependabot.yml",
    "vendor.readthedocs": ".readthedocs.yaml",
    "vendor.citation-file-format": "CITATION.cff",
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_are_valid(schema):
    paths = [str(path) for path in ROOT.glob(SCHEMAS[schema])]
    assert paths
    check = [sys.executable, "-m", "check_jsonschema", "--default-filetype", "yaml", "--builtin-schema", schema]
    done = subprocess.run([*check, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


JOBS = [
    pytest.param(job, id=f"{path.stem}-{name}")
    for path in WORKFLOWS
    for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items()
]


@pytest.mark.parametrize("job", JOBS)
def test_a_job_runs_one_target(job):
    commands = [step["run"] for step in job["steps"] if "run" in step]
    if not commands:  # the job that publishes
        assert job["permissions"] == {"id-token": "write"}
        return
    (command,) = commands
    make = re.fullmatch(r"make ([a-z-]+)", command)
    nox = re.fullmatch(r"pipx run nox --session ([a-z_]+)-\$\{\{ matrix\.python \}\}( -- dist)?", command)
    assert make or nox, command
    if make:
        assert re.search(rf"^{make.group(1)}:.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE), command
    else:
        text, matrix = (ROOT / "noxfile.py").read_text(), job["strategy"]["matrix"]
        assert re.search(rf"^@nox.session\(python=PYTHONS\)\ndef {nox.group(1)}\(", text, re.MULTILINE), command
        pythons = [*matrix["python"], *(entry["python"] for entry in matrix.get("include", ()))]
        assert set(pythons) <= set(known_pythons())


def known_pythons():
    return re.findall(r"3\.\d+", re.search(r"^PYTHONS = .*", (ROOT / "noxfile.py").read_text(), re.MULTILINE).group())


def test_every_python_is_tested_on_every_system():
    job = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["without-stack"]
    matrix = job["strategy"]["matrix"]
    runs = {(system, python) for system in matrix["os"] for python in matrix["python"]}
    runs -= {(entry["os"], entry["python"]) for entry in matrix["exclude"]}
    runs |= {(entry["os"], entry["python"]) for entry in matrix["include"]}
    tested = {(system.split("-")[0], python) for system, python in runs}
    assert tested == {(system, python) for system in ("ubuntu", "macos", "windows") for python in known_pythons()}
