"""The sentences that the text and the Markdown report share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping, Sequence

from mm_metrics_plugin.exceptions import pluralize
from mm_metrics_plugin.render.tables import printable
from mm_metrics_plugin.settings import ClassificationSettings, DetectionSettings

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.classification import ClassificationReport
    from mm_metrics_plugin.evaluation.detection import DetectionReport
    from mm_metrics_plugin.functional.classification.confusion_matrix import Confusion

PROTOCOLS = {
    "coco": "at most one detection per object, within classes by score; the others may be confusions",
    "mmdet": "every overlapping pair counts, as in mmdet's confusion_matrix.py",
    "agnostic": "at most one detection per object, by overlap, whatever the classes",
}
CONFUSIONS = "Most frequent confusions (true → predicted)"


def tally_sentence(what: str, tally: Mapping[str, Any]) -> str:
    """Numbers of items read and used, and why items were dropped."""
    if not tally["dropped"]:
        return pluralize(tally["read"], what)
    reasons = "; ".join(f"{number:,} {reason}" for reason, number in tally["dropped"].items())
    return f"{pluralize(tally['read'], what)} read, {tally['used']:,} used ({reasons})"


CLASS_ORDERS = {
    "annotations": "labels follow the categories of the annotation file, as in mmdet's CocoDataset",
    "classes": "labels follow the given class names",
    "metainfo": "labels follow the metainfo of the config's test set",
    "labels": "no class names are given, so classes are label numbers (--classes names them)",
}


def class_order_lines(inputs: Mapping[str, Any]) -> List[str]:
    """What the order of the labels is.

    Example:
        >>> class_order_lines({"class_order": "classes"})
        ['class order: labels follow the given class names']
    """
    order = inputs.get("class_order", [])
    return [f"class order: {CLASS_ORDERS[one]}" for one in ([order] if isinstance(order, str) else order)]


def joined_by_lines(entries: Any, what: str) -> List[str]:
    """How files were joined with the ground truth, unless by image id.

    Example:
        >>> joined_by_lines({"file": "a.pkl", "joined_by": "position"}, "image")
        ['a.pkl has no image ids: its entries are joined by position']
        >>> joined_by_lines([{"file": "a.pkl", "joined_by": "image id"}], "image")
        []
        >>> joined_by_lines([{"file": "a.pkl", "joined_by": "image path"}], "image")
        ['image ids in a.pkl repeat: images are joined by path']
    """
    entries = [entries] if isinstance(entries, Mapping) else entries
    files = [printable(one["file"]) for one in entries if one.get("joined_by") == "position"]
    ids = "image ids" if what == "image" else "img_path or sample_idx that tells samples apart"
    have, its = ("has", "its") if len(files) == 1 else ("have", "their")
    lines = [f"{', '.join(files)} {have} no {ids}: {its} entries are joined by position"] if files else []
    paths = [printable(one["file"]) for one in entries if one.get("joined_by") == "image path"]
    return [*lines, f"image ids in {', '.join(paths)} repeat: images are joined by path"] if paths else lines


def mask_lines(entries: Any) -> List[str]:
    """The number of masks, which are not evaluated."""
    entries = [entries] if isinstance(entries, Mapping) else entries
    number = sum(one.get("masks", 0) for one in entries)
    sentence = f"masks: not evaluated ({pluralize(number, 'detection')}); all numbers are of boxes"
    return [sentence] if number else []


def opening(report: DetectionReport) -> List[str]:
    """What was read, and the settings."""
    settings = report.settings
    nms = settings.nms_iou_thr
    return [
        *(tally_sentence(words, report.counts[what]) for what, words in _COUNTED.items()),
        *class_order_lines(report.inputs),
        *joined_by_lines(report.inputs.get("results", ()), "image"),
        *mask_lines(report.inputs.get("results", ())),
        f"score threshold {settings.score_thr:g}, IoU threshold {settings.iou_thr:g}"
        + ("" if nms is None else f", NMS above IoU {nms:g}"),
    ]


_COUNTED = {"images": "image", "ground_truths": "ground-truth object", "detections": "detection"}


def classification_opening(report: ClassificationReport) -> List[str]:
    """What was read, and the settings."""
    lines = [f"{tally_sentence('sample', report.counts['samples'])}, {pluralize(len(report.classes), 'class')}"]
    lines += class_order_lines(report.inputs)
    return lines + task_lines(report.settings)


def task_lines(settings: ClassificationSettings) -> List[str]:
    """Which task the results of a classifier are evaluated as and why, and the score threshold where it has one.

    Example:
        >>> from mm_metrics_plugin.settings import ClassificationSettings
        >>> task_lines(ClassificationSettings("multi-label", "sample number 3 has 2 true labels", 0.5))
        ['task: multi-label (sample number 3 has 2 true labels; --task changes it)', 'score threshold: 0.5']
    """
    reason = settings.task_reason
    lines = [f"task: {settings.task} ({reason}{'' if reason == '--task' else '; --task changes it'})"]
    if settings.score_thr is not None:
        lines.append(f"score threshold: {settings.score_thr:g}")
    return lines


def max_dets_lines(max_dets: int, most: int) -> List[str]:
    """What average precision uses, for the place where it is printed.

    Example:
        >>> max_dets_lines(100, 38)
        ['AP uses at most 100 detections per class and image (max_dets); no class has more in any image']
    """
    message = DetectionSettings(max_dets=max_dets).truncation_message(most)
    if message:
        return [f"{message}; all other numbers use all detections"]
    return [f"AP uses at most {max_dets} detections per class and image (max_dets); no class has more in any image"]


def ignored_lines(counts: Mapping[str, int]) -> List[str]:
    """The number of ignored crowd regions and detections.

    Example:
        >>> ignored_lines({"ground_truths_ignored": 55, "detections_ignored": 1})
        ['ignored: 55 crowd regions, and detections that match only crowd regions (1)']
    """
    if not counts.get("ground_truths_ignored"):
        return []
    regions, found = counts["ground_truths_ignored"], counts["detections_ignored"]
    return [f"ignored: {pluralize(regions, 'crowd region')}, and detections that match only crowd regions ({found:,})"]


def false_positive_lines(iou_thr: float) -> List[str]:
    """Definitions of the types of false positives."""
    return [
        "the four types add up to FP; the last three are the background row of the matrix",
        "confusion: matched to an object of another class",
        f"confusion, matched object: only objects of other classes reach IoU {iou_thr:g}, and other detections are "
        "matched to them",
        f"duplicate: an object of its class reaches IoU {iou_thr:g}, and another detection is matched to it",
        f"background: no object reaches IoU {iou_thr:g}",
    ]


def confusion_lines(confusions: Sequence[Confusion]) -> List[str]:
    """The confusions, true class first.

    Example:
        >>> from mm_metrics_plugin.functional.classification.confusion_matrix import Confusion
        >>> confusion_lines([Confusion("dog", "cat", 41)])
        ['dog → cat: 41']
    """
    return [f"{printable(one.ground_truth)} → {printable(one.prediction)}: {one.count:,}" for one in confusions]


def averaged_line(averaged: Mapping[str, int], classes: int) -> List[str]:
    """Which means leave out classes without a value.

    Example:
        >>> averaged_line({"precision": 3, "recall": 4}, 4)
        ['means leave out classes without a value: precision is over 3 of 4 classes']
    """
    parts = [
        f"{name} is over {number} of {pluralize(classes, 'class')}"
        for name, number in averaged.items()
        if number < classes
    ]
    return [f"means leave out classes without a value: {', '.join(parts)}"] if parts else []
