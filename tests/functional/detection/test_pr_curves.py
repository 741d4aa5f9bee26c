"""Curves of detectors and the threshold sweep compared with a new matching at every threshold."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.functional.detection.operating_points import operating_points
from mm_metrics_plugin.functional.detection.pr_curves import precision_recall_curves, threshold_sweep
from tests.helpers.detection_problems import counts_at, match_table, mixed_precision, random_batch


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_counts_at_every_threshold_equal_a_new_matching(seed, mixed):
    batch, num_classes = random_batch(seed)
    batch = mixed_precision(batch, seed) if mixed else batch
    table = match_table(batch, num_classes)
    curves = precision_recall_curves(table, num_points=11, beta=2.0)
    for label, curve in enumerate(curves.per_class):
        for threshold, tp, fp in list(zip(curve.thresholds, curve.tp, curve.fp))[:6]:
            expected = counts_at(batch, num_classes, threshold)
            assert (tp, fp, curve.positives - tp) == tuple(part[label] for part in expected)
    for point, confidence in enumerate(curves.confidence):
        tp, fp, fn = counts_at(batch, num_classes, confidence)
        with np.errstate(invalid="ignore"):
            assert np.array_equal(curves.precision[:, point], tp / (tp + fp), equal_nan=True)
            assert np.array_equal(curves.recall[:, point], tp / (tp + fn), equal_nan=True)
            assert np.allclose(curves.f_score[:, point], 5 * tp / (5 * tp + 4 * fn + fp), equal_nan=True)
    expected = average_precision(table).at_iou(0.5)
    assert np.allclose(curves.average_precision, expected, rtol=0, atol=1e-12, equal_nan=True)
    sweep = threshold_sweep(curves, also=[0.37])
    assert 0.37 in sweep.thresholds
    for place, threshold in enumerate(sweep.thresholds.tolist()):
        tp, fp, fn = counts_at(batch, num_classes, threshold)
        assert np.array_equal([sweep.tp[:, place], sweep.fp[:, place], sweep.ground_truths], [tp, fp, tp + fn])
    if table.num_images > 1:
        points = operating_points(table, rule="f1", folds=2)
        assert np.array_equal(sweep.best, points.overall.threshold, equal_nan=True)
        assert np.array_equal(sweep.best_per_class, [point.threshold for point in points.per_class], equal_nan=True)
