"""No two tables of one report disagree about TP, FP or FN at the same threshold, however many boxes an image has."""

from __future__ import annotations

import numpy as np
import pytest
from mm_metrics_plugin.functional.cell_members import cell_members
from mm_metrics_plugin.functional.coco_ap import APSettings, average_precision, match_for_ap
from mm_metrics_plugin.functional.comparison import compare_detection
from mm_metrics_plugin.functional.detection_batch import DetectionBatch
from mm_metrics_plugin.functional.error_types import ERROR_TYPES, error_types
from mm_metrics_plugin.functional.false_positives import BACKGROUND_TYPES, background_types, count_background_types
from mm_metrics_plugin.functional.intervals import bootstrap_detection
from mm_metrics_plugin.functional.matching import PROTOCOLS, match
from mm_metrics_plugin.functional.scored_matches import COCO_IOU_THRESHOLDS, match_scores
from mm_metrics_plugin.functional.threshold_counts import threshold_counts
from mm_metrics_plugin.functional.worst_images import worst_images

from mm_metrics_plugin.functional.detection_analysis import analyse_detections
from mm_metrics_plugin.functional.detection_report import FALSE_POSITIVES, protocol_report
from mm_metrics_plugin.states.base import merge_all
from mm_metrics_plugin.states.detection import DetectionState
from tests.functional.detection_problems import accumulated, crowded_images, dense_batch, random_batch


def counts_of(matrix):
    """TP, FP and FN of each class."""
    tp = matrix.diagonal()[:-1]
    return tp, matrix[:, :-1].sum(axis=0) - tp, matrix[:-1].sum(axis=1) - tp


def same_counts(expected, *found):
    for mine, theirs in zip(expected, found):
        np.testing.assert_array_equal(theirs, mine)


@pytest.mark.parametrize("seed", range(8))
def test_every_table_has_the_same_counts(seed):
    batch, size = dense_batch(seed)
    score, iou = [(0.3, 0.5), (0.05, 0.5), (0.62, 0.75), (0.3, 0.42)][seed % 4]
    rules = dict(num_classes=size, iou_threshold=iou, score_threshold=score)
    matches = match(batch.detections, batch.objects, **rules)
    matrix = matches.matrix
    tp, fp, fn = expected = counts_of(matrix)
    assert fp.sum() > 100 and matches.detections > 200

    state = DetectionState(size, iou_threshold=iou, score_threshold=score).update(batch, np.arange(batch.num_images))
    report = protocol_report(
        "coco",
        state.matrix,
        classes=[str(label) for label in range(size)],
        objects=matrix.sum(axis=1)[:-1],
        detections=matrix.sum(axis=0)[:-1],
        counts=state.tally,
        background_types=state.false_positives,
    )
    columns = report.columns
    same_counts(expected, columns["tp"], columns["fp"], columns["fn"])
    np.testing.assert_array_equal(sum(columns[name] for name in FALSE_POSITIVES), fp)
    np.testing.assert_array_equal(sum(columns[name] for name in FALSE_POSITIVES[1:]), matrix[-1, :-1])

    names = [str(label) for label in range(size)]
    analysis = analyse_detections(
        batch, classes=names, score_threshold=score, iou_threshold=iou, operating_point="f1", level=0.9, resamples=2
    )
    assert analysis.most_detections > analysis.max_dets == 100  # so the limit would show
    same_counts(expected, analysis.sizes.tp[0], analysis.sizes.fp[0], analysis.sizes.objects[0] - analysis.sizes.tp[0])
    curve = threshold_counts(analysis.curves, also=[score])
    place = int(np.flatnonzero(curve.thresholds == score)[0])
    same_counts(expected, curve.tp[:, place], curve.fp[:, place], curve.objects - curve.tp[:, place])
    scored = match_scores(batch, num_classes=size, iou_thresholds=[iou])
    same_counts(expected, *scored.image_counts(score_threshold=score, iou_threshold=iou).totals())
    worst = worst_images(batch, matches)
    assert (worst.right.sum(), worst.wrong.sum(), worst.lost.sum()) == (tp.sum(), fp.sum(), fn.sum())
    assert worst.missed.sum() == fn.sum()
    recall = analysis.intervals.overall["micro_recall"].value
    assert recall == pytest.approx(tp.sum() / (tp.sum() + fn.sum()), abs=1e-15)

    for point in (analysis.points.overall, analysis.points.per_class):
        for label, threshold in enumerate(np.atleast_1d(point.threshold).tolist()):
            there = match(batch.detections, batch.objects, **{**rules, "score_threshold": threshold}).matrix
            for value, number in zip((point.tp, point.fp, point.fn), counts_of(there)):
                assert np.atleast_1d(value)[label] == (number[label] if np.ndim(value) else number.sum())

    errors = analysis.errors_at_threshold
    np.testing.assert_array_equal(sum(errors[name] for name in ERROR_TYPES if name != "missed"), fp)
    confused = matrix[:-1, :-1].sum(axis=1) - tp
    np.testing.assert_array_equal(errors["missed"] + confused, fn)
    np.testing.assert_array_equal(errors["class"], columns["fp_confusion"] + columns["fp_confusion_matched"])
    np.testing.assert_array_equal(errors["duplicate"], columns["fp_duplicate"])
    np.testing.assert_array_equal(
        errors["localisation"] + errors["both"] + errors["background"], columns["fp_background"]
    )

    members = cell_members(batch, per_cell=10**6, most=10**9, **rules)
    np.testing.assert_array_equal(members.matrix, matrix)
    for index, name in enumerate(BACKGROUND_TYPES):
        labels = batch.detections.labels[members.detection[members.background_type == index]]
        np.testing.assert_array_equal(np.bincount(labels, minlength=size), columns[f"fp_{name}"])


