"""Reports at random settings compared with pycocotools, plain loops, merged states and the log.

Own IoU thresholds, images of very unequal size, images without results, classes without ground truths, and scores of
several dtypes in one file.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import pytest
import torch

from mm_metrics_plugin import DetectionPRF, evaluate_detection, merge_states
from mm_metrics_plugin.conventions import MATCHING_RULES
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.detection.tide import ERROR_TYPES
from mm_metrics_plugin.functional.statistics.paired_tests import paired_permutation_test
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.testing import evaluate
from tests.helpers.checks import check_agreement
from tests.helpers.detection_problems import accumulated, undefined_as_nan
from tests.helpers.reference_matching import match_coco_setting

pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.MetricWarning")

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SCORE_THRS = (0.0, 0.1, 0.3, 0.7, 0.77)


class Image(NamedTuple):
    """The detections and ground truths of an image; ``scores`` has one of ``DTYPES``."""

    boxes: np.ndarray
    scores: torch.Tensor
    labels: np.ndarray
    gt_boxes: np.ndarray
    gt_labels: np.ndarray
    gt_crowd: np.ndarray
    has_results: bool


class Problem(NamedTuple):
    """Images and the settings of their evaluation."""

    images: list[Image]
    num_classes: int
    settings: DetectionSettings

    @property
    def classes(self):
        return [f"class {label}" for label in range(self.num_classes)]

    @property
    def batch(self):
        """The images with scores as float64, as pycocotools reads them."""
        return DetectionBatch.from_images(
            boxes=[image.boxes for image in self.images],
            scores=[image.scores.double().numpy() for image in self.images],
            labels=[image.labels for image in self.images],
            gt_boxes=[image.gt_boxes for image in self.images],
            gt_labels=[image.gt_labels for image in self.images],
            gt_crowd=[image.gt_crowd for image in self.images],
        )

    @property
    def annotations(self):
        """The ground truths as COCO annotations."""
        return {
            "images": [dict(id=at, file_name=f"{at}.jpg", height=500, width=500) for at in range(len(self.images))],
            "categories": [dict(id=label, name=name) for label, name in enumerate(self.classes)],
            "annotations": [
                dict(image_id=at, category_id=int(label), bbox=_xywh(box), iscrowd=int(crowd), area=_area(box))
                for at, image in enumerate(self.images)
                for box, label, crowd in zip(image.gt_boxes, image.gt_labels, image.gt_crowd)
            ],
        }

    def results(self, *, with_missing=False):
        """The detections as mmdet writes them."""
        return [
            dict(img_id=at, pred_instances=dict(bboxes=image.boxes, scores=image.scores, labels=image.labels))
            for at, image in enumerate(self.images)
            if image.has_results or with_missing
        ]

    def samples(self):
        """The images as samples of a metric."""
        return [
            dict(
                **result,
                gt_instances=dict(bboxes=image.gt_boxes[~image.gt_crowd], labels=image.gt_labels[~image.gt_crowd]),
                ignored_instances=dict(bboxes=image.gt_boxes[image.gt_crowd], labels=image.gt_labels[image.gt_crowd]),
            )
            for result, image in zip(self.results(with_missing=True), self.images)
        ]

    def report(self, results, **options):
        return evaluate_detection(self.annotations, results, settings=self.settings, gallery=None, **options)


def _xywh(box):
    left, top, right, bottom = map(float, box)
    return [left, top, right - left, bottom - top]


def _area(box):
    return _xywh(box)[2] * _xywh(box)[3]


def random_problem(seed):
    random = np.random.default_rng([23, seed])
    num_classes = int(random.integers(1, 5))
    with_gts = np.append(0, np.flatnonzero(random.random(num_classes) < 0.7))
    missed = random.integers(0, num_classes) if random.random() < 0.5 else -1  # no detection is near its ground truths
    score_thr = float(random.choice(SCORE_THRS))
    images = []
    for _ in range(int(random.integers(3, 12))):
        number = min(60, int(random.lognormal(0.5, 1.5)))
        corner = random.integers(0, 300, (number, 2))
        gt_boxes = np.concatenate([corner, corner + random.integers(5, 150, (number, 2))], axis=1).astype(np.float64)
        gt_labels = random.choice(with_gts, number)
        near = np.repeat(np.flatnonzero(gt_labels != missed), 2)
        noise = np.round(random.normal(0, random.choice([0, 1, 10], (len(near), 1)), (len(near), 4)))
        far = np.tile([400.0, 400.0, 450.0, 460.0], (int(random.integers(0, 3)), 1))
        boxes = np.concatenate([gt_boxes[near] + noise, far])
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
        labels = np.append(gt_labels[near], random.integers(0, num_classes, len(far)))
        labels = np.where(random.random(len(labels)) < 0.2, random.integers(0, num_classes, len(labels)), labels)
        scores = np.where(random.random(len(boxes)) < 0.2, score_thr, np.round(random.random(len(boxes)), 2))
        has_results = len(images) < 2 or random.random() < 0.8
        kept = slice(None if has_results else 0)
        scores = torch.tensor(scores[kept], dtype=DTYPES[random.integers(len(DTYPES))])
        crowd = random.random(number) < 0.1
        images.append(Image(boxes[kept], scores, labels[kept], gt_boxes, gt_labels, crowd, bool(has_results)))
    iou_thrs = np.unique(np.round(random.uniform(0.05, 1, random.integers(1, 14)), int(random.integers(1, 4)) + 1))
    inside, outside = random.choice(iou_thrs), np.round(random.uniform(0.11, 1), 3)
    settings = DetectionSettings(
        score_thr=score_thr,
        iou_thr=float(inside if seed % 2 else outside),
        iou_thrs=tuple(iou_thrs),
        max_dets=int(random.choice([2, 10, 100])),
        area_edges=[(), (1024.0, 9216.0), (700.0,)][seed % 3],
        matching=tuple(MATCHING_RULES),
        ci=0.9 if seed % 4 == 0 else None,
        resamples=5,
    )
    return Problem(images, num_classes, settings)


def precision_of_pycocotools(problem, iou_thrs, areas=((0, 1e10),)):
    """(thresholds, classes, areas) AP."""
    grid = dict(iouThrs=np.array(iou_thrs), maxDets=[problem.settings.max_dets], areaRng=[list(area) for area in areas])
    return undefined_as_nan(accumulated(problem.batch, problem.num_classes, **grid)["precision"])[..., 0].mean(axis=1)


def mean(values):
    return np.nan if np.isnan(values).all() else np.nanmean(values)


def plain_counts(problem):
    """TP, FP and FN of each class by plain loops; the threshold is rounded to the dtype of the scores."""
    counts = np.zeros((3, problem.num_classes), dtype=int)
    for image in problem.images:
        threshold = torch.tensor(problem.settings.score_thr, dtype=torch.float64).to(image.scores.dtype)
        kept = (image.scores >= threshold).numpy()
        columns = zip(image.boxes[kept], image.scores.double().numpy()[kept], image.labels[kept])
        dets = [dict(box=box, score=score, label=label) for box, score, label in columns]
        columns = zip(image.gt_boxes, image.gt_labels, image.gt_crowd)
        gts = [dict(box=box, label=label, crowd=crowd, area=0) for box, label, crowd in columns]
        matches = match_coco_setting(dets, gts, problem.settings.iou_thr, -np.inf, np.inf)
        for det, (gt, ignored) in zip(dets, matches):
            if not ignored:
                counts[0 if gt is not None else 1, det["label"]] += 1
        found = {gt for gt, _ in matches}
        for at, gt in enumerate(gts):
            counts[2, gt["label"]] += not gt["crowd"] and at not in found
    return dict(zip(("tp", "fp", "fn"), counts))


def assert_same_report(report, expected):
    """All numbers are equal; inputs and the number of images without results may differ."""
    values, others = report.to_dict(), expected.to_dict()
    for name in ("settings", "matching_rules", "average_precision", "sizes", "errors", "operating_points", "intervals"):
        np.testing.assert_equal(values[name], others[name], err_msg=name)


@pytest.mark.parametrize("seed", range(24))
def test_report_merged_states_and_log_agree_with_pycocotools_and_plain_loops(seed, tmp_path):
    problem = random_problem(seed)
    settings = problem.settings
    report = problem.report(problem.results(), allow_missing=True)
    analysis, missing = report.analysis, sum(not image.has_results for image in problem.images)
    assert report.counts["images"]["without_results"] == missing
    # Average precision, its means and intervals, by size and at the IoU threshold of the counts.
    expected = precision_of_pycocotools(problem, settings.iou_thrs)[..., 0]
    np.testing.assert_allclose(analysis.average_precision.ap[0], expected, rtol=0, atol=1e-12)
    values = analysis.average_precision.to_dict()
    assert values["mAP"] == pytest.approx(mean(expected.mean(axis=0)), abs=1e-12, nan_ok=True)
    for key, iou_thr in (("mAP_50", 0.5), ("mAP_75", 0.75)):
        at = [place for place, value in enumerate(settings.iou_thrs) if value == iou_thr]
        assert (key in values) == bool(at)
        assert not at or values[key] == pytest.approx(mean(expected[at]), abs=1e-12, nan_ok=True)
    if settings.ci is not None:
        assert analysis.intervals.overall["mAP"].value == pytest.approx(values["mAP"], abs=1e-12, nan_ok=True)
    ranges = list(analysis.sizes.ranges.values())
    expected = precision_of_pycocotools(problem, settings.iou_thrs, ranges).mean(axis=0).T
    np.testing.assert_allclose(analysis.sizes.average_precision, expected, rtol=0, atol=1e-12)
    expected = precision_of_pycocotools(problem, [settings.iou_thr])[0, :, 0]
    np.testing.assert_allclose(analysis.curves.average_precision, expected, rtol=0, atol=1e-12)
    # Counts, and the means of dAP.
    check_agreement(plain_counts(problem), report.matching_rules[0].columns, "plain loops")
    for name in ERROR_TYPES if analysis.errors is not None else ():
        per_class = analysis.errors.dap_per_class[name]
        np.testing.assert_array_equal(~np.isnan(per_class), analysis.sizes.ground_truths[0] > 0)
        assert analysis.errors.dap[name] == pytest.approx(mean(per_class), abs=1e-12, nan_ok=True)
    # Saved states of parts of the images, in any order.
    random, results = np.random.default_rng(seed), problem.results(with_missing=True)
    order = random.permutation(len(results))
    parts = [part for part in np.array_split(order, int(random.integers(1, 4))) if len(part)]
    files = [tmp_path / f"{number}.npz" for number in range(len(parts))]
    for file, part in zip(files, parts):
        problem.report([results[at] for at in part], save_state=file)
    assert_same_report(merge_states(files[::-1]), report)
    # The log.
    for rule, reported in zip(MATCHING_RULES, report.matching_rules):
        metric = DetectionPRF(settings.score_thr, settings.iou_thr, rule, classwise=True, max_dets=settings.max_dets)
        metric.dataset_meta = {"classes": problem.classes}
        log = evaluate(metric, problem.samples(), batch_size=1 + seed % 4)
        for key in ("tp", "fp", "fn", "precision", "recall", "f1"):
            logged = [log[f"det/{key}/{name}"] for name in problem.classes]
            np.testing.assert_array_equal(logged, reported.columns[key], err_msg=f"{rule} {key}")


@pytest.mark.parametrize("seed", range(4))
def test_comparison_agrees_with_pycocotools(seed):
    """The average precision of both runs, and the permutation test with every swap evaluated anew."""
    problem, random = random_problem(seed), np.random.default_rng(seed)
    images = [image._replace(scores=torch.tensor(random.random(len(image.boxes)))) for image in problem.images[:4]]
    scores = [(image.scores, torch.tensor(random.random(len(image.boxes)))) for image in images]

    def run(swaps):
        chosen = [image._replace(scores=pair[swap]) for image, pair, swap in zip(images, scores, swaps)]
        return problem._replace(images=chosen)

    def mean_ap(swaps):
        return mean(precision_of_pycocotools(run(swaps), problem.settings.iou_thrs).mean(axis=0))

    first, second = [0] * len(images), [1] * len(images)
    tables = [
        match_images(run(swaps).batch, problem.settings, num_classes=problem.num_classes, keep="scores").table
        for swaps in (first, second)
    ]
    actual = paired_permutation_test(*tables, permutations=200, seed=seed).overall["mAP"]
    assert actual.first == pytest.approx(mean_ap(first), abs=1e-12, nan_ok=True)
    assert actual.second == pytest.approx(mean_ap(second), abs=1e-12, nan_ok=True)
    swapped = np.random.default_rng(seed)
    draws = [tuple((swapped.random(len(images)) < 0.5).astype(int)) for _ in range(200)]
    value = {swaps: mean_ap(swaps) for swaps in itertools.product((0, 1), repeat=len(images))}
    sizes = np.array([abs(value[tuple(1 - np.array(swaps))] - value[swaps]) for swaps in draws])
    expected = (1 + np.count_nonzero(sizes >= abs(value[tuple(second)] - value[tuple(first)]) - 1e-12)) / 201
    assert actual.p_unadjusted == pytest.approx(expected, abs=1e-12)
