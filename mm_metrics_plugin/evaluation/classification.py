"""Evaluation of a classifier: from a file or arrays to a :class:`ClassificationReport`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.evaluation.report import (
    IN_MEMORY,
    SCHEMA_VERSION,
    Progress,
    Report,
    check_classes,
    input_entry,
    is_path,
    keyword_names,
    records,
    versions,
    warn_unreached,
)
from mm_metrics_plugin.exceptions import ClassNamesError, ResultFileError, pluralize
from mm_metrics_plugin.functional._arrays import divide
from mm_metrics_plugin.functional.classification.auc import AUCResult, map_classes, roc_auc
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
from mm_metrics_plugin.functional.classification.roc_curves import ClassificationCurves, corner_curve, roc_curves
from mm_metrics_plugin.functional.ranking import label_ranks
from mm_metrics_plugin.functional.statistics.bootstrap import (
    TOO_FEW,
    Interval,
    Intervals,
    bootstrap_counts,
    proportion_interval,
)
from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts
from mm_metrics_plugin.functional.thresholding import hard_decisions
from mm_metrics_plugin.io.class_order import describe_orders
from mm_metrics_plugin.io.classification_results import (
    ClassificationResults,
    classification_from_arrays,
    classification_from_samples,
    read_classification,
)
from mm_metrics_plugin.io.dataset_config import read_class_names
from mm_metrics_plugin.settings import MULTI_LABEL_SCORE_THR, ClassificationSettings, with_options
from mm_metrics_plugin.states.counts import BinaryCountState, ConfusionState
from mm_metrics_plugin.states.scores import CalibrationState, ScoreState

if TYPE_CHECKING:
    from mm_metrics_plugin.io.files import PathLike

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
    def figures(self) -> Dict[str, float]:
        """Scalar metrics by name."""
        return {"ece": self.result.ece, "mce": self.result.mce, "brier": self.brier, "nll": self.nll}

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        names = ("edges", "counts", "accuracy", "confidence")
        return {**self.figures, **{name: getattr(self.result, name).tolist() for name in names}}


@dataclass(frozen=True, eq=False)
class ClassificationReport(Report):
    """Report on a classifier.

    Attributes:
        inputs: Provenance: the files that were read, and versions.
        counts: Samples read, used and dropped by reason.
        result: The confusion matrix of a single-label task, else TP, FP, FN and TN per class.
        accuracy: Top-1 accuracy; of a multi-label task, the accuracy of all binary decisions.
        auc: One-vs-rest AUC.
        average_precision: One-vs-rest average precision.
        top_k: Top-k accuracy by k above 1; single-label tasks only.
        thresholds: KS, sensitivity at specificity and the reverse, from :func:`class_thresholds`.
        intervals: Confidence intervals of accuracy, precision, recall, F1 and AUC (DeLong), if ``ci`` is given.
        calibration: Single-label tasks whose scores are from 0 to 1 only.
        results: The samples that the report was made from.
    """

    classes: Tuple[str, ...]
    settings: ClassificationSettings
    inputs: Mapping[str, Any]
    counts: Mapping[str, Any]
    result: CountsResult
    accuracy: float
    auc: AUCResult
    average_precision: AUCResult
    top_k: Mapping[int, float] = field(default_factory=dict)
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    intervals: Optional[Intervals] = None
    calibration: Optional[Calibration] = None
    results: Optional[ClassificationResults] = field(default=None, repr=False)

    @cached_property
    def curves(self) -> Optional[ClassificationCurves]:
        """ROC and precision-recall curves, one-vs-rest; None if there are too many to draw."""
        results = self.results
        if results is None or len(self.classes) > MAX_CURVE_CLASSES or results.scores.size > MAX_CURVE_SCORES:
            return None
        return roc_curves([results.scores], results.ground_truth)

    @property
    def matrix(self) -> Optional[np.ndarray]:
        """The confusion matrix (classes, classes) of a single-label task."""
        if not isinstance(self.result, ConfusionResult):
            return None
        return self.result.matrix[:, : len(self.classes)]

    @property
    def confusions(self) -> Tuple[Confusion, ...]:
        """The most frequent confusions."""
        return () if self.matrix is None else top_confusions(self.matrix, self.classes)

    @property
    def columns(self) -> Dict[str, Any]:
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
    def means(self) -> Dict[str, float]:
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
    def classes_averaged(self) -> Dict[str, int]:
        """Number of classes with a defined value, over which the means are taken."""
        columns = self.columns
        return {key: int(np.count_nonzero(~np.isnan(columns[key]))) for key in _AVERAGED}

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values, in the order of the JSON report."""
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


