"""The best score thresholds compared with an exhaustive search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mm_metrics_plugin.functional.detection.operating_points import operating_points
from mm_metrics_plugin.settings import OperatingRule
from tests.helpers.detection_problems import counts_at, everywhere, match_table


def score_of(rule, tp, fp, fn):
    """By which a rule orders thresholds; None where it is not met."""
    if tp == 0:
        return None
    precision, recall = tp / (tp + fp), tp / (tp + fn)
    if rule.kind == "precision":
        return recall if precision >= rule.value else None
    if rule.kind == "recall":
        return precision if recall >= rule.value else None
    return (1 + rule.value**2) * tp / ((1 + rule.value**2) * tp + rule.value**2 * fn + fp)


def best_threshold(rule, scores, counts):
    """The highest of the best thresholds, by trying them all."""
    values = [(score_of(rule, *count), threshold) for threshold, count in zip(scores, counts)]
    return max(((value, threshold) for value, threshold in values if value is not None), default=(None, np.nan))[1]


@pytest.mark.parametrize("text", ["f1", "f2", "f0.5", "precision=0.6", "recall=0.5", "precision=1", "recall=1"])
@pytest.mark.parametrize("seed", range(4))
def test_best_threshold_equals_exhaustive_search(text, seed):
    batch, num_classes = everywhere(seed, num_images=4), 3
    # Few distinct scores, so that several detections share a threshold.
    batch = type(batch)(
        replace(batch.detections, scores=np.round(batch.detections.scores, 1).astype(np.float32), precision=None),
        batch.ground_truths,
        4,
    )
    rule = OperatingRule.parse(text)
    points = operating_points(match_table(batch, num_classes), rule=text, folds=2)
    scores = np.unique(batch.detections.scores)
    counts = [counts_at(batch, num_classes, score) for score in scores]
    pooled = [tuple(int(part.sum()) for part in count) for count in counts]
    assert np.array_equal(points.overall.threshold, float(best_threshold(rule, scores, pooled)), equal_nan=True)
    for label in range(num_classes):
        own = [tuple(int(part[label]) for part in count) for count in counts]
        threshold = float(best_threshold(rule, scores, own))
        point = points.per_class[label]
        assert np.array_equal(point.threshold, threshold, equal_nan=True)
        if not np.isnan(threshold):
            ground_truths = counts_at(batch, num_classes, threshold)
            assert (point.tp, point.fp, point.fn) == tuple(part[label] for part in ground_truths)


def test_cross_fitting_evaluates_on_other_images():
    batch = everywhere(3, num_images=20)
    table = match_table(batch, 3)
    points = operating_points(table, folds=4, seed=7)
    fold = np.empty(20, dtype=int)
    fold[np.random.default_rng(7).permutation(20)] = np.arange(20) % 4
    total = np.zeros((3, 3), dtype=int)
    for number in range(4):
        training, test = (
            type(batch)(
                batch.detections.take(keep[batch.detections.image]),
                batch.ground_truths.take(keep[batch.ground_truths.image]),
                20,
            )
            for keep in (fold != number, fold == number)
        )
        chosen = operating_points(match_table(training, 3), folds=2).per_class
        for label in range(3):
            total[:, label] += [part[label] for part in counts_at(test, 3, chosen[label].threshold)]
    fitted = points.per_class_cross_fitted
    assert np.array_equal(np.transpose([(point.tp, point.fp, point.fn) for point in fitted]), total)
    assert [point.tp + point.fn for point in fitted] == [point.tp + point.fn for point in points.per_class]
    assert points.overall_cross_fitted.f_score <= points.overall.f_score


def test_operating_rules_are_parsed_or_raise():
    assert (
        OperatingRule.parse(" Precision=0.9 ") == OperatingRule("precision", 0.9)
        and OperatingRule.parse("f2").beta == 2
    )
    for text in ("", "f", "f-1", "f0", "fnan", "accuracy", "precision", "precision=2", "recall=0", "f1=3", "recall=x"):
        with pytest.raises(ValueError, match="operating_point"):
            OperatingRule.parse(text)
    with pytest.raises(ValueError, match="folds"):
        operating_points(match_table(everywhere(0, num_images=3), 3), folds=4)


def test_no_detections():
    batch = everywhere(0, num_images=3)
    batch = type(batch)(batch.detections.take(np.zeros(len(batch.detections), dtype=bool)), batch.ground_truths, 3)
    points = operating_points(match_table(batch, 3), folds=2)
    assert np.isnan(points.overall.threshold) and np.isnan(points.overall.precision)
    assert points.overall.recall == 0 and [point["tp"] for point in points.to_dict()["per_class"]] == [0, 0, 0]
