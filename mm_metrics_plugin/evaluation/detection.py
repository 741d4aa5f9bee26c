"""Evaluation of a detector: from files or arrays to a :class:`DetectionReport`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.evaluation.report import GALLERY, SCHEMA_VERSION, Progress, Report, is_path
from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError
from mm_metrics_plugin.functional.averaging import divide
from mm_metrics_plugin.functional.classification.confusion_matrix import ConfusionResult, confusion_report
from mm_metrics_plugin.functional.detection.confusion_rules import BACKGROUND_TYPES
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.settings import DetectionSettings, with_options

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.detection_analysis import DetectionAnalysis
    from mm_metrics_plugin.evaluation.shards import Shard
    from mm_metrics_plugin.io.files import PathLike

DEFAULT_MATCHING = ("coco", "mmdet")  # coco is printed and drawn, files hold both
BACKGROUND = "background"
MOST_CONFUSIONS = 10
MOST_DENSE = 2000  # classes of a matrix that is written cell by cell; of a larger one, only cells that are not 0
# Columns of the table per class that add up to FP: confusions in the matrix, and the types of its background row.
FALSE_POSITIVES = ("fp_confusion", *(f"fp_{name}" for name in BACKGROUND_TYPES))


@dataclass(frozen=True)
class Confusion:
    """How often objects of one class were taken for another."""

    truth: str
    prediction: str
    count: int

    def to_dict(self) -> Dict[str, Any]:
        """As a plain dict."""
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class ProtocolReport:
    """What one protocol of matching says.

    Attributes:
        protocol: Its name.
        result: The confusion matrix, background last, and the rates that follow from it.
        columns: The table per class, by name of the column; those of ``FALSE_POSITIVES`` add up to ``fp``.
        counts: What was used, ignored and counted again.
        confusions: The most frequent confusions between two classes, the greatest first.
    """

    protocol: str
    result: ConfusionResult
    columns: Mapping[str, Any]
    counts: Mapping[str, int]
    confusions: Tuple[Confusion, ...]

    @property
    def means(self) -> Dict[str, float]:
        """The averages over classes, by the names they have in the JSON report."""
        result = self.result
        return {
            "mean_precision": result.macro.precision,
            "mean_recall": result.macro.recall,
            "f1_of_means": result.f_of_means,
            "macro_f1": result.macro.f_score,
        }

    @property
    def micro(self) -> Dict[str, float]:
        """The rates of all classes' counts added up."""
        micro = self.result.micro
        return {"precision": micro.precision, "recall": micro.recall, "f1": micro.f_score}

    @property
    def classes_averaged(self) -> Dict[str, int]:
        """Over how many classes the means are: those that have a value."""
        return {key: int(np.count_nonzero(~np.isnan(self.columns[key]))) for key in ("precision", "recall", "f1")}

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        names = list(self.columns)
        rows = zip(
            *(column if isinstance(column, list) else np.asarray(column).tolist() for column in self.columns.values())
        )
        return {
            **matrix_entries(self.result.matrix),
            "per_class": [dict(zip(names, row)) for row in rows],
            **self.means,
            "micro": self.micro,
            "classes_averaged": self.classes_averaged,
            "top_confusions": [one.to_dict() for one in self.confusions],
            "counts": dict(self.counts),
        }


def protocol_report(
    protocol: str,
    matrix: np.ndarray,
    *,
    classes: Sequence[str],
    objects: np.ndarray,
    detections: np.ndarray,
    counts: Mapping[str, int],
    background_types: np.ndarray,
    empty: float = float("nan"),
) -> ProtocolReport:
    """Read everything off a confusion matrix with background.

    Args:
        protocol: The name of the protocol it was counted under.
        matrix: (C + 1, C + 1) whole numbers; rows truth, columns prediction, background last.
        classes: The C names.
        objects: (C,) how many objects of each class there are.
        detections: (C,) how many detections of each class were used.
        counts: What else was counted.
        background_types: (3, C) the background row by type, as
            :class:`~mm_metrics_plugin.functional.detection.confusion_rules.RuleCounts` has it.
        empty: The value of a rate whose denominator is 0. NaN leaves the class out of the means.

    Example:
        >>> matrix = np.array([[41, 3, 6], [0, 20, 5], [2, 1, 0]])
        >>> report = protocol_report("coco", matrix, classes=["dog", "cat"], objects=np.array([50, 25]),
        ...                          detections=np.array([43, 24]), counts={},
        ...                          background_types=np.array([[0, 1], [2, 0], [0, 0]]))
        >>> [report.columns[name].tolist() for name in ("fp", *FALSE_POSITIVES)]
        [[2, 4], [0, 3], [0, 1], [2, 0], [0, 0]]
        >>> report.confusions, report.columns["recall"].tolist()
        ((Confusion(truth='dog', prediction='cat', count=3),), [0.82, 0.8])
    """
    result = confusion_report(matrix, background=True, empty=empty)
    rates = result.per_class
    inner = result.matrix[:-1, :-1]
    false_positives = [inner.sum(axis=0) - inner.diagonal(), *np.asarray(background_types)]
    return ProtocolReport(
        protocol=protocol,
        result=result,
        columns={
            "name": list(classes),
            "objects": np.asarray(objects),
            "detections": np.asarray(detections),
            "tp": result.tp[:-1],
            "fp": result.fp[:-1],
            "fn": result.fn[:-1],
            "precision": rates.precision[:-1],
            "recall": rates.recall[:-1],
            "f1": rates.f_score[:-1],
            **dict(zip(FALSE_POSITIVES, false_positives)),
        },
        counts=counts,
        confusions=top_confusions(result.matrix[:-1, :-1], classes),
    )


