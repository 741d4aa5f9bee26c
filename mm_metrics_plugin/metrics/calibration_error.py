"""How far the scores of a classifier can be taken for probabilities."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

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
from mm_metrics_plugin.metrics.base import Shown
from mm_metrics_plugin.metrics.options import check_choice, check_num_thresholds
from mm_metrics_plugin.metrics.single_label import SingleLabelMetricBase
from mm_metrics_plugin.settings import require
from mm_metrics_plugin.states.base import State
from mm_metrics_plugin.states.batch import Batch
from mm_metrics_plugin.states.calibration import CalibrationState
from mm_metrics_plugin.states.scores import ScoreHistogramState, score_state


@METRICS.register_module()
class CalibrationError(SingleLabelMetricBase):
    """Expected and maximum calibration error of the best class, Brier score and negative log-likelihood.

    Keys, less being better for all: ``ece``, ``mce``, ``brier`` (added up over the classes, so 0 to 2), ``nll`` (a
    key with "loss" in it would be logged as a mean over a window). Scores must be probabilities, each in 0 to 1:
    nothing is made of logits on a guess. Confidences are kept, 5 bytes a sample, so that nothing is approximated,
    unless ``num_thresholds`` is given.

    Args:
        num_bins: How many bins the confidences fall in. One on an edge belongs to the lower bin.
        binning: ``'equal-width'`` on 0 to 1, or ``'equal-mass'`` with the quantiles of the confidences as edges.
        floor: For ``nll``, probabilities below this count as this. With 0, one true class of probability 0 makes it
            infinite.
        num_thresholds: Count confidences in this many cells instead of keeping them: constant memory. The bins' edges
            move to the nearest ones of these, and ``ece_error`` and ``mce_error`` bound the distance from the exact
            values over these bins.
        collect_device: As in mmengine.
        prefix: As in mmengine; ``'single-label'`` by default.

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
        num_thresholds: Optional[int] = None,
        collect_device: str = "cpu",
        prefix: Optional[str] = None,
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        check_choice("binning", binning, BINNINGS)
        require(num_bins >= 1, f"num_bins must be at least 1 (found {num_bins!r})")
        require(0 <= floor < 1, f"floor must lie in [0, 1) (found {floor!r})")
        self.num_bins = num_bins
        self.binning = binning
        check_num_thresholds(num_thresholds)
        self.floor = floor
        self.num_thresholds = num_thresholds

    def empty_state(self) -> State:
        """Confidences, whether they were right, and sums."""
        return CalibrationState(score_state(self.num_thresholds))

    def read(self, samples: Sequence[Mapping]) -> Batch:
        """The confidence of every sample's best class, whether it is right, and the terms of the two sums."""
        scores, labels = self.read_scores(samples)
        self.check_unit(scores, "CalibrationError, as probabilities do", samples)
        best = scores.argmax(axis=1)
        terms = np.stack([brier_terms(scores, labels), log_terms(scores, labels, floor=self.floor)], axis=1)
        return Batch(scores[np.arange(len(best)), best], best == labels, terms)

    def compute(self, state: CalibrationState) -> Dict[str, float]:  # type: ignore[override]
        """The four numbers, by key."""
        result, means = self._result(state["scores"]), state.means()
        if not means:
            self.warn_undefined("calibration", "there were no samples", ["the data set"])
        brier, nll = means or (float("nan"),) * 2
        metrics = {"ece": result.ece, "mce": result.mce, "brier": brier, "nll": nll}
        if self.num_thresholds is not None:
            metrics.update(ece_error=result.ece_error, mce_error=result.mce_error)
        return metrics

    def shown(self, state: Any) -> List[Shown]:
        """The reliability diagram."""
        return [Shown(("reliability",), (), lambda: self._result(state["scores"]))] if state.means() else []

    def _result(self, state: Any) -> CalibrationResult:
        options: Dict[str, Any] = dict(num_bins=self.num_bins, binning=self.binning)
        if isinstance(state, ScoreHistogramState):
            nothing = np.zeros((1, state.num_bins), dtype=np.int64)
            positives, totals = (nothing, nothing) if state.totals is None else (state.positives, state.totals)
            return histogram_calibration(positives[0], totals[0], **options)
        confidence, right = (
            np.empty(0) if rows.to_array() is None else rows.to_array()[:, 0] for rows in (state.scores, state.labels)
        )
        return calibration_error(confidence, right, **options)