@pytest.mark.parametrize("seed", range(4))
def test_tide_counts_the_false_positives_of_the_matrix_at_every_score(seed):
    """Where nothing ties and there are no crowds, both match alike."""
    batch, size = dense_batch(seed, ties=False, crowds=False)
    _, fp, _ = counts_of(match(batch.detections, batch.objects, num_classes=size, score_threshold=-1).matrix)
    errors = error_types(batch, num_classes=size)
    assert errors.detections == len(batch.detections) and errors.max_dets is None
    np.testing.assert_array_equal(sum(errors.counts[name] for name in ERROR_TYPES if name != "missed"), fp)


def test_all_objects_found_are_all_objects_found():
    """240 objects of one class per image, all detected: recall 1 in every table, and nothing missed."""
    batch = crowded_images()
    analysis = analyse_detections(batch, classes=["nut"], operating_point="f1", level=0.9, resamples=2)
    sizes = analysis.sizes.figures()
    assert sizes["all"]["mean_recall"] == sizes["small"]["mean_recall"] == 1
    assert (sizes["all"]["tp"], sizes["all"]["fp"], sizes["all"]["objects"]) == (1200, 0, 1200)
    assert analysis.points.overall.recall == analysis.intervals.overall["mean_recall"].value == 1
    assert set(analysis.error_totals.values()) == set(analysis.errors.totals.values()) == {0}
    assert analysis.errors.average_precision == 1
    found = analysis.average_precision.to_dict()
    assert found["mAP_50"] == pytest.approx(42 / 101, abs=1e-12)  # recall 100 of 240: levels 0 to 0.41
    assert (analysis.max_dets, analysis.most_detections) == (100, 240)
    assert sizes["all"]["mAP_50"] == pytest.approx(found["mAP_50"], abs=1e-12)
    assert analysis.intervals.overall["mAP_50"].value == pytest.approx(found["mAP_50"], abs=1e-12)
    assert analysis.curves.average_precision[0] == pytest.approx(found["mAP_50"], abs=1e-12)
    everything = analyse_detections(batch, classes=["nut"], max_dets=240)
    assert everything.average_precision.to_dict()["mAP"] == everything.sizes.figures()["all"]["mAP"] == 1


