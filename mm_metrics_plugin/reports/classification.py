"""The report on a classifier: everything that follows from its scores and the ground truth."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Mapping

import numpy as np

from mm_metrics_plugin.functional._arrays import divide
from mm_metrics_plugin.functional.classification.auc import AUCResult, roc_auc
from mm_metrics_plugin.functional.classification.calibration_error import (
    CalibrationResult,
    brier_terms,
    calibration_error,
    log_terms,
)
from mm_metrics_plugin.functional.classification.confusion_matrix import (
    Confusion,
    ConfusionResult,
    CountsResult,
    confusion_matrix_report,
    matrix_entries,
    stat_scores_report,
    top_confusions,
)
from mm_metrics_plugin.functional.classification.delong import delong_ci
from mm_metrics_plugin.functional.classification.roc_curves import (
    ClassificationCurves,
    CountCurve,
    map_curves,
    roc_curves,
)
from mm_metrics_plugin.functional.ranking import label_ranks
from mm_metrics_plugin.functional.statistics.bootstrap import (
    TOO_FEW,
    Interval,
    Intervals,
    bootstrap_counts,
    proportion_interval,
)
from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts
from mm_metrics_plugin.functional.thresholding import decimal_thresholds, hard_decisions, precision_codes, reach
from mm_metrics_plugin.reports.base import SCHEMA_VERSION, Report, class_values, records, warn_unreached
from mm_metrics_plugin.settings import MULTI_LABEL_SCORE_THR, ClassificationSettings
from mm_metrics_plugin.states.counts import BinaryCountState, ConfusionState
from mm_metrics_plugin.states.scores import CalibrationState, ScoreState

TOP_K = (5,)
MAX_CURVE_CLASSES = 100  # more curves cannot be distinguished
MAX_CURVE_SCORES = 10_000_000  # a curve has a point for every score

_AVERAGED = ("precision", "recall", "f1", "auc", "AP")
_THRESHOLDS = (
    "ks",
    "ks_threshold",
    "sensitivity_at_specificity",
    "sensitivity_threshold",
    "specificity_at_sensitivity",
    "specificity_threshold",
)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Calibration of a classifier: whether its scores are probabilities."""

    result: CalibrationResult  # reliability diagram of the decisions, ECE and MCE
    brier: float  # summed over classes
    nll: float  # negative log-likelihood

    @property
    def figures(self) -> dict[str, float]:
        """Scalar metrics by name."""
        return {"ece": self.result.ece, "mce": self.result.mce, "brier": self.brier, "nll": self.nll}

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values."""
        names = ("edges", "counts", "accuracy", "confidence")
        return {**self.figures, **{name: getattr(self.result, name).tolist() for name in names}}


@dataclass(frozen=True, eq=False)
class ClassificationSamples:
    """Scores and ground truth of many samples."""

    scores: np.ndarray  # (samples, classes)
    labels: np.ndarray | None  # (samples,) the true label of a single-label task
    targets: np.ndarray | None  # (samples, classes) int8 of a multi-label task: 1, 0, or -1 if ignored
    precision: np.ndarray  # (samples,) code of the precision of the scores, see ``functional.thresholding``
    names: tuple[str, ...]  # path of each sample, "" if unknown
    sample_idx: np.ndarray  # (samples,) index in the dataset, -1 if unknown

    @property
    def ground_truth(self) -> np.ndarray:
        """``labels`` of a single-label task, ``targets`` of a multi-label task."""
        return self.labels if self.labels is not None else self.targets  # type: ignore[return-value]

    def reach(self, threshold: float) -> np.ndarray:
        """(samples, classes) whether each score is at least the threshold, in the precision of the sample's scores."""
        return reach(self.scores, threshold, self.precision)


