"""Every config of the gallery has a header, builds and, unless another test trains it, trains."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from demo.pictures import write_pictures
from demo.rectangles import write_rectangles
from demo.scenes import write_scenes
from demo.shapes import write_shapes
from demo.skeletons import write_skeletons
from tests.helpers.stock import ROOT, environment

CONFIGS = sorted((ROOT / "configs").glob("*.py"))
# tests/integration/test_mmrotate.py trains the others where mmrotate is installed.
BUILT = [path for path in CONFIGS if not path.name.startswith("mmrotate") or find_spec("mmrotate")]
TRAINED = (
    "digits_early_stopping.py",
    "mmpretrain_multi_label.py",
    "mmpretrain_multi_task.py",
    "mmseg_overlap.py",
)


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    """The result of building or training each config, by its name."""
    folder = tmp_path_factory.mktemp("gallery")
    write_pictures(folder / "data" / "pictures")
    write_shapes(folder / "data" / "shapes")
    write_skeletons(folder / "data" / "skeletons")
    write_rectangles(folder / "data" / "rectangles")
    write_scenes(folder / "data" / "scenes", train=32, val=13)
    names = [f"+{path.name}" if path.name in TRAINED else path.name for path in BUILT]
    variables = {**environment(), "PYTHONPATH": str(ROOT)}  # the configs of digits import demo.digits
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.run_gallery", *names],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line[len("gallery: ") :] for line in done.stdout.splitlines() if line.startswith("gallery: ")]
    return {result["config"]: result for result in map(json.loads, lines)}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_header_describes_the_config_and_its_command(path):
    header = re.match(r"(# .+\n|#\n)+", path.read_text(encoding="utf-8")).group()
    assert len(header.split()) > 10
    assert f"configs/{path.name}" in header
    for script in re.findall(r"python ((?:demo|tools)/\w+\.py)", header):
        assert (ROOT / script).exists()
    for module in re.findall(r"python -m (demo\.\w+)", header):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()


def test_every_config_builds(gallery):
    assert sorted(gallery) == [path.name for path in BUILT]
    for name, result in gallery.items():
        assert result["ours"] and result["train"] > result["val"] > 0 and result["parameters"] > 1000, name
    used = {name for result in gallery.values() for name in result["ours"] + result["hooks"]}
    metrics = {"SingleLabelAUC", "MultiLabelAUC", "DetectionPRF", "PCK", "MeanIoU", "DiceScore"}
    assert {*metrics, "EarlyStoppingHook"} <= used


def test_training_stops_early_and_keeps_the_best_by_each_key(gallery):
    result = gallery["digits_early_stopping.py"]
    assert 4 <= result["epochs"] < 60
    assert [name.rsplit("_epoch", 1)[0] for name in result["kept"]] == [
        f"best_{key}" for key in ("single-label-prf_f1", "single-label_auc", "single-label_nll")
    ]
    assert result["scalars"]["single-label-prf/f1"] > 0.9


def test_multi_label_agrees_with_mmpretrain(gallery):
    scalars = gallery["mmpretrain_multi_label.py"]["scalars"]
    assert scalars["average-precision/auc"] == pytest.approx(scalars["multi-label/mAP"] / 100, abs=1e-6)
    assert scalars["multi-label/auc"] == pytest.approx(
        sum(scalars[f"multi-label/auc/{name}"] for name in ("disc", "frame", "triangle")) / 3
    )


def test_keys_have_the_name_of_the_task(gallery):
    result = gallery["mmpretrain_multi_task.py"]
    assert 0 < result["scalars"]["largest_single-label/auc"] < 1
    assert 0 <= result["scalars"]["count_single-label-prf/f1"] < 1
    assert result["kept"][0].startswith("best_largest_single-label_auc")


def test_overlap_agrees_with_mmseg(gallery):
    scalars = gallery["mmseg_overlap.py"]["scalars"]
    for key in ("mIoU", "aAcc", "mAcc", "mDice"):
        assert round(100 * scalars[f"overlap/{key}"], 2) == pytest.approx(scalars[key], abs=0.0051)
    # The model has learned more than the background, so the values are not trivial.
    assert sum(value > 0.1 for key, value in scalars.items() if key.startswith("overlap/IoU/")) > 1
