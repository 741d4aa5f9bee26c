"""DetectionPRF on rotated boxes in mmrotate's training and test tools, and in the command."""

from __future__ import annotations

import json

import numpy as np
import pytest

from demo.rectangles import write_rectangles
from tests.helpers.stock import ROOT, run, run_on_two_processes, scalars, tool

pytest.importorskip("mmrotate", reason="mmrotate is installed with the forks only")

# mmrotate's metric by COCO's rule beside those of the config; it needs the instances as the dataset has them.
CONFIG = f"""
_base_ = [{str(ROOT / "configs" / "mmrotate_prf.py")!r}]
test_pipeline = _base_.test_pipeline
test_pipeline[-1].meta_keys = (*test_pipeline[-1].meta_keys, "instances")
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = [*_base_.val_evaluator, dict(type="RotatedCocoMetric", metric="bbox")]
test_evaluator = val_evaluator
"""


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """The config, the options and the folder of a training run."""
    work_dir = tmp_path_factory.mktemp("rotated")
    write_rectangles(work_dir / "data", val=25)
    config = work_dir / "config.py"
    config.write_text(CONFIG)
    options = [f"{part}_dataloader.dataset.data_root={work_dir}/data/" for part in ("train", "val", "test")]
    run(tool("mmrotate", "train.py"), config, "--work-dir", work_dir / "run", "--cfg-options", *options, cwd=work_dir)
    return config, options, work_dir


def test_map_equals_rotated_coco_metric_at_every_validation(training):
    rows = scalars(training[2] / "run", "det-rbox/f1")
    assert len(rows) == 2
    for row in rows:
        for key in ("mAP", "mAP_50", "mAP_75"):
            assert row[f"det-rbox/{key}"] == pytest.approx(row[f"r_coco/bbox_{key}"], abs=0.001)
    assert rows[-1]["det-rbox/mAP"] > 0.01 and rows[-1]["det-rbox/tp"] > 0


def test_two_processes_and_the_command_give_the_values_of_the_log(training):
    """25 images are not divisible by two, so the sampler adds padding."""
    config, options, work_dir = training
    arguments = [config, work_dir / "run" / "epoch_8.pth", "--work-dir", work_dir / "two"]
    arguments += ["--out", work_dir / "results.pkl", "--cfg-options", *options]
    run_on_two_processes(tool("mmrotate", "test.py"), *arguments, cwd=work_dir)
    log = scalars(work_dir / "run", "det-rbox/f1")[-1]
    keys = [key for key in log if key.startswith("det-rbox/")]
    assert len(keys) > 20
    for rank in ("rank0", "rank1"):
        values = json.loads(next((work_dir / "two" / rank).glob("*/*.json")).read_text())
        np.testing.assert_equal([values[key] for key in keys], [log[key] for key in keys])
    printed = run(
        *("-m", "mm_metrics_command", "detection", work_dir / "data" / "val" / "labelTxt", work_dir / "results.pkl"),
        *("--iou-type", "rbox", "--classes", "plate,beam", "--score-thr", "0.1", "--format", "json"),
        cwd=work_dir,
    )
    report = json.loads(printed)
    assert report["average_precision"]["mAP"] == pytest.approx(log["det-rbox/mAP"], abs=1e-3)
