"""Curves and thresholds beside scikit-learn and going through all of them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from mm_metrics_plugin.functional.coco_ap import APSettings, average_precision, match_for_ap
from mm_metrics_plugin.functional.curves import classification_curves, corner_curve, count_curve, detection_curves
from mm_metrics_plugin.functional.ks import score_ks
from mm_metrics_plugin.functional.matching import match
from mm_metrics_plugin.functional.operating_points import Rule, operating_points
from mm_metrics_plugin.functional.scored_matches import match_scores
from tests.functional.detection_problems import everywhere, random_batch

# --- detection --------------------------------------------------------------------------------------------------------


def counts_at(batch, num_classes, score):
    """Per class counts of a match at a score threshold, made anew."""
    matrix = match(batch.detections, batch.objects, num_classes=num_classes, score_threshold=score).matrix
    tp = matrix.diagonal()[:-1]
    return tp, matrix[:, :-1].sum(axis=0) - tp, matrix[:-1].sum(axis=1) - tp


@pytest.mark.parametrize("seed", range(20))
def test_every_point_of_a_curve_is_a_match_at_that_score(seed):
    batch, num_classes = random_batch(seed)
    curves = detection_curves(match_scores(batch, num_classes=num_classes), num_points=11, beta=2.0)
    for label, curve in enumerate(curves.per_class):
        for threshold, tp, fp in list(zip(curve.thresholds, curve.tp, curve.fp))[:6]:
            there = counts_at(batch, num_classes, threshold)
            assert (tp, fp, curve.positives - tp) == tuple(part[label] for part in there)
    for point, confidence in enumerate(curves.confidence):
        tp, fp, fn = counts_at(batch, num_classes, confidence)
        with np.errstate(invalid="ignore"):
            assert np.array_equal(curves.precision[:, point], tp / (tp + fp), equal_nan=True)
            assert np.array_equal(curves.recall[:, point], tp / (tp + fn), equal_nan=True)
            assert np.allclose(curves.f_score[:, point], 5 * tp / (5 * tp + 4 * fn + fp), equal_nan=True)
    settings = APSettings(num_classes=num_classes)
    theirs = average_precision(match_for_ap(batch.detections, batch.objects, settings), settings).at_iou(0.5)
    assert np.allclose(curves.average_precision, theirs, rtol=0, atol=1e-12, equal_nan=True)


def test_means_are_over_the_classes_that_have_a_value():
    batch, num_classes = random_batch(4)
    curves = detection_curves(match_scores(batch, num_classes=num_classes), num_points=5)
    assert np.isnan(curves.precision).any()
    assert curves.mean_recall[0] == pytest.approx(np.nanmean(curves.recall[:, 0]))
    assert set(curves.to_dict()) >= {"mean_precision", "average_precision", "confidence"}


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
def test_the_best_threshold_is_the_best_of_all(text, seed):
    batch, num_classes = everywhere(seed, num_images=4), 3
    # Few distinct scores, so that thresholds take several detections at once.
    batch = type(batch)(
        batch.detections._with(scores=np.round(batch.detections.scores, 1).astype(np.float32)), batch.objects, 4
    )
    rule = Rule.parse(text)
    points = operating_points(match_scores(batch, num_classes=num_classes), rule=text, folds=2)
    scores = np.unique(batch.detections.scores)
    counts = [counts_at(batch, num_classes, score) for score in scores]
    pooled = [tuple(int(part.sum()) for part in count) for count in counts]
    assert np.array_equal(points.overall.threshold, float(best_threshold(rule, scores, pooled)), equal_nan=True)
    for label in range(num_classes):
        mine = [tuple(int(part[label]) for part in count) for count in counts]
        threshold = float(best_threshold(rule, scores, mine))
        assert np.array_equal(points.per_class.threshold[label], threshold, equal_nan=True)
        if not np.isnan(threshold):
            there = counts_at(batch, num_classes, threshold)
            ours = points.per_class.tp[label], points.per_class.fp[label], points.per_class.fn[label]
            assert ours == tuple(part[label] for part in there)


def test_cross_fitting_judges_on_other_images():
    batch = everywhere(3, num_images=20)
    matches = match_scores(batch, num_classes=3)
    points = operating_points(matches, folds=4, seed=7)
    fold = np.empty(20, dtype=int)
    fold[np.random.default_rng(7).permutation(20)] = np.arange(20) % 4
    total = np.zeros((3, 3), dtype=int)
    for number in range(4):
        for_choice, for_judging = (
            type(batch)(
                batch.detections.take(keep[batch.detections.image]), batch.objects.take(keep[batch.objects.image]), 20
            )
            for keep in (fold != number, fold == number)
        )
        chosen = operating_points(match_scores(for_choice, num_classes=3), folds=2).per_class.threshold
        for label in range(3):
            total[:, label] += [part[label] for part in counts_at(for_judging, 3, chosen[label])]
    fitted = points.per_class_cross_fitted
    assert np.array_equal(np.stack([fitted.tp, fitted.fp, fitted.fn]), total)
    assert (fitted.tp + fitted.fn == points.per_class.tp + points.per_class.fn).all()
    assert points.overall_cross_fitted.f_score <= points.overall.f_score


def test_a_threshold_on_noise_is_worth_less_than_it_looks():
    # Precision by itself is chance here: the best of many thresholds looks good and is not.
    looks, worth = [], []
    for seed in range(10):
        batch = everywhere(seed, num_images=10)
        points = operating_points(match_scores(batch, num_classes=3), rule="f0.5")
        looks.append(np.nanmean(points.per_class.f_score))
        worth.append(np.nanmean(points.per_class_cross_fitted.f_score))
    assert np.mean(worth) < np.mean(looks) - 0.01


def test_rules_are_read_or_refused():
    assert Rule.parse(" Precision=0.9 ") == Rule("precision", 0.9) and Rule.parse("f2").beta == 2
    for text in ("", "f", "f-1", "f0", "fnan", "accuracy", "precision", "precision=2", "recall=0", "f1=3", "recall=x"):
        with pytest.raises(ValueError, match="operating point"):
            Rule.parse(text)
    with pytest.raises(ValueError, match="folds"):
        operating_points(match_scores(everywhere(0, num_images=3), num_classes=3), folds=4)


def test_nothing_found():
    batch = everywhere(0, num_images=3)
    batch = type(batch)(batch.detections.take(np.zeros(len(batch.detections), dtype=bool)), batch.objects, 3)
    points = operating_points(match_scores(batch, num_classes=3), folds=2)
    assert np.isnan(points.overall.threshold) and np.isnan(points.overall.precision)
    assert points.overall.recall == 0 and points.to_dict()["per_class"]["tp"] == [0, 0, 0]


# --- classification ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_the_corners_of_a_curve_have_its_best_thresholds(seed):
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 30))
    scores = random.integers(0, random.choice([2, 8, 100]), size).astype(np.float32)
    own = random.random(size) < random.choice([0.0, 0.1, 0.5, 1.0])
    ranked, positives = np.sort(scores), np.sort(scores[own])
    whole, corners = count_curve(ranked, positives), corner_curve(ranked, positives)
    np.testing.assert_array_equal(corners.youden(), whole.youden())
    for level in (0.0, 0.3, 0.5, 0.95, 1.0):
        for name, held, wanted, nothing in (
            ("sensitivity_at", whole.specificity, whole.recall, (0.0, np.inf)),
            ("specificity_at", whole.recall, whole.specificity, (1.0, np.inf)),
        ):
            allowed = np.flatnonzero(held >= level)
            if not own.any() or own.all():
                expected = (np.nan, np.nan)
            elif not len(allowed) or (name == "specificity_at" and level == 0):
                expected = nothing
            else:
                best = allowed[wanted[allowed].argmax()]
                expected = (wanted[best], whole.thresholds[best])
            np.testing.assert_array_equal(getattr(whole, name)(level), expected)
            np.testing.assert_array_equal(getattr(corners, name)(level), expected)


@pytest.mark.parametrize("digits", [1, 6])
def test_classification_curves_are_those_of_scikit_learn(digits):
    pytest.importorskip("sklearn", minversion="1.1")  # older ones end the curve where recall is reached
    random = np.random.default_rng(digits)
    labels = random.integers(0, 3, 200)
    scores = np.round(random.random((200, 3)) + np.eye(3)[labels] * 0.3, digits)
    curves = classification_curves([scores[:90], scores[90:]], labels)
    for label, curve in enumerate(curves.per_class):
        fpr, tpr, thresholds = metrics.roc_curve(labels == label, scores[:, label], drop_intermediate=False)
        assert np.allclose(curve.false_positive_rate, fpr[1:], rtol=0, atol=1e-15)
        assert np.allclose(curve.recall, tpr[1:], rtol=0, atol=1e-15)
        assert np.array_equal(curve.thresholds, thresholds[1:])
        precision, recall, _ = metrics.precision_recall_curve(labels == label, scores[:, label])
        assert np.allclose(curve.precision[::-1], precision[:-1], rtol=0, atol=1e-15)
        assert np.allclose(curve.recall[::-1], recall[:-1], rtol=0, atol=1e-15)
        for floor in (0.2, 0.5, 0.9, 1.0):
            allowed = 1 - fpr >= floor
            assert curve.sensitivity_at(floor)[0] == pytest.approx(tpr[allowed].max(), abs=1e-15)
            allowed = tpr >= floor
            assert curve.specificity_at(floor)[0] == pytest.approx((1 - fpr)[allowed].max(), abs=1e-15)
            value, threshold = curve.sensitivity_at(floor)
            assert np.mean(scores[labels == label, label] >= threshold) == pytest.approx(value, abs=1e-15)
    ks = score_ks([scores], labels)
    value, threshold = curves.youden()
    assert np.array_equal(value, ks.per_class) and np.array_equal(threshold, ks.thresholds)


def test_a_class_without_samples_has_no_point():
    curves = classification_curves([np.array([[0.2, 0.8], [0.4, 0.6]])], np.array([1, 1]))
    assert np.isnan(curves.youden()[0]).all() and np.isnan(curves.sensitivity_at(0.5)[1]).all()
    curve = classification_curves([np.array([[0.1], [0.9]])], np.array([[1], [0]])).per_class[0]
    assert curve.sensitivity_at(1.0) == (0.0, float("inf"))
    assert curve.specificity_at(0.0) == (1.0, float("inf"))
