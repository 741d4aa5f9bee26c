"""The detection functions, on problems with ties, crowds, empty images and boxes without area."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given

from mm_metrics_plugin.evaluation.examples import disagreements
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes, box_iou
from mm_metrics_plugin.functional.detection.match_table import Outcome
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.detection.tide import ERROR_TYPES, tide_errors
from mm_metrics_plugin.functional.statistics.paired_tests import paired_permutation_test
from mm_metrics_plugin.functional.statistics.per_image_counts import per_image_counts
from mm_metrics_plugin.settings import DetectionSettings
from tests.helpers.checks import (
    check_confusion,
    check_inputs_kept,
    check_same_figures,
    permuted_figures,
)
from tests.helpers.detection_metrics import SCORE_THRESHOLD, all_metrics, ranking_metrics, threshold_counts
from tests.helpers.detection_problems import match_table
from tests.helpers.strategies import DetectionProblem, detection_problem_of, order_of, rolls, score_map_of


def moved(roll, problem, *, any_order):
    """The problem with its rows in another order, other names for its classes, and boxes given by their widths.

    Args:
        roll: What decides.
        problem: What is moved.
        any_order: Also images and their detections in another order. Otherwise rows stay in order within an image.
    """
    batch, rows = problem.batch, {}
    names = roll.order(problem.num_classes)
    places = np.arange(batch.num_images)
    if any_order:
        places = roll.order(batch.num_images)
    for kind in ("detections", "ground_truths"):
        given_rows = getattr(batch, kind)
        within = any_order and kind == "detections"  # of equal overlaps, the later ground truth is matched
        part = given_rows.take(order_of(roll, given_rows, within_images=within))
        part = replace(part, labels=names[part.labels], image=places[part.image])
        if roll.below(2):
            part = replace(part, geometry=Boxes(part.boxes.to_format("xywh"), "xywh"))
        rows[kind] = part
    return problem.with_rows(**rows), names


@given(rolls)
def test_rows_of_images_may_be_mixed_and_classes_permuted(roll):
    problem = detection_problem_of(roll)
    other, names = moved(roll, problem, any_order=False)
    expected = permuted_figures(all_metrics(problem), names)
    check_same_figures(all_metrics(other), expected, "rows mixed, classes permuted", tolerance=1e-12)


@given(rolls)
def test_order_of_images_and_detections_does_not_matter(roll):
    problem = detection_problem_of(roll, distinct=True)
    other, names = moved(roll, problem, any_order=True)
    expected = permuted_figures(all_metrics(problem), names)
    check_same_figures(all_metrics(other), expected, "in another order", tolerance=1e-12)


@given(rolls)
def test_monotonic_score_maps_do_not_change_ranks(roll):
    problem, score_map = detection_problem_of(roll), score_map_of(roll)
    detections = problem.batch.detections
    threshold = detections.scores.dtype.type(SCORE_THRESHOLD)
    known = np.unique(np.append(detections.scores, threshold))
    mapped = problem.with_rows(
        detections=replace(detections, scores=score_map(detections.scores, known), precision=None)
    )
    check_same_figures(ranking_metrics(mapped), ranking_metrics(problem), f"scores {score_map.kind}", tolerance=0)
    cut = float(score_map(np.array([threshold]), known)[0])
    expected = threshold_counts(problem)
    check_same_figures(threshold_counts(mapped, score_threshold=cut), expected, f"scores {score_map.kind}", tolerance=0)


@given(rolls)
def test_comparison_is_antisymmetric(roll):
    problem = detection_problem_of(roll, least_images=1)
    actual = problem.batch.detections
    fewer = problem.with_rows(detections=actual.take(np.flatnonzero(roll.some(len(actual)) % 3)))
    first, second = (match_table(run.batch, problem.num_classes) for run in (problem, fewer))
    pairs_of_runs = ((first, second), (second, first), (first, first))
    ground_truths, back, same = (paired_permutation_test(*pair, permutations=5) for pair in pairs_of_runs)
    for kind in ("overall", "per_class"):
        for name, difference in getattr(ground_truths, kind).items():
            turned = getattr(back, kind)[name]
            pairs = [(turned.first, difference.second), (turned.second, difference.first)]
            pairs += [(turned.low, -difference.high), (turned.high, -difference.low)]
            pairs += [(turned.difference, -difference.difference)]
            for own, expected in pairs:
                np.testing.assert_allclose(own, expected, rtol=0, atol=1e-12, err_msg=name)
            nothing = getattr(same, kind)[name]
            np.testing.assert_allclose(np.nan_to_num(nothing.difference), 0, rtol=0, atol=1e-12, err_msg=name)
            assert (np.isnan(nothing.p_value) | (np.asarray(nothing.p_value) == 1)).all()
    counts = [per_image_counts(run, score_thr=SCORE_THRESHOLD) for run in (first, second)]
    reported, turned = disagreements(*counts), disagreements(*counts[::-1])
    assert reported.counts == {"better": turned.counts["worse"], "worse": turned.counts["better"]}
    assert set(reported.image) == set(turned.image)


@given(rolls)
def test_inputs_are_not_modified(roll):
    problem = detection_problem_of(roll)
    batch = problem.batch
    dets, gts = batch.detections, batch.ground_truths

    def everything(image, boxes, scores, labels, gt_image, gt_boxes, gt_labels, crowd):
        detections = Detections(image, boxes, scores, labels)
        ground_truths = GroundTruths(gt_image, gt_boxes, gt_labels, crowd=crowd)
        all_metrics(DetectionProblem(DetectionBatch(detections, ground_truths, batch.num_images), problem.num_classes))
        box_iou(gt_boxes, gt_boxes[::-1])

    arrays = (dets.image, dets.boxes.array, dets.scores, dets.labels)
    check_inputs_kept(everything, (*arrays, gts.image, gts.boxes.array, gts.labels, gts.crowd))


@given(rolls)
def test_every_detection_and_ground_truth_is_counted_once(roll):
    problem = detection_problem_of(roll)
    dets, gts = problem.batch.detections, problem.batch.ground_truths
    settings = DetectionSettings(matching=("coco", "agnostic"))
    actual = match_images(problem.batch, settings, num_classes=problem.num_classes)
    outcome = actual.table.details.outcome
    for rule, counts in actual.rules.items():
        tp = counts.matrix.diagonal()[:-1]
        if rule == "coco":
            tp = np.bincount(actual.table.label[outcome == Outcome.TP], minlength=problem.num_classes)
            used = np.bincount(actual.table.label[outcome < Outcome.IGNORED], minlength=problem.num_classes)
            np.testing.assert_array_equal(counts.detections, used)
            assert actual.counts.detections_below_threshold == np.count_nonzero(outcome == Outcome.BELOW_THRESHOLD)
        objects = np.bincount(gts.labels[~gts.crowd], minlength=problem.num_classes)
        check_confusion(counts.matrix, ground_truths=objects, detections=counts.detections, tp=tp)
        dropped = actual.counts.detections_below_threshold + counts.detections_ignored
        assert counts.detections.sum() + dropped == len(dets)
        assert counts.ground_truths.sum() + counts.ground_truths_ignored == len(gts)
        members = found_pairs(problem, rule)
        assert len(set(members)) == len(members)  # no ground truth twice


def found_pairs(problem, rule):
    """Image and position of the matched ground truths."""
    actual = match_images(
        problem.batch, DetectionSettings(matching=(rule,)), num_classes=problem.num_classes, worst_images=0
    )
    members = actual.examples.cells
    matched = members.take(np.flatnonzero((members.det_index >= 0) & (members.background_type < 0)))
    return list(zip(matched.image.tolist(), matched.gt_index.tolist()))


@given(rolls)
def test_every_error_has_one_type(roll):
    problem = detection_problem_of(roll)
    gts, size = problem.batch.ground_truths, problem.num_classes
    errors = tide_errors(match_images(problem.batch, DetectionSettings(), num_classes=size).table)
    objects = np.bincount(gts.labels[~gts.crowd], minlength=size)
    wrong = sum(errors.counts[name] for name in ERROR_TYPES if name != "missed")
    tp = np.bincount(problem.batch.detections.labels, minlength=size) - wrong
    assert (tp >= 0).all() and (tp <= objects).all()
    assert (errors.counts["missed"] <= objects - tp).all()
    for name in ERROR_TYPES:
        assert (errors.ignored[name] <= errors.counts[name]).all()
        assert not errors.dap[name] < 0


@given(rolls)
def test_ties_are_broken_by_image_and_row(roll):
    """Score descending, then image order, then detection order: distinct scores in this order change nothing."""
    problem, step = detection_problem_of(roll), roll.one_of([0.25, 0.5, 1.0])
    detections = problem.batch.detections
    order = np.lexsort((np.arange(len(detections)), detections.image, -detections.scores))
    distinct = np.empty(len(order))
    distinct[order] = np.arange(len(order), 0, -1) * step
    distinct_scores = problem.with_rows(detections=replace(detections, scores=distinct, precision=None))
    left, right = ranking_metrics(problem), ranking_metrics(distinct_scores)
    # A threshold cannot separate equal scores, so the best thresholds and the ranks of fixed errors may differ.
    settled = ("class/AP", "class/recall", "class/curve AP", *(f"class/{name}" for name in ERROR_TYPES))
    check_same_figures({n: right[n] for n in settled}, {n: left[n] for n in settled}, "distinct scores", tolerance=0)
