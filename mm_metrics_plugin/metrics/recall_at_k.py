"""How often the true class is among the best ones."""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
from mmengine.registry import METRICS

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import divide
from mm_metrics_plugin.functional.ranking import label_ranks
from mm_metrics_plugin.metrics.single_label import SingleLabelMetricBase
from mm_metrics_plugin.settings import require
from mm_metrics_plugin.states.base import State
from mm_metrics_plugin.states.batch import Batch
from mm_metrics_plugin.states.counts import HitState


@METRICS.register_module()
class RecallAtK(SingleLabelMetricBase):
    """The share of samples whose true class is among the k classes with the best scores.

    Of equal scores the lower class index is the better one, so exactly k classes are taken whatever the ties.

    Keys: ``recall@<k>`` for each k, ``recall_count@<k>`` (PaddleRec's RecallCnt), ``sample_count`` (its InsCnt).

    Args:
        topk: One or several k.
        collect_device: As in mmengine.
        prefix: As in mmengine; ``'single-label'`` by default.

    Example:
        >>> import torch
        >>> metric = RecallAtK(topk=(1, 2))
        >>> scores, labels = [[0.5, 0.3, 0.2], [0.2, 0.4, 0.4]], [1, 2]
        >>> samples = [dict(pred_score=torch.tensor(s), gt_label=torch.tensor([y])) for s, y in zip(scores, labels)]
        >>> metric.process(None, samples)
        >>> found = metric.evaluate(size=2)
        >>> found["single-label/recall@1"], found["single-label/recall@2"], found["single-label/sample_count"]
        (0.0, 1.0, 2.0)
    """

    def __init__(
        self,
        topk: Union[int, Sequence[int]] = (1, 5),
        collect_device: str = "cpu",
        prefix: Optional[str] = None,
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        self.topk: Tuple[int, ...] = tuple(int(k) for k in np.atleast_1d(topk))
        require(
            len(self.topk) > 0 and min(self.topk) >= 1,
            f"topk must hold one k or more, each at least 1 (found {topk!r})",
        )

    def empty_state(self) -> State:
        """How many samples there were, and how many hits for each k."""
        return HitState()

    def read(self, samples: Sequence[Mapping]) -> Batch:
        """Whether the true class is among the k best, for each sample and k."""
        scores, labels = self.read_scores(samples)
        if max(self.topk) > scores.shape[1]:
            raise MetricInputError(
                f"'pred_score' of {self.namer(samples)(0)} must hold at least {max(self.topk)} scores for topk "
                f"(found {scores.shape[1]})"
            )
        return Batch(label_ranks(scores, labels)[:, None] < np.array(self.topk))

    def compute(self, state: State) -> Dict[str, float]:
        """The shares and the counts, by key."""
        arrays = state.arrays()
        hits = np.zeros(len(self.topk)) if arrays["hits"] is None else arrays["hits"]
        samples = 0 if arrays["samples"] is None else int(arrays["samples"])
        if not samples:
            self.warn_undefined("recall", "there were no samples", ["the data set"])
        metrics = {f"recall@{k}": float(share) for k, share in zip(self.topk, divide(hits, np.asarray(samples)))}
        metrics.update({f"recall_count@{k}": float(count) for k, count in zip(self.topk, hits)})
        return {**metrics, "sample_count": float(samples)}
