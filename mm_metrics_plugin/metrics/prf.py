"""Precision, recall and F-score of decisions, and what else a confusion matrix says."""

from __future__ import annotations

from functools import partial
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
from mmengine.registry import METRICS

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import divide
from mm_metrics_plugin.functional._score_precision import limits_for, reach
from mm_metrics_plugin.functional.classification.confusion_matrix import (
    ConfusionResult,
    CountsResult,
    MatrixView,
    Rates,
    confusion_matrix_report,
    matrix_view,
    stat_scores_report,
)
from mm_metrics_plugin.functional.classification.thresholding import hard_decisions, top_k_decisions
from mm_metrics_plugin.functional.ranking import label_ranks
from mm_metrics_plugin.metrics.base import Shown
from mm_metrics_plugin.metrics.classification_base import ScoredMetricBase
from mm_metrics_plugin.metrics.keys import class_values
from mm_metrics_plugin.metrics.multi_label import MultiLabelMetricBase
from mm_metrics_plugin.metrics.options import check_choice, threshold_suffixes, zero_division_value
from mm_metrics_plugin.metrics.single_label import SingleLabelMetricBase
from mm_metrics_plugin.settings import require
from mm_metrics_plugin.states.base import State
from mm_metrics_plugin.states.batch import Batch
from mm_metrics_plugin.states.confusion import ConfusionState, TopConfusionState
from mm_metrics_plugin.states.counts import BinaryCountState

AVERAGES = ("macro", "micro", "weighted")
# The value of 0/0 in each convention.
CONVENTIONS = {"default": float("nan"), "mmpretrain": 0.0, "paddlerec": 1.0}  # of the default: as zero_division says
# What it means for the choice of a checkpoint that classes without predictions are left out.
REMEDY = ", where a model that predicts fewer classes can look better; zero_division=0 counts undefined values as 0"
SCALARS = ("accuracy", "balanced_accuracy", "mcc", "kappa", "kappa_linear", "kappa_quadratic")

Averages = Union[str, Sequence[str], None]


class _PRFMetric(ScoredMetricBase):
    """What one label and several have in common: options and keys."""

    def _take_options(
        self,
        average: Averages,
        beta: float,
        convention: str,
        zero_division: Union[str, float],
        classwise: bool,
        counts: bool,
    ) -> None:
        self.averages: Tuple[str, ...] = (average,) if isinstance(average, str) else tuple(average or ())
        for choice in self.averages:
            check_choice("average", choice, AVERAGES)
        check_choice("convention", convention, tuple(CONVENTIONS))
        require(beta > 0, f"beta must be above 0 (found {beta!r})")
        value = zero_division_value(zero_division)
        require(
            convention == "default" or zero_division == "skip",
            f"zero_division goes with convention='default' (found {zero_division!r} and {convention!r})",
        )
        if convention == "paddlerec" and self.averages == ("macro",):
            self.averages = ("macro", "micro")
        self.beta = beta
        self.convention = convention
        self.zero_division = zero_division
        self._zero_division = value if convention == "default" else CONVENTIONS[convention]
        self.classwise = classwise or not self.averages
        self.counts = counts

    def _empty(self, samples: int) -> float:
        """The value of 0/0. Without any samples nothing has a value, whatever the convention."""
        return self._zero_division if samples else float("nan")

    def _rate_keys(self, result: CountsResult, suffix: str) -> Dict[str, float]:
        names = self.class_names(len(result.tp))
        f_name = f"f{self.beta:g}"
        metrics: Dict[str, float] = {}
        for average in self.averages:
            rates: Rates = getattr(result, average)
            ending = suffix if average == "macro" else f"_{average}{suffix}"
            of_means = self.convention == "paddlerec" and average == "macro"
            metrics[f"{f_name}{ending}"] = result.f_of_means if of_means else rates.f_score
            metrics[f"precision{ending}"] = rates.precision
            metrics[f"recall{ending}"] = rates.recall
            metrics[f"specificity{ending}"] = rates.specificity
        if self.classwise:
            each = result.per_class
            for key, values in (
                (f_name, each.f_score),
                ("precision", each.precision),
                ("recall", each.recall),
                ("specificity", each.specificity),
            ):
                metrics.update(class_values(f"{key}{suffix}", names, values))
        if self.counts:
            for key in ("tp", "fp", "tn", "fn"):
                metrics.update(class_values(f"{key}{suffix}", names, getattr(result, key)))
        if self.convention == "default":
            self._account(result, names, metrics, suffix)
        if not sum(count.sum() for count in (result.tp, result.fp, result.fn, result.tn)):
            self.warn_undefined("every rate", "there were no samples", ["the data set"])
        return metrics

    def _account(self, result: CountsResult, names: Sequence[str], metrics: Dict[str, float], suffix: str) -> None:
        """Says which classes are in no mean because they have no value."""
        mean_of = len(names) if {"macro", "weighted"} & set(self.averages) else 0
        either = result.support + result.predicted
        for key, what, reason, counts, remedy in (
            ("classes_present", "recall", "the data holds no sample of the class", result.support, ""),
            ("classes_predicted", "precision", "the class was never predicted", result.predicted, REMEDY),
            (
                "",
                f"f{self.beta:g}",
                "the data holds no sample of the class, nor was it predicted",
                either,
                REMEDY,
            ),
        ):
            missing = [names[int(index)] for index in np.flatnonzero(counts == 0)]
            if key:
                metrics[f"{key}{suffix}"] = len(names) - len(missing)
            if self.zero_division == "skip":
                self.warn_undefined(what, reason, missing, mean_of=mean_of, remedy=remedy)


