"""Checks in several versions of Python: ``nox --list`` shows them; a session without its Python is skipped."""

import re
import shutil
import sys
from pathlib import Path

import nox

nox.options.sessions = ["without_stack"]
nox.options.default_venv_backend = "venv"  # virtualenv no longer supports Python 3.8

HERE = [sys.executable, "-m"]
PYTHONS = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]
# The Python, and the packages that write the files of tests/golden with it.
WRITERS = [
    ("3.8", "torch==1.13.1", "numpy==1.20.3"),
    ("3.11", "torch==2.1.2", "numpy==1.26.4"),
    ("3.11", "torch==2.13.0", "numpy==2.4.6"),
    ("3.8", "numpy==1.20.3"),
    ("3.11", "numpy==1.26.4"),
    ("3.11", "numpy==2.0.2"),
    ("3.13", "numpy==2.5.4"),
]
LAYERS = ("functional", "states", "io", "evaluation", "render")
# pycocotools and scikit-learn need no torch, and most of detection and classification is compared with them.
TOOLS = ["pytest", "hypothesis", "markdown-it-py", "pandas", "pycocotools", "scikit-learn"]


def requirements(*names):
    """The requirements of some files, one line each."""
    lines = [line for name in names for line in Path("requirements", f"{name}.txt").read_text("utf-8").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


@nox.session(python=False)
def docs(session):
    """Build the site in both languages, warnings as errors."""
    session.run(*HERE, "docs.build", "build/site")


@nox.session(python=PYTHONS)
def without_stack(session):
    """Run tests and examples that need no torch: on Python 3.8 with the oldest packages, else with the newest."""
    needed = requirements("runtime", "report")
    if session.python == "3.8":
        pinned = [line.replace(">=", "==") for line in needed]
        session.install("--prefer-binary", *pinned, *TOOLS[:-1], "scikit-learn==1.0")
    else:
        session.install("--upgrade", *(re.split("[>=]", line)[0] for line in needed), *TOOLS)
    session.install("--no-deps", "--editable", ".")
    folders = [f"{root}/{layer}" for root in ("tests", "mm_metrics_plugin") for layer in LAYERS] + ["tests/parity"]
    # Not pyproject.toml: its filter for warnings imports the package with torch.
    config = Path(session.create_tmp(), "pytest.ini")
    config.write_text("[pytest]\ndoctest_optionflags = NORMALIZE_WHITESPACE ELLIPSIS\n", encoding="utf-8")
    options = ["-c", str(config), "--rootdir", ".", "-q", "-p", "no:cacheprovider", "-p", "tests.without_stack"]
    options += ["-m", "not slow", "--doctest-modules"]
    # Tests read and write text in the default encoding; the package names its encodings, which ruff checks.
    session.run("python", "-m", "pytest", *options, *folders, *session.posargs, env={"PYTHONUTF8": "1"})


@nox.session(python=PYTHONS)
def wheel(session):
    """Install the wheel (of the folder given after ``--``) into a clean environment and run the README's examples."""
    folder = Path(*session.posargs or [session.create_tmp(), "dist"])
    if not session.posargs:
        for stale in (folder, Path("build", "lib")):
            shutil.rmtree(stale, ignore_errors=True)
        session.run("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), ".")
    (built,) = folder.glob("*.whl")
    session.install("--prefer-binary", f"{built}[report]")
    session.run("python", "-m", "tests.readme_examples")


@nox.session(python=["3.8", "3.11", "3.13"])
def golden(session):
    """Write the pickles of tests/golden again, which other releases of torch and NumPy wrote."""
    for python, *packages in WRITERS:
        if python == session.python:
            session.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", "torch", "numpy")
            session.install(*packages)
            session.run("python", "tests/data/write.py")
