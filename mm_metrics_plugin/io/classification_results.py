"""Classification results: mmpretrain's result pickles."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError, ResultFileError, pluralize, shortened
from mm_metrics_plugin.functional._inputs import as_array, score_precision
from mm_metrics_plugin.functional.thresholding import reach
from mm_metrics_plugin.io.arrays import to_array, written_bytes
from mm_metrics_plugin.io.contents import read_file
from mm_metrics_plugin.io.detection_results import text_or_empty
from mm_metrics_plugin.io.files import PathLike, check_num_classes, trim_memory
from mm_metrics_plugin.io.formats import (
    CLASSIFICATION,
    MMPRETRAIN,
    plain_content,
    recognize,
    refusal,
)
from mm_metrics_plugin.io.safe_pickle import collector_paused
from mm_metrics_plugin.row_counts import RowCounts

SINGLE_LABEL, MULTI_LABEL = TASKS = ("single-label", "multi-label")
TASK_GIVEN = "given"  # the reason for a task that is not inferred
ROWS_AT_ONCE = 1024  # checked at a time, so that the check needs little memory
_ARRAY_NAMES = {"pred_score": "scores", "gt_label": "labels", "gt_score": "labels"}
_BINARY = "one score per sample, of class 1"
SUM_TOLERANCE = 0.01  # for sums of softmax scores in half precision


@dataclass(frozen=True, eq=False)
class ClassificationResults:
    """Scores and ground truth of many samples.

    Args:
        source: Name of the file.
        scores: (samples, classes).
        predictions: (samples,) the predicted label; the label of the best score if the file has none, and -1
            if several labels or none were predicted.
        labels: (samples,) the true label; None for multi-label results.
        targets: (samples, classes) int8, 1 if a class is true, 0 if not, -1 if it is ignored; None for single-label
            results.
        names: Path of each sample, "" if unknown.
        sample_idx: (samples,) index in the dataset, -1 if unknown.
        row_counts: Samples read, used and dropped.
        task_reason: The reason for the inferred task.
        precision: (samples,) code of the precision in which the scores of each sample were written (see
            ``functional.thresholding``).
        classes: Names of the classes, if the results name them.
    """

    source: str
    scores: np.ndarray
    predictions: np.ndarray
    labels: Optional[np.ndarray]
    targets: Optional[np.ndarray]
    names: Tuple[str, ...]
    sample_idx: np.ndarray
    row_counts: RowCounts
    precision: np.ndarray
    task_reason: str = ""
    sha256: Optional[str] = None
    classes: Tuple[str, ...] = ()

    @property
    def task(self) -> str:
        """``'single-label'`` or ``'multi-label'``."""
        return SINGLE_LABEL if self.targets is None else MULTI_LABEL

    @property
    def ground_truth(self) -> np.ndarray:
        """``labels`` of a single-label task, ``targets`` of a multi-label task."""
        return self.labels if self.labels is not None else self.targets  # type: ignore[return-value]

    def as_multi_label(self, reason: str) -> ClassificationResults:
        """The results as a multi-label task in which every sample has one true class."""
        if self.labels is None:
            return self
        targets = np.zeros(self.scores.shape, dtype=np.int8)
        targets[np.arange(len(targets)), self.labels] = 1
        return replace(self, labels=None, targets=targets, task_reason=reason)

    def reach(self, threshold: float) -> np.ndarray:
        """(samples, classes) whether each score is at least the threshold, in the precision of the sample's scores."""
        return reach(self.scores, threshold, self.precision)


def read_classification(
    path: PathLike,
    *,
    trust: bool = False,
    task: Optional[str] = None,
    on_progress: Optional[Callable[[float], None]] = None,
) -> ClassificationResults:
    """Read what mmpretrain's ``tools/test.py --out`` wrote.

    Args:
        path: The pickle, or JSON with the same content.
        trust: Read a pickle with plain pickle, which runs any code in it.
        task: ``'single-label'`` or ``'multi-label'``; inferred from the samples by default.
        on_progress: Receives the fraction of the file that was read.
    """
    path = Path(path)
    with collector_paused():
        content, most_bytes, digest = read_file(path, CLASSIFICATION, trust=trust, on_progress=on_progress)
        results = classification_from_samples(content, path.name, most_bytes=most_bytes, task=task)
        del content
    trim_memory()
    return replace(results, sha256=digest)