def evaluate_classification(
    results: Any,
    *,
    classes: Optional[Sequence[str]] = None,
    settings: Optional[ClassificationSettings] = None,
    config: Optional[PathLike] = None,
    cfg_options: Optional[Sequence[str]] = None,
    trust: bool = False,
    progress: Optional[Progress] = None,
    **options: Any,
) -> ClassificationReport:
    """Evaluate a classifier, as ``mm-metrics classification`` does.

    Args:
        results: The path of mmpretrain's ``results.pkl``, a list of one dict per sample, or a pair of arrays: scores
            (samples, classes) and labels (samples,) or multi-label targets (samples, classes) of 1, 0 and -1 (ignored).
        classes: Class names in the order of the scores.
        settings: All options at once; by default those of ``options``.
        config: mmpretrain config whose test data set names the classes.
        cfg_options: ``KEY=VALUE`` overrides of the config.
        trust: Read a pickle with plain pickle, which runs whatever is in it.
        progress: Receives the steps.
        **options: Fields of :class:`~mm_metrics_plugin.settings.ClassificationSettings`, such as ``ci=0.95``.

    Raises:
        ResultFileError: The results are damaged, or do not fit the class names.

    Example:
        >>> scores = np.array([[0.8, 0.2], [0.4, 0.6], [0.7, 0.3]])
        >>> report = evaluate_classification((scores, np.array([0, 1, 1])), classes=["cat", "dog"])
        >>> round(report.accuracy, 3), report.matrix.tolist()
        (0.667, [[1, 0], [1, 1]])
    """
    settings = with_options(settings or ClassificationSettings(), options, keyword_names(evaluate_classification))
    check_classes(classes)
    progress = progress or Progress()
    inputs: Dict[str, Any] = {}
    progress.step("reading the results")
    with ThreadPoolExecutor(1) as pool:  # the file is hashed while it is read
        entry = pool.submit(input_entry, results)
        try:
            samples = load_classification(results, trust=trust, task=settings.task, on_progress=progress.fraction)
        finally:
            inputs["results"] = entry.result()
    names = _class_names(samples, classes, config, cfg_options, inputs)
    progress.step("computing metrics")
    multi_label = samples.targets is not None
    threshold = MULTI_LABEL_SCORE_THR if settings.score_thr is None else settings.score_thr
    score_thr = threshold if multi_label else None
    settings = replace(settings, task=samples.task, task_reason=samples.task_reason, score_thr=score_thr)
    ground_truth, scores, ci = samples.ground_truth, samples.scores, settings.ci
    result, accuracy = _count_decisions(samples, threshold)
    inputs["versions"] = versions("mmengine", "mmpretrain")
    return ClassificationReport(
        classes=names,
        settings=settings,
        inputs=inputs,
        counts={"samples": samples.row_counts.to_dict()},
        result=result,
        accuracy=accuracy,
        auc=roc_auc([scores], ground_truth),
        average_precision=roc_auc([scores], ground_truth, curve="pr"),
        top_k=_top_k(samples),
        thresholds=class_thresholds(
            scores, ground_truth, at_specificity=settings.at_specificity, at_sensitivity=settings.at_sensitivity
        ),
        intervals=None if ci is None else _intervals(samples, threshold, ci),
        calibration=_calibration(samples),
        results=samples,
    )


def load_classification(
    results: Any,
    *,
    trust: bool = False,
    task: Optional[str] = None,
    on_progress: Optional[Callable[[float], None]] = None,
) -> ClassificationResults:
    """Read a result file, or samples or arrays in memory."""
    if is_path(results):
        return read_classification(results, trust=trust, task=task, on_progress=on_progress)
    if isinstance(results, tuple):
        if len(results) != 2 or any(one is None for one in results):
            raise ResultFileError(f"results must be a pair of scores and labels (found a tuple of {len(results)})")
        return classification_from_arrays(*results, source=IN_MEMORY, task=task)
    return classification_from_samples(results, IN_MEMORY, task=task)


