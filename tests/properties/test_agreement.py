"""The same number wherever it stands: matrix, table, curves, report and log."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given

from mm_metrics_plugin import DetectionPRF, SingleLabelAUC, SingleLabelKS, SingleLabelPRF
from mm_metrics_plugin.conventions import MATCHING_RULES
from mm_metrics_plugin.evaluation import evaluate_classification, evaluate_detection
from mm_metrics_plugin.functional._arrays import rates_from_counts
from mm_metrics_plugin.functional.classification.roc_curves import roc_curves
from mm_metrics_plugin.functional.statistics.per_image_counts import per_image_counts
from mm_metrics_plugin.io.writing import to_json
from mm_metrics_plugin.render.detection import curve_csv
from tests.helpers.checks import check_agreement, check_rates, numbers
from tests.helpers.detection_problems import match_table
from tests.helpers.strategies import detection_problem_of, rolls, scored_labels_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning"),
    pytest.mark.filterwarnings("ignore:no detection reaches:mm_metrics_plugin.exceptions.MetricWarning"),
]


def detection_report(problem, threshold):
    """The report of the command, and the content of ``report.json``."""
    batch, names = problem.batch, tuple(f"class {index}" for index in range(problem.num_classes))
    report = evaluate_detection(batch, classes=names, score_thr=threshold, matching=tuple(MATCHING_RULES), gallery=None)
    return report, json.loads(to_json(report.to_dict()))


def table_of(report):
    """The table per class of a report that was read from its file, by the names of the columns."""
    rows = report["per_class"]
    return {key: np.array([row[key] for row in rows], dtype=float) for key in rows[0] if key != "name"}


def samples_of_images(problem):
    """The images as mmdet's samples have them."""
    samples = []
    for index in range(problem.batch.num_images):
        image = problem.batch.images(index, index + 1)
        dets, gts = image.detections, image.ground_truths
        rows = {"gt_instances": gts.take(~gts.crowd), "ignored_instances": gts.take(gts.crowd)}
        samples.append(
            dict(
                pred_instances=dict(bboxes=dets.boxes.array, scores=torch.tensor(dets.scores), labels=dets.labels),
                **{name: dict(bboxes=part.boxes.array, labels=part.labels) for name, part in rows.items()},
            )
        )
    return samples


@given(rolls)
def test_detection_matrix_table_curve_report_and_log_agree(roll):
    problem, threshold = detection_problem_of(roll, least_images=1), roll.one_of([0.125, 0.3, 0.5, 1.0])
    report, written = detection_report(problem, threshold)
    samples, names = samples_of_images(problem), written["classes"]
    matches = match_table(problem.batch, problem.num_classes)
    for rule in MATCHING_RULES:
        reported = written["matching_rules"][rule]
        table = table_of(reported)
        # The table and the matrix of the file.
        matrix = np.array(reported["confusion_matrix"])
        tp = matrix.diagonal()[:-1]
        fp, fn = matrix.sum(axis=0)[:-1] - tp, matrix.sum(axis=1)[:-1] - tp
        rates, means = rates_from_counts(tp, fp, fn)
        check_agreement({**rates, "tp": tp, "fp": fp, "fn": fn}, table, "table and matrix")
        check_agreement(means, reported, "means and matrix")
        # The log.
        metric = DetectionPRF(
            num_classes=len(names), score_thr=threshold, matching=rule, classwise=True, ap=rule == "coco"
        )
        metric.dataset_meta = {"classes": names}
        log = numbers(metric, [samples], len(samples))
        check_rates(log)
        logged = {key: np.array([log[f"det/{key}/{name}"] for name in names]) for key in (*rates, "tp", "fp", "fn")}
        check_agreement(logged, table, "log and table")
        check_agreement({key: log[f"det/{key}"] for key in means}, reported, "log and report")
        if rule != "coco":
            continue
        check_agreement(
            {key: log[f"det/{key}"] for key in ("mAP", "mAP_50", "mAP_75")}, written["average_precision"], "AP"
        )
        # The matches that curves and intervals are made of, and the curves at the threshold.
        counts = per_image_counts(matches, score_thr=threshold).totals()
        check_agreement(dict(zip(("tp", "fp", "fn"), counts)), table, "image counts and table")
        for index, curve in enumerate(report.analysis.curves.per_class):
            kept = np.flatnonzero(curve.thresholds >= curve.thresholds.dtype.type(threshold))
            at = kept[-1] if len(kept) else None
            points = [0, 0] if at is None else [curve.tp[at], curve.fp[at]]
            assert [*points, curve.positives] == [tp[index], fp[index], tp[index] + fn[index]]
        check_grid(report.analysis, matches)


