"""Metrics of the order of scores: recall at k, and the ratio of pairs in the correct order."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
from mmengine.registry import METRICS

from mm_metrics_plugin.functional._arrays import divide
from mm_metrics_plugin.functional.ranking import label_ranks, pos_neg_ratio
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.classification_base import SingleLabelMetricBase
from mm_metrics_plugin.metrics.sample_fields import Samples, flat_fields
from mm_metrics_plugin.settings import require
from mm_metrics_plugin.states.base import Batch, State
from mm_metrics_plugin.states.counts import HitState, PairState


@METRICS.register_module()
class RecallAtK(SingleLabelMetricBase):
    """Top-k recall: the share of samples whose true class is among the k classes with the highest scores.

    Ties are broken by the class index, lower first, so there are always exactly k classes.

    Keys, with the prefix ``single-label``:

    - ``recall@<k>``: recall for each k.
    - ``recall_count@<k>``: number of these samples (PaddleRec's RecallCnt).
    - ``sample_count``: number of samples (PaddleRec's InsCnt).

    Args:
        topk: One or several k.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

    Example:
        >>> import torch
        >>> metric = RecallAtK(topk=(1, 2))
        >>> scores, labels = [[0.5, 0.3, 0.2], [0.2, 0.4, 0.4]], [1, 2]
        >>> samples = [dict(pred_score=torch.tensor(s), gt_label=torch.tensor([y])) for s, y in zip(scores, labels)]
        >>> metric.process(None, samples)
        >>> metric.evaluate(size=2)["single-label/recall@2"]
        1.0
    """

    def __init__(self, topk: int | Sequence[int] = (1, 5), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topk: tuple[int, ...] = tuple(int(k) for k in np.atleast_1d(topk))
        require(
            len(self.topk) > 0 and min(self.topk) >= 1,
            f"topk must hold one k or more, each at least 1 (found {topk!r})",
        )

    def empty_state(self) -> State:
        """The number of samples, and of hits for each k."""
        return HitState()

    def read(self, samples: Samples) -> Batch:
        """Whether the true class is among the k best, for each sample and k."""
        scores, labels = self.read_scores(samples)
        self.check_topk(max(self.topk), scores, samples)
        return Batch(label_ranks(scores, labels)[:, None] < np.array(self.topk))

    def compute(self, state: HitState) -> dict[str, float]:
        """The shares and the counts, by key."""
        hits = np.zeros(len(self.topk)) if state.hits is None else state.hits
        samples = 0 if state.samples is None else int(state.samples)
        if not samples:
            self.warn_no_samples("recall")
        metrics = {f"recall@{k}": share for k, share in zip(self.topk, divide(hits, np.asarray(samples)))}
        metrics.update({f"recall_count@{k}": count for k, count in zip(self.topk, hits)})
        return {**metrics, "sample_count": samples}


@METRICS.register_module()
class PosNegRatio(StreamingMetric):
    """Ratio of correctly to wrongly ordered pairs of scores, as PaddleRec's PosNegRatio.

    Keys, with the prefix ``ranking``:

    - ``pn``: (right + 1) / (wrong + 1).
    - ``right``: number of pairs whose positive score is higher.
    - ``wrong``: number of all other pairs, including ties.

    Args:
        positive_field: Field of the scores that should be higher, any number per sample; a dotted path such as
            ``'scores.clicked'`` is a field inside a field.
        negative_field: Field of the scores they are compared with, of the same shape.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.fields = [positive_field, negative_field]

    def empty_state(self) -> PairState:
        """No pairs."""
        return PairState()

    def read(self, samples: Samples) -> Batch:
        """The pairs of a batch."""
        return flat_fields(samples, self.fields, self.sample_names(samples))

    def compute(self, state: PairState) -> dict[str, float]:
        """The ratio and the counts."""
        right, wrong = (0, 0) if state.counts is None else state.counts.tolist()
        if not right + wrong:
            self.warn_undefined("The ratio", "there were no pairs", ["the dataset"])
        return {"pn": pos_neg_ratio(right, wrong), "right": right, "wrong": wrong}