def row_shares(matrix: np.ndarray) -> np.ndarray:
    """Every row divided by its sum; a row of nothing stays 0, so that a picture of it has no holes.

    Example:
        >>> row_shares(np.array([[3, 1], [0, 0]])).tolist()
        [[0.75, 0.25], [0.0, 0.0]]
    """
    return np.nan_to_num(divide(matrix, matrix.sum(axis=1, keepdims=True)))


def top_confusions(matrix: np.ndarray, classes: Sequence[str], *, most: int = MOST_CONFUSIONS) -> Tuple[Confusion, ...]:
    """The greatest cells off the diagonal; equal ones in the order of rows and columns.

    Example:
        >>> top_confusions(np.array([[5, 2], [7, 0]]), ["dog", "cat"])
        (Confusion(truth='cat', prediction='dog', count=7), Confusion(truth='dog', prediction='cat', count=2))
    """
    rows, columns = np.nonzero(matrix)
    off = rows != columns
    rows, columns = rows[off], columns[off]
    found = np.asarray(matrix)[rows, columns]
    order = np.argsort(-found, kind="stable")[:most]
    cells = zip(rows[order].tolist(), columns[order].tolist(), found[order].tolist())
    return tuple(Confusion(classes[row], classes[column], int(count)) for row, column, count in cells)


def matrix_entries(matrix: np.ndarray, *, most: int = MOST_DENSE) -> Dict[str, Any]:
    """A confusion matrix for the JSON report: cell by cell, or of many classes only the cells that are not 0.

    Args:
        matrix: Rows truth, columns prediction.
        most: Most rows that are written cell by cell.

    Example:
        >>> matrix = np.array([[5, 2], [0, 7]])
        >>> matrix_entries(matrix)
        {'confusion_matrix': [[5, 2], [0, 7]], 'confusion_cells': None}
        >>> matrix_entries(matrix, most=1)["confusion_cells"]
        {'row': [0, 0, 1], 'column': [0, 1, 1], 'count': [5, 2, 7]}
    """
    if len(matrix) <= most:
        return {"confusion_matrix": matrix.tolist(), "confusion_cells": None}
    rows, columns = np.nonzero(matrix)
    cells = {"row": rows.tolist(), "column": columns.tolist(), "count": matrix[rows, columns].tolist()}
    return {"confusion_matrix": None, "confusion_cells": cells}


