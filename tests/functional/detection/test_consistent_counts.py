"""No two tables of one report disagree about TP, FP or FN at the same threshold, however many boxes an image has."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin.evaluation.detection_analysis import analyze_detections
from mm_metrics_plugin.functional.detection import examples
from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.functional.detection.confusion_rules import FALSE_POSITIVES, protocol_report
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.detection.pr_curves import threshold_sweep
from mm_metrics_plugin.functional.detection.tide import ERROR_TYPES
from mm_metrics_plugin.functional.statistics.paired_tests import paired_permutation_test
from mm_metrics_plugin.functional.statistics.per_image_counts import per_image_counts
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.states.detection import DetectionState
from tests.helpers.coco_problems import counts_at, members_of
from tests.helpers.detection_problems import crowded_images, dense_batch


def same_counts(expected, *found):
    for mine, theirs in zip(expected, found):
        np.testing.assert_array_equal(theirs, mine)


@pytest.mark.parametrize("seed", range(8))
def test_every_table_has_the_same_counts(seed, monkeypatch):
    monkeypatch.setattr(examples, "MAX_PER_CELL", 10**6)
    batch, size = dense_batch(seed)
    names = [str(label) for label in range(size)]
    score_thr, iou_thr = [(0.3, 0.5), (0.05, 0.5), (0.62, 0.75), (0.3, 0.42)][seed % 4]
    settings = DetectionSettings(
        score_thr=score_thr, iou_thr=iou_thr, operating_point="f1", ci=0.9, resamples=2, matching=("coco", "agnostic")
    )
    state = DetectionState(size, settings, worst_images=batch.num_images).update(batch, np.arange(batch.num_images))
    tp, fp, fn = expected = counts_at(batch, size, score_thr, iou_thr)
    assert fp.sum() > 100 and (tp + fp).sum() > 200

    table, coco = state.table(), state.rule("coco")
    analysis, matrix = analyze_detections(table, settings, classes=names), coco.matrix
    objects, detections = coco.used_per_class
    columns = protocol_report(
        "coco",
        matrix,
        classes=names,
        ground_truths=objects,
        detections=detections,
        counts=coco.counts_by_name,
        background_types=coco.false_positives,
    ).columns
    same_counts(expected, columns["tp"], columns["fp"], columns["fn"])
    same_counts((tp + fn, tp + fp), objects, detections)
    np.testing.assert_array_equal(sum(columns[name] for name in FALSE_POSITIVES), fp)
    np.testing.assert_array_equal(sum(columns[name] for name in FALSE_POSITIVES[1:]), matrix[-1, :-1])

    assert analysis.most_detections > analysis.max_dets == 100  # so the limit would show
    sizes = analysis.sizes
    same_counts(expected, sizes.tp[0], sizes.fp[0], sizes.ground_truths[0] - sizes.tp[0])
    sweep = threshold_sweep(analysis.curves, also=[score_thr])
    place = int(np.flatnonzero(sweep.thresholds == score_thr)[0])
    same_counts(expected, sweep.tp[:, place], sweep.fp[:, place], sweep.ground_truths - sweep.tp[:, place])
    same_counts(expected, *per_image_counts(table, score_thr=score_thr, iou_thr=iou_thr).totals())
    recall = analysis.intervals.overall["recall_micro"].value
    assert recall == pytest.approx(tp.sum() / (tp.sum() + fn.sum()), abs=1e-15)
    for label, point in [(slice(None), analysis.points.overall), *enumerate(analysis.points.per_class)]:
        there = counts_at(batch, size, point.threshold, iou_thr)
        assert [point.tp, point.fp, point.fn] == [int(part[label].sum()) for part in there]

    errors = analysis.errors_at_threshold
    np.testing.assert_array_equal(sum(errors[name] for name in ERROR_TYPES if name != "missed"), fp)
    np.testing.assert_array_equal(errors["missed"] + matrix[:-1, :-1].sum(axis=1) - tp, fn)
    confused = columns["fp_confusion"] + columns["fp_confusion_matched"]
    np.testing.assert_array_equal(errors["classification"], confused)
    np.testing.assert_array_equal(errors["duplicate"], columns["fp_duplicate"])
    on_background = errors["localization"] + errors["both"] + errors["background"]
    np.testing.assert_array_equal(on_background, columns["fp_background"])

    shown = state.examples()
    for kind, counts in enumerate(expected):
        labels = shown.boxes.label[shown.boxes.kind == kind]
        np.testing.assert_array_equal(np.bincount(labels, minlength=size), counts)
    assert shown.images.missed.sum() == fn.sum()
    for rule in settings.matching:
        listed = np.bincount(members_of(shown.members, rule).cell, minlength=matrix.size)
        np.testing.assert_array_equal(listed, state.rule(rule).matrix.ravel())


def test_everything_detected_is_recall_1_in_every_table():
    """240 ground truths of one class per image, all detected, of which AP uses 100."""
    batch, settings = crowded_images(), DetectionSettings(operating_point="f1", ci=0.9, resamples=2)
    table = match_images(batch, settings, num_classes=1).table
    analysis = analyze_detections(table, settings, classes=["nut"])
    sizes = analysis.sizes.metrics()
    assert sizes["all"]["recall"] == sizes["small"]["recall"] == 1
    assert (sizes["all"]["tp"], sizes["all"]["fp"], sizes["all"]["ground_truths"]) == (1200, 0, 1200)
    assert analysis.points.overall.recall == analysis.intervals.overall["recall"].value == 1
    assert set(analysis.error_totals.values()) == set(analysis.errors.totals.values()) == {0}
    assert analysis.errors.average_precision == 1
    assert (analysis.max_dets, analysis.most_detections) == (100, 240)
    limited = 42 / 101  # recall 100 of 240: levels 0 to 0.41
    for value in (
        analysis.average_precision.to_dict()["mAP_50"],
        sizes["all"]["mAP_50"],
        analysis.intervals.overall["mAP_50"].value,
        analysis.curves.average_precision[0],
    ):
        assert value == pytest.approx(limited, abs=1e-12)
    everything = analyze_detections(table, DetectionSettings(max_dets=240), classes=["nut"])
    assert everything.average_precision.to_dict()["mAP"] == everything.sizes.metrics()["all"]["mAP"] == 1


@pytest.mark.parametrize("max_dets", [1, 7, 100, 1000])
def test_every_average_precision_of_a_report_is_the_same(max_dets):
    for seed in range(3):
        batch, size = dense_batch(seed)
        settings = DetectionSettings(max_dets=max_dets, ci=0.9, resamples=2)
        table = match_images(batch, settings, num_classes=size).table
        analysis = analyze_detections(table, settings, classes=[str(label) for label in range(size)])
        compared = paired_permutation_test(table, table, max_dets=max_dets, permutations=2).overall
        expected = average_precision(table, max_dets=max_dets).to_dict()
        for key in ("mAP", "mAP_50"):
            assert analysis.average_precision.to_dict()[key] == expected[key]
            assert analysis.sizes.metrics()["all"][key] == pytest.approx(expected[key], abs=1e-12)
            assert analysis.intervals.overall[key].value == pytest.approx(expected[key], abs=1e-12)
            assert compared[key].first == compared[key].second == pytest.approx(expected[key], abs=1e-12)
        assert np.nanmean(analysis.curves.average_precision) == pytest.approx(expected["mAP_50"], abs=1e-12)


def test_an_overlap_between_a_threshold_and_its_coco_float_counts_the_same_everywhere():
    """The overlap is 0.8999999999999999: COCO's float of 0.9, but below 0.9."""
    batch = DetectionBatch(
        Detections([0], [[0, 0, 1, 0.3 * 0.9]], [0.9], [0]), GroundTruths([0], [[0, 0, 1, 0.3]], [0]), 1
    )
    settings = DetectionSettings(iou_thr=0.9)
    full, alone = (match_images(batch, settings, num_classes=1, table=kind) for kind in ("full", "none"))
    assert full.rules["coco"].matrix.tolist() == alone.rules["coco"].matrix.tolist() == [[0, 1], [1, 0]]
    analysis = analyze_detections(full.table, settings, classes=["cat"])
    assert analysis.sizes.tp[0].tolist() == [0] and analysis.errors_at_threshold["localization"].tolist() == [1]
    assert analysis.average_precision.ap[0, :, 0].tolist() == [1.0] * 9 + [0.0]  # as pycocotools
