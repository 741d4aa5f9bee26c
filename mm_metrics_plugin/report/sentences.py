"""The sentences that the text and the Markdown report share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence

from mm_metrics_plugin.report.tables import printable

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.classification_report import ClassificationReport
    from mm_metrics_plugin.functional.detection_report import Confusion, DetectionReport

PROTOCOLS = {
    "coco": "one detection an object, within classes by score; what is left may be a confusion",
    "mmdet": "every overlapping pair counts, as in mmdet's confusion_matrix.py",
    "agnostic": "one detection an object, by overlap, whatever the classes",
}
MEANS = {
    "accuracy": "accuracy",
    "auc": "AUC",
    "mean_precision": "mean precision",
    "mean_recall": "mean recall",
    "f1_of_means": "F1 of means",
    "macro_f1": "mean F1",
}


def tally_sentence(what: str, tally: Mapping[str, Any]) -> str:
    """How many were read and used, and why not all.

    Example:
        >>> tally_sentence("detections", {"read": 9, "used": 6, "dropped": {"score below 0.3": 3}})
        '9 detections read, 6 used (3 score below 0.3)'
        >>> tally_sentence("images", {"read": 9, "used": 9, "dropped": {}})
        '9 images'
    """
    if not tally["dropped"]:
        return f"{tally['read']:,} {what}"
    reasons = "; ".join(f"{number:,} {reason}" for reason, number in tally["dropped"].items())
    return f"{tally['read']:,} {what} read, {tally['used']:,} used ({reasons})"


def opening(report: DetectionReport) -> List[str]:
    """What was read, and what was asked for."""
    settings = report.settings
    nms = settings["nms_iou_thr"]
    return [
        *(tally_sentence(what, report.counts[what]) for what in ("images", "objects", "detections")),
        f"score >= {settings['score_thr']:g}, IoU >= {settings['tp_iou_thr']:g}"
        + ("" if nms is None else f", NMS above {nms:g}"),
    ]


def classification_opening(report: ClassificationReport) -> List[str]:
    """What was read, and what was asked for."""
    lines = [f"{tally_sentence('samples', report.counts['samples'])}, {len(report.classes):,} classes"]
    if report.matrix is None:
        lines.append(f"several classes a sample: decided for from a score of {report.settings['score_thr']:g} on")
    return lines


def confusion_lines(confusions: Sequence[Confusion]) -> List[str]:
    """The confusions as sentences.

    Example:
        >>> from mm_metrics_plugin.functional.detection_report import Confusion
        >>> confusion_lines([Confusion("dog", "cat", 41)])
        ['dog taken for cat: 41']
    """
    return [f"{printable(one.truth)} taken for {printable(one.prediction)}: {one.count:,}" for one in confusions]


def averaged_line(averaged: Mapping[str, int], classes: int) -> List[str]:
    """Says so if the means leave classes out.

    Example:
        >>> averaged_line({"precision": 3, "recall": 4}, 4)
        ['means leave out classes without a value: precision is over 3 of 4 classes']
    """
    parts = [f"{name} is over {number} of {classes} classes" for name, number in averaged.items() if number < classes]
    return [f"means leave out classes without a value: {', '.join(parts)}"] if parts else []


def mean_rows(means: Mapping[str, float], micro: Mapping[str, float]) -> Dict[str, float]:
    """The averages by the titles they are read under."""
    return {
        **{MEANS[name]: value for name, value in means.items()},
        **{f"micro {'F1' if name == 'f1' else name}": value for name, value in micro.items()},
    }
