"""DetectionPRF on rotated boxes in mmrotate's training and test tools, and in the command."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch

from demo.rectangles import CLASSES, write_rectangles
from tests.helpers.stock import ROOT, run, run_on_two_processes, scalars, tool

pytest.importorskip("mmrotate", reason="mmrotate is installed with the forks only")

CONFIG = ROOT / "configs" / "mmrotate_prf.py"


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """The options and the folder of a training run."""
    work_dir = tmp_path_factory.mktemp("rotated")
    write_rectangles(work_dir / "data", val=25)
    options = [f"{part}_dataloader.dataset.data_root={work_dir}/data/" for part in ("train", "val", "test")]
    run(tool("mmrotate", "train.py"), CONFIG, "--work-dir", work_dir / "run", "--cfg-options", *options, cwd=work_dir)
    return options, work_dir


def map_of_mmrotate(results, label_folder):
    """The values of mmrotate's metric by COCO's rule. It refuses image ids of DOTA, which are texts."""
    from mmrotate.evaluation.metrics import RotatedCocoMetric

    metric = RotatedCocoMetric(metric="bbox")
    metric.dataset_meta = {"classes": CLASSES}
    for sample in results:
        rows = [line.split() for line in (label_folder / f"{sample['img_id']}.txt").read_text().splitlines()]
        corners = torch.tensor([[float(word) for word in row[:8]] for row in rows])
        labels = torch.tensor([CLASSES.index(row[8]) for row in rows])
        metric.process(
            {}, [{**sample, "img_id": int(sample["img_id"]), "gt_instances": {"bboxes": corners, "labels": labels}}]
        )
    return metric.evaluate(len(results))


def test_two_processes_the_command_and_rotated_coco_metric_give_the_values_of_the_log(training):
    """25 images are not divisible by two, so the sampler adds padding."""
    options, work_dir = training
    arguments = [CONFIG, work_dir / "run" / "epoch_8.pth", "--work-dir", work_dir / "two"]
    arguments += ["--out", work_dir / "results.pkl", "--cfg-options", *options]
    run_on_two_processes(tool("mmrotate", "test.py"), *arguments, cwd=work_dir)
    log = scalars(work_dir / "run", "det-rbox/f1")[-1]
    keys = [key for key in log if key.startswith("det-rbox/")]
    assert len(keys) > 20 and log["det-rbox/mAP"] > 0.01 and log["det-rbox/tp"] > 0
    for rank in ("rank0", "rank1"):
        values = json.loads(next((work_dir / "two" / rank).glob("*/*.json")).read_text())
        np.testing.assert_equal([values[key] for key in keys], [log[key] for key in keys])
    printed = run(
        *("-m", "mm_metrics_command", "detection", work_dir / "data" / "val" / "labelTxt", work_dir / "results.pkl"),
        *("--iou-type", "rbox", "--classes", "plate,beam", "--score-thr", "0.1", "--format", "json"),
        cwd=work_dir,
    )
    values = json.loads(printed)["average_precision"]
    with open(work_dir / "results.pkl", "rb") as file:
        expected = map_of_mmrotate(pickle.load(file), work_dir / "data" / "val" / "labelTxt")
    for key in ("mAP", "mAP_50", "mAP_75"):
        assert values[key] == pytest.approx(log[f"det-rbox/{key}"], abs=1e-3)
        assert values[key] == pytest.approx(expected[f"r_coco/bbox_{key}"], abs=2e-3)  # float32, three digits
