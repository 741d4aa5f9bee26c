"""A report with all analyses computes the overlap of a detection and a ground truth once."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin import DetectionEvaluator
from mm_metrics_plugin.cli import main
from mm_metrics_plugin.functional.detection.geometry import geometry_of
from mm_metrics_plugin.functional.detection.geometry.boundaries import Boundaries
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from tests.helpers import geometry_problems as problems
from tests.helpers import result_files as files

EVERYTHING = ("--html", "--ci", "0.95", "--resamples", "20")


def rounded(boxes):
    return [tuple(box) for box in boxes.astype(np.float64).round(3).tolist()]


@pytest.fixture
def computed(monkeypatch):
    """The pairs whose overlap is computed: coordinates of the detection and of the ground truth."""
    pairs, overlaps = [], Boxes.overlaps

    def recorded(self, gts, rows, gt_rows):
        pairs.extend(zip(rounded(self.to_format("xyxy")[rows]), rounded(gts.boxes.to_format("xyxy")[gt_rows])))
        return overlaps(self, gts, rows, gt_rows)

    monkeypatch.setattr(Boxes, "overlaps", recorded)
    return pairs


def overlapping(problem):
    """The pairs of intersecting boxes of a problem."""
    pairs = set()
    for image in range(problem.num_images):
        boxes, gt_boxes = problem.boxes[problem.image == image], problem.gt_boxes[problem.gt_image == image]
        low = np.maximum(boxes[:, None, :2], gt_boxes[None, :, :2])
        high = np.minimum(boxes[:, None, 2:], gt_boxes[None, :, 2:])
        det, gt = np.nonzero((low < high).all(axis=2))
        pairs.update(zip(rounded(boxes[det]), rounded(gt_boxes[gt])))
    return pairs


@pytest.mark.parametrize("options", [(), ("--matching", "coco", "--matching", "agnostic", "--matching", "mmdet")])
def test_a_report_computes_every_overlap_once(options, computed, tmp_path):
    target, results = files.pair(tmp_path)
    words = ["detection", str(target), str(results), str(tmp_path / "out"), *EVERYTHING, "--operating-point", "f1"]
    assert main([*words, *options]) == 0
    assert (tmp_path / "out" / "report.html").exists()
    assert len(computed) == len(set(computed)) > 200
    assert set(computed) == overlapping(files.problem())


def test_a_comparison_computes_every_overlap_of_every_run_once(computed, tmp_path):
    target, results = files.pair(tmp_path)
    made = files.problem()
    moved = made._replace(boxes=made.boxes + np.float32(0.5))
    others = files.write_pickle(tmp_path / "others.pkl", files.results_of(moved))
    options = (*EVERYTHING, "--permutations", "20")
    assert main(["compare", str(target), str(results), str(others), str(tmp_path / "out"), *options]) == 0
    assert len(computed) == len(set(computed)) > 400
    assert set(computed) == overlapping(made) | overlapping(moved)


PROBLEMS = {
    "segm": problems.mask_batch(6),
    "boundary": problems.mask_batch(6, geometry=Boundaries),
    "rbox": problems.rotated_batch(1),
    "keypoints": (problems.keypoint_batch(2, num_classes=2), 2),
}


@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.MetricWarning")
@pytest.mark.parametrize("iou_type", PROBLEMS)
def test_every_overlap_of_any_geometry_is_computed_once_for_all_classes(iou_type, monkeypatch):
    batch, num_classes = PROBLEMS[iou_type]
    geometry, calls = geometry_of(iou_type), []
    overlaps = geometry.overlaps

    def recorded(self, gts, rows, gt_rows):
        calls.append(list(zip(rows.tolist(), gt_rows.tolist())))
        return overlaps(self, gts, rows, gt_rows)

    monkeypatch.setattr(geometry, "overlaps", recorded)
    options = dict(matching=("coco", "agnostic"), ci=0.9, resamples=20, operating_point="f1")
    evaluator = DetectionEvaluator(list("abc"[:num_classes]), iou_type=iou_type, worst_images=3, **options)
    evaluator.update(batch)
    report = evaluator.compute()
    assert report.to_dict() and report.examples is not None
    dets, gts = batch.detections, batch.ground_truths
    compared = dets.image[:, None] == gts.image
    if geometry.prefiltered:
        box, gt_box = (part.geometry.bounding_boxes() for part in (dets, gts))
        compared &= (box.left[:, None] < gt_box.right) & (box.right[:, None] > gt_box.left)
        compared &= (box.top[:, None] < gt_box.bottom) & (box.bottom[:, None] > gt_box.top)
    (pairs,) = calls  # the images of a batch are compared in one call
    assert num_classes > 1 and len(pairs) == len(set(pairs)) == np.count_nonzero(compared) > 20
