"""The area under the ROC or precision-recall curve of classifiers."""

from __future__ import annotations

from functools import partial
from typing import Any, Sequence

import numpy as np
from mmengine.registry import METRICS

from mm_metrics_plugin.functional._arrays import ABSENT_RULES
from mm_metrics_plugin.functional.classification.auc import CURVES, AUCResult, roc_auc
from mm_metrics_plugin.functional.classification.delong import delong_ci
from mm_metrics_plugin.functional.classification.histograms import histogram_auc, histogram_curves
from mm_metrics_plugin.functional.classification.roc_curves import roc_curves
from mm_metrics_plugin.functional.thresholding import hard_decisions
from mm_metrics_plugin.metrics.base import FigureSpec
from mm_metrics_plugin.metrics.classification_base import (
    ONE_SIDED_CLASS,
    MultiLabelMetricBase,
    ScoredMetricBase,
    SingleLabelMetricBase,
)
from mm_metrics_plugin.metrics.runner_log import threshold_suffixes
from mm_metrics_plugin.metrics.sample_fields import Samples
from mm_metrics_plugin.reports.base import class_values
from mm_metrics_plugin.settings import require, require_choice, require_ci
from mm_metrics_plugin.states.base import Batch, State, StateGroup
from mm_metrics_plugin.states.counts import DecisionState
from mm_metrics_plugin.states.scores import RecentScoreState, ScoreHistogramState, ScoreState, score_state


