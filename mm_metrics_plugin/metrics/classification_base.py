"""Reads scores, one a class, as mmpretrain's data samples have them."""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._exact_sum import split_values
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.options import check_num_classes
from mm_metrics_plugin.metrics.sample_fields import SampleName, check_finite, field_values, first_bad, score_precision


class ScoredMetricBase(StreamingMetric):
    """Checks ``pred_score``.

    Args:
        num_classes: How many classes there are. If None, the number is learned from the first sample of each
            evaluation: the next data set may have another.
        **kwargs: As in :class:`StreamingMetric`.
    """

    _learned_classes: Optional[int] = None

    def __init__(self, num_classes: Optional[int] = None, **kwargs: Optional[str]) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        check_num_classes(num_classes)
        self.num_classes = num_classes

    def namer(self, samples: Sequence[Mapping]) -> SampleName:
        """Tells how messages speak of the samples of this batch."""
        return lambda index: self.sample_name(samples[index], index)

    def classes_expected(self) -> int:
        """How many classes there are: what was given, else what this evaluation's samples or the data set tell."""
        return self.num_classes or self._learned_classes or len((self.dataset_meta or {}).get("classes") or ())

    def evaluate(self, size: int) -> Dict[str, float]:
        """The numbers of the whole data set; mmengine calls it. What was learned of its classes is forgotten."""
        try:
            return super().evaluate(size)
        finally:
            self._learned_classes = None

    def score_precisions(self, samples: Sequence[Mapping]) -> np.ndarray:
        """(samples,) the code of the precision in which each sample's scores were given."""
        values = field_values(samples, "pred_score", self.namer(samples))
        return np.array([score_precision(value) for value in values], dtype=np.uint8)

    def checked_scores(self, scores: np.ndarray, name: SampleName) -> np.ndarray:
        """Scores (samples, classes) as floats, all finite, as many a sample as there are classes."""
        if scores.ndim != 2 or not scores.shape[1] or scores.dtype.kind not in "fiu":
            raise MetricInputError(
                f"'pred_score' of {name(0)} must be one number a class (found shape {scores.shape[1:]}, {scores.dtype})"
            )
        if self._learned_classes is None or not self._seen:
            self._learned_classes = scores.shape[1]
        expected = self.num_classes or self._learned_classes
        if scores.shape[1] != expected:
            raise MetricInputError(
                f"'pred_score' of {name(0)} must hold {expected} scores, one a class (found {scores.shape[1]})"
            )
        if scores.dtype.kind != "f":
            scores, rest = split_values(scores)
            if rest.any():
                row = first_bad(rest == 0)
                found = int(scores[row][rest[row] != 0][0]) + int(rest[row][rest[row] != 0][0])
                raise MetricInputError(
                    f"'pred_score' of {name(row)} must hold whole numbers that float64 holds exactly (found {found})"
                )
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
