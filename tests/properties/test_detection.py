"""The detection functions, on problems with ties, crowds, empty images and boxes without area."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from mm_metrics_plugin.functional.boxes import box_iou, xyxy_to_xywh
from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects
from mm_metrics_plugin.functional.error_types import ERROR_TYPES, error_types
from mm_metrics_plugin.functional.matching import PROTOCOLS, match
from mm_metrics_plugin.states.scored_matches import ScoredMatchState

from mm_metrics_plugin.functional.disagreements import disagreements
from mm_metrics_plugin.functional.statistics.paired_tests import paired_permutation_test
from mm_metrics_plugin.functional.statistics.per_image_counts import per_image_counts
from mm_metrics_plugin.states.base import merge_all
from tests.functional.detection.problems import match_table
from tests.properties.checks import (
    check_confusion,
    check_inputs_kept,
    check_same_figures,
    permuted_figures,
)
from tests.properties.figures import SCORE_THRESHOLD, counted, figures, ranked
from tests.properties.strategies import DetectionProblem, detection_problem_of, order_of, rolls, score_map_of


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
    for kind in ("detections", "objects"):
        given_rows = getattr(batch, kind)
        within = any_order and kind == "detections"  # of objects that overlap alike, the later one is taken
        part = given_rows.take(order_of(roll, given_rows, within_images=within))
        part = replace(part, labels=names[part.labels], image=places[part.image])
        if roll.below(2):
            part = replace(part, boxes=xyxy_to_xywh(part.boxes), box_format="xywh")
        rows[kind] = part
    return problem.with_rows(**rows), names


@given(rolls)
def test_rows_of_different_images_may_be_mixed_and_classes_permuted(roll):
    problem = detection_problem_of(roll)
    other, names = moved(roll, problem, any_order=False)
    expected = permuted_figures(figures(problem), names)
    check_same_figures(figures(other), expected, "rows mixed, classes permuted", tolerance=1e-12)


@given(rolls)
def test_images_and_detections_with_different_scores_may_come_in_any_order(roll):
    problem = detection_problem_of(roll, distinct=True)
    other, names = moved(roll, problem, any_order=True)
    expected = permuted_figures(figures(problem), names)
    check_same_figures(figures(other), expected, "in another order", tolerance=1e-12)


@given(rolls)
def test_growing_maps_of_scores_change_no_rank(roll):
    problem, score_map = detection_problem_of(roll), score_map_of(roll)
    detections = problem.batch.detections
    threshold = detections.scores.dtype.type(SCORE_THRESHOLD)
    known = np.unique(np.append(detections.scores, threshold))
    mapped = problem.with_rows(
        detections=replace(detections, scores=score_map(detections.scores, known), precision=None)
    )
    check_same_figures(ranked(mapped), ranked(problem), f"scores {score_map.kind}", tolerance=0)
    cut = float(score_map(np.array([threshold]), known)[0])
    expected = counted(problem)
    check_same_figures(counted(mapped, score_threshold=cut), expected, f"scores {score_map.kind}", tolerance=0)


@given(rolls)
def test_counts_of_parts_add_up(roll):
    """Images have nothing to do with each other, so any parts of the data set add up, whatever their order."""
    problem = detection_problem_of(roll)
    batch = problem.batch
    cuts = sorted(roll.some(roll.below(4)) % (batch.num_images + 1))
    parts = [batch.images(start, stop) for start, stop in zip([0, *cuts], [*cuts, batch.num_images])]
    states, first = [], 0
    totals = {}
    for part in parts:
        for name, value in counted(DetectionProblem(part, problem.num_classes)).items():
            totals[name] = totals.get(name, 0) + value
        keys = np.arange(first, first + part.num_images)
        states.append(ScoredMatchState(problem.num_classes).update(part, keys))
        first += part.num_images
    check_same_figures(totals, counted(problem), "parts added up")
    merged = merge_all([states[place] for place in roll.order(len(states))])
    whole = match_scores(batch, num_classes=problem.num_classes)
    found = merged.matches()
    check_same_figures(
        {name: np.asarray(value) for name, value in vars(found.records).items()},
        {name: np.asarray(value) for name, value in vars(whole.records).items()},
        "matches merged",
    )
    assert found.num_images == whole.num_images


@given(rolls)
def test_a_comparison_turns_round_with_its_runs(roll):
    problem = detection_problem_of(roll, least_images=1)
    found = problem.batch.detections
    fewer = problem.with_rows(detections=found.take(np.flatnonzero(roll.some(len(found)) % 3)))
    one, other = (match_table(run.batch, problem.num_classes) for run in (problem, fewer))
    pairs_of_runs = ((one, other), (other, one), (one, one))
    there, back, same = (paired_permutation_test(*pair, permutations=5) for pair in pairs_of_runs)
    for kind in ("overall", "per_class"):
        for name, difference in getattr(there, kind).items():
            turned = getattr(back, kind)[name]
            pairs = [(turned.first, difference.second), (turned.second, difference.first)]
            pairs += [(turned.low, -difference.high), (turned.high, -difference.low)]
            pairs += [(turned.difference, -difference.difference)]
            for mine, theirs in pairs:
                np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12, err_msg=name)
            nothing = getattr(same, kind)[name]
            np.testing.assert_allclose(np.nan_to_num(nothing.difference), 0, rtol=0, atol=1e-12, err_msg=name)
            assert (np.isnan(nothing.p_value) | (np.asarray(nothing.p_value) == 1)).all()
    counts = [per_image_counts(run, score_thr=SCORE_THRESHOLD) for run in (one, other)]
    said, turned = disagreements(*counts), disagreements(*counts[::-1])
    assert said.counts == {"better": turned.counts["worse"], "worse": turned.counts["better"]}
    assert set(said.image) == set(turned.image)


@given(rolls)
def test_arrays_are_left_as_they_are(roll):
    problem = detection_problem_of(roll)
    batch = problem.batch
    found, there = batch.detections, batch.objects

    def everything(image, boxes, scores, labels, object_image, object_boxes, object_labels, crowd):
        detections = Detections(image, boxes, scores, labels)
        objects = Objects(object_image, object_boxes, object_labels, crowd=crowd)
        figures(DetectionProblem(DetectionBatch(detections, objects, batch.num_images), problem.num_classes))
        box_iou(object_boxes, object_boxes[::-1])

    arrays = (found.image, found.boxes, found.scores, found.labels)
    check_inputs_kept(everything, (*arrays, there.image, there.boxes, there.labels, there.crowd))


@given(rolls)
def test_everything_is_counted_once(roll):
    problem = detection_problem_of(roll)
    detections, objects = problem.batch.detections, problem.batch.objects
    for protocol in ("coco", "agnostic"):
        matches = match(detections, objects, num_classes=problem.num_classes, protocol=protocol)
        labels = [objects.labels[~objects.crowd], detections.labels[matches.used], detections.labels[matches.tp]]
        there, found, right = (np.bincount(part, minlength=problem.num_classes) for part in labels)
        check_confusion(matches.matrix, objects=there, detections=found, tp=right)
        dropped = matches.detections_below_threshold + matches.detections_ignored
        assert matches.detections + dropped == len(detections)
        assert matches.objects + matches.objects_ignored == len(objects)
        taken = matches.matched_object[matches.used & (matches.matched_object >= 0)]
        assert len(np.unique(taken)) == len(taken)  # no object twice


@given(rolls)
def test_every_error_has_one_kind(roll):
    problem = detection_problem_of(roll)
    errors = error_types(problem.batch, num_classes=problem.num_classes)
    regular = np.bincount(problem.batch.objects.labels[~problem.batch.objects.crowd], minlength=problem.num_classes)
    found = np.bincount(problem.batch.detections.labels, minlength=problem.num_classes)
    wrong = sum(errors.counts[name] for name in ERROR_TYPES if name != "missed")
    right = found - wrong
    assert (right >= 0).all() and (right <= regular).all()
    assert (errors.counts["missed"] <= regular - right).all()
    for name in ERROR_TYPES:
        assert (errors.ignored[name] <= errors.counts[name]).all()
        assert not errors.gains[name] < 0


def perfect(problem):
    """One detection on every object that is no crowd and has an area, and no other objects."""
    objects = problem.batch.objects
    sides = objects.boxes[:, 2:] - objects.boxes[:, :2]
    objects = objects.take(~objects.crowd & (sides > 0).all(axis=1))
    scores = 0.5 + np.arange(len(objects)) / 32
    detections = Detections(objects.image, objects.boxes, scores, objects.labels)
    return problem.with_rows(detections=detections, objects=objects)


@given(rolls)
def test_perfect_is_one_and_beside_is_nothing(roll):
    problem = perfect(detection_problem_of(roll))
    present = np.unique(problem.batch.objects.labels)
    detections = problem.batch.detections
    places = np.column_stack([detections.image, detections.boxes])
    apart = len(np.unique(places, axis=0)) == len(places)
    beside = problem.with_rows(detections=replace(detections, boxes=detections.boxes + 1000))
    for given_problem, value in ((problem, 1.0), (beside, 0.0)):
        found = ranked(given_problem)
        levels = found["class/precision"][:, 0]  # of all areas
        np.testing.assert_allclose(levels[present], value, rtol=0, atol=1e-12)
        assert np.isnan(np.delete(levels, present, axis=0)).all()
        np.testing.assert_allclose(found["class/errors AP"][present], value, rtol=0, atol=1e-12)
        wrong = sum(found[f"class/{name}"].sum() for name in ERROR_TYPES)
        assert wrong == (0 if value else 2 * len(detections))
        matrices = counted(given_problem)
        for protocol in PROTOCOLS:
            matrix = matrices[f"matrix/{protocol}"]
            if value == 0:
                assert matrix.trace() == 0
            elif protocol == "coco" or (protocol == "agnostic" and apart):
                assert matrix.trace() == matrix.sum()
            else:  # agnostic cannot tell classes apart where boxes coincide, and mmdet counts every pair
                assert matrix[-1].sum() == matrix[:, -1].sum() == 0


@given(rolls)
def test_equal_scores_are_settled_by_the_order_of_images_and_rows(roll):
    """The written rule: score descending, then image order, then detection order. Told apart by it, nothing changes."""
    problem, step = detection_problem_of(roll), roll.one_of([0.25, 0.5, 1.0])
    detections = problem.batch.detections
    order = np.lexsort((np.arange(len(detections)), detections.image, -detections.scores))
    distinct = np.empty(len(order))
    distinct[order] = np.arange(len(order), 0, -1) * step
    told_apart = problem.with_rows(detections=replace(detections, scores=distinct))
    left, right = ranked(problem), ranked(told_apart)
    # A threshold cannot part equal scores: what is best may differ, and so may where mended errors come among equals.
    settled = ("class/precision", "class/recall", "class/curve AP", *(f"class/{name}" for name in ERROR_TYPES))
    check_same_figures({n: right[n] for n in settled}, {n: left[n] for n in settled}, "told apart", tolerance=0)
