"""Thresholds are rounded to the precision of the scores, as torch and NumPy round."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mm_metrics_plugin import DetectionPRF, SingleLabelKS
from mm_metrics_plugin.functional.classification.roc_curves import roc_curves
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.pr_curves import RankedScores, precision_recall_curves, threshold_sweep
from mm_metrics_plugin.functional.detection.results_by_size import results_by_size
from mm_metrics_plugin.functional.statistics.per_image_counts import per_image_counts
from mm_metrics_plugin.functional.thresholding import (
    PRECISIONS,
    decimal_thresholds,
    hard_decisions,
    reach,
    round_thresholds,
    threshold_text,
)
from mm_metrics_plugin.reports.classification import class_thresholds
from mm_metrics_plugin.testing import evaluate
from tests.helpers.cases_detection import detections
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


THRESHOLDS = [
    ("ks", "ks_threshold"),
    ("sensitivity_at_specificity", "sensitivity_threshold"),
    ("specificity_at_sensitivity", "specificity_threshold"),
]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("multi_label", [False, True])
def test_curves_of_mixed_precision_equal_plain_loops(seed, multi_label):
    """Every point of a curve, and KS, sensitivity and specificity at their thresholds."""
    random = np.random.default_rng(seed)
    size = int(random.integers(3, 25))
    precision = random.integers(0, int(random.integers(1, 5)), size).astype(np.uint8)
    near = random.integers(0, 4, (size, 2)) / 4 + random.choice([-2e-3, -1e-4, 0, 1e-4, 2e-3], (size, 2))
    tensors = [torch.tensor(row, dtype=torch.float32).to(DTYPES[code]) for row, code in zip(near, precision)]
    scores, labels = np.stack([tensor.double().numpy() for tensor in tensors]), random.integers(0, 2, size)
    targets = random.integers(-1, 2, (size, 2)) if multi_label else np.eye(2, dtype=int)[labels]
    truth = targets if multi_label else labels
    curves = roc_curves([scores[:2], scores[2:]], truth, precision=precision).per_class
    best = class_thresholds(scores, truth, precision=precision, at_specificity=0.7, at_sensitivity=0.7)
    for label, (curve, column) in enumerate(zip(curves, targets.T)):
        used = np.flatnonzero(column >= 0)
        positive, own = column[used] == 1, [tensors[row][label] for row in used]
        assert curve.thresholds.tolist() == sorted({float(score) for score in own}, reverse=True)
        rates = {}
        for threshold, tp, fp in zip(curve.thresholds.tolist(), curve.tp, curve.fp):
            reached = np.array([bool(score >= torch.tensor(threshold, dtype=score.dtype)) for score in own])
            assert (tp, fp) == (np.count_nonzero(reached & positive), np.count_nonzero(reached & ~positive))
            if positive.any() and not positive.all():
                tpr, tnr = reached[positive].mean(), 1 - reached[~positive].mean()
                rates[threshold] = tpr + tnr - 1, tpr if tnr >= 0.7 else 0, tnr if tpr >= 0.7 else 0
        for place, (name, threshold_name) in enumerate(THRESHOLDS if rates else []):
            value, threshold = best[name][label], best[threshold_name][label]
            assert value == pytest.approx(max(values[place] for values in rates.values()), abs=1e-12)
            if np.isfinite(threshold):
                assert value == pytest.approx(rates[threshold][place], abs=1e-12)


def test_metrics_reach_their_values_at_their_thresholds():
    """Samples of float32 and bfloat16 in one dataset."""
    random, kinds = np.random.default_rng(0), (torch.float32, torch.bfloat16)
    images = detections(random, 40)
    for index, image in enumerate(images):
        near = 0.5 + (image["pred_instances"]["scores"] - 0.5) / 50
        image["pred_instances"]["scores"] = near.to(kinds[index % 2])
    values = evaluate(DetectionPRF(operating_point="f1", num_classes=3), images)
    threshold = values["det/operating_threshold"]
    at_threshold = evaluate(DetectionPRF(score_thr=threshold, average="micro", num_classes=3), images)
    for name, key in (("f_score", "f1"), ("precision", "precision"), ("recall", "recall")):
        assert values[f"det/operating_{name}"] == at_threshold[f"det/{key}"]
    near = [torch.tensor(score).to(kinds[index % 2]) for index, score in enumerate(random.normal(0.5, 0.004, 60))]
    positive = np.array([float(score) + random.normal(0, 0.004) > 0.5 for score in near])
    samples = [dict(pred_score=torch.stack([1 - s, s]), gt_label=torch.tensor(int(y))) for s, y in zip(near, positive)]
    values = evaluate(SingleLabelKS(positive_label=1), samples)
    threshold = values["single-label/ks_threshold"]
    reached = np.array([bool(score >= torch.tensor(threshold, dtype=score.dtype)) for score in near])
    difference = reached[positive].mean() - reached[~positive].mean()
    assert values["single-label/ks"] == pytest.approx(difference, abs=1e-12)


# Close to 1, close to each other, small, and large as logits are.
NUMBERS = st.one_of(
    st.sampled_from(
        [0.3, 0.9999, 0.99998936, 0.999989, 1 - 1e-7, 1.0, 0.41617, 0.4162, 3e-9, 0.0, -7.00004, 123.45678]
    ),
    st.floats(-20, 20, width=32),
)


@given(st.lists(st.tuples(NUMBERS, st.sampled_from(range(4))), min_size=1, max_size=12), NUMBERS)
def test_texts_of_thresholds_select_the_same_scores(rows, other):
    """Scores of mixed precision; thresholds that are scores and one that is none."""
    codes = np.array([code for _, code in rows], dtype=np.uint8)
    scores = np.array([round_thresholds(number)[code] for number, code in rows])
    groups = [(code, np.sort(scores[codes == code])) for code in np.unique(codes).tolist()]
    for threshold in decimal_thresholds([*scores, other], groups):
        selected = reach(scores, threshold, codes)
        assert (reach(scores, float(threshold.text), codes) == selected).all()
        digits = len(threshold.text.partition(".")[2])
        if digits > 4 and "e" not in threshold.text:  # with fewer digits, rounded or cut off, it would select others
            for shorter in (
                round(threshold, digits - 1),
                np.floor(threshold * 10 ** (digits - 1)) / 10 ** (digits - 1),
            ):
                assert (reach(scores, shorter, codes) != selected).any()


@given(st.floats(0, 1, width=32), st.sampled_from([np.float32, np.float64]))
def test_the_text_of_a_threshold_alone_selects_the_same_scores_whatever_they_are(value, dtype):
    below = np.nextafter(np.float32(value), np.float32(-1))
    scores = np.array([below, value], dtype=dtype)
    assert reach(scores, float(threshold_text(value))).tolist() == [False, True]


def test_every_image_has_its_own_precision():
    scores = [np.array([0.7], dtype=dtype) for dtype in (np.float64, np.float32, np.float16, ">f4", ">f2")]
    boxes, labels = [[[0, 0, 9, 9]]] * 5, [[0]] * 5
    batch = DetectionBatch.from_images(boxes=boxes, scores=scores, labels=labels, gt_boxes=boxes, gt_labels=labels)
    assert batch.detections.reach(0.7).all()
    assert not batch.detections.reach(0.71).any()
