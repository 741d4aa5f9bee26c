"""Precision, recall, F-score and other values of the confusion matrix of a classifier."""

from __future__ import annotations

from functools import partial
from typing import Any, Sequence, Union

import numpy as np
from mmengine.registry import METRICS

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import divide
from mm_metrics_plugin.functional.classification.confusion_matrix import (
    ConfusionResult,
    CountsResult,
    MatrixView,
    Rates,
    confusion_matrix_report,
    matrix_view,
    stat_scores_report,
)
from mm_metrics_plugin.functional.ranking import label_ranks, top_k_decisions
from mm_metrics_plugin.functional.thresholding import hard_decisions, reach, rounded_limits
from mm_metrics_plugin.metrics.base import FigureSpec
from mm_metrics_plugin.metrics.classification_base import MultiLabelMetricBase, ScoredMetricBase, SingleLabelMetricBase
from mm_metrics_plugin.metrics.runner_log import threshold_suffixes
from mm_metrics_plugin.metrics.sample_fields import Samples
from mm_metrics_plugin.reports.base import class_values
from mm_metrics_plugin.settings import require, require_choice
from mm_metrics_plugin.states.base import Batch, State
from mm_metrics_plugin.states.counts import BinaryCountState, ConfusionState

AVERAGES = ("macro", "micro", "weighted")
CONVENTIONS = {"default": None, "mmpretrain": 0.0, "paddlerec": 1.0}  # the value of 0/0; None: that of zero_division
REMEDY = ", where a model that predicts fewer classes can look better; zero_division=0 counts undefined values as 0"
SCALARS = ("accuracy", "balanced_accuracy", "mcc", "kappa", "kappa_linear", "kappa_quadratic")

Averages = Union[str, Sequence[str], None]


def zero_division_value(zero_division: str | float) -> float:
    """The value of 0/0 with the option ``zero_division``; NaN for ``'skip'``."""
    require_choice("zero_division", zero_division, ("skip", 0, 1))
    return float("nan") if isinstance(zero_division, str) else float(zero_division)


