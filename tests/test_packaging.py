"""What installing this package asks of somebody's environment, and what its wheel gives."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import distribution

import pytest

import mm_metrics_plugin
from tests.helpers.result_files import ROOT, command, succeeded


def test_a_plain_install_touches_nobodys_torch_or_mmlab():
    lines = [line for line in distribution("mm_metrics_plugin").requires if "extra" not in line]
    plain = {re.match(r"[\w.-]+", line).group().lower() for line in lines}
    assert plain == {"mmengine", "numpy", "scipy", "matplotlib", "rich"}


def test_ranges_are_wide():
    for line in distribution("mm_metrics_plugin").requires:
        if "extra" not in line:
            assert re.fullmatch(r"[\w-]+>=[\d.]+", line.replace(" ", "")), line


def declared(*names):
    """The distributions that requirement files name."""
    lines = [line for name in names for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()]
    return {re.match(r"[\w.-]+", line).group().lower() for line in lines if line and not line.startswith("#")}


def imported_distributions(*paths):
    """The distributions whose modules Python files import anywhere, by the name of the distribution."""
    of_module = {"PIL": "pillow", "mmseg": "mmsegmentation", "sklearn": "scikit-learn"}
    found = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            found |= {name.split(".")[0] for name in names}
    found -= {*sys.stdlib_module_names, "mm_metrics_plugin", "demo"}
    return {of_module.get(name, name) for name in found}


def test_every_declared_dependency_is_imported_and_every_import_declared():
    extras = declared("mmdet", "mmpretrain", "mmseg")
    # torch is the user's own: mmengine needs it without declaring it, and neither do we.
    found = imported_distributions(*(ROOT / "mm_metrics_plugin").rglob("*.py"))
    # pandas is for to_dataframe() only, which says how to install it.
    needed = declared("runtime", "report")
    assert needed <= found <= needed | extras | {"torch", "pandas"}


def test_the_demonstration_and_the_tests_declare_what_they_import():
    demonstration = imported_distributions(*(ROOT / name for name in ("demo/digits.py", "tools/demo.py")))
    assert {"scikit-learn", "torch"} <= demonstration <= declared("demo", "runtime", "report")
    peers = imported_distributions(*(ROOT / "tests" / "functional").rglob("*.py"))
    assert "scikit-learn" in peers & declared("tests")


def test_the_version_stands_in_one_place():
    assert distribution("mm_metrics_plugin").version == mm_metrics_plugin.__version__


def test_every_version_of_python_in_the_classifiers_is_tested():
    classifiers = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert classifiers and set(classifiers) <= set(re.findall(r'"(3\.\d+)"', (ROOT / "noxfile.py").read_text()))


def test_the_command_is_installed():
    (entry,) = [e for e in distribution("mm_metrics_plugin").entry_points if e.name == "mm-metrics"]
    assert entry.value == "mm_metrics_command:main"


# --- the files that would be published --------------------------------------------------------------------------------

PARTS = ("mm_metrics_command", "mm_metrics_plugin", "requirements", "tools", "configs", "demo", "docs")
FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "Makefile", "model-index.yml")


def run(*arguments, cwd):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = [str(word) for word in arguments]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the sdist and the wheel that was built from it."""
    source = tmp_path_factory.mktemp("source")
    for name in PARTS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*(ROOT / name for name in FILES), *ROOT.glob("*.md")):
        shutil.copy(path, source)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", source / "dist", source, cwd=source)
    return source / "dist"


def test_both_pass_twine(built):
    packages = sorted(built.iterdir())
    assert [path.name for path in packages] == [
        f"mm_metrics_plugin-{mm_metrics_plugin.__version__}-py3-none-any.whl",
        f"mm_metrics_plugin-{mm_metrics_plugin.__version__}.tar.gz",
    ]
    run(sys.executable, "-m", "twine", "check", "--strict", *packages, cwd=built)


def test_the_description_leads_nowhere_it_cannot(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("dist-info/METADATA")]
        text = archive.read(name).decode()
    assert "SingleLabelAUC" in text
    assert not re.search(r"\]\((?!https?://)", text)