@pytest.mark.parametrize("max_dets", [1, 7, 100, 1000])
def test_matching_all_and_limiting_by_rank_is_pycocotools_with_max_dets(max_dets):
    """The limit comes after matching; pycocotools applies it before."""
    for seed in range(3):
        batch, size = dense_batch(seed)
        theirs = accumulated(batch, size, maxDets=[max_dets])
        precision, recall = (
            np.where(theirs[key] == -1, np.nan, theirs[key])[..., -1] for key in ("precision", "recall")
        )
        settings = APSettings(size, max_detections=[max_dets])
        records = match_for_ap(batch.detections, batch.objects, settings)
        assert len(records.score) == len(batch.detections)
        ours = average_precision(records, settings)
        np.testing.assert_allclose(ours.precision, precision.transpose(3, 0, 2, 1), rtol=0, atol=1e-12)
        np.testing.assert_allclose(ours.recall[:, -1], recall.transpose(2, 0, 1), rtol=0, atol=1e-12)
        # Every other AP of a report is the same one.
        expected = ours.to_dict()
        names = [str(label) for label in range(size)]
        analysis = analyse_detections(batch, classes=names, level=0.9, resamples=2, max_dets=max_dets)
        runs = [
            match_scores(batch, num_classes=size, iou_thresholds=COCO_IOU_THRESHOLDS, max_dets=max_dets)
            for _ in range(2)
        ]
        compared = compare_detection(*runs, permutations=2).overall
        for key in ("mAP", "mAP_50"):
            assert analysis.average_precision.to_dict()[key] == pytest.approx(expected[key], abs=1e-12)
            assert analysis.sizes.figures()["all"][key] == pytest.approx(expected[key], abs=1e-12)
            assert analysis.intervals.overall[key].value == pytest.approx(expected[key], abs=1e-12)
            assert compared[key].first == compared[key].second == pytest.approx(expected[key], abs=1e-12)
        assert np.nanmean(analysis.curves.average_precision) == pytest.approx(expected["mAP_50"], abs=1e-12)


def test_runs_with_different_limits_are_not_compared():
    batch, size = dense_batch(0)
    runs = [match_scores(batch, num_classes=size, max_dets=number) for number in (100, 300)]
    with pytest.raises(ValueError, match=r"max_dets.*100 and 300"):
        compare_detection(*runs, permutations=2)
    assert bootstrap_detection(runs[1], resamples=2).overall["mAP_50"].value > 0


# --- types of false positives -----------------------------------------------------------------------------------------


def iou(first, second):
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return width * height / (areas[0] + areas[1] - width * height)


@pytest.mark.parametrize("protocol", ["coco", "agnostic"])
@pytest.mark.parametrize("threshold", [0.5, 0.75])
def test_types_of_false_positives_by_a_plain_loop(protocol, threshold):
    totals = np.zeros(3, dtype=int)
    for seed in range(60):
        batch, size = random_batch(seed)
        found, there = batch.detections, batch.objects
        rules = dict(num_classes=size, protocol=protocol, iou_threshold=threshold, score_threshold=0.2)
        matches = match(found, there, **rules)
        taken = {int(row) for row in matches.matched_object if row >= 0}
        expected = {}
        for row in range(len(found)):
            if not matches.used[row] or matches.matched_object[row] >= 0:
                continue
            reached = [
                other
                for other in range(len(there))
                if not there.crowd[other]
                and there.image[other] == found.image[row]
                and iou(found.boxes[row].tolist(), there.boxes[other].tolist()) >= threshold
            ]
            assert set(reached) <= taken  # otherwise it would have matched one of them
            own = any(there.labels[other] == found.labels[row] for other in reached)
            expected[row] = "duplicate" if own else "confusion_matched" if reached else "background"
        rows, types = background_types(found, there, matches)
        assert dict(zip(rows.tolist(), (BACKGROUND_TYPES[index] for index in types))) == expected
        counted = count_background_types(found, there, matches)
        np.testing.assert_array_equal(counted.sum(axis=0), matches.matrix[-1, :-1])
        totals += counted.sum(axis=1)
    assert (totals > 20).all()


