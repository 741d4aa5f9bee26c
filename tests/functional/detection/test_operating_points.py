"""The best score thresholds compared with an exhaustive search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mm_metrics_plugin.functional.detection.cross_fitting import (
    CrossFittedCounts,
    cross_fitted_thresholds,
    image_folds,
    reached_by_fold,
)
from mm_metrics_plugin.functional.detection.operating_points import operating_points
from mm_metrics_plugin.functional.detection.pr_curves import precision_recall_curves
from mm_metrics_plugin.functional.statistics.per_image_counts import per_image_counts
from mm_metrics_plugin.functional.thresholding import BFLOAT16, round_thresholds
from mm_metrics_plugin.settings import OperatingRule
from tests.helpers.detection_problems import counts_at, everywhere, match_table, mixed_precision


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
@pytest.mark.parametrize("mixed", [False, True])
def test_best_threshold_equals_exhaustive_search(text, seed, mixed):
    batch, num_classes = everywhere(seed, num_images=4), 3
    # Few distinct scores, so that several detections share a threshold.
    scores = np.round(batch.detections.scores, 1).astype(np.float32)
    few = replace(batch, detections=replace(batch.detections, scores=scores, precision=None))
    batch = mixed_precision(batch, seed) if mixed else few
    rule = OperatingRule.parse(text)
    points = operating_points(match_table(batch, num_classes), rule=text, folds=2)
    # A threshold is the score of a detection that is counted, not of one that is ignored.
    scores = [curve.thresholds for curve in precision_recall_curves(match_table(batch, num_classes)).per_class]
    counts = {score: counts_at(batch, num_classes, score) for score in np.concatenate(scores).tolist()}
    pooled = [tuple(int(part.sum()) for part in count) for count in counts.values()]
    threshold = float(best_threshold(rule, counts, pooled))
    assert np.array_equal(points.overall.threshold, threshold, equal_nan=True)
    if not np.isnan(threshold):
        assert (points.overall.tp, points.overall.fp, points.overall.fn) == pooled[list(counts).index(threshold)]
    for label in range(num_classes):
        own_scores = scores[label].tolist()
        own = [tuple(int(part[label]) for part in counts[score]) for score in own_scores]
        threshold = float(best_threshold(rule, own_scores, own))
        point = points.per_class[label]
        assert np.array_equal(point.threshold, threshold, equal_nan=True)
        if not np.isnan(threshold):
            ground_truths = counts_at(batch, num_classes, threshold)
            assert (point.tp, point.fp, point.fn) == tuple(part[label] for part in ground_truths)


@pytest.mark.parametrize("mixed", [False, True])
def test_cross_fitting_evaluates_on_other_images(mixed):
    batch = everywhere(3, num_images=20)
    batch = mixed_precision(batch, 3) if mixed else batch
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


@pytest.mark.parametrize("text", ["f1", "precision=0.25", "recall=0.3"])
def test_cross_fitted_counts_equal_exhaustive_search_in_every_precision(text):
    """A threshold is rounded to the precision of each score, so a lower score may reach it."""
    batch, rule, fold = everywhere(3, num_images=12), OperatingRule.parse(text), image_folds(12, folds=3, seed=1)
    code = np.arange(len(batch.detections.scores)) % 2 * BFLOAT16
    scores = np.choose(code > 0, [batch.detections.scores, round_thresholds(batch.detections.scores)[BFLOAT16]])
    detections = replace(batch.detections, scores=scores, precision=code.astype(np.uint8))
    table = match_table(type(batch)(detections, batch.ground_truths, 12), 3)
    thresholds = cross_fitted_thresholds(table, fold, rule)
    for number, threshold in enumerate(thresholds):
        others = fold != number
        counts = [
            per_image_counts(table, score_thr=score).per_image()[:, others].sum(axis=1).tolist()
            for score in np.unique(scores)
        ]
        values = [score_of(rule, *count) for count in counts]
        chosen = per_image_counts(table, score_thr=threshold).per_image()[:, others].sum(axis=1).tolist()
        assert score_of(rule, *chosen) == max(value for value in values if value is not None)
    expected = [
        per_image_counts(table, score_thr=thresholds[number]).per_image()[:, image] for image, number in enumerate(fold)
    ]
    fitted = CrossFittedCounts(table, fold, rule)(np.ones((12, 1)))
    assert [part.sum() for part in fitted] == np.sum(expected, axis=0).tolist()
    reached = per_image_counts(table, reached=reached_by_fold(table, fold, thresholds))
    assert np.array_equal(reached.per_image(), np.transpose(expected))


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
