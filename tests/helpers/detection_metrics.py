"""The results of all detection functions on a problem, as arrays by name.

Names begin with ``matrix/`` (rows and columns are the classes and background), ``class/`` (the first axis is the
classes) or ``all/``.
"""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.conventions import MATCHING_RULES
from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.functional.detection.froc import froc
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.detection.olrp import olrp
from mm_metrics_plugin.functional.detection.operating_points import operating_points
from mm_metrics_plugin.functional.detection.pr_curves import precision_recall_curves, threshold_sweep
from mm_metrics_plugin.functional.detection.results_by_size import results_by_size
from mm_metrics_plugin.functional.detection.tide import errors_at_threshold, tide_errors
from mm_metrics_plugin.functional.statistics.per_image_counts import per_image_counts
from mm_metrics_plugin.settings import DetectionSettings
from tests.helpers.detection_problems import match_table, members_of

SCORE_THRESHOLD = 0.5
_AREA_EDGES = (150.0,)


def threshold_counts(problem, *, score_threshold=SCORE_THRESHOLD):
    """Counts of every matching rule at a score threshold, and its examples."""
    settings = DetectionSettings(matching=tuple(MATCHING_RULES), score_thr=score_threshold)
    size = problem.num_classes + 1
    found = match_images(
        problem.batch, settings, num_classes=problem.num_classes, worst_images=problem.batch.num_images
    )
    result = {"all/counts": np.array(found.counts)}
    for rule, counts in found.rules.items():
        cells = members_of(found.examples.cells, rule).cell
        result[f"matrix/{rule}"] = counts.matrix
        result[f"matrix/members {rule}"] = np.bincount(cells, minlength=size * size).reshape(size, size)
        result[f"class/used {rule}"] = np.stack([counts.detections, counts.ground_truths], axis=1)
        result[f"class/background {rule}"] = counts.background_types.T
        ignored = [counts.detections_ignored, counts.ground_truths_ignored, counts.duplicates]
        result[f"all/ignored {rule}"] = np.array(ignored)
    for name, counts in errors_at_threshold(found.table).items():
        result[f"class/{name} at threshold"] = counts
    result["all/missed"] = np.array(found.examples.images.missed.sum())
    result["all/drawn"] = np.bincount(found.examples.shapes.kind, minlength=3)
    return result


def kept_by_nms(problem):
    """The number of detections of each class after NMS."""
    return np.bincount(problem.batch.suppressed(0.5).detections.labels, minlength=problem.num_classes)


def ranking_metrics(problem):
    """Metrics that depend on the order of the scores only."""
    batch, classes = problem.batch, problem.num_classes
    table = match_table(batch, classes, area_edges=_AREA_EDGES)
    precise = average_precision(table)
    sizes = results_by_size(table, area_edges=_AREA_EDGES)
    curves = precision_recall_curves(table, num_points=3)
    full = match_images(batch, DetectionSettings(), num_classes=classes).table
    errors, lrp, sensitivities = tide_errors(full), olrp(full), froc(table)
    result = {
        "class/AP": np.moveaxis(precise.ap, 2, 0),
        "class/AP by size": sizes.average_precision.T,
        "class/recall": np.moveaxis(precise.recall, 3, 0),
        "class/objects": precise.num_gts.T,
        "all/AP": np.array(list(precise.to_dict().values())),
        "class/curve AP": curves.average_precision,
        "all/errors AP": np.array([errors.average_precision, *errors.dap.values()]),
        "all/dAP": np.array([errors.dap_false_positives, errors.dap_false_negatives]),
        "class/errors AP": errors.average_precision_per_class,
        "class/kept by NMS": kept_by_nms(problem),
        "class/oLRP": np.stack([lrp.per_class[name] for name in lrp.means()], axis=1),
        "all/oLRP": np.array(list(lrp.means().values())),
        "class/FROC": np.stack(list(sensitivities.class_values().values()), axis=1),
        "all/FROC": np.array(list(sensitivities.values().values())),
    }
    for kind, counts in errors.counts.items():
        result[f"class/{kind}"] = counts
        result[f"class/{kind} ignored"] = errors.ignored[kind]
        result[f"class/{kind} dAP"] = errors.dap_per_class[kind]
    if batch.num_images > 1:
        points = operating_points(table, folds=2)
        result["class/best"] = np.array([(one.tp, one.fp, one.fn) for one in points.per_class])
        result["all/best"] = np.array([points.overall.f_score, points.overall.precision, points.overall.recall])
    return result


def threshold_metrics(problem):
    """Metrics that depend on score thresholds."""
    batch, classes = problem.batch, problem.num_classes
    table = match_table(batch, classes, area_edges=_AREA_EDGES)
    curves = precision_recall_curves(table, num_points=9)
    sizes = results_by_size(table, area_edges=_AREA_EDGES, score_thr=SCORE_THRESHOLD)
    counts = per_image_counts(table, score_thr=SCORE_THRESHOLD).totals()
    many = threshold_sweep(curves, also=[SCORE_THRESHOLD])
    return {
        "class/many counts": np.stack([many.tp, many.fp], axis=1),
        "class/best threshold": np.array(many.best_per_class),
        "all/best threshold": np.array(many.best),
        "class/curves": np.stack([curves.precision, curves.recall, curves.f_score], axis=1),
        "all/mean curves": np.stack([curves.mean_precision, curves.mean_recall, curves.mean_f_score]),
        "class/sizes": np.stack([sizes.tp.T, sizes.fp.T, sizes.ground_truths.T], axis=1),
        "class/counts": np.stack(counts, axis=1),
    }


def all_metrics(problem):
    """All metrics of a problem."""
    return {**threshold_counts(problem), **ranking_metrics(problem), **threshold_metrics(problem)}
