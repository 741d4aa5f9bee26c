"""Read the scores and labels of mmpretrain's data samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mm_metrics_plugin.exceptions import MetricInputError, pluralize
from mm_metrics_plugin.functional._exact_sum import split_values
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.sample_fields import (
    SampleName,
    Samples,
    check_finite,
    check_values,
    field_values,
    read_labels,
    real_values,
    same_dtype,
    same_kind,
    score_precision,
    stack_fields,
    stack_values,
    to_host,
)
from mm_metrics_plugin.settings import require, require_int

# Why the AUC or KS of a class is undefined.
ONE_SIDED_CLASS = "the dataset has no sample of the class, or no other"


class ScoredMetricBase(StreamingMetric):
    """Reads and checks ``pred_score``. Without ``num_classes``, the first sample of each evaluation decides."""

    _learned_classes: int | None = None
    num_thresholds: int | None = None  # set by metrics that have this option

    def __init__(self, num_classes: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if num_classes is not None:
            require_int("num_classes", num_classes, low=1)
        self.num_classes = num_classes

    def set_num_thresholds(self, num_thresholds: int | None) -> None:
        """Check and set the number of bins of scores; None keeps all scores."""
        require(
            num_thresholds is None or num_thresholds >= 2, f"num_thresholds must be at least 2 (found {num_thresholds})"
        )
        self.num_thresholds = num_thresholds

    def classes_expected(self) -> int:
        """The number of classes: given, or that of the samples or of the dataset; 0 if unknown."""
        return self.num_classes or self._learned_classes or len(self.dataset_classes)

    def _reset(self) -> None:
        super()._reset()
        self._learned_classes = None  # the next dataset may have other classes

    def score_precisions(self, samples: Samples) -> np.ndarray:
        """(samples,) the code of the precision of each sample's scores."""
        values = field_values(samples, "pred_score", self.sample_names(samples))
        return np.array([score_precision(value) for value in values], dtype=np.uint8)

    def checked_scores(self, scores: np.ndarray, name: SampleName) -> np.ndarray:
        """Finite float scores (samples, classes); with ``num_thresholds`` in 0 to 1."""
        if scores.ndim != 2 or not scores.shape[1] or scores.dtype.kind not in "fiu":
            raise MetricInputError(
                f"'pred_score' of {name(0)} must be one number per class "
                f"(found shape {scores.shape[1:]}, {scores.dtype})"
            )
        self._learned_classes = self._learned_classes or scores.shape[1]
        expected = self.num_classes or self._learned_classes
        if scores.shape[1] != expected:
            raise MetricInputError(
                f"'pred_score' of {name(0)} must hold {pluralize(expected, 'score')}, one per class "
                f"(found {scores.shape[1]})"
            )
        if scores.dtype.kind != "f":
            integers = scores
            scores, rest = split_values(integers)
            check_values(integers, rest == 0, "pred_score", name, "hold integers that float64 holds exactly")
        check_finite(scores, "pred_score", name)
        if self.num_thresholds is not None:
            self.check_unit(scores, "num_thresholds", name)
        return scores

    def check_unit(self, scores: np.ndarray, purpose: str, name: SampleName) -> None:
        """Raises MetricInputError for the first sample with a score outside 0 to 1."""
        if scores.min() < 0 or scores.max() > 1:
            valid = (scores >= 0) & (scores <= 1)
            check_values(scores, valid, "pred_score", name, f"lie in 0 to 1 for {purpose}")

    def check_topk(self, k: int, scores: np.ndarray, samples: Samples) -> None:
        """Raises MetricInputError if there are fewer than k scores per sample."""
        if k > scores.shape[1]:
            raise MetricInputError(
                f"'pred_score' of {self.sample_names(samples)(0)} must hold at least {pluralize(k, 'score')} for topk "
                f"(found {scores.shape[1]})"
            )