def check_grid(analysis, matches):
    """Compares ``curves.csv`` with the counts at the score thresholds of its grid."""
    header, rows = curve_csv(analysis)
    size = len(analysis.curves.confidence)
    for place in (0, size // 2, size - 1):
        confidence = analysis.curves.confidence[place]
        rates, means = rates_from_counts(*per_image_counts(matches, score_thr=confidence).totals())
        for index, name in enumerate((*analysis.classes, "")):
            row = dict(zip(header, rows[index * size + place]))
            assert (row["class"], row["confidence"]) == (name, confidence)
            expected = {"precision": means["precision"], "recall": means["recall"], "f1": means["f1"]}
            if name:
                expected = {key: value[index] for key, value in rates.items()}
            check_agreement(expected, row, "curves.csv")


def logged(metric, samples, names):
    metric.dataset_meta = {"classes": names}
    actual = numbers(metric, [samples], len(samples))
    check_rates(actual)
    return {key.split("/", 1)[1]: value for key, value in actual.items()}


def by_class(log, keys, names):
    return {key: np.array([log[f"{key}/{name}"] for name in names]) for key in keys}


@given(rolls)
def test_classification_matrix_table_curve_report_and_log_agree(roll):
    scores, labels = scored_labels_of(roll)
    names = [f"class {index}" for index in range(scores.shape[1])]
    results = [{"pred_score": row, "gt_label": np.array([label])} for row, label in zip(scores, labels)]
    report = json.loads(to_json(evaluate_classification(results, classes=names, task="single-label").to_dict()))
    table = table_of(report)
    samples = [dict(pred_score=torch.tensor(row), gt_label=int(label)) for row, label in zip(scores, labels)]
    log = logged(SingleLabelPRF(classwise=True, counts=True, average=("macro", "micro")), samples, names)
    check_agreement(by_class(log, ("precision", "recall", "f1", "tp", "fp", "fn"), names), table, "log and table")
    means = ("accuracy", "precision", "recall", "f1", "precision_micro", "recall_micro", "f1_micro")
    check_agreement({key: log[key] for key in means}, report, "log and report")
    matrix = np.array(report["confusion_matrix"])
    check_agreement(
        {"tp": matrix.diagonal(), "samples": matrix.sum(axis=1), "predicted": matrix.sum(axis=0)}, table, "matrix"
    )
    auc = logged(SingleLabelAUC(classwise=True), samples, names)
    check_agreement({"auc": auc["auc"]}, report, "AUC")
    check_agreement(by_class(auc, ("auc",), names), table, "AUC of the classes")
    # The KS is the greatest height of the ROC curve, in the log, in the report and on the curve.
    ks = logged(SingleLabelKS(classwise=True), samples, names)
    thresholds = {
        key: np.array([row[key] for row in report["thresholds"]], dtype=float) for key in ("ks", "ks_threshold")
    }
    check_agreement(by_class(ks, ("ks", "ks_threshold"), names), thresholds, "KS")
    for index, curve in enumerate(roc_curves([scores], labels).per_class):
        if not np.isnan(thresholds["ks"][index]):
            height = (curve.recall - curve.false_positive_rate)[curve.thresholds == thresholds["ks_threshold"][index]]
            assert height == pytest.approx(thresholds["ks"][index], rel=0, abs=1e-12)
