"""DetectionPRF on key points and PCK in mmpose's training and test tools."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.helpers.stock import ROOT, run, run_on_two_processes, scalars, tool

pytest.importorskip("mmpose", reason="mmpose has no fork")

# mmpose's PCK beside those of the config.
CONFIG = f"""
_base_ = [{str(ROOT / "configs" / "mmpose_keypoints.py")!r}]
val_evaluator = [*_base_.val_evaluator, dict(type="PCKAccuracy", thr=0.1, prefix="stock")]
test_evaluator = val_evaluator
"""


@pytest.fixture(scope="module")
def training(skeletons, tmp_path_factory):
    """The config, the options and the folder of a training run."""
    work_dir = tmp_path_factory.mktemp("poses")
    config = work_dir / "config.py"
    config.write_text(CONFIG)
    options = [f"{part}_dataloader.dataset.data_root={skeletons}/" for part in ("train", "val", "test")]
    options += [
        f"{part}_evaluator.{index}.ann_file={skeletons}/val.json" for part in ("val", "test") for index in (0, 1)
    ]
    run(tool("mmpose", "train.py"), config, "--work-dir", work_dir / "run", "--cfg-options", *options, cwd=work_dir)
    return config, options, work_dir


def test_ap_and_pck_equal_mmpose_at_every_validation(training):
    rows = scalars(training[2] / "run", "det-keypoints/f1")
    assert len(rows) == 2
    for row in rows:
        for ours, theirs in (("mAP", "AP"), ("mAP_50", "AP .5"), ("mAP_75", "AP .75")):
            assert row[f"det-keypoints/{ours}"] == pytest.approx(row[f"coco/{theirs}"], abs=1e-10)
        assert row["keypoints/PCK"] == pytest.approx(row["stock/PCK"], abs=1e-6)
    assert 0.2 < rows[-1]["det-keypoints/mAP"] < 1 and 0.2 < rows[-1]["keypoints/PCK"] < 1
    assert "keypoints/PCK/left_hand" in rows[-1]


def test_two_processes_give_the_values_of_the_log(training):
    config, options, work_dir = training
    arguments = [config, work_dir / "run" / "epoch_12.pth", "--work-dir", work_dir / "two", "--cfg-options", *options]
    run_on_two_processes(tool("mmpose", "test.py"), *arguments, cwd=work_dir)
    log = scalars(work_dir / "run", "det-keypoints/f1")[-1]
    keys = [key for key in log if key.startswith(("det-keypoints/", "keypoints/"))]
    assert len(keys) > 15
    for rank in ("rank0", "rank1"):
        values = json.loads(next((work_dir / "two" / rank).glob("*/*.json")).read_text())
        np.testing.assert_equal([values[key] for key in keys], [log[key] for key in keys])