class SingleLabelMetricBase(ScoredMetricBase):
    """Reads ``pred_score`` and ``gt_label``, or ``pred_label`` if there are no scores."""

    default_prefix = "single-label"
    target_fields = ("gt_label",)
    _scored: bool | None = None  # whether samples have scores

    def read_scores(self, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
        """Scores (samples, classes) and labels of samples with ``pred_score``."""
        name = self.sample_names(samples)
        scores, labels = stack_fields(samples, ["pred_score", "gt_label"], name)
        scores = self.checked_scores(scores, name)
        return scores, read_labels(labels, "gt_label", scores.shape[1], name)

    def read_decisions(self, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
        """Predicted classes (samples, 1) and labels of samples with ``pred_label`` only."""
        name = self.sample_names(samples)
        num_classes = self.classes_expected()
        if not num_classes:
            raise MetricInputError(
                f"{name(0)} has no 'pred_score', only 'pred_label': {type(self).__name__} then needs num_classes=..., "
                "because the dataset has no class names"
            )
        predicted, labels = stack_fields(samples, ["pred_label", "gt_label"], name)
        return (
            read_labels(predicted, "pred_label", num_classes, name)[:, None],
            read_labels(labels, "gt_label", num_classes, name),
        )

    def has_scores(self, samples: Samples) -> bool:
        """Whether samples have scores; the first batch decides for all."""
        if self._scored is None or not len(self.results):
            self._scored = "pred_score" in samples[0] or "pred_label" not in samples[0]
        return self._scored


class MultiLabelMetricBase(ScoredMetricBase):
    """Reads ``pred_score`` and ``gt_score`` (1, 0, or -1 to be ignored) or the list of classes ``gt_label``."""

    default_prefix = "multi-label"

    def read_scores(self, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
        """Scores and targets (int8: 1, 0, or -1 to be ignored), both (samples, classes)."""
        name = self.sample_names(samples)
        if "gt_score" in samples[0]:
            scores, target = stack_fields(samples, ["pred_score", "gt_score"], name)
            scores = self.checked_scores(scores, name)
            return scores, _checked_target(target, scores.shape[1], name)
        lists = real_values(field_values(samples, "gt_label", name), "gt_label", name)
        lists = [value.reshape(-1) for value in lists]
        stacked = stack_values(field_values(samples, "pred_score", name), "pred_score", name)
        if same_kind(lists) and isinstance(lists[0], torch.Tensor):
            scores, labels = to_host([stacked, torch.cat(lists)])
        else:
            scores, *arrays = to_host([stacked, *lists])
            labels = np.concatenate(same_dtype(arrays, "gt_label", name))
        scores = self.checked_scores(scores, name)
        rows = np.repeat(np.arange(len(lists)), [len(value) for value in lists])
        return scores, _target_of_lists(labels, rows, scores.shape, name)


def _checked_target(target: np.ndarray, num_classes: int, name: SampleName) -> np.ndarray:
    if target.shape[1:] != (num_classes,):
        raise MetricInputError(
            f"'gt_score' of {name(0)} must hold {pluralize(num_classes, 'value')}, one per class "
            f"(found shape {target.shape[1:]})"
        )
    valid = (target == 0) | (target == 1) | (target == -1)
    check_values(target, valid, "gt_score", name, "be 1, 0 or -1 for every class")
    return target.astype(np.int8)


def _target_of_lists(labels: np.ndarray, rows: np.ndarray, shape: tuple[int, ...], name: SampleName) -> np.ndarray:
    num_classes = shape[1]
    valid = (labels >= -1) & (labels < num_classes) & (labels == np.floor(labels))
    expected = f"hold class indices from 0 to {num_classes - 1}, or -1 for none"
    check_values(labels, valid, "gt_label", lambda row: name(int(rows[row])), expected)
    target = np.zeros(shape, dtype=np.int8)
    present = labels >= 0
    target[rows[present], labels[present].astype(np.int64)] = 1
    return target