class _PRFMetric(ScoredMetricBase):
    """Options and keys that single-label and multi-label precision, recall and F-score share."""

    def __init__(
        self,
        average: Averages,
        beta: float,
        convention: str,
        zero_division: str | float,
        classwise: bool,
        counts: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.averages: tuple[str, ...] = (average,) if isinstance(average, str) else tuple(average or ())
        for choice in self.averages:
            require_choice("average", choice, AVERAGES)
        require_choice("convention", convention, tuple(CONVENTIONS))
        require(beta > 0, f"beta must be above 0 (found {beta!r})")
        chosen, fixed = zero_division_value(zero_division), CONVENTIONS[convention]
        require(
            convention == "default" or zero_division == "skip",
            f"zero_division requires convention='default' (found {zero_division!r} and {convention!r})",
        )
        if convention == "paddlerec" and self.averages == ("macro",):
            self.averages = ("macro", "micro")
        self.beta = beta
        self.convention = convention
        self.zero_division = zero_division
        self._zero_division = chosen if fixed is None else fixed
        self.classwise = classwise or not self.averages
        self.counts = counts

    def _empty(self, samples: int) -> float:
        """The value of 0/0; NaN without samples, in every convention."""
        return self._zero_division if samples else float("nan")

    def _rate_keys(self, result: CountsResult, suffix: str) -> dict[str, float]:
        names = self.class_names(len(result.tp))
        f_name = f"f{self.beta:g}"
        metrics: dict[str, float] = {}
        for average in self.averages:
            rates: Rates = getattr(result, average)
            ending = suffix if average == "macro" else f"_{average}{suffix}"
            of_means = self.convention == "paddlerec" and average == "macro"
            metrics[f"{f_name}{ending}"] = result.f_of_means if of_means else rates.f_score
            metrics[f"precision{ending}"] = rates.precision
            metrics[f"recall{ending}"] = rates.recall
            metrics[f"specificity{ending}"] = rates.specificity
        if self.classwise:
            for key in ("f_score", "precision", "recall", "specificity"):
                name = f_name if key == "f_score" else key
                metrics.update(class_values(f"{name}{suffix}", names, getattr(result.per_class, key)))
        if self.counts:
            for key in ("tp", "fp", "tn", "fn"):
                metrics.update(class_values(f"{key}{suffix}", names, getattr(result, key)))
        if self.convention == "default":
            self._count_classes(result, names, metrics, suffix)
        if not sum(count.sum() for count in (result.tp, result.fp, result.fn, result.tn)):
            self.warn_no_samples("every rate")
        return metrics

    def _count_classes(
        self, result: CountsResult, names: Sequence[str], metrics: dict[str, float], suffix: str
    ) -> None:
        """Count the classes with a value, and warn of the classes without one."""
        skip = bool({"macro", "weighted"} & set(self.averages))
        no_sample = "the dataset has no sample of the class"
        either = result.support + result.predicted
        for key, what, reason, counts, remedy in (
            ("classes_present", "recall", no_sample, result.support, ""),
            ("classes_predicted", "precision", "the class was never predicted", result.predicted, REMEDY),
            ("", f"f{self.beta:g}", f"{no_sample}, and it was never predicted", either, REMEDY),
        ):
            if key:
                metrics[f"{key}{suffix}"] = int(np.count_nonzero(counts))
            if names and self.zero_division == "skip":
                values = np.where(counts, 1.0, np.nan)
                self.warn_undefined_classes(what, reason, names, values, skip=skip, remedy=remedy)


@METRICS.register_module()
class SingleLabelPRF(_PRFMetric, SingleLabelMetricBase):
    """Precision, recall, F-score and other values of the confusion matrix of the predicted classes.

    The predicted class is the one with the highest score.

    Keys, with the prefix ``single-label-prf``, because mmpretrain's ``SingleLabelMetric`` has
    ``single-label/precision`` and ``single-label/recall``; values lie in 0 to 1, MCC and kappa in -1 to 1:

    - ``f1``, ``precision``, ``recall``, ``specificity``: macro averages; ``f1_micro``, ``f1_weighted`` and so on
      for the other averages.
    - ``accuracy``, ``balanced_accuracy``, ``mcc``, ``kappa``, ``kappa_linear``, ``kappa_quadratic``.
    - ``accuracy_top<k>``: top-k accuracy, with ``topk``.
    - ``classes_present``, ``classes_predicted``: numbers of classes in the means.
    - ``f1/<class>``, ``precision/<class>``, ``recall/<class>``, ``specificity/<class>``: the same per class, with
      ``classwise``.
    - ``tp/<class>``, ``fp/<class>``, ``tn/<class>``, ``fn/<class>``: counts per class, with ``counts``.

    With several thresholds every key has a suffix such as ``_thr-0.50``, or ``_no-thr`` for None.

    Args:
        average: ``'macro'``, ``'micro'``, ``'weighted'`` (by support), several of them, or None for keys per class.
        thrs: One or several score thresholds; None for no threshold. A sample whose highest score is not above the
            threshold has no decision: it is a false negative of its class and no false positive, and weighted kappas
            are undefined. Thresholds are rounded to the precision of each sample's scores.
        topk: Also the share of samples whose true class is among the k highest scores (and above the threshold); one
            or several k. Ties are broken by the class index, lower first.
        beta: Weight of recall in the F-score, whose key is then ``f2``, ``f0.5`` and so on.
        convention: ``'default'`` leaves classes without a value (0/0) out of the means. ``'mmpretrain'`` counts them
            as 0 and uses ``thrs=0.0`` unless others are given. ``'paddlerec'`` counts them as 1, gives macro and
            micro, and its macro F1 is that of the macro precision and recall.
        zero_division: The value of 0/0, such as the precision of a class that was never predicted: ``'skip'`` leaves
            the class out of the means, 0 and 1 count. Use 0, as mmpretrain does, if ``save_best`` uses a precision:
            otherwise a model that predicts only one class can be the best.
        classwise: Also keys per class.
        counts: Also true and false positives and negatives per class.
        num_classes: Number of classes; needed only if samples have ``pred_label`` without ``pred_score`` and the
            dataset has no class names.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

    Example:
        >>> import torch
        >>> metric = SingleLabelPRF(num_classes=4, convention="paddlerec")
        >>> pairs = zip([0, 1, 1, 3], [0, 2, 1, 3])
        >>> samples = [dict(pred_label=torch.tensor([p]), gt_label=torch.tensor([t])) for p, t in pairs]
        >>> metric.process(None, samples)
        >>> values = metric.evaluate(size=4)
        >>> [round(values[f"single-label-prf/{key}"], 6) for key in ("precision", "recall", "f1", "f1_micro")]
        [0.875, 0.75, 0.807692, 0.75]
    """

    default_prefix = "single-label-prf"

    def __init__(
        self,
        average: Averages = "macro",
        thrs: float | Sequence[float | None] | None = None,
        topk: int | Sequence[int] | None = None,
        beta: float = 1.0,
        convention: str = "default",
        zero_division: str | float = "skip",
        classwise: bool = False,
        counts: bool = False,
        num_classes: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(average, beta, convention, zero_division, classwise, counts, num_classes=num_classes, **kwargs)
        self.topk: tuple[int, ...] = () if topk is None else tuple(int(k) for k in np.atleast_1d(topk))
        require(all(k >= 1 for k in self.topk), f"topk must be at least 1 (found {topk!r})")
        self._needs_scores = thrs is not None or bool(self.topk)
        if thrs is None and convention == "mmpretrain":
            thrs = 0.0
        self.thrs: list[float | None] = [thrs] if thrs is None or isinstance(thrs, (int, float)) else [*thrs]
        require(len(self.thrs) > 0, "thrs must name at least one threshold")
        self._suffixes = threshold_suffixes(self.thrs)
        self._limits = [-np.inf if thr is None else float(thr) for thr in self.thrs]

    def empty_state(self) -> State:
        """One confusion matrix per threshold."""
        rules = 1 if self._scored is False else len(self.thrs)
        return ConfusionState(self.classes_expected(), rules)

    def read(self, samples: Samples) -> Batch:
        """Labels and decisions of a batch, and with ``topk`` whether the true class is among the k highest scores."""
        if not self.has_scores(samples):
            if self._needs_scores:
                name = self.sample_names(samples)(0)
                raise MetricInputError(f"{name} must have a field 'pred_score' for thrs and topk (found 'pred_label')")
            decisions, labels = self.read_decisions(samples)
            return Batch(labels, decisions)
        scores, labels = self.read_scores(samples)
        precision = self.score_precisions(samples)
        decisions = hard_decisions(scores, thresholds=self._limits, precision=precision)
        if not self.topk:
            return Batch(labels, decisions)
        self.check_topk(max(self.topk), scores, samples)
        true_scores = scores[np.arange(len(labels)), labels]
        among = label_ranks(scores, labels)[:, None] < np.array(self.topk)
        above = true_scores[:, None] > rounded_limits(scores, self._limits, precision)
        return Batch(labels, decisions, (among[:, :, None] & above[:, None, :]).reshape(len(labels), -1))

    def compute(self, state: Any) -> dict[str, float]:
        """The values of the confusion matrices by key."""
        matrices = state.matrices
        metrics: dict[str, float] = {}
        for rule, (suffix, matrix) in enumerate(zip(self._suffixes, matrices)):
            samples = int(matrix.sum())
            report = confusion_matrix_report(matrix, beta=self.beta, zero_division=self._empty(samples))
            rates = self._rate_keys(report, suffix)
            scalars = {f"{key}{suffix}": getattr(report, key) for key in SCALARS}
            for index, k in enumerate(self.topk):
                hits = state.hits[index * len(matrices) + rule] if samples else np.nan
                scalars[f"accuracy_top{k}{suffix}"] = hits / max(samples, 1)
            metrics.update({**rates, **scalars})
            if samples:
                self._warn_of_agreement(report)
        return metrics

    def figures(self, state: Any) -> list[FigureSpec]:
        """The confusion matrix of each threshold."""
        names = self.class_names(state.num_classes)

        def view(index: int) -> MatrixView:
            matrix = state.matrices[index]
            accuracy = divide(matrix.trace(), matrix.sum())
            rule = self._suffixes[index].replace("_", ", ")
            return matrix_view(matrix, names, title=f"accuracy {accuracy:.4f}{rule}")

        return [
            FigureSpec((f"confusion_matrix{suffix}",), names, partial(view, index))
            for index, suffix in enumerate(self._suffixes[: state.num_rules])
        ]

    def _warn_of_agreement(self, report: ConfusionResult) -> None:
        if np.isnan(report.mcc):
            self.warn_undefined("MCC", "all labels, or all decisions, are one class", ["the dataset"])
        if np.isnan(report.kappa_linear):
            reason = "some samples have no decision, or all labels and decisions are one class"
            self.warn_undefined("weighted kappa", reason, ["the dataset"])


@METRICS.register_module()
class MultiLabelPRF(_PRFMetric, MultiLabelMetricBase):
    """Precision, recall and F-score where a sample may have several classes.

    Reads ``pred_score`` and ``gt_score`` (1, 0, or -1 to be ignored) or the list of classes ``gt_label``.

    Keys, with the prefix ``multi-label-prf``, because mmpretrain's ``MultiLabelMetric`` has ``multi-label/precision``
    and ``multi-label/recall``; values lie in 0 to 1:

    - ``f1``, ``precision``, ``recall``, ``specificity``: macro averages; ``f1_micro``, ``f1_weighted`` and so on
      for the other averages.
    - ``accuracy``: share of correct yes-or-no decisions.
    - ``classes_present``, ``classes_predicted``: numbers of classes in the means.
    - ``f1/<class>``, ``precision/<class>``, ``recall/<class>``, ``specificity/<class>``: the same per class, with
      ``classwise``.
    - ``tp/<class>``, ``fp/<class>``, ``tn/<class>``, ``fn/<class>``: counts per class, with ``counts``.

    Args:
        thr: Score threshold of a predicted class, rounded to the precision of each sample's scores; 0.5 if neither
            ``thr`` nor ``topk`` is given.
        topk: The k classes with the highest scores of each sample are predicted; ties are broken by the class index,
            lower first. Not together with ``thr``.
        average: As in :class:`SingleLabelPRF`.
        beta: As in :class:`SingleLabelPRF`.
        convention: As in :class:`SingleLabelPRF`.
        zero_division: As in :class:`SingleLabelPRF`.
        classwise: Also keys per class.
        counts: Also true and false positives and negatives per class.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

    Example:
        >>> import torch
        >>> metric = MultiLabelPRF(average="micro")
        >>> scores, labels = [[0.9, 0.6], [0.3, 0.6]], [[0], [0, 1]]
        >>> samples = [dict(pred_score=torch.tensor(s), gt_label=torch.tensor(t)) for s, t in zip(scores, labels)]
        >>> metric.process(None, samples)
        >>> round(metric.evaluate(size=2)["multi-label-prf/f1_micro"], 6)
        0.666667
    """

    default_prefix = "multi-label-prf"

    def __init__(
        self,
        thr: float | None = None,
        topk: int | None = None,
        average: Averages = "macro",
        beta: float = 1.0,
        convention: str = "default",
        zero_division: str | float = "skip",
        classwise: bool = False,
        counts: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(average, beta, convention, zero_division, classwise, counts, **kwargs)
        require(thr is None or topk is None, "thr and topk do not go together")
        require(topk is None or topk >= 1, f"topk must be at least 1 (found {topk!r})")
        self.topk = topk
        self.thr = 0.5 if thr is None else float(thr)

    def empty_state(self) -> State:
        """Counts per class."""
        return BinaryCountState()

    def read(self, samples: Samples) -> Batch:
        """Decisions and targets of a batch."""
        scores, target = self.read_scores(samples)
        if self.topk is None:
            return Batch(reach(scores, self.thr, self.score_precisions(samples)), target)
        self.check_topk(self.topk, scores, samples)
        return Batch(top_k_decisions(scores, k=self.topk), target)

    def compute(self, state: State) -> dict[str, float]:
        """The rates by key."""
        zeros = np.zeros(self.classes_expected(), dtype=np.int64)
        tp, fp, fn, tn = (zeros if count is None else count for count in state.arrays().values())
        total = int(tp.sum() + fp.sum() + fn.sum() + tn.sum())
        metrics = self._rate_keys(
            stat_scores_report(tp, fp, fn, tn, beta=self.beta, zero_division=self._empty(total)), ""
        )
        metrics["accuracy"] = (tp.sum() + tn.sum()) / total if total else float("nan")
        return metrics
