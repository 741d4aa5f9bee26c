"""Sections of reports, and the sentences and tables that reports of several kinds have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.conventions import IOU_TYPES
from mm_metrics_plugin.exceptions import pluralize
from mm_metrics_plugin.io.classification_results import TASK_GIVEN
from mm_metrics_plugin.render.tables import COLUMN_NAMES, CORNER, OVERALL_NAMES, Table, printable, rows_of
from mm_metrics_plugin.settings import number_text

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.classification.confusion_matrix import Confusion
    from mm_metrics_plugin.render.outputs import TextOptions
    from mm_metrics_plugin.settings import ClassificationSettings

MAX_CONFUSIONS = 5  # on one screen
MAX_COLUMNS = 21  # of a matrix in Markdown; a larger one is in the CSV file and the figure
CLASS_ORDERS = {
    "annotations": "labels follow the categories of the annotation file, as in mmdet's CocoDataset",
    "classes": "labels follow the given class names",
    "metainfo": "labels follow the metainfo of the config's test set",
    "alphabetical": "labels follow the class names of the ground truth in alphabetical order",
    "labels": "no class names are given, so classes are label numbers (the option classes names them)",
}


@dataclass(frozen=True, eq=False)
class Section:
    """A heading, sentences, a table with rows of means, notes below it, and preformatted text.

    A section without a heading belongs to the section before it, and so does a section with a ``minor`` heading.

    Attributes:
        order: Of a table that ends with one row per class: the order in which one screen keeps these rows.
        optional: What the section shows, if one screen may leave it out.
        headline: Whether a notebook shows it.
    """

    heading: str
    lines: Sequence[str] = ()
    table: Table | None = None
    means: Sequence[Sequence[Any]] = ()
    notes: Sequence[str] = ()
    code: str = ""
    minor: bool = False
    order: ClassOrder | None = None
    optional: str = ""
    headline: bool = False


class ClassOrder(NamedTuple):
    """The order of classes on one screen: the lowest values of a column first, undefined ones last."""

    column: str
    classes: Sequence[int]

    @classmethod
    def lowest(cls, columns: Mapping[str, Any], name: str) -> ClassOrder:
        """The order by a column."""
        values = np.asarray(columns[name], dtype=np.float64)
        return cls(COLUMN_NAMES.get(name, name), np.argsort(values, kind="stable").tolist())


def with_classes(section: Section, most: int, everything: str) -> Section:
    """The section with the rows of at most ``most`` classes, and a note on where everything is."""
    if section.table is None or section.order is None or len(section.order.classes) <= most:
        return section
    (header, rows), (column, classes) = section.table, section.order
    first = len(rows) - len(classes)
    kept = [*rows[:first], *(rows[first + index] for index in classes[:most])]
    note = f"{most} of {pluralize(len(classes), 'class')}, lowest {column} first; {everything}"
    return replace(section, table=(header, kept), notes=[note, *section.notes])


def tally(noun: str, counts: Mapping[str, Any]) -> str:
    """Such as "9 detections read, 6 used (3 score below 0.3)"."""
    if not counts["dropped"]:
        return pluralize(counts["read"], noun)
    reasons = "; ".join(f"{number:,} {reason}" for reason, number in counts["dropped"].items())
    return f"{pluralize(counts['read'], noun)} read, {counts['used']:,} used ({reasons})"


def class_order_lines(inputs: Mapping[str, Any]) -> list[str]:
    """What the order of the labels is."""
    orders = inputs.get("class_order", [])
    return [f"class order: {CLASS_ORDERS[order]}" for order in ([orders] if isinstance(orders, str) else orders)]


def joined_by_lines(entries: Any, unit: str) -> list[str]:
    """How files were joined with the ground truth, unless by image id."""
    entries = [entries] if isinstance(entries, Mapping) else entries
    ids = "image ids" if unit == "image" else "img_path or sample_idx that tells samples apart"
    sentences = {
        "position": f"{{files}} {{have}} no {ids}: {{its}} entries are joined by position",
        "image path": "image ids in {files} repeat: images are joined by path",
    }
    lines = []
    for joined_by, sentence in sentences.items():
        files = [printable(entry["file"]) for entry in entries if entry.get("joined_by") == joined_by]
        have, its = ("has", "its") if len(files) == 1 else ("have", "their")
        lines += [sentence.format(files=", ".join(files), have=have, its=its)] if files else []
    return lines


_SHAPES = {"masks": ("masks", "segm"), "keypoints": ("key points", "keypoints")}  # by field: name and IoU type


def unevaluated_lines(entries: Any, settings: Mapping[str, Any]) -> list[str]:
    """The shapes in the results that are not evaluated, and the option that evaluates them."""
    entries = [entries] if isinstance(entries, Mapping) else entries
    fields = dict.fromkeys(field for entry in entries for field in entry.get("not_evaluated", ()))
    return [
        f"results contain {name}; evaluating {IOU_TYPES[settings['iou_type']].description}; use the option "
        f"iou_type={iou_type!r} for {name}"
        for name, iou_type in map(_SHAPES.__getitem__, fields)
    ]


def task_lines(settings: ClassificationSettings) -> list[str]:
    """The task of a classifier, the reason for it, and the score threshold of a multi-label task."""
    reason = settings.task_reason
    lines = [f"task: {settings.task} ({reason}{'' if reason == TASK_GIVEN else '; the option task changes it'})"]
    return lines + ([] if settings.score_thr is None else [f"score threshold: {number_text(settings.score_thr)}"])


def averaged_lines(averaged: Mapping[str, int], classes: int) -> list[str]:
    """Which means leave out classes without a value."""
    total = pluralize(classes, "class")
    parts = [f"{name} is over {number} of {total}" for name, number in averaged.items() if number < classes]
    return [f"means leave out classes without a value: {', '.join(parts)}"] if parts else []


def confusion_sections(confusions: Sequence[Confusion], text: TextOptions | None) -> list[Section]:
    """The most frequent confusions, if any."""
    lines = [
        f"{printable(confusion.ground_truth)} → {printable(confusion.prediction)}: {confusion.count:,}"
        for confusion in confusions
    ]
    if text is not None:
        lines = [f"  {line}" for line in (lines if text.verbose else lines[:MAX_CONFUSIONS])]
    heading = "Most frequent confusions (true → predicted)"
    return [Section(heading, lines, minor=True, optional="most frequent confusions")] if lines else []


def matrix_sections(matrix: np.ndarray, labels: Sequence[str]) -> list[Section]:
    """The confusion matrix, unless it is too large."""
    if len(labels) > MAX_COLUMNS:
        return []
    rows = [[name, *row] for name, row in zip(labels, matrix.tolist())]
    return [Section("", table=([CORNER, *labels], rows))]


def means_section(columns: Mapping[str, Mapping[str, float]]) -> Section:
    """The metrics over all classes, one column per matching rule or one for all."""
    keys = next(iter(columns.values()))
    rows = [[OVERALL_NAMES[key], *(column[key] for column in columns.values())] for key in keys]
    return Section("Means (macro: over classes; micro: pooled)", table=(["", *columns], rows))


def interval_sections(
    intervals: Any,
    classes: Sequence[str],
    names: Sequence[str],
    *,
    order: ClassOrder | None = None,
    samples: bool = False,
) -> list[Section]:
    """Confidence intervals over all classes and per class; ``samples`` instead of images with objects."""
    from mm_metrics_plugin.functional.statistics.bootstrap import (  # imports SciPy
        MIN_IMAGES,
        MIN_IMAGES_F1_AP,
        MIN_OBJECTS,
    )

    level = f"{100 * intervals.ci:g} %"
    method = f"confidence level {level}; Wilson score intervals with the effective number of "
    method += "samples" if samples else "objects"
    if intervals.resamples:
        resamples = f"{intervals.resamples:,} bootstrap resamples over images, seed {intervals.seed}"
        method += f"; average precision from {resamples}"
    lines = [
        method,
        "AUC: score intervals with DeLong's variance, raised towards that of the exponential model",
        f"too few samples: fewer than {MIN_OBJECTS} for a proportion, {MIN_IMAGES_F1_AP} for F1 and means",
    ]
    if not samples:
        lines[1:] = [
            f"too few: a proportion of fewer than {MIN_OBJECTS} objects or detections or in fewer than "
            f"{MIN_IMAGES} images; F1, average precision and means with fewer than {MIN_IMAGES_F1_AP} images"
        ]
    overall = [
        [title, interval.value, _interval(interval.low, interval.high, interval.reason)]
        for title, interval in ((OVERALL_NAMES[key], intervals.overall.get(key)) for key in OVERALL_NAMES)
        if interval is not None
    ]
    per_class = {"name": list(classes)}
    for key in names:
        if key in intervals.per_class:
            columns = intervals.per_class[key]
            per_class[key] = [_interval(*limits) for limits in zip(columns.low, columns.high, columns.reason)]
    cells = chain((row[-1] for row in overall), *(per_class[key] for key in list(per_class)[1:]))
    if not any(text.startswith("too few") for text in cells):
        del lines[-1]
    return [
        Section("Confidence intervals", lines, (["", "value", f"{level} CI"], overall)),
        Section(
            "",
            table=(["class", *list(per_class)[1:]], rows_of(per_class)),
            order=order,
            optional="confidence intervals per class",
        ),
    ]


def _interval(low: float, high: float, reason: str) -> str:
    """The limits of an interval, or why there is none."""
    if low == low:
        return f"[{low:.4f}, {high:.4f}]"
    return str(reason) if reason.startswith("too few") else "–"
