"""Everything the detection functions say of a problem, as arrays by name.

Names begin with ``matrix/`` (rows and columns are the classes and background), ``class/`` (the first axis is the
classes) or ``all/``.
"""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin.functional.boxes import nms, xywh_to_xyxy
from mm_metrics_plugin.functional.cell_members import cell_members
from mm_metrics_plugin.functional.coco_ap import APSettings, average_precision, match_for_ap
from mm_metrics_plugin.functional.curves import detection_curves
from mm_metrics_plugin.functional.error_types import error_types
from mm_metrics_plugin.functional.matching import PROTOCOLS, match
from mm_metrics_plugin.functional.operating_points import operating_points
from mm_metrics_plugin.functional.scored_matches import match_scores
from mm_metrics_plugin.functional.sizes import size_report
from mm_metrics_plugin.functional.threshold_counts import threshold_counts
from mm_metrics_plugin.functional.worst_images import worst_images

SCORE_THRESHOLD = 0.5
_AREAS = {"all": (0.0, 1e10), "small": (0.0, 150.0), "large": (150.0, 1e10)}


def counted(problem, *, score_threshold=SCORE_THRESHOLD):
    """The matrix and the tally of every protocol at a score threshold."""
    result = {}
    for protocol in PROTOCOLS:
        matches = match(
            problem.batch.detections,
            problem.batch.objects,
            num_classes=problem.num_classes,
            protocol=protocol,
            score_threshold=score_threshold,
        )
        values = matches.to_dict()
        result[f"matrix/{protocol}"] = matches.matrix
        result[f"matrix/members {protocol}"] = cell_members(
            problem.batch, num_classes=problem.num_classes, protocol=protocol, score_threshold=score_threshold
        ).matrix
        if protocol != "mmdet":  # which has no one object to a detection
            result[f"all/missed {protocol}"] = np.array(worst_images(problem.batch, matches).missed.sum())
        result[f"all/tally {protocol}"] = np.array([v for v in values.values() if isinstance(v, int)])
    return result


def suppressed(problem):
    """How many detections of each class non-maximum suppression leaves."""
    found = problem.batch.detections
    boxes = xywh_to_xyxy(found.boxes) if found.box_format == "xywh" else found.boxes
    left = nms(boxes, found.scores, found.image * problem.num_classes + found.labels, iou_threshold=0.5)
    return np.bincount(found.labels[left], minlength=problem.num_classes)


def ranked(problem):
    """What depends on nothing but the order of the scores."""
    batch, classes = problem.batch, problem.num_classes
    settings = APSettings(classes, iou_thresholds=(0.5, 0.75), area_ranges=_AREAS, max_detections=(1, 100))
    precise = average_precision(match_for_ap(batch.detections, batch.objects, settings), settings)
    curves = detection_curves(match_scores(batch, num_classes=classes), num_points=3)
    errors = error_types(batch, num_classes=classes)
    result = {
        "class/precision": np.moveaxis(precise.precision, 2, 0),
        "class/recall": np.moveaxis(precise.recall, 3, 0),
        "class/objects": precise.objects.T,
        "all/AP": np.array(list(precise.to_dict().values())),
        "class/curve AP": curves.average_precision,
        "all/errors AP": np.array([errors.average_precision, *errors.gains.values()]),
        "all/gains": np.array([errors.gain_false_positives, errors.gain_false_negatives]),
        "class/errors AP": errors.average_precision_per_class,
        "class/left by nms": suppressed(problem),
    }
    for kind, counts in errors.counts.items():
        result[f"class/{kind}"] = counts
        result[f"class/{kind} ignored"] = errors.ignored[kind]
        result[f"class/{kind} gain"] = errors.gains_per_class[kind]
    if batch.num_images > 1:
        points = operating_points(match_scores(batch, num_classes=classes), folds=2)
        result["class/best"] = np.stack([points.per_class.tp, points.per_class.fp, points.per_class.fn], axis=1)
        result["all/best"] = np.array([points.overall.f_score, points.overall.precision, points.overall.recall])
    return result


def at_thresholds(problem):
    """What depends on where the scores are cut."""
    batch, classes = problem.batch, problem.num_classes
    matches = match_scores(batch, num_classes=classes)
    curves = detection_curves(matches, num_points=9)
    sizes = size_report(batch, num_classes=classes, edges=(150.0,), score_threshold=SCORE_THRESHOLD)
    counts = matches.image_counts(score_threshold=SCORE_THRESHOLD).totals()
    many = threshold_counts(curves, also=[SCORE_THRESHOLD])
    return {
        "class/many counts": np.stack([many.tp, many.fp], axis=1),
        "class/best threshold": many.best_per_class,
        "all/best threshold": np.array(many.best),
        "class/curves": np.stack([curves.precision, curves.recall, curves.f_score], axis=1),
        "all/mean curves": np.stack([curves.mean_precision, curves.mean_recall, curves.mean_f_score]),
        "class/sizes": np.stack([sizes.tp.T, sizes.fp.T, sizes.objects.T], axis=1),
        "class/counts": np.stack(counts, axis=1),
    }


def figures(problem):
    """All of them."""
    return {**counted(problem), **ranked(problem), **at_thresholds(problem)}
