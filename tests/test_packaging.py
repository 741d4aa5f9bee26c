"""Requirements of the package, and the content of its sdist and wheel."""

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


def name_of(requirement):
    return re.match(r"[\w.-]+", requirement).group().lower().replace("_", "-")


def test_requirements_are_few_and_have_lower_bounds_only():
    lines = [line.replace(" ", "") for line in distribution("mm_metrics_plugin").requires if "extra" not in line]
    assert {name_of(line) for line in lines} == {"numpy", "scipy", "rich"}
    assert all(re.fullmatch(r"[\w-]+>=[\d.]+", line) for line in lines)


def declared(*names):
    """The distributions that requirement files name."""
    lines = [line for name in names for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()]
    return {name_of(line) for line in lines if line and not line.startswith("#")}


def imported(*paths):
    """The distributions whose modules Python files import."""
    distributions = {"PIL": "pillow", "mmseg": "mmsegmentation", "sklearn": "scikit-learn"}
    modules = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules.add(node.module.split(".")[0])
    modules -= {*sys.stdlib_module_names, "mm_metrics_plugin", "demo"}
    return {distributions.get(name, name) for name in modules}


def test_every_import_is_declared_and_every_declared_dependency_imported():
    # Users install torch, which mmengine needs without declaring it, and pandas for to_dataframe().
    package, needed = imported(*(ROOT / "mm_metrics_plugin").rglob("*.py")), declared("runtime", "report", "masks")
    assert needed <= package <= needed | declared("mmengine", "mmdet", "mmpretrain", "mmseg") | {"torch", "pandas"}
    demo = imported(ROOT / "demo" / "digits.py", ROOT / "tools" / "demo.py")
    assert {"scikit-learn", "torch"} <= demo <= declared("demo", "mmengine", "runtime", "report")


def test_versions():
    assert distribution("mm_metrics_plugin").version == mm_metrics_plugin.__version__
    classifiers = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert classifiers and set(classifiers) <= set(re.findall(r'"(3\.\d+)"', (ROOT / "noxfile.py").read_text()))


# --- sdist and wheel --------------------------------------------------------------------------------------------------

PARTS = ("mm_metrics_command", "mm_metrics_plugin", "requirements", "tools", "configs", "demo", "docs")
FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "Makefile", "model-index.yml")


def run(*arguments, cwd):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([*map(str, arguments)], cwd=cwd, env=environment, capture_output=True, text=True)
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


def test_twine_accepts_the_packages(built):
    packages = sorted(built.iterdir())
    start = f"mm_metrics_plugin-{mm_metrics_plugin.__version__}"
    assert [path.name for path in packages] == [f"{start}-py3-none-any.whl", f"{start}.tar.gz"]
    run(sys.executable, "-m", "twine", "check", "--strict", *packages, cwd=built)


def files_of(*folders):
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return {path.relative_to(ROOT).as_posix() for path in paths if path.is_file() and "__pycache__" not in path.parts}


def test_content_of_the_packages(built):
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = [name for name in names if name.endswith("dist-info/METADATA")]
        description = archive.read(metadata).decode()
    assert files_of("mm_metrics_command", "mm_metrics_plugin") <= names
    mim = {f"mm_metrics_plugin/.mim/{name}" for name in files_of("tools", "configs", "demo")}
    # The demonstration needs the data of the repository; the other scripts make the data of the configs.
    left_out = {"demo.py", "make_detections.py", "annotations.json", "results.pkl", "larger.json"}
    assert {name.split("/")[-1] for name in mim - names} == left_out
    assert wheel.stat().st_size < 600_000
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests/")]
    assert "SingleLabelAUC" in description and not re.search(r"\]\((?!https?://)", description)  # no relative links
    with tarfile.open(sdist) as archive:
        assert {"README_zh-CN.md", "CHANGELOG.md", "LICENSE"} <= {name.split("/")[-1] for name in archive.getnames()}


def with_dependencies(requirements):
    """The installed distributions of requirements, and of their requirements."""
    distributions, waiting = {}, list(requirements)
    while waiting:
        name = name_of(waiting.pop())
        if name not in distributions:
            distributions[name] = distribution(name)
            waiting += [line for line in distributions[name].requires or () if ";" not in line]
    return distributions.values()


