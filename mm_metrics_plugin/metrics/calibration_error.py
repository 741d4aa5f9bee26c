"""Calibration of a classifier's scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from mmengine.registry import METRICS

from mm_metrics_plugin.functional.classification.calibration_error import (
    BINNINGS,
    CalibrationResult,
    brier_terms,
    calibration_error,
    histogram_calibration,
    log_terms,
)
from mm_metrics_plugin.metrics.base import FigureSpec
from mm_metrics_plugin.metrics.classification_base import SingleLabelMetricBase
from mm_metrics_plugin.metrics.sample_fields import Samples
from mm_metrics_plugin.settings import require, require_choice
from mm_metrics_plugin.states.base import Batch, State
from mm_metrics_plugin.states.scores import CalibrationState, ScoreHistogramState, score_state


@METRICS.register_module()
class CalibrationError(SingleLabelMetricBase):
    """Calibration error of the predicted class, Brier score and negative log-likelihood.

    Scores must be probabilities, not logits. Confidences are kept, 5 bytes per sample, unless ``num_thresholds`` is
    given.

    Keys, with the prefix ``single-label``; less is better:

    - ``ece``, ``mce``: expected and maximum calibration error.
    - ``brier``: Brier score, summed over the classes, so 0 to 2.
    - ``nll``: negative log-likelihood.
    - ``ece_error``, ``mce_error``: bounds of the distance from the exact values, with ``num_thresholds``.

    Args:
        num_bins: Number of bins of the confidences. A confidence on an edge belongs to the lower bin.
        binning: ``'equal-width'`` on 0 to 1, or ``'equal-mass'`` with the quantiles of the confidences as edges.
        floor: For ``nll``, probabilities below this count as this. With 0, one true class of probability 0 makes it
            infinite.
        num_thresholds: Count confidences in this many cells instead of keeping them: constant memory. The edges of the
            bins move to the nearest edges of cells; the bounds are those of the exact values over these bins.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

    Example:
        >>> import torch
        >>> metric = CalibrationError()
        >>> scores, labels = [[0.75, 0.25], [0.75, 0.25]], [0, 1]
        >>> samples = [dict(pred_score=torch.tensor(s), gt_label=torch.tensor([y])) for s, y in zip(scores, labels)]
        >>> metric.process(None, samples)
        >>> metric.evaluate(size=2)["single-label/ece"]
        0.25
    """

    def __init__(
        self,
        num_bins: int = 15,
        binning: str = "equal-width",
        floor: float = 0.0,
        num_thresholds: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.set_num_thresholds(num_thresholds)
        require_choice("binning", binning, BINNINGS)
        require(num_bins >= 1, f"num_bins must be at least 1 (found {num_bins!r})")
        require(0 <= floor < 1, f"floor must lie in [0, 1) (found {floor!r})")
        self.num_bins = num_bins
        self.binning = binning
        self.floor = floor

    def empty_state(self) -> State:
        """Confidences, whether the decisions are correct, and sums."""
        return CalibrationState(score_state(self.num_thresholds))

    def read(self, samples: Samples) -> Batch:
        """The confidence of every sample's best class, whether it is correct, and the terms of the two sums."""
        scores, labels = self.read_scores(samples)
        self.check_unit(scores, "CalibrationError, as probabilities do", self.sample_names(samples))
        best = scores.argmax(axis=1)
        terms = np.stack([brier_terms(scores, labels), log_terms(scores, labels, floor=self.floor)], axis=1)
        return Batch(scores[np.arange(len(best)), best], best == labels, terms)

    def compute(self, state: CalibrationState) -> dict[str, float]:
        """The four numbers, by key."""
        result, means = self._result(state["scores"]), state.means()
        if not means:
            self.warn_no_samples("calibration")
        brier, nll = means or (float("nan"),) * 2
        metrics = {"ece": result.ece, "mce": result.mce, "brier": brier, "nll": nll}
        if self.num_thresholds is not None:
            metrics.update(ece_error=result.ece_error, mce_error=result.mce_error)
        return metrics

    def figures(self, state: CalibrationState) -> list[FigureSpec]:
        """The reliability diagram."""
        return [FigureSpec(("reliability",), (), lambda: self._result(state["scores"]))] if state.means() else []

    def _result(self, state: Any) -> CalibrationResult:
        options: dict[str, Any] = dict(num_bins=self.num_bins, binning=self.binning)
        if isinstance(state, ScoreHistogramState):
            zeros = np.zeros((1, state.num_bins), dtype=np.int64)
            positives, totals = (zeros, zeros) if state.totals is None else (state.positives, state.totals)
            return histogram_calibration(positives[0], totals[0], **options)
        columns = (rows.to_array() for rows in (state.scores, state.labels))
        confidence, correct = (np.empty(0) if column is None else column[:, 0] for column in columns)
        return calibration_error(confidence, correct, **options)