@METRICS.register_module()
class SingleLabelPRF(_PRFMetric, SingleLabelMetricBase):
    """Precision, recall, F-score and everything else a confusion matrix says, of the best class of each sample.

    Keys: ``f1``, ``precision``, ``recall``, ``specificity`` (macro; with ``_micro`` and ``_weighted`` behind them for
    the other averages), ``accuracy``, ``balanced_accuracy``, ``mcc``, ``kappa``, ``kappa_linear``,
    ``kappa_quadratic``; ``accuracy_top<k>`` with ``topk``; ``f1/<class>`` and so on with ``classwise``;
    ``tp/<class>``, ``fp/<class>``, ``tn/<class>``, ``fn/<class>`` with ``counts``; ``classes_present`` and
    ``classes_predicted``, how many are in the means. Several thresholds put ``_thr-0.50`` behind every key, and
    ``_no-thr`` for None. Values lie in 0 to 1 (those that mmpretrain prints, divided by 100), MCC and kappa in -1 to 1.

    Args:
        average: ``'macro'``, ``'micro'``, ``'weighted'`` (by support), several of them, or None for keys per class.
        thrs: A sample whose best score is not above the threshold is given to no class: it is missed by its own class
            and a false positive of none. One or several; None for no threshold. Weighted kappas are undefined for
            samples given to no class. Thresholds are rounded to the precision of each sample's scores.
        topk: Also the share of samples whose true class is among the k best (and above the threshold); one or
            several. Of equal scores the lower class index is the better one.
        beta: Weight of recall in the F-score, whose key is then ``f2``, ``f0.5`` and so on.
        convention: ``'default'`` leaves classes without a value (0/0) out of the means. ``'mmpretrain'`` counts them
            as 0 and takes ``thrs=0.0`` unless others are given. ``'paddlerec'`` counts them as 1, gives macro and
            micro, and its macro F1 is that of the macro precision and recall.
        zero_division: The value of 0/0, such as the precision of a class that was never predicted: ``'skip'`` leaves
            the class out of the means, 0 and 1 count it as that, so that the means are over all classes. A precision
            that ``save_best`` uses should count it as 0, as mmpretrain does: else a model that predicts one class only
            can have the best one.
        classwise: Also keys per class.
        counts: Also true and false positives and negatives per class.
        num_classes: How many classes; needed only where samples carry ``pred_label`` without ``pred_score`` and the
            data set names no classes.
        collect_device: As in mmengine.
        prefix: As in mmengine; ``'single-label-prf'`` by default, because mmpretrain's ``SingleLabelMetric`` has
            ``single-label/precision`` and ``single-label/recall``.

    Example:
        >>> import torch
        >>> metric = SingleLabelPRF(num_classes=4, convention="paddlerec")
        >>> pairs = zip([0, 1, 1, 3], [0, 2, 1, 3])
        >>> samples = [dict(pred_label=torch.tensor([p]), gt_label=torch.tensor([t])) for p, t in pairs]
        >>> metric.process(None, samples)
        >>> found = metric.evaluate(size=4)
        >>> [round(found[f"single-label-prf/{key}"], 6) for key in ("precision", "recall", "f1", "f1_micro")]
        [0.875, 0.75, 0.807692, 0.75]
    """

    default_prefix = "single-label-prf"

    def __init__(
        self,
        average: Averages = "macro",
        thrs: Union[float, Sequence[Optional[float]], None] = None,
        topk: Union[int, Sequence[int], None] = None,
        beta: float = 1.0,
        convention: str = "default",
        zero_division: Union[str, float] = "skip",
        classwise: bool = False,
        counts: bool = False,
        num_classes: Optional[int] = None,
        collect_device: str = "cpu",
        prefix: Optional[str] = None,
    ) -> None:
        super().__init__(num_classes=num_classes, collect_device=collect_device, prefix=prefix)
        self._take_options(average, beta, convention, zero_division, classwise, counts)
        self.topk: Tuple[int, ...] = () if topk is None else tuple(int(k) for k in np.atleast_1d(topk))
        require(all(k >= 1 for k in self.topk), f"topk must be at least 1 (found {topk!r})")
        self._needs_scores = thrs is not None or bool(self.topk)
        if thrs is None and convention == "mmpretrain":
            thrs = 0.0
        self.thrs: List[Optional[float]] = [thrs] if thrs is None or isinstance(thrs, (int, float)) else [*thrs]
        require(len(self.thrs) > 0, "thrs must name at least one threshold")
        self._suffixes = threshold_suffixes(self.thrs)
        self._limits = [-np.inf if thr is None else float(thr) for thr in self.thrs]

    def empty_state(self) -> State:
        """A confusion matrix a threshold."""
        rules = 1 if self._scored is False else len(self.thrs)
        return (TopConfusionState if self.topk else ConfusionState)(self.classes_expected(), rules)

    def read(self, samples: Sequence[Mapping]) -> Batch:
        """True and decided classes of a batch, and whether the true one is among the best."""
        if not self.has_scores(samples):
            if self._needs_scores:
                raise MetricInputError(
                    f"{self.namer(samples)(0)} must have a field 'pred_score' for thrs and topk (found 'pred_label')"
                )
            decisions, labels = self.read_decisions(samples)
            return Batch(labels, decisions)
        scores, labels = self.read_scores(samples)
        precision = self.score_precisions(samples)
        decisions = hard_decisions(scores, thresholds=self._limits, precision=precision)
        if not self.topk:
            return Batch(labels, decisions)
        if max(self.topk) > scores.shape[1]:
            raise MetricInputError(
                f"'pred_score' of {self.namer(samples)(0)} must hold at least {max(self.topk)} scores for topk "
                f"(found {scores.shape[1]})"
            )
        own = scores[np.arange(len(labels)), labels]
        among = label_ranks(scores, labels)[:, None] < np.array(self.topk)
        above = own[:, None] > limits_for(scores, self._limits, precision)
        return Batch(labels, decisions, (among[:, :, None] & above[:, None, :]).reshape(len(labels), -1))

    def compute(self, state: State) -> Dict[str, float]:
        """Everything the confusion matrices say, by key."""
        matrices = state.matrices  # type: ignore[attr-defined]
        metrics: Dict[str, float] = {}
        for rule, (suffix, matrix) in enumerate(zip(self._suffixes, matrices)):
            samples = int(matrix.sum())
            report = confusion_matrix_report(matrix, beta=self.beta, zero_division=self._empty(samples))
            rates = self._rate_keys(report, suffix)
            scalars = {f"{key}{suffix}": getattr(report, key) for key in SCALARS}
            for index, k in enumerate(self.topk):
                place = index * len(matrices) + rule
                hits = state.hits[place] if samples else np.nan  # type: ignore[attr-defined]
                scalars[f"accuracy_top{k}{suffix}"] = hits / max(samples, 1)
            metrics.update({**rates, **scalars})
            if samples:
                self._warn_of_agreement(report)
        return metrics

    def shown(self, state: Any) -> List[Shown]:
        """The confusion matrix of each threshold."""
        names = self.class_names(state.num_classes)

        def view(place: int) -> MatrixView:
            matrix = state.matrices[place]
            accuracy = divide(matrix.trace(), matrix.sum())
            rule = self._suffixes[place].replace("_", ", ")
            return matrix_view(matrix, names, title=f"accuracy {accuracy:.4f}{rule}")

        return [
            Shown((f"confusion_matrix{suffix}",), names, partial(view, place))
            for place, suffix in enumerate(self._suffixes[: state.num_rules])
        ]

    def _warn_of_agreement(self, report: ConfusionResult) -> None:
        if np.isnan(report.mcc):
            self.warn_undefined("MCC", "one class holds all of the truth, or all of the decisions", ["the data set"])
        if np.isnan(report.kappa_linear):
            reason = "some samples were given to no class, or all of truth and decisions is one class"
            self.warn_undefined("weighted kappa", reason, ["the data set"])


