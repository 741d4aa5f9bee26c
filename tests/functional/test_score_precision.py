"""Thresholds are rounded to the precision of the scores, as torch and NumPy round."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.pr_curves import RankedScores, precision_recall_curves, threshold_sweep
from mm_metrics_plugin.functional.detection.results_by_size import results_by_size
from mm_metrics_plugin.functional.statistics.per_image_counts import per_image_counts
from mm_metrics_plugin.functional.thresholding import PRECISIONS, hard_decisions, reach, round_thresholds
from tests.helpers.detection_problems import match_table

DTYPES = [getattr(torch, name) for name in PRECISIONS]


# float32 first: torch converts float64 to bfloat16 via float32, which rounds twice.
@given(st.floats(width=32))
def test_rounding_equals_torch(value):
    actual = round_thresholds(value)
    expected = [float(torch.tensor(value, dtype=torch.float32).to(dtype)) for dtype in DTYPES]
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    "value, expected",
    [
        (1 + 2.0**-8, 1.0),  # ties round to even
        (1 + 3 * 2.0**-8, 1 + 2.0**-6),
        (1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-7),  # above the tie by less than float32 sees
        (-(2.0**-134), 0.0),  # half of the least subnormal number
        (1.5 * 2.0**-133, 2.0**-132),
        (3.3961775292304957e38, np.inf),
        (1e300, np.inf),
    ],
)
def test_bfloat16_is_rounded_once_and_to_even(value, expected):
    assert round_thresholds(value)[PRECISIONS.index("bfloat16")] == expected


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from(range(4)), st.booleans()), min_size=1), st.data())
def test_counts_at_thresholds_equal_torch(rows, data):
    """Scores of mixed precision at thresholds equal or close to them."""
    hundredths, codes, right = map(list, zip(*rows))
    tensors = [torch.tensor(number / 20, dtype=DTYPES[code]) for number, code in zip(hundredths, codes)]
    scores = np.array([float(tensor) for tensor in tensors])
    threshold = data.draw(st.integers(0, 20)) / 20
    expected = [bool(tensor >= torch.tensor(threshold, dtype=tensor.dtype)) for tensor in tensors]
    precision = np.array(codes, dtype=np.uint8)
    assert reach(scores, threshold, precision).tolist() == expected
    assert (hard_decisions(scores[:, None], thresholds=[threshold], precision=precision)[:, 0] == 0).tolist() == [
        bool(tensor > torch.tensor(threshold, dtype=tensor.dtype)) for tensor in tensors
    ]
    order = np.argsort(-scores, kind="stable")
    ranked = RankedScores(scores[order], np.array(right)[order], precision[order])
    counts = ranked.counts_at(np.array([threshold]))[:, 0].tolist()
    hits = sum(reached and flag for reached, flag in zip(expected, right))
    assert counts == [hits, sum(expected) - hits]

    # One image per detection, so that each TP has its own ground truth.
    image, boxes = np.arange(len(rows)), np.tile([0.0, 0.0, 10.0, 10.0], (len(rows), 1))
    detections = Detections(image, boxes, scores, np.zeros(len(rows)), precision=precision)
    ground_truths = GroundTruths(image[right], boxes[right], np.zeros(sum(right)))
    batch = DetectionBatch(detections, ground_truths, len(rows))
    table = match_table(batch, 1)
    assert [int(part[0]) for part in per_image_counts(table, score_thr=threshold).totals()[:2]] == counts
    many = threshold_sweep(precision_recall_curves(table, num_points=5), also=[threshold])
    place = many.thresholds.tolist().index(threshold)
    assert [int(many.tp[0, place]), int(many.fp[0, place])] == counts
    sizes = results_by_size(table, score_thr=threshold)
    assert int(sizes.tp[0].sum()) == hits


def test_every_image_has_its_own_precision():
    scores = [np.array([0.7], dtype=dtype) for dtype in (np.float64, np.float32, np.float16, ">f4", ">f2")]
    boxes, labels = [[[0, 0, 9, 9]]] * 5, [[0]] * 5
    batch = DetectionBatch.from_images(boxes=boxes, scores=scores, labels=labels, gt_boxes=boxes, gt_labels=labels)
    assert batch.detections.reach(0.7).all()
    assert not batch.detections.reach(0.71).any()