def _class_names(
    results: ClassificationResults,
    classes: Optional[Sequence[str]],
    config: Optional[PathLike],
    cfg_options: Optional[Sequence[str]],
    inputs: Dict[str, Any],
) -> Tuple[str, ...]:
    number, names = results.scores.shape[1], classes
    if config is not None:
        inputs["config"] = input_entry(config)
        config_names = read_class_names(config, options=cfg_options)
        if names is not None and sorted(names) == sorted(config_names) and list(names) != list(config_names):
            orders = describe_orders(config_names, Path(config).name, names, "--classes")
            raise ResultFileError(f"{orders}; labels follow the data set, so leave out --classes or --config")
        inputs["class_order"] = "metainfo" if names is None else "classes"
        names = config_names if names is None else names
    elif cfg_options:
        raise ResultFileError("--cfg-options: there is no --config whose settings could be overridden")
    inputs.setdefault("class_order", "labels" if names is None else "classes")
    if names is None:
        names = [str(index) for index in range(number)]
    if len(names) != number:
        raise ClassNamesError(
            f"{results.source}: holds scores of {pluralize(number, 'class')} for {pluralize(len(names), 'class name')}"
        )
    return tuple(names)


def _count_decisions(results: ClassificationResults, score_thr: float) -> Tuple[CountsResult, float]:
    """Counts and accuracy, from the states of SingleLabelPRF and MultiLabelPRF."""
    scores = results.scores
    if results.targets is None:
        decided = hard_decisions(scores, thresholds=[-np.inf])
        state = ConfusionState(scores.shape[1]).update(results.labels, decided)  # type: ignore[arg-type]
        result = confusion_matrix_report(state.matrix[:, :-1])
        return result, result.accuracy
    reached = results.reach(score_thr)
    if not reached.any():
        warn_unreached("score", score_thr, scores)
    counts = BinaryCountState().update(reached, results.targets)
    tp, fp, fn, tn = counts.tp, counts.fp, counts.fn, counts.tn
    correct, decisions = (tp + tn).sum(), (tp + fp + fn + tn).sum()
    return stat_scores_report(tp, fp, fn, tn), float(divide(correct, decisions))


def _top_k(results: ClassificationResults) -> Dict[int, float]:
    """Top-k accuracy as in RecallAtK, for single-label tasks."""
    if results.labels is None:
        return {}
    ranks = label_ranks(results.scores, results.labels)
    return {k: float((ranks < k).mean()) for k in TOP_K if k < results.scores.shape[1]}


def _calibration(results: ClassificationResults) -> Optional[Calibration]:
    """Calibration as in CalibrationError; None if scores are not probabilities."""
    scores, labels = results.scores, results.labels
    if labels is None or scores.min() < 0 or scores.max() > 1:
        return None
    best = scores.argmax(axis=1)
    confidence, correct = scores[np.arange(len(best)), best], best == labels
    terms = np.stack([brier_terms(scores, labels), log_terms(scores, labels)], axis=1)
    return Calibration(
        calibration_error(confidence, correct),
        *CalibrationState(ScoreState()).update(confidence, correct, terms).means(),
    )


def _intervals(results: ClassificationResults, score_thr: float, ci: float) -> Intervals:
    """Confidence intervals of accuracy, precision, recall, F1 and AUC."""
    scores = results.scores
    if results.targets is not None:
        reached = results.reach(score_thr)
        counts = PerImageCounts.from_decisions(results.targets, reached)
        trials = np.count_nonzero(results.targets >= 0, axis=1)
        correct = np.count_nonzero((results.targets >= 0) & ((results.targets == 1) == reached), axis=1)
    else:
        decided = hard_decisions(scores, thresholds=[-np.inf])[:, 0]
        counts = PerImageCounts.from_labels(results.labels, decided, num_classes=scores.shape[1])  # type: ignore[arg-type]
        correct, trials = decided == results.labels, np.ones(len(decided))
    intervals, auc = bootstrap_counts(counts, ci=ci), delong_ci([scores], results.ground_truth, ci=ci)
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
    scores: np.ndarray, labels: np.ndarray, *, at_specificity: float = 0.95, at_sensitivity: float = 0.95
) -> Dict[str, np.ndarray]:
    """KS, sensitivity at a specificity and the reverse of each class against the rest, each with its threshold.

    ``labels`` are true classes, or (samples, classes) of 1, 0 and -1 (ignored).
    """

    def of_class(ranked: np.ndarray, positives: np.ndarray) -> Tuple[float, ...]:
        curve = corner_curve(ranked, positives)
        return (*curve.youden(), *curve.sensitivity_at(at_specificity), *curve.specificity_at(at_sensitivity))

    rows = np.array(map_classes(of_class, [scores], labels), dtype=np.float64).reshape(-1, len(_THRESHOLDS))
    return dict(zip(_THRESHOLDS, rows.T))