def classification_from_arrays(
    scores: Any, labels: Any, *, source: str, task: Optional[str] = None
) -> ClassificationResults:
    """Results from scores (samples, classes) and labels (samples,) or targets (samples, classes) of 1, 0 and -1.

    Scores (samples,) or (samples, 1) with labels 0 and 1 are those of class 1, in a multi-label task of one class.
    """
    try:
        rows, true = as_array(scores, "scores"), as_array(labels, "labels")
    except MetricInputError as error:
        raise ResultFileError(f"{source}: {error}") from None
    if rows.ndim not in (1, 2) or true.ndim not in (1, 2) or len(true) != len(rows):
        raise ResultFileError(
            f"{source}: 'scores' must have shape (samples, classes) or (samples,), and 'labels' as many rows (found "
            f"{rows.shape} and {true.shape})"
        )
    if rows.dtype.kind != "f":
        hint = "; scores come first, then labels" if true.dtype.kind == "f" else ""
        raise ResultFileError(f"{source}: 'scores' must be floating-point numbers (found {rows.dtype}{hint})")
    true = true.astype(np.int64) if true.dtype.kind == "b" else true
    binary = rows.size == len(rows)
    if binary:
        if true.ndim == 1 and not np.isin(true, (0, 1)).all():
            found = true[~np.isin(true, (0, 1))][0]
            raise ResultFileError(f"{source}: 'labels' of one score per sample must be 0 and 1 (found {found})")
        rows, true = rows.reshape(-1, 1), true.reshape(len(true), -1)
    elif true.size == len(true):
        true = true.reshape(-1)  # a column of labels
    field = "gt_label" if true.ndim == 1 else "gt_score"
    samples = [{"pred_score": row, field: target} for row, target in zip(rows, true)]
    results = classification_from_samples(samples, source, task=task, names=_ARRAY_NAMES)
    return replace(results, classes=("1",), task_reason=_BINARY) if binary and task is None else results


def classification_from_samples(
    content: Any,
    source: str,
    *,
    most_bytes: Optional[int] = None,
    task: Optional[str] = None,
    names: Mapping[str, str] = MappingProxyType({}),
) -> ClassificationResults:
    """Stack the samples of a result pickle.

    The task is multi-label if any sample has a ``gt_score``, or a number of true or predicted labels other than one.
    Otherwise it is single-label. Scores of more than ``most_bytes`` are refused before they are copied. ``names`` are
    those of the fields in messages.
    """
    content = plain_content(content, source)
    if recognize(content) is not MMPRETRAIN:
        raise refusal(source, content, CLASSIFICATION)
    samples = _Samples(content, source, names)
    scores, precision = samples.scores(most_bytes)
    # The true labels are None for samples that have a 'gt_score' instead.
    scored = [sample.get("gt_score") is not None for sample in content]
    true = [None if has_score else samples.labels("gt_label", n) for n, has_score in enumerate(scored)]
    predicted, predictions = None, np.argmax(scores, axis=1)
    if any(sample.get("pred_label") is not None for sample in content):
        predicted = [samples.labels("pred_label", number) for number in range(len(content))]
        predictions = np.array([int(row[0]) if len(row) == 1 else -1 for row in predicted], dtype=np.int64)
    inferred, reason = _infer_task(true, predicted, scores)
    labels, targets = samples.ground_truth(true, task or inferred)
    if labels is not None:  # a single-label task has a confusion matrix
        check_num_classes(samples.num_classes, source, most_bytes, labels_only=False)
    return ClassificationResults(
        source=source,
        scores=scores,
        predictions=predictions,
        labels=labels,
        targets=targets,
        names=tuple(text_or_empty(sample.get("img_path")) for sample in content),
        sample_idx=np.array([_index(sample.get("sample_idx")) for sample in content], dtype=np.int64),
        row_counts=RowCounts(len(content), len(content)),
        task_reason=reason if task is None else TASK_GIVEN,
        precision=precision,
    )


def _infer_task(
    true: Sequence[Optional[np.ndarray]], predicted: Optional[Sequence[np.ndarray]], scores: np.ndarray
) -> Tuple[str, str]:
    """The task, and the evidence for it."""
    for number, labels in enumerate(true):
        if labels is None:
            return MULTI_LABEL, f"sample number {number} has a 'gt_score'"
    for kind, rows in (("true label", true), ("predicted label", predicted or ())):
        for number, labels in enumerate(rows):
            if len(labels) != 1:  # type: ignore[arg-type]
                return MULTI_LABEL, f"sample number {number} has {pluralize(len(labels), kind)}"  # type: ignore[arg-type]
    reason = "every sample has one true label" + (" and one predicted label" if predicted is not None else "")
    if scores.min() >= 0 and scores.max() <= 1:
        sums = scores.sum(axis=1, dtype=np.float64)
        other = int(np.count_nonzero(np.abs(sums - 1) > SUM_TOLERANCE))
        if other:
            reason += f", but the scores of {other:,} of {pluralize(len(sums), 'sample')} do not sum to 1"
    return SINGLE_LABEL, reason