def test_mmdet_has_nothing_but_background_in_its_last_row():
    for seed in range(20):
        batch, size = random_batch(seed)
        matches = match(batch.detections, batch.objects, num_classes=size, protocol="mmdet")
        counted = count_background_types(batch.detections, batch.objects, matches)
        np.testing.assert_array_equal(counted, [np.zeros(size), np.zeros(size), matches.matrix[-1, :-1]])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_types_of_shards_add_up(protocol):
    for seed in range(20):
        batch, size = random_batch(seed)
        whole = DetectionState(size, protocol=protocol).update(batch, np.arange(batch.num_images))
        parts = [
            DetectionState(size, protocol=protocol).update(batch.images(image, image + 1), np.array([image]))
            for image in reversed(range(batch.num_images))
        ]
        merged = merge_all(parts)
        assert np.array_equal(merged.false_positives, whole.false_positives)
        assert np.array_equal(merged.with_arrays(merged.arrays()).false_positives, whole.false_positives)
    empty = DetectionState(3)
    assert empty.false_positives.tolist() == [[0] * 3] * 3 and empty.most_detections == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_without_a_match_has_the_object_of_the_highest_iou(protocol):
    seen = np.zeros(3, dtype=int)
    for seed in range(40):
        batch, size = random_batch(seed)
        rules = dict(num_classes=size, protocol=protocol, iou_threshold=0.5, score_threshold=0.2)
        members = cell_members(batch, per_cell=10**6, most=10**9, **rules)
        for place, kind in enumerate(members.background_type.tolist()):
            row, best = int(members.detection[place]), int(members.best_object[place])
            if kind < 0:  # matched, or a missed object
                assert best == members.object[place]
                continue
            seen[kind] += 1
            assert members.object[place] == -1
            overlaps = {
                other: iou(batch.detections.boxes[row].tolist(), batch.objects.boxes[other].tolist())
                for other in range(len(batch.objects))
                if batch.objects.image[other] == batch.detections.image[row]
                and (protocol == "mmdet" or not batch.objects.crowd[other])
            }
            highest = max(overlaps.values(), default=0.0)
            assert members.best_overlap[place] == pytest.approx(highest, abs=1e-12)
            assert (best == -1) == (highest == 0)
            if best >= 0:
                assert overlaps[best] == pytest.approx(highest, abs=1e-12)
            if protocol != "mmdet":
                assert (highest >= 0.5) == (BACKGROUND_TYPES[kind] != "background")
    assert seen[2] > 20 and (protocol == "mmdet" or (seen > 20).all())


# --- areas ------------------------------------------------------------------------------------------------------------


def test_thin_objects_and_own_areas_are_counted_as_in_pycocotools():
    """Objects thinner than a pixel are objects, and a given area decides the range."""
    random = np.random.default_rng(0)
    for seed in range(10):
        batch, size = random_batch(seed, odd_boxes=False)
        boxes = batch.objects.boxes.astype(np.float64)
        thin = random.random(len(boxes)) < 0.5
        boxes[thin, 2] = boxes[thin, 0] + random.uniform(0.05, 0.9, thin.sum())
        area = random.choice([0.3, 900.0, 5000.0, 20000.0], len(boxes))
        objects = batch.objects._with(boxes=boxes)
        objects = type(objects)(**{**vars(objects), "area": area})
        found = batch.detections
        near = random.integers(0, max(1, len(boxes)), len(found)) if len(boxes) else None
        if near is not None and len(found):
            found = found._with(boxes=boxes[near], image=objects.image[near])
        problem = DetectionBatch(found, objects, batch.num_images)
        theirs = accumulated(problem, size)
        settings = APSettings(size)
        ours = average_precision(match_for_ap(found, objects, settings), settings)
        precision = np.where(theirs["precision"] == -1, np.nan, theirs["precision"])[..., -1]
        np.testing.assert_allclose(ours.precision, precision.transpose(3, 0, 2, 1), rtol=0, atol=1e-12)