@dataclass(frozen=True, eq=False, repr=False)
class ClassificationReport(Report):
    """Report on a classifier. A part is computed when it is first used.

    Attributes:
        samples: Scores and ground truth of the samples.
        inputs: Provenance: the files that were read, and versions.
        counts: Samples read, used and dropped by reason.
    """

    classes: tuple[str, ...]
    settings: ClassificationSettings
    samples: ClassificationSamples = field(repr=False)
    inputs: Mapping[str, Any]
    counts: Mapping[str, Any]

    def compute(self) -> None:
        """Compute every part."""
        for name in ("result", "auc", "average_precision", "top_k", "thresholds", "intervals", "calibration"):
            getattr(self, name)

    @cached_property
    def _decisions(self) -> tuple[CountsResult, float]:
        return _count_decisions(self.samples, self.score_thr)

    @property
    def score_thr(self) -> float:
        """The score threshold of a multi-label task."""
        return MULTI_LABEL_SCORE_THR if self.settings.score_thr is None else self.settings.score_thr

    @property
    def result(self) -> CountsResult:
        """The confusion matrix of a single-label task, else TP, FP, FN and TN per class."""
        return self._decisions[0]

    @property
    def accuracy(self) -> float:
        """Top-1 accuracy; of a multi-label task, the accuracy of all binary decisions."""
        return self._decisions[1]

    @cached_property
    def auc(self) -> AUCResult:
        """One-vs-rest AUC."""
        return roc_auc([self.samples.scores], self.samples.ground_truth)

    @cached_property
    def average_precision(self) -> AUCResult:
        """One-vs-rest average precision."""
        return roc_auc([self.samples.scores], self.samples.ground_truth, curve="pr")

    @cached_property
    def top_k(self) -> dict[int, float]:
        """Top-k accuracy by k above 1; single-label tasks only."""
        return _top_k(self.samples)

    @cached_property
    def thresholds(self) -> dict[str, Any]:
        """KS, sensitivity at specificity and the reverse, from :func:`class_thresholds`."""
        settings, samples = self.settings, self.samples
        limits = {"at_specificity": settings.at_specificity, "at_sensitivity": settings.at_sensitivity}
        return class_thresholds(samples.scores, samples.ground_truth, precision=samples.precision, **limits)

    @cached_property
    def intervals(self) -> Intervals | None:
        """Confidence intervals of accuracy, precision, recall, F1 and AUC (DeLong), if ``ci`` is given."""
        return None if self.settings.ci is None else _intervals(self.samples, self.score_thr, self.settings.ci)

    @cached_property
    def calibration(self) -> Calibration | None:
        """Calibration of single-label tasks whose scores are from 0 to 1."""
        return _calibration(self.samples)

    @cached_property
    def curves(self) -> ClassificationCurves | None:
        """ROC and precision-recall curves, one-vs-rest; None if there are too many to draw."""
        samples = self.samples
        if len(self.classes) > MAX_CURVE_CLASSES or samples.scores.size > MAX_CURVE_SCORES:
            return None
        return roc_curves([samples.scores], samples.ground_truth, precision=samples.precision)

    @property
    def matrix(self) -> np.ndarray | None:
        """The confusion matrix (classes, classes) of a single-label task."""
        if not isinstance(self.result, ConfusionResult):
            return None
        return self.result.matrix[:, : len(self.classes)]

    @property
    def confusions(self) -> tuple[Confusion, ...]:
        """The most frequent confusions."""
        return () if self.matrix is None else top_confusions(self.matrix, self.classes)

    @property
    def columns(self) -> dict[str, Any]:
        """The table per class, by name of the column."""
        result, rates = self.result, self.result.per_class
        return {
            "name": list(self.classes),
            "samples": result.support,
            "predicted": result.predicted,
            "tp": result.tp,
            "fp": result.fp,
            "fn": result.fn,
            "precision": rates.precision,
            "recall": rates.recall,
            "f1": rates.f_score,
            "auc": self.auc.per_class,
            "AP": self.average_precision.per_class,
        }

    @property
    def means(self) -> dict[str, float]:
        """Accuracy, means over classes (macro), and rates of the pooled counts (micro), by key."""
        macro, micro = self.result.macro, self.result.micro
        return {
            "accuracy": self.accuracy,
            **{f"accuracy_top{k}": value for k, value in self.top_k.items()},
            "auc": self.auc.value,
            "mAP": self.average_precision.value,
            "precision": macro.precision,
            "recall": macro.recall,
            "f1_of_means": self.result.f_of_means,
            "f1": macro.f_score,
            "precision_micro": micro.precision,
            "recall_micro": micro.recall,
            "f1_micro": micro.f_score,
        }

    @property
    def classes_averaged(self) -> dict[str, int]:
        """Number of classes with a defined value, over which the means are taken."""
        columns = self.columns
        return {key: int(np.count_nonzero(~np.isnan(columns[key]))) for key in _AVERAGED}

    def _content(self) -> dict[str, Any]:
        no_matrix = {"confusion_matrix": None, "confusion_cells": None}
        return {
            "schema_version": SCHEMA_VERSION,
            "classes": list(self.classes),
            "settings": self.settings.to_dict(),
            "inputs": dict(self.inputs),
            "counts": dict(self.counts),
            **self.means,
            "classes_averaged": self.classes_averaged,
            "per_class": records(self.columns),
            **(no_matrix if self.matrix is None else matrix_entries(self.matrix)),
            "top_confusions": [confusion.to_dict() for confusion in self.confusions],
            "thresholds": records({"name": list(self.classes), **self.thresholds}),
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "intervals": None if self.intervals is None else self.intervals.to_dict(),
        }

    def log_values(self, *, average: str = "macro", classwise: bool = False) -> dict[str, float]:
        """The values by key, for a log.

        Args:
            average: Mean of ``precision``, ``recall`` and ``f1``: ``'macro'`` or ``'micro'``.
            classwise: Also keys per class, such as ``auc/cat``.
        """
        values = dict(self.means)
        if average == "micro":
            values.update((key, values[f"{key}_micro"]) for key in ("precision", "recall", "f1"))
        if self.intervals is not None:
            for key, interval in self.intervals.overall.items():
                values[f"{key}_low"], values[f"{key}_high"] = interval.low, interval.high
        if classwise:
            for key in _AVERAGED:
                values.update(class_values(key, self.classes, self.columns[key]))
        return values