def test_the_wheel_holds_what_the_sources_do(built):
    (wheel,) = built.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    package = [
        path
        for name in ("mm_metrics_command", "mm_metrics_plugin")
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert not {path.relative_to(ROOT).as_posix() for path in package} - held
    for folder in ("tools", "configs", "demo"):
        paths = [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert not {f"mm_metrics_plugin/.mim/{path.relative_to(ROOT).as_posix()}" for path in paths} - held
    assert not [name for name in held if "__pycache__" in name or name.startswith("tests/")]
    (sources,) = built.glob("*.tar.gz")
    with tarfile.open(sources) as archive:
        assert {"README_zh-CN.md", "CHANGELOG.md", "LICENSE"} <= {name.split("/")[-1] for name in archive.getnames()}


def needed(names):
    """Installed distributions that are needed, with what these need in turn."""
    found = {}
    waiting = list(names)
    while waiting:
        name = re.match(r"[\w.-]+", waiting.pop()).group().lower().replace("_", "-")
        if name not in found:
            found[name] = distribution(name)
            waiting += [line for line in found[name].requires or () if ";" not in line]
    return found


@pytest.fixture(scope="module")
def clean(built, tmp_path_factory):
    """An environment with the wheel and what reports need; neither torch nor mmengine is in it.

    What is needed is linked from here instead of fetched again.
    """
    place = tmp_path_factory.mktemp("clean")
    venv.create(place, with_pip=False, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    plain = [line for line in distribution("mm_metrics_plugin").requires if "extra" not in line]
    reports = (ROOT / "requirements" / "report.txt").read_text().split()
    for one in needed([line for line in plain if "mmengine" not in line] + reports).values():
        for top in {path.parts[0] for path in one.files if path.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(one.locate_file(top))
    (wheel,) = built.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", place / "bin" / "python")
    run(*pip, "install", "--no-deps", "--no-index", wheel, cwd=place)
    return place


def test_the_wheel_alone_gives_the_whole_command(clean, tmp_path):
    (demo,) = clean.glob("lib/python*/site-packages/mm_metrics_plugin/.mim/demo")
    inputs = (demo / "detections" / "annotations.json", demo / "detections" / "results.pkl")
    run(clean / "bin" / "mm-metrics", "detection", *inputs, "report", "--html", "--quiet", cwd=tmp_path)
    assert {"report.json", "report.html", "confusion_matrix.png"} <= {path.name for path in tmp_path.glob("report/*")}
    run(clean / "bin" / "mm-metrics", "compare", *inputs, demo / "comparison" / "larger.json", cwd=tmp_path)
    here = succeeded(command("detection", *inputs, "--format", "json", cwd=tmp_path))
    there = run(clean / "bin" / "mm-metrics", "detection", *inputs, "--format", "json", cwd=tmp_path)
    assert re.sub(r'"versions": \{[^}]*\}', "", there) == re.sub(r'"versions": \{[^}]*\}', "", here)


def test_mim_finds_the_tools(clean, tmp_path):
    (mim,) = clean.glob("lib/python*/site-packages/mm_metrics_plugin/.mim")  # where `mim run` looks
    inputs = (mim / "demo" / "detections" / "annotations.json", mim / "demo" / "detections" / "results.pkl")
    printed = run(clean / "bin" / "python", mim / "tools" / "detection_report.py", *inputs, cwd=tmp_path)
    assert printed.startswith("300 images")


def test_mim_lists_the_package(clean):
    # `mim list` looks for the index in the first package of top_level.txt, `mim search` in the package of that name.
    (site,) = clean.glob("lib/python*/site-packages")
    (names,) = site.glob("mm_metrics_plugin-*.dist-info/top_level.txt")
    for package in (names.read_text().split()[0], "mm_metrics_plugin"):
        assert (site / package / ".mim" / "model-index.yml").read_bytes() == (ROOT / "model-index.yml").read_bytes()


def test_torch_is_really_not_there(clean, tmp_path):
    code = "import importlib.util as u; print([n for n in ('torch', 'mmengine', 'mmdet') if u.find_spec(n)])"
    assert run(clean / "bin" / "python", "-c", code, cwd=tmp_path) == "[]\n"
