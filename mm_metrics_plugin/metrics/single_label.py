"""Reads samples with one true class, as mmpretrain's single-label data samples have it."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.metrics.classification_base import ScoredMetricBase
from mm_metrics_plugin.metrics.sample_fields import read_labels, stack_fields


class SingleLabelMetricBase(ScoredMetricBase):
    """Reads ``pred_score`` and ``gt_label`` (or ``pred_label`` where there are no scores).

    Args:
        num_classes: How many classes there are. Needed only where samples carry no scores and the data set names no
            classes.
        **kwargs: As in :class:`StreamingMetric`.
    """

    default_prefix = "single-label"
    target_fields = ("gt_label",)

    def __init__(self, num_classes: Optional[int] = None, **kwargs: Optional[str]) -> None:
        super().__init__(num_classes, **kwargs)
        self._scored: Optional[bool] = None

    def read_scores(self, samples: Sequence[Mapping]) -> Tuple[np.ndarray, np.ndarray]:
        """Scores (samples, classes) and labels of samples that carry ``pred_score``."""
        name = self.namer(samples)
        scores, labels = stack_fields(samples, ["pred_score", "gt_label"], name)
        scores = self.checked_scores(scores, name)
        return scores, read_labels(labels, "gt_label", scores.shape[1], name)

    def read_decisions(self, samples: Sequence[Mapping]) -> Tuple[np.ndarray, np.ndarray]:
        """Decided classes (samples, 1) and labels of samples that carry only ``pred_label``."""
        name = self.namer(samples)
        num_classes = self.classes_expected()
        if not num_classes:
            raise MetricInputError(
                f"{name(0)} has no 'pred_score', only 'pred_label': {type(self).__name__} then needs num_classes=..., "
                "because the data set names no classes"
            )
        decided, labels = stack_fields(samples, ["pred_label", "gt_label"], name)
        return (
            read_labels(decided, "pred_label", num_classes, name)[:, None],
            read_labels(labels, "gt_label", num_classes, name),
        )

    def has_scores(self, samples: Sequence[Mapping]) -> bool:
        """Whether samples carry scores; the first batch decides, and the rest must do likewise."""
        if self._scored is None or not len(self.results):
            self._scored = "pred_score" in samples[0] or "pred_label" not in samples[0]
        return self._scored
