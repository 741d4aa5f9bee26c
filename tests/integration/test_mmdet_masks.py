"""DetectionPRF on the masks of a Mask R-CNN, in mmdet's training and test tools and in the command."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.helpers.stock import ROOT, run, run_on_two_processes, scalars, tool
from tests.integration.test_mmdet import options_for

CONFIG = ROOT / "configs" / "mmdet_mask_rcnn.py"


@pytest.fixture(scope="module")
def training(shapes, tmp_path_factory):
    """The options and the folder of a training run."""
    work_dir, options = tmp_path_factory.mktemp("masks"), options_for(shapes)
    run(tool("mmdet", "train.py"), CONFIG, "--work-dir", work_dir, "--cfg-options", *options, cwd=work_dir)
    return options, work_dir


def test_map_of_boxes_and_masks_equals_coco_metric_at_every_validation(training):
    rows = scalars(training[1], "det-segm/f1")
    assert len(rows) == 2
    for row in rows:
        for prefix, theirs in (("det", "bbox"), ("det-segm", "segm")):
            for key in ("mAP", "mAP_50", "mAP_75"):
                assert round(row[f"{prefix}/{key}"], 3) == row[f"coco/{theirs}_{key}"]
    assert rows[-1]["det-segm/mAP"] > 0.01 and rows[-1]["det-segm/tp"] > 0
    assert rows[-1]["det-segm/mAP"] != rows[-1]["det/mAP"]


def test_two_processes_and_the_command_give_the_values_of_the_log(training):
    """25 images are not divisible by two, so the sampler adds padding."""
    options, work_dir = training
    arguments = [CONFIG, work_dir / "epoch_8.pth", "--work-dir", work_dir / "two", "--out", work_dir / "results.pkl"]
    run_on_two_processes(tool("mmdet", "test.py"), *arguments, "--cfg-options", *options, cwd=work_dir)
    log = scalars(work_dir, "det-segm/f1")[-1]
    keys = [key for key in log if key.startswith("det")]
    assert len(keys) > 40
    for rank in ("rank0", "rank1"):
        values = json.loads(next((work_dir / "two" / rank).glob("*/*.json")).read_text())
        np.testing.assert_equal([values[key] for key in keys], [log[key] for key in keys])
    printed = run(
        *("-m", "mm_metrics_command", "detection", CONFIG, work_dir / "results.pkl", "--iou-type", "segm"),
        *("--score-thr", "0.1", "--format", "json", "--cfg-options", *options),
        cwd=work_dir,
    )
    report = json.loads(printed)
    assert report["average_precision"]["mAP"] == log["det-segm/mAP"]
    per_class = report["matching_rules"]["coco"]["per_class"]
    assert sum(row["tp"] for row in per_class) == log["det-segm/tp"]