def confused_block(matrix: np.ndarray, *, most: int) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The classes with the most confusions, as row or as column, and their part of the matrix.

    Args:
        matrix: Counts; rows truth, columns prediction.
        most: How many classes. Of classes with equal counts the earlier one is chosen.

    Returns:
        The chosen classes, ascending; their counts; and these divided by the sums of the whole rows.

    Example:
        >>> chosen, counts, shares = confused_block(np.array([[8, 0, 2], [0, 5, 0], [1, 0, 9]]), most=2)
        >>> chosen.tolist(), counts.tolist(), shares.tolist()
        ([0, 2], [[8, 2], [1, 9]], [[0.8, 0.2], [0.1, 0.9]])
    """
    matrix = np.asarray(matrix)
    confusions = matrix.sum(axis=0) + matrix.sum(axis=1) - 2 * matrix.diagonal()
    chosen = np.sort(np.argsort(-confusions, kind="stable")[:most])
    rows = matrix[chosen]
    block = rows[:, chosen]
    return chosen, block, np.nan_to_num(divide(block, rows.sum(axis=1, keepdims=True)))


@dataclass(frozen=True, eq=False)
class DetectionReport(Report):
    """Report on a detector.

    Attributes:
        inputs: Provenance: the files that were read, and versions.
        counts: Images, detections and objects read, used and dropped by reason.
        protocols: Confusion matrix and rates by each matching protocol.
        analysis: Average precision, curves, sizes, error types, operating points and intervals.
        shard: The matched detections that the report was made from.
    """

    classes: Tuple[str, ...]
    settings: DetectionSettings
    inputs: Mapping[str, Any]
    counts: Mapping[str, Any]
    protocols: Tuple[ProtocolReport, ...]
    analysis: Optional[DetectionAnalysis] = None
    shard: Optional[Shard] = field(default=None, repr=False)

    @property
    def labels(self) -> List[str]:
        """Names of the rows and columns of the matrices."""
        return [*self.classes, BACKGROUND]

    @property
    def differences(self) -> List[str]:
        """Why the protocols differ, in numbers, one line each."""
        names = [report.protocol for report in self.protocols]
        return [line for report in self.protocols for line in _remarks(report, beside=names)]

    @property
    def remarks(self) -> List[str]:
        """Why the protocols differ, and how many images have no results."""
        lines = self.differences
        missing = self.counts.get("images", {}).get("without_results", 0)
        if missing:
            lines.append(f"{missing} images have no results and are evaluated as images without detections")
        return lines

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values, in the order of the JSON report."""
        return {
            "schema_version": SCHEMA_VERSION,
            "classes": list(self.classes),
            "settings": self.settings.to_dict(),
            "inputs": dict(self.inputs),
            "counts": dict(self.counts),
            "protocols": {report.protocol: report.to_dict() for report in self.protocols},
            "remarks": self.remarks,
            **({} if self.analysis is None else self.analysis.to_dict()),
        }


def _remarks(report: ProtocolReport, *, beside: Sequence[str]) -> List[str]:
    counts, lines = report.counts, []
    if report.protocol == "mmdet":
        lines += [
            f"mmdet counts {counts['duplicates']} duplicates as right: detections of the right class on an object that "
            "has one already",
            f"mmdet counts {counts['objects_counted_again']} objects too many: each once for every detection on it, "
            "and once more as missed if none of them is of its class",
            f"mmdet counts {counts['detections_counted_again']} detections too many: each once for every object it "
            "lies on",
        ]
        if counts.get("crowds") and "coco" not in beside:  # which says so itself
            lines.append(f"mmdet counts {counts['crowds']} crowd regions as ordinary objects; coco ignores them")
    elif counts.get("objects_ignored"):
        lines.append(
            f"{report.protocol} ignores {counts['objects_ignored']} crowd regions and {counts['detections_ignored']} "
            "detections that match only crowd regions; mmdet counts them as ordinary"
        )
    if report.protocol == "agnostic":
        lines.append(f"agnostic pairs by overlap alone: {_between_classes(report)} pairs are of two different classes")
    return lines


def _between_classes(report: ProtocolReport) -> int:
    inner = report.result.matrix[:-1, :-1]
    return int(inner.sum() - inner.trace())


