"""The Kolmogorov-Smirnov statistic of a classifier's scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from mmengine.registry import METRICS

from mm_metrics_plugin.exceptions import MetricInputError, pluralize
from mm_metrics_plugin.functional._arrays import ABSENT_RULES, mean_over_classes
from mm_metrics_plugin.functional.classification.histograms import histogram_ks
from mm_metrics_plugin.functional.classification.roc_curves import KSResult, ks_statistic
from mm_metrics_plugin.metrics.classification_base import ONE_SIDED_CLASS, SingleLabelMetricBase
from mm_metrics_plugin.metrics.sample_fields import Samples
from mm_metrics_plugin.reports.base import class_values
from mm_metrics_plugin.settings import require, require_choice
from mm_metrics_plugin.states.base import Batch, State
from mm_metrics_plugin.states.scores import ScoreHistogramState, ThresholdScoreState


@METRICS.register_module()
class SingleLabelKS(SingleLabelMetricBase):
    """Kolmogorov-Smirnov statistic: the largest TPR - FPR of a class, one-vs-rest, over all thresholds.

    Keys, with the prefix ``single-label``; values lie in 0 to 1:

    - ``ks``: the mean over the classes, or the value of ``positive_label``.
    - ``ks_threshold``: the highest score threshold with this value, with ``positive_label``; as every threshold it is
      rounded to the precision of each sample's scores.
    - ``classes_in_ks``: number of classes with a value, without ``positive_label``.
    - ``ks_error``: how far the exact value may be above ``ks``, with ``num_thresholds``.
    - ``ks/<class>``, ``ks_threshold/<class>``: the same per class, with ``classwise``.

    Args:
        positive_label: The positive class of a binary problem. Only its scores are kept.
        num_thresholds: Count scores (which must lie in 0 to 1) in this many bins instead of keeping them: constant
            memory; the exact value is at most ``ks_error`` above, and a threshold is the lower end of a bin.
        absent: Classes without samples: ``'skip'`` leaves them out of the mean, ``'nan'`` makes the mean NaN,
            ``'error'`` raises.
        classwise: Also keys per class.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

    Example:
        >>> import torch
        >>> metric = SingleLabelKS(positive_label=1)
        >>> pairs = zip([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
        >>> samples = [dict(pred_score=torch.tensor([1 - s, s]), gt_label=torch.tensor([y])) for s, y in pairs]
        >>> metric.process(None, samples)
        >>> metric.evaluate(size=4)["single-label/ks"]
        0.5
    """

    def __init__(
        self,
        positive_label: int | None = None,
        num_thresholds: int | None = None,
        absent: str = "skip",
        classwise: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.set_num_thresholds(num_thresholds)
        require_choice("absent", absent, ABSENT_RULES)
        require(
            positive_label is None or (positive_label >= 0 and not classwise),
            "positive_label must be a class index, and does not go with classwise",
        )
        self.positive_label = positive_label
        self.absent = absent
        self.classwise = classwise

    def empty_state(self) -> State:
        """Scores or their histogram."""
        return ThresholdScoreState() if self.num_thresholds is None else ScoreHistogramState(self.num_thresholds)

    def read(self, samples: Samples) -> Batch:
        """Scores and labels of a batch; with ``positive_label`` of one column."""
        scores, labels = self.read_scores(samples)
        precision = [self.score_precisions(samples)] if self.num_thresholds is None else []
        if self.positive_label is None:
            return Batch(scores, labels, *precision)
        if self.positive_label >= scores.shape[1]:
            raise MetricInputError(
                f"'pred_score' of {self.sample_names(samples)(0)} must hold a score of class {self.positive_label}, "
                f"the positive_label (found {pluralize(scores.shape[1], 'score')})"
            )
        column = slice(self.positive_label, self.positive_label + 1)
        return Batch(scores[:, column], (labels == self.positive_label).astype(np.int8)[:, None], *precision)

    def compute(self, state: State) -> dict[str, float]:
        """The KS statistic and its threshold, by key."""
        result = self._result(state)
        metrics = {"ks": result.mean(absent=self.absent)}
        names = self.class_names(len(result.per_class))
        if self.positive_label is not None:
            metrics["ks_threshold"] = float(result.thresholds[0])
            names = [f"class {self.positive_label}"]
        if self.num_thresholds is not None:
            metrics["ks_error"] = mean_over_classes(result.errors, absent=self.absent)
        if self.positive_label is None:
            metrics["classes_in_ks"] = result.classes_averaged
        if self.classwise:
            metrics.update(class_values("ks", names, result.per_class))
            metrics.update(class_values("ks_threshold", names, result.thresholds))
        self.warn_undefined_classes("KS", ONE_SIDED_CLASS, names, result.per_class, skip=self.absent == "skip")
        return metrics

    def _result(self, state: State) -> KSResult:
        if isinstance(state, ScoreHistogramState) and state.totals is not None:
            return histogram_ks(state.positives, state.totals)
        if isinstance(state, ThresholdScoreState) and len(state.labels):
            return ks_statistic(state.scores.blocks, state.labels.rows, precision=state.precision.rows)
        undefined = np.full(self.classes_expected() if self.positive_label is None else 1, np.nan)
        return KSResult(undefined, undefined, np.zeros(len(undefined), dtype=np.int64), undefined)
