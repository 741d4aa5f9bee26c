"""DetectionPRF on rotated boxes in mmrotate's training and test tools, and in the command."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch

from demo.rectangles import CLASSES, write_rectangles
from mm_metrics_plugin.functional import DetectionBatch, Detections, GroundTruths, average_precision, match_images
from mm_metrics_plugin.functional.detection.geometry.rotated_boxes import RotatedBoxes
from mm_metrics_plugin.functional.detection.pairs import find_pairs
from mm_metrics_plugin.settings import DetectionSettings
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


def rotated_problem(seed):
    """Two classes and difficult objects. No IoU is near 0.5, where float32 and float64 could differ."""
    random = np.random.default_rng(seed)
    num_images, num_gts = int(random.integers(2, 8)), int(random.integers(5, 40))
    gt_boxes = np.concatenate(
        [
            random.uniform(0, 80, (num_gts, 2)),
            random.uniform(5, 40, (num_gts, 2)),
            random.uniform(-1.5, 1.5, (num_gts, 1)),
        ],
        axis=1,
    ).astype(np.float32)
    gt_image, gt_labels = np.sort(random.integers(0, num_images, num_gts)), random.integers(0, 2, num_gts)
    difficult = (random.random(num_gts) < 0.2) & (gt_image > 0)
    row = np.repeat(np.arange(num_gts), random.integers(0, 5, num_gts))
    boxes = (gt_boxes[row] + random.normal(0, [[1.5, 1.5, 1.5, 1.5, 0.08]], (len(row), 5))).astype(np.float32)
    boxes[:, 2:4] = np.maximum(boxes[:, 2:4], 1)
    labels = np.where(random.random(len(row)) < 0.85, gt_labels[row], 1 - gt_labels[row])
    scores = (random.permutation(len(row)) + 1).astype(np.float32) / (len(row) + 1)
    detections = Detections(gt_image[row], RotatedBoxes(boxes), scores, labels)
    gts = GroundTruths(gt_image, RotatedBoxes(gt_boxes), gt_labels, ignore=difficult)
    pairs = find_pairs(detections, gts, min_overlap=0.0)
    return DetectionBatch(detections, gts, num_images), (abs(pairs.overlap - 0.5) < 1e-4).any()


@pytest.mark.parametrize("seed", range(12))
def test_dota_equals_eval_rbbox_map_per_class(seed):
    from mmrotate.evaluation.functional import eval_rbbox_map

    batch, near = rotated_problem(seed)
    assert not near
    annotations, results = [], []
    for index in range(batch.num_images):
        image = batch.images(index, index + 1)
        dets, gts = image.detections, image.ground_truths
        parts = {"": ~gts.ignored, "_ignore": gts.ignored}
        annotation = {f"bboxes{name}": gts.geometry.array[rows] for name, rows in parts.items()}
        annotations.append({**annotation, **{f"labels{name}": gts.labels[rows] for name, rows in parts.items()}})
        rows = np.concatenate([dets.geometry.array, dets.scores[:, None]], axis=1)
        results.append([rows[dets.labels == label] for label in range(2)])
    mean, classes = eval_rbbox_map(results, annotations, iou_thr=0.5, dataset=list(CLASSES), logger="silent", nproc=1)
    settings = DetectionSettings(iou_type="rbox", convention="dota")
    found = average_precision(match_images(batch, settings, num_classes=2, keep="scores").table)
    for label, expected in enumerate(classes):
        assert found.num_gts[0, label] == expected["num_gts"]
        if expected["num_gts"]:
            assert found.ap[0, 0, label] == pytest.approx(float(expected["ap"]), abs=1e-6)
    assert found.to_dict()["mAP"] == pytest.approx(mean, abs=1e-6)