def _count_decisions(samples: ClassificationSamples, score_thr: float) -> tuple[CountsResult, float]:
    """Counts and accuracy, from the states of SingleLabelPRF and MultiLabelPRF."""
    scores = samples.scores
    if samples.targets is None:
        decided = hard_decisions(scores, thresholds=[-np.inf])
        state = ConfusionState(scores.shape[1]).update(samples.labels, decided)  # type: ignore[arg-type]
        result = confusion_matrix_report(state.matrix[:, :-1])
        return result, result.accuracy
    reached = samples.reach(score_thr)
    if not reached.any():
        warn_unreached("score", score_thr, scores)
    counts = BinaryCountState().update(reached, samples.targets)
    tp, fp, fn, tn = counts.tp, counts.fp, counts.fn, counts.tn
    correct, decisions = (tp + tn).sum(), (tp + fp + fn + tn).sum()
    return stat_scores_report(tp, fp, fn, tn), float(divide(correct, decisions))


def _top_k(samples: ClassificationSamples) -> dict[int, float]:
    """Top-k accuracy as in RecallAtK, for single-label tasks."""
    if samples.labels is None:
        return {}
    ranks = label_ranks(samples.scores, samples.labels)
    return {k: float((ranks < k).mean()) for k in TOP_K if k < samples.scores.shape[1]}


def _calibration(samples: ClassificationSamples) -> Calibration | None:
    """Calibration as in CalibrationError; None if scores are not probabilities."""
    scores, labels = samples.scores, samples.labels
    if labels is None or scores.min() < 0 or scores.max() > 1:
        return None
    best = scores.argmax(axis=1)
    confidence, correct = scores[np.arange(len(best)), best], best == labels
    terms = np.stack([brier_terms(scores, labels), log_terms(scores, labels)], axis=1)
    return Calibration(
        calibration_error(confidence, correct),
        *CalibrationState(ScoreState()).update(confidence, correct, terms).means(),
    )


def _intervals(samples: ClassificationSamples, score_thr: float, ci: float) -> Intervals:
    """Confidence intervals of accuracy, precision, recall, F1 and AUC."""
    scores = samples.scores
    if samples.targets is not None:
        reached = samples.reach(score_thr)
        counts = PerImageCounts.from_decisions(samples.targets, reached)
        trials = np.count_nonzero(samples.targets >= 0, axis=1)
        correct = np.count_nonzero((samples.targets >= 0) & ((samples.targets == 1) == reached), axis=1)
    else:
        decided = hard_decisions(scores, thresholds=[-np.inf])[:, 0]
        counts = PerImageCounts.from_labels(samples.labels, decided, num_classes=scores.shape[1])  # type: ignore[arg-type]
        correct, trials = decided == samples.labels, np.ones(len(decided))
    intervals, auc = bootstrap_counts(counts, ci=ci), delong_ci([scores], samples.ground_truth, ci=ci)
    overall = {"accuracy": proportion_interval(correct, trials, ci=ci), "auc": auc.macro, **intervals.overall}
    per_class = {**intervals.per_class, "auc": auc.per_class}
    return replace(
        intervals,
        overall={name: _in_samples(interval) for name, interval in overall.items()},
        per_class={name: _in_samples(interval) for name, interval in per_class.items()},
    )


def _in_samples(interval: Interval) -> Interval:
    """The interval with the reason "too few samples" instead of too few objects or images."""
    reason = np.where(np.isin(interval.reason, TOO_FEW), "too few samples", interval.reason)
    return replace(interval, reason=reason if reason.ndim else str(reason))


def class_thresholds(
    scores: np.ndarray,
    labels: np.ndarray,
    *,
    precision: np.ndarray | None = None,
    at_specificity: float = 0.95,
    at_sensitivity: float = 0.95,
) -> dict[str, Any]:
    """KS, sensitivity at a specificity and the reverse of each class against the rest, each with its threshold.

    ``labels`` are true classes, or (samples, classes) of 1, 0 and -1 (ignored). Thresholds are rounded to the
    ``precision`` of each sample's scores, as in :func:`roc_curves`.

    Returns:
        The values as arrays, and the thresholds as lists of :class:`Threshold`.
    """
    codes = precision_codes(scores.dtype, precision)

    def of_class(curve: CountCurve, ranked: np.ndarray) -> tuple[float, ...]:
        pairs = curve.youden(), curve.sensitivity_at(at_specificity), curve.specificity_at(at_sensitivity)
        values, thresholds = zip(*pairs)
        decimals = decimal_thresholds(thresholds, [(code, ranked) for code in codes])
        return tuple(chain.from_iterable(zip(values, decimals)))

    rows = map_curves(of_class, [scores], labels, precision, corners=True)
    columns = dict(zip(_THRESHOLDS, map(list, zip(*rows))))
    return {name: column if name.endswith("threshold") else np.array(column) for name, column in columns.items()}