@METRICS.register_module()
class MultiLabelPRF(_PRFMetric, MultiLabelMetricBase):
    """Precision, recall and F-score where a sample may have several classes.

    Reads ``pred_score`` and ``gt_score`` (1, 0, or -1 for what does not count) or a list of classes ``gt_label``.

    Keys: ``f1``, ``precision``, ``recall``, ``specificity`` (macro; with ``_micro`` and ``_weighted`` behind them for
    the other averages); ``accuracy``, the share of right yes-or-no decisions; ``f1/<class>`` and so on with
    ``classwise``; ``tp/<class>``, ``fp/<class>``, ``tn/<class>``, ``fn/<class>`` with ``counts``;
    ``classes_present`` and ``classes_predicted``, how many are in the means. Values lie in 0 to 1.

    Args:
        thr: A class is decided for from this score on, rounded to the precision of each sample's scores; 0.5 if neither
            ``thr`` nor ``topk`` is given.
        topk: The k best classes of each sample are decided for; of equal scores the lower class index is the better
            one. Not together with ``thr``.
        average: ``'macro'``, ``'micro'``, ``'weighted'`` (by support), several of them, or None for keys per class.
        beta: Weight of recall in the F-score, whose key is then ``f2``, ``f0.5`` and so on.
        convention: As in :class:`SingleLabelPRF`.
        zero_division: As in :class:`SingleLabelPRF`.
        classwise: Also keys per class.
        counts: Also true and false positives and negatives per class.
        collect_device: As in mmengine.
        prefix: As in mmengine; ``'multi-label-prf'`` by default, because mmpretrain's ``MultiLabelMetric`` has
            ``multi-label/precision`` and ``multi-label/recall``.

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
        thr: Optional[float] = None,
        topk: Optional[int] = None,
        average: Averages = "macro",
        beta: float = 1.0,
        convention: str = "default",
        zero_division: Union[str, float] = "skip",
        classwise: bool = False,
        counts: bool = False,
        collect_device: str = "cpu",
        prefix: Optional[str] = None,
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        self._take_options(average, beta, convention, zero_division, classwise, counts)
        require(thr is None or topk is None, "thr and topk do not go together")
        require(topk is None or topk >= 1, f"topk must be at least 1 (found {topk!r})")
        self.topk = topk
        self.thr = 0.5 if thr is None else float(thr)

    def empty_state(self) -> State:
        """Counts per class."""
        return BinaryCountState()

    def read(self, samples: Sequence[Mapping]) -> Batch:
        """Decisions and truth of a batch."""
        scores, truth = self.read_scores(samples)
        if self.topk is None:
            return Batch(reach(scores, self.thr, self.score_precisions(samples)), truth)
        if self.topk > scores.shape[1]:
            raise MetricInputError(
                f"'pred_score' of {self.namer(samples)(0)} must hold at least {self.topk} scores for topk "
                f"(found {scores.shape[1]})"
            )
        return Batch(top_k_decisions(scores, k=self.topk), truth)

    def compute(self, state: State) -> Dict[str, float]:
        """The rates of the counts, by key."""
        nothing = np.zeros(self.classes_expected(), dtype=np.int64)
        tp, fp, fn, tn = (nothing if count is None else count for count in state.arrays().values())
        total = int(tp.sum() + fp.sum() + fn.sum() + tn.sum())
        metrics = self._rate_keys(
            stat_scores_report(tp, fp, fn, tn, beta=self.beta, zero_division=self._empty(total)), ""
        )
        metrics["accuracy"] = (tp.sum() + tn.sum()) / total if total else float("nan")
        return metrics