class _AUCMetric(ScoredMetricBase):
    """Options, results and keys that single-label and multi-label AUC share."""

    multi_class = "ovr"

    def __init__(
        self,
        average: str | None = "macro",
        curve: str = "roc",
        max_fpr: float | None = None,
        num_thresholds: int | None = None,
        absent: str = "skip",
        classwise: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.set_num_thresholds(num_thresholds)
        require_choice("average", average, ("macro", "micro", "weighted", None))
        require_choice("curve", curve, CURVES)
        require_choice("absent", absent, ABSENT_RULES)
        require(max_fpr is None or curve == "roc", "max_fpr requires curve='roc' only")
        require(max_fpr is None or 0 < max_fpr <= 1, f"max_fpr must lie in (0, 1] (found {max_fpr!r})")
        require(max_fpr is None or num_thresholds is None, "max_fpr and num_thresholds do not go together")
        self.average = average
        self.curve = curve
        self.max_fpr = max_fpr
        self.absent = absent
        self.classwise = classwise or average is None

    def _histogram_result(self, positives: np.ndarray, totals: np.ndarray) -> AUCResult:
        return histogram_auc(positives, totals, average=self.average, curve=self.curve, absent=self.absent)

    def _result(self, state: Any) -> AUCResult:
        if isinstance(state, ScoreHistogramState) and state.totals is not None:
            return self._histogram_result(state.positives, state.totals)
        if isinstance(state, ScoreState) and len(state.labels):
            return roc_auc(
                state.scores.blocks,
                state.labels.rows,
                average=self.average,
                curve=self.curve,
                multi_class=self.multi_class,
                max_fpr=self.max_fpr,
                absent=self.absent,
                classwise=self.classwise,
            )
        return self._no_result()

    def _no_result(self) -> AUCResult:
        """The result without samples."""
        undefined = np.full(self.classes_expected(), np.nan)
        return AUCResult(float("nan"), undefined, np.zeros(len(undefined), dtype=np.int64), float("nan"))

    def figures(self, state: StateGroup) -> list[FigureSpec]:
        """The ROC and precision-recall curves of the scores, if there are scores."""
        scores = state["all"]
        if isinstance(scores, ScoreHistogramState) and scores.totals is not None:
            num_classes, curves = len(scores.totals), partial(histogram_curves, scores.positives, scores.totals)
        elif isinstance(scores, ScoreState) and len(scores.labels):
            blocks = scores.scores.blocks
            num_classes, curves = blocks[0].shape[1], partial(roc_curves, blocks, scores.labels.rows)
        else:
            return []
        return [FigureSpec(("curves",), self.class_names(num_classes), curves)]

    def _keys(self, result: AUCResult, suffix: str) -> dict[str, float]:
        names = self.class_names(len(result.support))
        metrics: dict[str, float] = {}
        is_mean = self.average in ("macro", "weighted")
        if self.average is not None:
            metrics[f"auc{suffix}"] = result.value
            if self.num_thresholds is not None:
                metrics[f"auc_error{suffix}"] = result.error
        if is_mean:
            metrics[f"classes_averaged{suffix}"] = result.classes_averaged
        if self.classwise:
            metrics.update(class_values(f"auc{suffix}", names, result.per_class))
        skip = is_mean and self.absent == "skip"
        self.warn_undefined_classes("AUC", ONE_SIDED_CLASS, names, result.per_class, skip=skip)
        return metrics


@METRICS.register_module()
class SingleLabelAUC(_AUCMetric, SingleLabelMetricBase):
    """Area under the ROC or precision-recall curve of each class, one-vs-rest.

    Keys, with the prefix ``single-label``; values lie in 0 to 1:

    - ``auc``: the mean over the classes, or the ``average`` given.
    - ``classes_averaged``: number of classes with a value.
    - ``auc/<class>``: AUC per class, with ``classwise``.
    - ``auc_low``, ``auc_high``, ``auc_low/<class>``, ``auc_high/<class>``: ends of the confidence intervals, with
      ``ci``.
    - ``auc_error``: bound of the distance from the exact value, with ``num_thresholds``.
    - ``batch_auc``: AUC of the last batches, with ``slide_steps``.

    Args:
        average: ``'macro'``, ``'weighted'`` (by support), ``'micro'``, or None for keys per class only.
        curve: ``'roc'``, or ``'pr'`` for average precision.
        multi_class: ``'ovr'``, or ``'ovo'`` for the mean over pairs of classes (Hand and Till).
        max_fpr: Standardized partial area up to this false positive rate.
        num_thresholds: Count scores (which must lie in 0 to 1) in this many bins instead of keeping them: constant
            memory, and ``auc_error`` bounds the distance from the exact value.
        thrs: One or several thresholds: the AUC of the hard decision "class with the highest score, if that is above
            the threshold" instead of the AUC of the scores. Several thresholds give keys such as ``auc_thr-0.50``.
        num_classes: Number of classes; needed only if samples have ``pred_label`` without ``pred_score`` and the
            dataset has no class names.
        absent: Classes without samples: ``'skip'`` leaves them out of the mean, ``'nan'`` makes the mean NaN,
            ``'error'`` raises.
        classwise: Also one key per class.
        slide_steps: Also ``batch_auc``, the exact AUC of this many last batches of every process; 0: of all batches.
        ci: Confidence level, such as 0.95, of score intervals with DeLong's variance. Goes with the exact one-vs-rest
            ROC AUC, ``average='macro'`` or None.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

    Example:
        >>> import torch
        >>> metric = SingleLabelAUC()
        >>> scores = [[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]]
        >>> labels = [0, 0, 1, 1]
        >>> samples = [dict(pred_score=torch.tensor(s), gt_label=torch.tensor([y])) for s, y in zip(scores, labels)]
        >>> metric.process(None, samples)
        >>> metric.evaluate(size=4)
        {'single-label/auc': 0.75, 'single-label/classes_averaged': 2.0}
    """

    def __init__(
        self,
        average: str | None = "macro",
        curve: str = "roc",
        multi_class: str = "ovr",
        max_fpr: float | None = None,
        num_thresholds: int | None = None,
        thrs: float | Sequence[float] | None = None,
        num_classes: int | None = None,
        absent: str = "skip",
        classwise: bool = False,
        slide_steps: int | None = None,
        ci: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(average, curve, max_fpr, num_thresholds, absent, classwise, num_classes=num_classes, **kwargs)
        require_choice("multi_class", multi_class, ("ovr", "ovo"))
        require(
            multi_class == "ovr" or (average in ("macro", "weighted") and curve == "roc" and max_fpr is None),
            "multi_class='ovo' requires average='macro' or 'weighted', curve='roc' and no max_fpr "
            f"(found {average!r}, {curve!r}, {max_fpr!r})",
        )
        require(
            multi_class == "ovr" or (num_thresholds is None and thrs is None),
            "num_thresholds and thrs go with multi_class='ovr' only",
        )
        require(
            thrs is None or (num_thresholds is None and max_fpr is None),
            "thrs goes neither with num_thresholds nor with max_fpr",
        )
        require(slide_steps is None or (thrs is None and slide_steps >= 0), "slide_steps needs scores, not thrs")
        require_ci(ci)
        require(
            ci is None
            or (
                (curve, multi_class, max_fpr, num_thresholds, thrs) == ("roc", "ovr", None, None, None)
                and average in ("macro", None)
            ),
            "ci requires curve='roc', multi_class='ovr', average='macro' or None, and neither max_fpr, num_thresholds "
            "nor thrs",
        )
        self.ci = ci
        self.multi_class = multi_class
        self.thrs = None if thrs is None else [float(thr) for thr in np.atleast_1d(thrs)]
        self._suffixes = threshold_suffixes(self.thrs or [None])
        self.slide_steps = slide_steps

    @property
    def in_one_state(self) -> bool:
        """Whether the last batches may span datasets."""
        return bool(self.slide_steps)

    def empty_state(self) -> StateGroup:
        """Scores, their histogram or counts of decisions, and the scores of recent batches."""
        if self.thrs is not None or self._scored is False:
            return StateGroup(all=DecisionState(self.classes_expected()))
        recent = {"recent": RecentScoreState(self.slide_steps)} if self.slide_steps else {}
        return StateGroup(all=score_state(self.num_thresholds), **recent)

    def read(self, samples: Samples) -> Batch:
        """Scores and labels, or decisions and labels, of a batch."""
        if not self.has_scores(samples):
            return Batch(*self.read_decisions(samples))
        scores, labels = self.read_scores(samples)
        if self.thrs is not None:
            precision = self.score_precisions(samples)
            return Batch(hard_decisions(scores, thresholds=self.thrs, precision=precision), labels)
        return Batch(scores, labels)

    def compute(self, state: StateGroup) -> dict[str, float]:
        """The AUC by key."""
        scores = state["all"]
        results = self._decision_results(scores) if isinstance(scores, DecisionState) else {"": self._result(scores)}
        metrics: dict[str, float] = {}
        for suffix, result in results.items():
            metrics.update(self._keys(result, suffix))
        if self.ci is not None:
            metrics.update(self._intervals(scores, results[""], self.ci))
        if self.slide_steps == 0:
            metrics["batch_auc"] = results[""].value
        elif "recent" in state.members:
            metrics["batch_auc"] = self._result(state["recent"]).value
        return metrics

    def _intervals(self, state: State, result: AUCResult, ci: float) -> dict[str, float]:
        """The ends of the confidence intervals; NaN without scores."""
        names = self.class_names(len(result.support))
        low = high = np.full(len(names), np.nan)
        ends = (np.nan, np.nan)
        if isinstance(state, ScoreState) and len(state.labels):
            intervals = delong_ci(state.scores.blocks, state.labels.rows, ci=ci)
            low, high = intervals.per_class.low, intervals.per_class.high
            if self.absent == "skip" or result.classes_averaged == len(names):
                ends = (intervals.macro.low, intervals.macro.high)
        metrics: dict[str, float] = {}
        if self.average is not None:
            metrics["auc_low"], metrics["auc_high"] = ends
        if self.classwise:
            metrics.update({**class_values("auc_low", names, low), **class_values("auc_high", names, high)})
        return metrics

    def _decision_results(self, state: DecisionState) -> dict[str, AUCResult]:
        if state.support is None:
            return {suffix: self._no_result() for suffix in self._suffixes}
        results = [self._histogram_result(*pair) for pair in zip(*state.histograms())]
        # Samples without scores have one decision for all thresholds.
        return dict(zip(self._suffixes, results * len(self._suffixes) if len(results) == 1 else results))


@METRICS.register_module()
class MultiLabelAUC(_AUCMetric, MultiLabelMetricBase):
    """Area under the ROC or precision-recall curve of each class, where a sample may have several classes.

    Reads ``pred_score`` and ``gt_score`` (1, 0, or -1 to be ignored) or the list of classes ``gt_label``.

    Keys, with the prefix ``multi-label``; values lie in 0 to 1:

    - ``auc``: the mean over the classes, or the ``average`` given.
    - ``classes_averaged``: number of classes with a value.
    - ``auc/<class>``: AUC per class, with ``classwise``.
    - ``auc_error``: bound of the distance from the exact value, with ``num_thresholds``.

    Args:
        average: ``'macro'``, ``'weighted'`` (by support), ``'micro'``, or None for keys per class only.
        curve: ``'roc'``, or ``'pr'`` for average precision.
        max_fpr: Standardized partial area up to this false positive rate.
        num_thresholds: Count scores in this many bins instead of keeping them, as in :class:`SingleLabelAUC`.
        absent: Classes without samples: ``'skip'``, ``'nan'`` or ``'error'``, as in :class:`SingleLabelAUC`.
        classwise: Also one key per class.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

    Example:
        >>> import torch
        >>> metric = MultiLabelAUC()
        >>> scores, targets = [[0.9, 0.2], [0.3, 0.6], [0.4, 0.7]], [[1, 0], [0, 1], [-1, 0]]
        >>> samples = [dict(pred_score=torch.tensor(s), gt_score=torch.tensor(t)) for s, t in zip(scores, targets)]
        >>> metric.process(None, samples)
        >>> metric.evaluate(size=3)
        {'multi-label/auc': 0.75, 'multi-label/classes_averaged': 2.0}
    """

    def empty_state(self) -> StateGroup:
        """Scores or their histogram."""
        return StateGroup(all=score_state(self.num_thresholds))

    def read(self, samples: Samples) -> Batch:
        """Scores and targets of a batch."""
        return Batch(*self.read_scores(samples))

    def compute(self, state: StateGroup) -> dict[str, float]:
        """The AUC by key."""
        return self._keys(self._result(state["all"]), "")
