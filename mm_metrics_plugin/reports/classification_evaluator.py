"""The evaluator of classifiers: keeps scores and ground truth as they come, merges, and makes the report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping, Sequence, TypeVar

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError, ResultFileError, listing, pluralize
from mm_metrics_plugin.functional.thresholding import precision_of
from mm_metrics_plugin.reports.base import Progress
from mm_metrics_plugin.reports.classification import ClassificationReport, ClassificationSamples
from mm_metrics_plugin.row_counts import RowCounts
from mm_metrics_plugin.settings import MULTI_LABEL_SCORE_THR, ClassificationSettings, with_options
from mm_metrics_plugin.states.base import merge_all
from mm_metrics_plugin.states.scores import SampleState

_E = TypeVar("_E", bound="ClassificationEvaluator")


class ClassificationEvaluator:
    """Evaluates a classifier on samples that come one batch after the other.

    Args:
        classes: Class names in the order of the scores.
        settings: All options at once; by default those of ``options``.
        **options: Fields of :class:`~mm_metrics_plugin.settings.ClassificationSettings`, such as ``ci=0.95``.

    Attributes:
        state: The accumulated samples: arrays that can be saved and merged.
        names: Path of each sample, "" if unknown.

    Example:
        >>> evaluator = ClassificationEvaluator(["cat", "dog"])
        >>> evaluator.update(np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([0, 1]))
        >>> evaluator.update(np.array([[0.7, 0.3]]), np.array([1]))
        >>> report = evaluator.compute()
        >>> round(report.accuracy, 3), report.log_values()["auc"]
        (0.667, 1.0)
    """

    def __init__(self, classes: Sequence[str], settings: ClassificationSettings | None = None, **options: Any) -> None:
        self.classes = tuple(classes)
        self.settings = with_options(settings or ClassificationSettings(), options, ("classes", "settings"))
        self.inputs: dict[str, Any] = {}
        self.row_counts: RowCounts | None = None  # of the files; by default every sample is used
        self.reset()

    def reset(self) -> None:
        """Remove all samples."""
        self.state = SampleState()
        self.names: tuple[str, ...] = ()

    def update(
        self,
        scores: Any,
        ground_truth: Any,
        *,
        names: Sequence[str] | None = None,
        sample_idx: np.ndarray | None = None,
        precision: np.ndarray | None = None,
    ) -> None:
        """Add samples.

        Args:
            scores: (samples, classes).
            ground_truth: Labels (samples,) or multi-label targets (samples, classes) of 1, 0 and -1 (ignored).
            names: Path of each sample.
            sample_idx: (samples,) index in the dataset.
            precision: (samples,) code of the precision of the scores; that of the dtype by default.

        Raises:
            MetricInputError: Shapes do not fit, a score is not finite, or a label is out of range.
        """
        scores, truth = (
            value.detach().cpu() if hasattr(value, "detach") else value for value in (scores, ground_truth)
        )
        scores, truth = np.asarray(scores), np.asarray(truth)
        number, classes = len(scores), len(self.classes)
        if scores.ndim != 2 or scores.shape[1] != classes or scores.dtype.kind != "f":
            raise MetricInputError(
                f"'scores' must be (samples, {classes}) floats (found shape {scores.shape}, {scores.dtype})"
            )
        if not np.isfinite(scores).all():
            row, column = np.argwhere(~np.isfinite(scores))[0].tolist()
            raise MetricInputError(f"'scores' of sample {row} must be finite (found {scores[row, column]})")
        if truth.shape not in ((number,), (number, classes)) or truth.dtype.kind not in "iu":
            raise MetricInputError(
                f"'ground_truth' must be {pluralize(number, 'label')} or rows of targets (found shape {truth.shape}, "
                f"{truth.dtype})"
            )
        low, high = (0, classes - 1) if truth.ndim == 1 else (-1, 1)
        if truth.size and (truth.min() < low or truth.max() > high):
            row = int(np.argwhere((truth < low) | (truth > high))[0][0])
            raise MetricInputError(f"'ground_truth' of sample {row} must be from {low} to {high} (found {truth[row]})")
        codes = np.full(number, precision_of(scores.dtype)) if precision is None else precision
        scores = scores.astype(np.float32) if scores.dtype.itemsize < 4 else scores
        indices = np.full(number, -1) if sample_idx is None else sample_idx
        self.state.update(scores, truth, codes, indices)
        self.names += ("",) * number if names is None else tuple(names)

    def merge(self: _E, *others: _E) -> _E:
        """A new evaluator with the samples of all, one after the other; the evaluators are not changed.

        Raises:
            ResultFileError: They differ in classes or settings.
        """
        for other in others:
            if self.classes != other.classes:
                both = f"{listing('class', self.classes)}; {listing('class', other.classes)}"
                raise ResultFileError(f"evaluators with different classes cannot be merged ({both})")
            if replace(self.settings, task_reason="") != replace(other.settings, task_reason=""):
                raise ResultFileError("evaluators with different settings cannot be merged")
        parts = (self, *others)
        result = type(self)(self.classes, self.settings)
        result.state = merge_all([part.state for part in parts])
        result.names = tuple(name for part in parts for name in part.names)
        counts = [part.row_counts for part in parts if part.row_counts is not None]
        result.row_counts = RowCounts.total(counts) if counts else None
        results = [part.inputs["results"] for part in parts if "results" in part.inputs]
        files = [entry for given in results for entry in (given if isinstance(given, list) else [given])]
        result.inputs = {**self.inputs, **({"results": files} if len(files) > 1 else {})}
        return result

    @classmethod
    def of_report(cls: type[_E], report: ClassificationReport) -> _E:
        """The evaluator that a report was computed from."""
        result, samples = cls(report.classes, report.settings), report.samples
        result.state = result.state.with_arrays(
            {
                "scores": samples.scores,
                "labels": samples.ground_truth,
                "precision": samples.precision,
                "sample_idx": samples.sample_idx,
            }
        )
        result.names, result.inputs = samples.names, dict(report.inputs)
        result.row_counts = RowCounts(**report.counts["samples"])
        return result

    def samples(self) -> ClassificationSamples:
        """All samples."""
        arrays = {name: value for name, value in self.state.arrays().items() if value is not None}
        if not arrays or not len(arrays["scores"]):
            raise MetricInputError("there are no samples to evaluate")
        labels = arrays["labels"]
        return ClassificationSamples(
            scores=arrays["scores"],
            labels=labels if labels.ndim == 1 else None,
            targets=None if labels.ndim == 1 else labels,
            precision=arrays["precision"],
            names=self.names,
            sample_idx=arrays["sample_idx"],
        )

    def compute(self, progress: Progress | None = None) -> ClassificationReport:
        """The report on all samples added."""
        samples, settings = self.samples(), self.settings
        task = "single-label" if samples.labels is not None else "multi-label"
        threshold = MULTI_LABEL_SCORE_THR if settings.score_thr is None else settings.score_thr
        settings = replace(settings, task=task, score_thr=None if samples.labels is not None else threshold)
        counts = self.row_counts or RowCounts(len(samples.scores), len(samples.scores))
        report = ClassificationReport(self.classes, settings, samples, self.inputs, {"samples": counts.to_dict()})
        report.compute()
        return report

    def header(self) -> dict[str, Any]:
        """Everything but the arrays of the state, as JSON values."""
        return {
            "classes": list(self.classes),
            "settings": self.settings.to_dict(),
            "names": list(self.names),
            "inputs": self.inputs,
            "row_counts": None if self.row_counts is None else self.row_counts.to_dict(),
        }

    @classmethod
    def from_header(cls: type[_E], header: Mapping[str, Any]) -> _E:
        """An evaluator with the samples of :meth:`header` and an empty state."""
        result = cls(header["classes"], ClassificationSettings(**header["settings"]))
        result.names, result.inputs = tuple(header["names"]), dict(header["inputs"])
        counts = header["row_counts"]
        result.row_counts = None if counts is None else RowCounts(**counts)
        return result
