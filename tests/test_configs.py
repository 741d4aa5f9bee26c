"""Every config of the gallery says what it shows, loads, builds and, where no other test trains it, trains."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from demo.pictures import write_pictures
from demo.scenes import write_scenes
from demo.shapes import write_shapes
from tests.helpers.stock import ROOT, environment

CONFIGS = sorted((ROOT / "configs").glob("*.py"))
TRAINED = (
    "digits_early_stopping.py",
    "mmpretrain_multi_label.py",
    "mmpretrain_multi_task.py",
    "mmseg_overlap.py",
)


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    """What came of building or training each config, by its name."""
    folder = tmp_path_factory.mktemp("gallery")
    write_pictures(folder / "data" / "pictures")
    write_shapes(folder / "data" / "shapes")
    write_scenes(folder / "data" / "scenes", train=32, val=13)
    names = [f"+{path.name}" if path.name in TRAINED else path.name for path in CONFIGS]
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
    return {found["config"]: found for found in map(json.loads, lines)}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_header_describes_the_config_and_its_command(path):
    header = re.match(r"(# .+\n|#\n)+", path.read_text(encoding="utf-8")).group()
    assert len(header.split()) > 10
    assert f"configs/{path.name}" in header or "tools/demo.py" in header
    for script in re.findall(r"python ((?:demo|tools)/\w+\.py)", header):
        assert (ROOT / script).exists()
    for module in re.findall(r"python -m (demo\.\w+)", header):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_it_builds(gallery, path):
    found = gallery[path.name]
    assert found["ours"] and found["train"] > found["val"] > 0 and found["parameters"] > 1000


def test_the_gallery_runs_every_config(gallery):
    shown = {name for found in gallery.values() for name in found["ours"] + found["hooks"]}
    assert {"SingleLabelAUC", "MultiLabelAUC", "DetectionPRF", "MeanIoU", "DiceScore", "EarlyStoppingHook"} <= shown


def test_training_stops_early_and_keeps_the_best_by_each_key(gallery):
    found = gallery["digits_early_stopping.py"]
    assert 4 <= found["epochs"] < 60
    assert [name.rsplit("_epoch", 1)[0] for name in found["kept"]] == [
        f"best_{key}" for key in ("single-label-prf_f1", "single-label_auc", "single-label_nll")
    ]
    assert found["scalars"]["single-label-prf/f1"] > 0.9


def test_multi_label_agrees_with_mmpretrain(gallery):
    scalars = gallery["mmpretrain_multi_label.py"]["scalars"]
    assert scalars["average-precision/auc"] == pytest.approx(scalars["multi-label/mAP"] / 100, abs=1e-6)
    assert scalars["multi-label/auc"] == pytest.approx(
        sum(scalars[f"multi-label/auc/{name}"] for name in ("disc", "frame", "triangle")) / 3
    )


def test_tasks_have_keys_of_their_own(gallery):
    found = gallery["mmpretrain_multi_task.py"]
    assert 0 < found["scalars"]["largest_single-label/auc"] < 1
    assert 0 <= found["scalars"]["count_single-label-prf/f1"] < 1
    assert found["kept"][0].startswith("best_largest_single-label_auc")


def test_overlap_agrees_with_mmseg(gallery):
    scalars = gallery["mmseg_overlap.py"]["scalars"]
    for key in ("mIoU", "aAcc", "mAcc", "mDice"):
        assert round(100 * scalars[f"overlap/{key}"], 2) == pytest.approx(scalars[key], abs=0.0051)
    # More than the background has been learned, so that there is something to agree about.
    assert sum(value > 0.1 for key, value in scalars.items() if key.startswith("overlap/IoU/")) > 1
