"""The area under the ROC or precision-recall curve of classifiers."""

from __future__ import annotations

from functools import partial
from typing import Any, Mapping, Sequence

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
    MultiLabelMetricBase,
    ScoredMetricBase,
    SingleLabelMetricBase,
    check_num_thresholds,
)
from mm_metrics_plugin.metrics.log import class_key, class_values, threshold_suffixes
from mm_metrics_plugin.settings import require, require_choice
from mm_metrics_plugin.states.base import Batch, State, StateGroup
from mm_metrics_plugin.states.counts import DecisionState
from mm_metrics_plugin.states.scores import RecentScoreState, ScoreHistogramState, ScoreState, score_state


class _AUCMetric(ScoredMetricBase):
    """The options, results and keys of single-label and multi-label AUC."""

    multi_class = "ovr"

    def _set_options(
        self,
        average: str | None,
        curve: str,
        max_fpr: float | None,
        num_thresholds: int | None,
        absent: str,
        classwise: bool,
    ) -> None:
        require_choice("average", average, ("macro", "micro", "weighted", None))
        require_choice("curve", curve, CURVES)
        require_choice("absent", absent, ABSENT_RULES)
        require(max_fpr is None or curve == "roc", "max_fpr goes with curve='roc' only")
        require(max_fpr is None or 0 < max_fpr <= 1, f"max_fpr must lie in (0, 1] (found {max_fpr!r})")
        require(max_fpr is None or num_thresholds is None, "max_fpr and num_thresholds do not go together")
        check_num_thresholds(num_thresholds)
        self.average = average
        self.curve = curve
        self.max_fpr = max_fpr
        self.num_thresholds = num_thresholds
        self.absent = absent
        self.classwise = classwise or average is None

    def _result(self, state: Any) -> AUCResult:
        if isinstance(state, ScoreHistogramState):
            if state.totals is None:
                return self._nothing()
            return histogram_auc(
                state.positives, state.totals, average=self.average, curve=self.curve, absent=self.absent
            )
        if not len(state.labels):
            return self._nothing()
        return roc_auc(
            state.scores.blocks,
            state.labels.to_array(),
            average=self.average,
            curve=self.curve,
            multi_class=self.multi_class,
            max_fpr=self.max_fpr,
            absent=self.absent,
            classwise=self.classwise,
        )

    def _nothing(self) -> AUCResult:
        """The result without samples."""
        undefined = np.full(self.classes_expected(), np.nan)
        return AUCResult(float("nan"), undefined, np.zeros(len(undefined), dtype=np.int64), float("nan"))

    def figures(self, state: Any) -> list[FigureSpec]:
        """The ROC and precision-recall curves of the scores, if there are scores."""
        scores = state["all"]
        if isinstance(scores, ScoreHistogramState) and scores.totals is not None:
            num_classes, curves = len(scores.totals), partial(histogram_curves, scores.positives, scores.totals)
        elif isinstance(scores, ScoreState) and len(scores.labels):
            blocks = scores.scores.blocks
            num_classes = blocks[0].shape[1]
            curves = partial(roc_curves, blocks, scores.labels.to_array())  # type: ignore[arg-type]
        else:
            return []
        return [FigureSpec(("curves",), self.class_names(num_classes), curves)]

    def _keys(self, result: AUCResult, suffix: str) -> dict[str, float]:
        names = self.class_names(len(result.support))
        metrics: dict[str, float] = {}
        if self.average is not None:
            metrics[f"auc{suffix}"] = result.value
        if self.num_thresholds is not None and self.average is not None:
            metrics[f"auc_error{suffix}"] = result.error
        if self.average in ("macro", "weighted"):
            metrics[f"classes_averaged{suffix}"] = result.classes_averaged
        if self.classwise:
            metrics.update(class_values(f"auc{suffix}", names, result.per_class))
        undefined = [names[index] for index in np.flatnonzero(np.isnan(result.per_class))]
        skips = self.absent == "skip" and self.average in ("macro", "weighted")
        reason = "the data holds no sample of the class, or no other"
        self.warn_undefined("AUC", reason, undefined, mean_of=len(names) if skips else 0)
        if not len(names):
            self.warn_undefined("AUC", "there were no samples", ["the data set"])
        return metrics


