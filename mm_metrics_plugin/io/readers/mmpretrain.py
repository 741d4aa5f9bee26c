"""Result pickles of mmpretrain, and arrays of scores and labels."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Mapping, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError, ResultFileError, pluralize, shortened
from mm_metrics_plugin.functional._inputs import as_array, score_precision
from mm_metrics_plugin.io.arrays import to_array, written_bytes
from mm_metrics_plugin.io.classification_results import MULTI_LABEL, SINGLE_LABEL, TASK_GIVEN, ClassificationResults
from mm_metrics_plugin.io.detection_data import text_or_empty
from mm_metrics_plugin.io.files import check_num_classes
from mm_metrics_plugin.io.formats import CLASSIFICATION, Format, ReadOptions, rows_with
from mm_metrics_plugin.row_counts import RowCounts

ROWS_AT_ONCE = 1024  # checked at a time, so that the check needs little memory
_ARRAY_NAMES = {"pred_score": "scores", "gt_label": "labels", "gt_score": "labels"}
_BINARY = "one score per sample, of class 1"
SUM_TOLERANCE = 0.01  # for sums of softmax scores in half precision


def _read_arrays(content: tuple[Any, Any], options: ReadOptions) -> ClassificationResults:
    """Results from scores (samples, classes) and labels (samples,) or targets (samples, classes) of 1, 0 and -1.

    Scores (samples,) or (samples, 1) with labels 0 and 1 are those of class 1, in a multi-label task of one class.
    """
    (scores, labels), source, task = content, options.source, options.task
    try:
        rows, true = as_array(scores, "scores"), as_array(labels, "labels")
    except MetricInputError as error:
        raise ResultFileError(f"{source}: {error}") from None
    if rows.ndim not in (1, 2) or true.ndim not in (1, 2) or len(true) != len(rows):
        raise ResultFileError(
            f"{source}: 'scores' must have shape (samples, classes) or (samples,), and 'labels' as many rows (found "
            f"{rows.shape} and {true.shape})"
        )
    if not rows.size:
        raise ResultFileError(f"{source}: 'scores' must hold at least one score (found shape {rows.shape})")
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
    results = _read_samples(samples, options, _ARRAY_NAMES)
    return replace(results, classes=("1",), task_reason=_BINARY) if binary and task is None else results


def _read_samples(
    content: Sequence[Any], options: ReadOptions, names: Mapping[str, str] = MappingProxyType({})
) -> ClassificationResults:
    """Stack the samples of a result pickle.

    The task is multi-label if any sample has a ``gt_score``, or a number of true or predicted labels other than one.
    Otherwise it is single-label. Scores of more bytes than the file can hold are refused before they are copied.
    ``names`` are those of the fields in messages.
    """
    source, task, most_bytes = options.source, options.task, options.most_bytes
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
    true: Sequence[np.ndarray | None], predicted: Sequence[np.ndarray] | None, scores: np.ndarray
) -> tuple[str, str]:
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
        self.content: Sequence[dict[str, Any]] = content
        self.source = source
        self.names = names
        self.num_classes = 0

    def scores(self, most_bytes: int | None) -> tuple[np.ndarray, np.ndarray]:
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

    def ground_truth(self, true: Sequence[np.ndarray | None], task: str) -> tuple[np.ndarray | None, np.ndarray | None]:
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
        array: np.ndarray | None = None
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


def _is_pair(content: Any) -> bool:
    """A tuple of scores and labels, which are not numbers."""
    return isinstance(content, tuple) and len(content) == 2 and not isinstance(content[0], (int, float, dict))


FORMATS = (
    Format("results of mmpretrain", rows_with("pred_score"), CLASSIFICATION, _read_samples),
    Format("scores and labels", _is_pair, CLASSIFICATION, _read_arrays),
)
