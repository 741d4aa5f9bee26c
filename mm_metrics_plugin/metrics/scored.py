"""Reads scores, one a class, as mmpretrain's data samples have them."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.fields import SampleName, check_finite, first_bad


class ScoredMetricBase(StreamingMetric):
    """Checks ``pred_score``.

    Args:
        num_classes: How many classes there are; learned from the first sample if None.
        **kwargs: As in :class:`StreamingMetric`.
    """

    def __init__(self, num_classes: Optional[int] = None, **kwargs: Optional[str]) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.num_classes = num_classes

    def namer(self, samples: Sequence[Mapping]) -> SampleName:
        """Tells how messages speak of the samples of this batch."""
        return lambda index: self.sample_name(samples[index], index)

    def classes_expected(self) -> int:
        """How many classes there are, as far as anything but samples can tell."""
        return self.num_classes or len((self.dataset_meta or {}).get("classes") or ())

    def checked_scores(self, scores: np.ndarray, name: SampleName) -> np.ndarray:
        """Scores (samples, classes) as floats, all finite, as many a sample as there are classes."""
        if scores.ndim != 2 or not scores.shape[1] or scores.dtype.kind not in "fiu":
            raise MetricInputError(
                f"'pred_score' of {name(0)} must be one number a class (found shape {scores.shape[1:]}, {scores.dtype})"
            )
        if self.num_classes is None:
            self.num_classes = scores.shape[1]
        if scores.shape[1] != self.num_classes:
            raise MetricInputError(
                f"'pred_score' of {name(0)} must hold {self.num_classes} scores, one a class (found {scores.shape[1]})"
            )
        if scores.dtype.kind != "f":
            scores = scores.astype(np.float64)
        check_finite(scores, "pred_score", name)
        return scores

    def check_unit(self, scores: np.ndarray, what_for: str, samples: Sequence[Mapping]) -> None:
        """Raises MetricInputError for the first sample with a score outside 0 to 1."""
        if scores.min() < 0 or scores.max() > 1:
            inside = (scores >= 0) & (scores <= 1)
            row = first_bad(inside)
            raise MetricInputError(
                f"'pred_score' of {self.namer(samples)(row)} must lie in 0 to 1 for {what_for} "
                f"(found {scores[row][~inside[row]][0]})"
            )