def evaluate_detection(
    ground_truth: Any,
    results: Any = None,
    *,
    classes: Optional[Sequence[str]] = None,
    settings: Optional[DetectionSettings] = None,
    class_order: Optional[str] = None,
    image_set: Optional[PathLike] = None,
    cfg_options: Optional[Sequence[str]] = None,
    trust: bool = False,
    allow_missing: bool = False,
    gallery: Optional[int] = GALLERY,
    save_state: Optional[PathLike] = None,
    distributed: bool = False,
    progress: Optional[Progress] = None,
    **options: Any,
) -> DetectionReport:
    """Evaluate a detector, as ``mm-metrics detection`` does.

    Args:
        ground_truth: The path of COCO annotations (``.json``), a folder of VOC files or an mmdet config (``.py``); a
            dict of COCO annotations; a :class:`~mm_metrics_plugin.functional.DetectionBatch`, which holds detections
            as well; or None if the ground truth is inside the results.
        results: The path of ``results.pkl`` or COCO results (``.json``), several paths that are shards of one test
            set, or a list of results in memory: one dict per image as mmdet writes them, or COCO results.
        classes: Class names in the order of the labels.
        settings: All options at once; by default those of ``options`` with ``matching=('coco', 'mmdet')``.
        class_order: ``'annotations'`` or ``'classes'``: which order labels follow, where the two differ.
        image_set: List of the test images of a folder of VOC files.
        cfg_options: ``KEY=VALUE`` overrides of the config.
        trust: Read pickles with plain pickle, which runs whatever is in them.
        allow_missing: Evaluate images without results as images without detections.
        gallery: Keep examples for the HTML page, and this many of the worst images; None keeps none.
        save_state: Save the state of this shard to an ``.npz`` file for :func:`merge_states`. The results may then
            cover only some of the images.
        distributed: Divide the work among the processes that torchrun started. Only the first gets a report.
        progress: Receives the steps.
        **options: Fields of :class:`~mm_metrics_plugin.settings.DetectionSettings`, such as ``score_thr=0.5``.

    Raises:
        ResultFileError: An input is damaged, or does not fit the others.

    Example:
        >>> annotations = {
        ...     "images": [{"id": 7, "file_name": "a.jpg", "height": 48, "width": 64}],
        ...     "categories": [{"id": 3, "name": "cat"}],
        ...     "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [0, 0, 10, 10]}]}
        >>> results = [{"image_id": 7, "category_id": 3, "bbox": [0, 0, 10, 10], "score": 0.9}]
        >>> report = evaluate_detection(annotations, results, score_thr=0.5)
        >>> report.protocols[0].columns["tp"].tolist(), report.analysis.average_precision.to_dict()["mAP"]
        ([1], 1.0)
    """
    from mm_metrics_plugin.evaluation.loading import DetectionInput, load_shard, shard_of_batch
    from mm_metrics_plugin.evaluation.process_group import ProcessGroup
    from mm_metrics_plugin.evaluation.shards import save_shard
    from mm_metrics_plugin.io.files import trim_memory

    settings = with_options(settings or DetectionSettings(matching=DEFAULT_MATCHING), options)
    progress = progress or Progress()
    group = ProcessGroup(distributed=distributed)
    if isinstance(ground_truth, DetectionBatch):
        shard = shard_of_batch(ground_truth, settings, classes=classes, worst_images=gallery)
    else:
        if results is None:
            raise ResultFileError("results must be given: a path, several paths, or a list of results")
        several = not is_path(results) and len(results) > 0 and all(is_path(one) for one in results)
        source = DetectionInput(
            ground_truth=ground_truth,
            results=tuple(results) if several else (results,),
            classes=classes,
            class_order=class_order,
            image_set=None if image_set is None else str(image_set),
            cfg_options=cfg_options,
            trust=trust,
            allow_missing=allow_missing,
        )
        partial = save_state is not None and not allow_missing
        shard = load_shard(source, settings, group=group, progress=progress, worst_images=gallery, partial=partial)
    trim_memory()  # that of the input, which is matched by now
    group.close()
    if not group.is_first:
        return None  # type: ignore[return-value]
    if save_state is not None:
        save_shard(str(save_state), shard)
    progress.step("counting")
    return report_of(shard)


def merge_states(files: Sequence[PathLike], *, progress: Optional[Progress] = None) -> DetectionReport:
    """One report from states that ``save_state`` wrote, with the numbers of one run on all images.

    Args:
        files: The ``.npz`` files. They must have the same classes and settings, share no image, and together hold
            every image of the ground truth.
        progress: Receives the steps.

    Raises:
        ResultFileError: A file is damaged, or the files do not fit together.
    """
    from mm_metrics_plugin.evaluation.shards import merge_shards, read_shard

    progress = progress or Progress()
    progress.step("reading")
    shard = merge_shards([read_shard(str(file)) for file in files])
    if shard.images_elsewhere:
        names = ", ".join(truth["file"] for truth in shard.truths)
        raise ResultFileError(
            f"{names}: {shard.images_elsewhere} of its images are in none of the states, so shards are missing"
        )
    progress.step("counting")
    return report_of(shard)


def report_of(shard: Shard) -> DetectionReport:
    """The report on all images."""
    settings, state = shard.settings, shard.state
    counted, protocols = state.tally, []
    for name in settings.matching:
        rule = state.rule(name)
        objects, detections = rule.used_per_class
        counts = {**rule.tally, **{key: counted[key] for key in ("detections_without_area", "objects_without_area")}}
        if name == "mmdet":
            counts["crowds"] = counted["crowds"]
        protocols.append(
            protocol_report(
                name,
                rule.matrix,
                classes=shard.classes,
                objects=objects,
                detections=detections,
                counts=counts,
                background_types=rule.false_positives,
            )
        )
    analysis, table = None, state.table()
    if table is not None:
        from mm_metrics_plugin.evaluation.detection_analysis import analyze_detections  # imports SciPy

        analysis = analyze_detections(table, settings, classes=shard.classes)
        message = settings.truncation_message(analysis.most_detections)
        if message:
            warnings.warn(message, MetricWarning)
    return DetectionReport(
        classes=shard.classes,
        settings=settings,
        inputs=shard.inputs(),
        counts=shard.counts(),
        protocols=tuple(protocols),
        analysis=analysis,
        shard=shard,
    )