@METRICS.register_module()
class SingleLabelAUC(_AUCMetric, SingleLabelMetricBase):
    """Area under the ROC (or precision-recall) curve of the scores, one class against the rest.

    Keys: ``auc`` first; ``auc_error`` with ``num_thresholds``; ``batch_auc`` with ``slide_steps``;
    ``classes_averaged``, the number of classes with a value; ``auc/<class>`` with ``classwise``; ``auc_low`` and
    ``auc_high`` (and those of each class) with ``ci``. Values lie in 0 to 1.

    Args:
        average: ``'macro'``, ``'weighted'`` (by support), ``'micro'``, or None for keys per class only.
        curve: ``'roc'``, or ``'pr'`` for average precision.
        multi_class: ``'ovr'``, or ``'ovo'`` for the mean over pairs of classes (Hand and Till).
        max_fpr: Standardized partial area up to this false positive rate.
        num_thresholds: Count scores (which must lie in 0 to 1) in this many bins instead of keeping them: constant
            memory, and ``auc_error`` bounds the distance from the exact value.
        thrs: One or several thresholds: the AUC of the hard decision "best class, if its score is above the
            threshold" instead of the AUC of the scores. Several give keys ``auc_thr-0.50``.
        num_classes: Number of classes; needed only where samples have ``pred_label`` without ``pred_score`` and the
            data set has no class names.
        absent: Classes without samples: ``'skip'`` leaves them out of the mean, ``'nan'`` makes the mean NaN,
            ``'error'`` raises.
        classwise: Also one key per class.
        slide_steps: Also ``batch_auc``, the exact AUC of the last this many batches (of every process; 0: of all).
        ci: Also the ends of confidence intervals of this level, such as 0.95: score intervals with DeLong's variance.
            Goes with the exact ROC AUC of one class against the rest, ``average='macro'`` or None.
        collect_device: As in mmengine.
        prefix: As in mmengine; ``'single-label'`` by default.

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
        collect_device: str = "cpu",
        prefix: str | None = None,
    ) -> None:
        super().__init__(num_classes=num_classes, collect_device=collect_device, prefix=prefix)
        self._set_options(average, curve, max_fpr, num_thresholds, absent, classwise)
        require_choice("multi_class", multi_class, ("ovr", "ovo"))
        require(
            multi_class == "ovr" or (average in ("macro", "weighted") and curve == "roc" and max_fpr is None),
            "multi_class='ovo' goes with average='macro' or 'weighted', curve='roc' and no max_fpr "
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
        if thrs is not None:
            threshold_suffixes(np.atleast_1d(thrs).tolist())
        require(slide_steps is None or (thrs is None and slide_steps >= 0), "slide_steps needs scores, not thrs")
        require(ci is None or 0 < ci < 1, f"ci must lie between 0 and 1 (found {ci})")
        plain = curve == "roc" and multi_class == "ovr" and average in ("macro", None)
        require(
            ci is None or (plain and max_fpr is None and num_thresholds is None and thrs is None),
            "ci goes with curve='roc', multi_class='ovr', average='macro' or None, and neither max_fpr, num_thresholds "
            "nor thrs",
        )
        self.ci = ci
        self.multi_class = multi_class
        self.thrs = thrs if thrs is None else [float(thr) for thr in np.atleast_1d(thrs)]
        self.slide_steps = slide_steps

    @property
    def in_one_state(self) -> bool:
        """Whether the last batches of all data sets count together."""
        return bool(self.slide_steps)

    @property
    def _decides(self) -> bool:
        return self.thrs is not None or self._scored is False

    def empty_state(self) -> StateGroup:
        """Scores, their histogram or counts of decisions, and the scores of recent batches."""
        if self._decides:
            return StateGroup(all=DecisionState(self.classes_expected()))
        recent = {"recent": RecentScoreState(self.slide_steps)} if self.slide_steps else {}
        return StateGroup(all=score_state(self.num_thresholds), **recent)

    def read(self, samples: Sequence[Mapping]) -> Batch:
        """Scores and labels, or decisions and labels, of a batch."""
        if not self.has_scores(samples):
            return Batch(*self.read_decisions(samples))
        scores, labels = self.read_scores(samples)
        if self.thrs is not None:
            precision = self.score_precisions(samples)
            return Batch(hard_decisions(scores, thresholds=self.thrs, precision=precision), labels)
        if self.num_thresholds is not None:
            self.check_unit(scores, "num_thresholds", samples)
        return Batch(scores, labels)

    def compute(self, state: StateGroup) -> dict[str, float]:  # type: ignore[override]
        """The AUC, by key."""
        scores = state["all"]
        results = self._decision_results(scores) if isinstance(scores, DecisionState) else {"": self._result(scores)}
        metrics: dict[str, float] = {}
        for suffix, result in results.items():
            metrics.update(self._keys(result, suffix))
        if self.ci is not None:
            metrics.update(self._intervals(scores, results[""]))
        if self.slide_steps == 0:
            metrics["batch_auc"] = results[""].value
        elif "recent" in state.members:
            metrics["batch_auc"] = self._result(state["recent"]).value
        return metrics

    def _intervals(self, state: State, result: AUCResult) -> dict[str, float]:
        """The ends of the confidence intervals; NaN without scores."""
        low = high = np.full(len(result.support), np.nan)
        ends = (np.nan, np.nan)
        if isinstance(state, ScoreState) and len(state.labels):
            labels: np.ndarray = state.labels.to_array()  # type: ignore[assignment]
            intervals = delong_ci(state.scores.blocks, labels, ci=self.ci)  # type: ignore[arg-type]
            low, high = intervals.per_class.low, intervals.per_class.high
            if self.absent == "skip" or result.classes_averaged == len(result.support):
                ends = (intervals.macro.low, intervals.macro.high)
        metrics: dict[str, float] = {}
        if self.average is not None:
            metrics["auc_low"], metrics["auc_high"] = ends
        if self.classwise:
            for name, *pair in zip(self.class_names(len(low)), low, high):
                metrics[class_key("auc_low", name)], metrics[class_key("auc_high", name)] = pair
        return metrics

    def _decision_results(self, state: DecisionState) -> dict[str, AUCResult]:
        many = self.thrs is not None and len(self.thrs) > 1 and (state.correct is None or len(state.correct) > 1)
        suffixes = threshold_suffixes(self.thrs) if many and self.thrs else [""]
        if state.support is None:
            return {suffix: self._nothing() for suffix in suffixes}
        histograms = zip(*state.histograms())
        return {
            suffix: histogram_auc(positives, totals, average=self.average, curve=self.curve, absent=self.absent)
            for suffix, (positives, totals) in zip(suffixes, histograms)
        }


@METRICS.register_module()
class MultiLabelAUC(_AUCMetric, MultiLabelMetricBase):
    """Area under the ROC (or precision-recall) curve of every class, where a sample may have several classes.

    Reads ``pred_score`` and ``gt_score`` (1, 0, or -1 for what does not count) or a list of classes ``gt_label``.
    Keys and values as in :class:`SingleLabelAUC`.

    Args:
        average: ``'macro'``, ``'weighted'``, ``'micro'`` or None. All options are those of :class:`SingleLabelAUC`.
        curve: ``'roc'``, or ``'pr'`` for average precision.
        max_fpr: Standardized partial area up to this false positive rate.
        num_thresholds: Number of bins that replace the scores.
        absent: ``'skip'``, ``'nan'`` or ``'error'`` for classes without samples.
        classwise: Also one key per class.
        collect_device: As in mmengine.
        prefix: As in mmengine; ``'multi-label'`` by default.

    Example:
        >>> import torch
        >>> metric = MultiLabelAUC()
        >>> scores, truth = [[0.9, 0.2], [0.3, 0.6], [0.4, 0.7]], [[1, 0], [0, 1], [-1, 0]]
        >>> samples = [dict(pred_score=torch.tensor(s), gt_score=torch.tensor(t)) for s, t in zip(scores, truth)]
        >>> metric.process(None, samples)
        >>> metric.evaluate(size=3)
        {'multi-label/auc': 0.75, 'multi-label/classes_averaged': 2.0}
    """

    def __init__(
        self,
        average: str | None = "macro",
        curve: str = "roc",
        max_fpr: float | None = None,
        num_thresholds: int | None = None,
        absent: str = "skip",
        classwise: bool = False,
        collect_device: str = "cpu",
        prefix: str | None = None,
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        self._set_options(average, curve, max_fpr, num_thresholds, absent, classwise)

    def empty_state(self) -> StateGroup:
        """Scores or their histogram."""
        return StateGroup(all=score_state(self.num_thresholds))

    def read(self, samples: Sequence[Mapping]) -> Batch:
        """Scores and ground truth of a batch."""
        scores, truth = self.read_scores(samples)
        if self.num_thresholds is not None:
            self.check_unit(scores, "num_thresholds", samples)
        return Batch(scores, truth)

    def compute(self, state: StateGroup) -> dict[str, float]:  # type: ignore[override]
        """The AUC, by key."""
        return self._keys(self._result(state["all"]), "")
