"""Metrics of scores of which one ought to be the higher."""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Sequence

from mmengine.registry import METRICS

from mm_metrics_plugin.functional.ranking import pos_neg_ratio
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.flat import flat_fields
from mm_metrics_plugin.states.batch import Batch
from mm_metrics_plugin.states.pairs import PairState


@METRICS.register_module()
class PosNegRatio(StreamingMetric):
    """How many pairs of scores are in the right order for each that is not, as PaddleRec's PosNegRatio has it.

    Keys: ``pn`` = (right + 1) / (wrong + 1) first; ``right``, pairs whose positive scores higher; ``wrong``, all
    others, ties among them.

    Args:
        positive_field: Where a sample has the scores that ought to be higher: one or any number of them. A dotted
            path such as ``'scores.clicked'`` looks inside.
        negative_field: Where it has the scores they are compared with, of the same shape.
        collect_device: As in mmengine.
        prefix: As in mmengine; ``'ranking'`` by default.

    Example:
        >>> metric = PosNegRatio()
        >>> pairs = zip([0.9, 0.5, 0.5], [0.1, 0.5, 0.6])
        >>> metric.process(None, [dict(pos_score=positive, neg_score=negative) for positive, negative in pairs])
        >>> metric.evaluate(size=3)
        {'ranking/pn': 0.6666666666666666, 'ranking/right': 1.0, 'ranking/wrong': 2.0}
    """

    default_prefix = "ranking"

    def __init__(
        self,
        positive_field: str = "pos_score",
        negative_field: str = "neg_score",
        collect_device: str = "cpu",
        prefix: Optional[str] = None,
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        self.fields = [positive_field, negative_field]

    def empty_state(self) -> PairState:
        """No pairs."""
        return PairState()

    def read(self, samples: Sequence[Mapping]) -> Batch:
        """The pairs of a batch."""
        return flat_fields(samples, self.fields, lambda index: self.sample_name(samples[index], index))

    def compute(self, state: PairState) -> Dict[str, float]:  # type: ignore[override]
        """The ratio and the counts."""
        right, wrong = (0, 0) if state.counts is None else state.counts.tolist()
        value = pos_neg_ratio(right, wrong)
        if not right + wrong:
            self.warn_undefined("The ratio", "there were no pairs", ["the data set"])
        return {"pn": value, "right": right, "wrong": wrong}