def environment(place, built, *requirements):
    """An environment with the wheel and links to its dependencies, which requirement files name."""
    venv.create(place, with_pip=False, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    for dependency in with_dependencies(declared(*requirements)):
        for top in {path.parts[0] for path in dependency.files if path.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(dependency.locate_file(top))
    (wheel,) = built.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", place / "bin" / "python")
    run(*pip, "install", "--no-deps", "--no-index", wheel, cwd=place)
    libraries = "torch", "mmengine", "mmdet", "matplotlib", "PIL", "jinja2", "plotly"
    code = f"import importlib.util as u; print(*(n for n in {libraries} if u.find_spec(n)))"
    return place, run(place / "bin" / "python", "-c", code, cwd=place).split()


@pytest.fixture(scope="module")
def clean(built, tmp_path_factory):
    """An environment with the wheel and what figures and pages need."""
    place, found = environment(tmp_path_factory.mktemp("clean"), built, "runtime", "report")
    assert found == ["matplotlib", "PIL", "jinja2", "plotly"]
    return place


INPUTS = ROOT / "demo" / "detections" / "annotations.json", ROOT / "demo" / "detections" / "results.pkl"
LARGER = ROOT / "demo" / "comparison" / "larger.json"
PLAIN = f"""
import warnings
import numpy as np
from mm_metrics_plugin import MetricWarning, compare_runs, evaluate_classification, evaluate_detection

truth, results = {[*map(str, INPUTS)]}
report = evaluate_detection(truth, results)
print(round(report.to_dict()["average_precision"]["mAP"], 4))
print(compare_runs(truth, [results, {str(LARGER)!r}], permutations=100).to_dict()["images"])
print(evaluate_classification((np.eye(3), np.arange(3))).accuracy)
try:
    report.figures()
except ImportError as error:
    print(error)
with warnings.catch_warnings(record=True) as caught:
    print(*(name for name in report.save("folder") if "csv" not in name))
(warning,) = caught
print(warning.category.__name__, warning.message)
"""
SAID = """\
0.391
300
1.0
figures() needs matplotlib: pip install matplotlib
report.json report.md
MetricWarning confusion_matrix.png, pr_curves.png, confidence_curves.png, froc_curves.png cannot be drawn \
(matplotlib is not installed: pip install matplotlib); the folder has pr_curves.png of an older report
"""


def test_a_plain_install_needs_neither_mmengine_nor_matplotlib(built, tmp_path):
    plain, found = environment(tmp_path / "plain", built, "runtime")
    assert found == []
    assert run(plain / "bin" / "mm-metrics", "detection", *INPUTS, cwd=tmp_path).startswith("300 images")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "pr_curves.png").touch()
    assert run(plain / "bin" / "python", "-c", PLAIN, cwd=tmp_path) == SAID


def test_the_wheel_alone_has_the_whole_command(clean, tmp_path):
    (mim,) = clean.glob("lib/python*/site-packages/mm_metrics_plugin/.mim")
    program = clean / "bin" / "mm-metrics"
    run(program, "detection", *INPUTS, "report", "--html", "--quiet", cwd=tmp_path)
    assert {"report.json", "report.html", "confusion_matrix.png"} <= {path.name for path in tmp_path.glob("report/*")}
    run(program, "compare", *INPUTS, LARGER, cwd=tmp_path)
    here = succeeded(command("detection", *INPUTS, "--format", "json", cwd=tmp_path))
    there = run(program, "detection", *INPUTS, "--format", "json", cwd=tmp_path)
    assert re.sub(r'"versions": \{[^}]*\}', "", there) == re.sub(r'"versions": \{[^}]*\}', "", here)
    # `mim run` looks here for tools.
    output = run(clean / "bin" / "python", mim / "tools" / "detection_report.py", *INPUTS, cwd=tmp_path)
    assert output.startswith("300 images")


def test_mim_lists_the_package(clean):
    # `mim list` looks for the index in the first package of top_level.txt, `mim search` in the package of that name.
    (site,) = clean.glob("lib/python*/site-packages")
    (names,) = site.glob("mm_metrics_plugin-*.dist-info/top_level.txt")
    for package in (names.read_text().split()[0], "mm_metrics_plugin"):
        assert (site / package / ".mim" / "model-index.yml").read_bytes() == (ROOT / "model-index.yml").read_bytes()