class _Samples:
    """One dict per sample, whose fields are checked as they are read."""

    def __init__(self, content: Sequence[Any], source: str, names: Mapping[str, str]) -> None:
        for number, sample in enumerate(content):
            if type(sample) is not dict:
                found = type(sample).__name__
                raise ResultFileError(f"{source}: sample number {number} must be a dict (found {found})")
        self.content: Sequence[Dict[str, Any]] = content
        self.source = source
        self.names = names
        self.num_classes = 0

    def scores(self, most_bytes: Optional[int]) -> Tuple[np.ndarray, np.ndarray]:
        """The scores of all samples, and the code of their precision."""
        rows = [self._array("pred_score", number) for number in range(len(self.content))]
        classes = self.num_classes = len(rows[0])
        if not classes:
            raise self._error("pred_score", 0, "must hold the score of at least one class", "0 scores")
        for number, row in enumerate(rows):
            if row.shape != (classes,) or row.dtype.kind != "f":
                expected = f"must be {pluralize(classes, 'score')}"
                raise self._error("pred_score", number, expected, f"{row.dtype} {row.shape}")
        if most_bytes is not None and sum(written_bytes(row) for row in rows) > most_bytes:
            raise ResultFileError(f"{self.source}: holds more scores than a file of this size can")
        scores = np.asarray(np.concatenate(rows)).reshape(len(rows), classes)
        for start in range(0, len(scores), ROWS_AT_ONCE):
            block = scores[start : start + ROWS_AT_ONCE]
            if not np.isfinite(block).all():
                row, column = np.argwhere(~np.isfinite(block))[0].tolist()
                found = f"{block[row, column]} at index {column}"
                raise self._error("pred_score", start + row, "must be finite", found)
        return scores, np.array([score_precision(row) for row in rows], dtype=np.uint8)

    def labels(self, field: str, number: int) -> np.ndarray:
        """The labels of one sample."""
        value, classes = self.content[number].get(field), self.num_classes
        if (
            type(value) is np.ndarray
            and value.shape == (1,)
            and value.dtype.kind in "iu"
            and 0 <= value.item() < classes
        ):
            return value.astype(np.int64, copy=False)  # the usual case needs no further checks
        array = self._array(field, number)
        if array.size == 0:
            return np.empty(0, dtype=np.int64)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise self._error(field, number, "must be whole numbers", f"{array.dtype} {array.shape}")
        if array.min() < 0 or array.max() >= classes:
            wrong = int(array[(array < 0) | (array >= classes)][0])
            expected = f"must be between 0 and {classes - 1}"
            if classes == 1:
                expected = "must be 0, the only class that has a score"
            raise self._error(field, number, expected, wrong)
        return array.astype(np.int64)

    def ground_truth(
        self, true: Sequence[Optional[np.ndarray]], task: str
    ) -> Tuple[Optional[np.ndarray], Optional[np.ndarray]]:
        """The labels of a single-label task, or the targets of a multi-label task."""
        classes = self.num_classes
        targets = np.zeros((len(true), classes), dtype=np.int8) if task == MULTI_LABEL else None
        chosen = np.zeros(len(true), dtype=np.int64)
        for number, labels in enumerate(true):
            row, field = None, "gt_label"
            if labels is None:
                field = "gt_score"
                row = self._array(field, number)
                if row.shape != (classes,) or not np.isin(row, (-1, 0, 1)).all():
                    raise self._error(field, number, f"must be {classes} of -1, 0 and 1", f"{row.dtype} {row.shape}")
                labels = np.flatnonzero(row == 1)
            if targets is not None:
                if row is not None:
                    targets[number] = row
                else:
                    targets[number, labels] = 1
            elif len(labels) != 1 or (row is not None and (row < 0).any()):
                found = f"{len(labels)} true and {0 if row is None else int((row < 0).sum())} ignored classes"
                raise self._error(field, number, "must hold one true class in a single-label task", found)
            else:
                chosen[number] = labels[0]
        return (chosen, None) if targets is None else (None, targets)

    def _array(self, field: str, number: int) -> np.ndarray:
        value = self.content[number].get(field)
        if type(value) is np.ndarray and value.ndim and value.dtype.isnative and value.dtype.kind in "fiu":
            return value  # the usual case needs no further checks
        if value is None:
            raise self._error(field, number, "must be an array", "nothing")
        array: Optional[np.ndarray] = None
        with suppress(TypeError, ValueError, RuntimeError, OverflowError):
            array = np.atleast_1d(to_array(value))
        if array is None or (array.size and array.dtype.kind not in "fiu"):
            raise self._error(field, number, "must be an array of numbers", shortened(value))
        return array

    def _error(self, field: str, number: int, expected: str, found: Any) -> ResultFileError:
        name = self.names.get(field, field)
        return ResultFileError(f"{self.source}: '{name}' of sample number {number} {expected} (found {found})")


def _index(value: Any) -> int:
    return int(value) if isinstance(value, (int, np.integer)) and 0 <= int(value) < 1 << 62 else -1
