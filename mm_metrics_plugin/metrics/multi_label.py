"""Reads samples with any number of true classes, as mmpretrain's multi-label data samples have them."""

from __future__ import annotations

from typing import Mapping, Sequence, Tuple

import numpy as np
import torch

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.metrics.classification_base import ScoredMetricBase
from mm_metrics_plugin.metrics.sample_fields import (
    SampleName,
    exact_arrays,
    field_values,
    first_bad,
    real_values,
    same_kind,
    stack_fields,
    stack_values,
    to_host,
)


class MultiLabelMetricBase(ScoredMetricBase):
    """Reads ``pred_score`` and ``gt_score`` (1, 0, or -1 for what does not count) or a list of classes ``gt_label``."""

    default_prefix = "multi-label"

    def read_scores(self, samples: Sequence[Mapping]) -> Tuple[np.ndarray, np.ndarray]:
        """Scores and truth, both (samples, classes); the truth int8: 1, 0, or -1 for what does not count."""
        name = self.namer(samples)
        if "gt_score" in samples[0]:
            scores, truth = stack_fields(samples, ["pred_score", "gt_score"], name)
            scores = self.checked_scores(scores, name)
            return scores, _checked_truth(truth, scores.shape[1], name)
        lists = real_values(field_values(samples, "gt_label", name), "gt_label", name)
        lists = [value.reshape(-1) for value in lists]
        stacked = stack_values(field_values(samples, "pred_score", name), "pred_score", name)
        if same_kind(lists) and isinstance(lists[0], torch.Tensor):
            scores, labels = to_host([stacked, torch.cat(lists)])
        else:
            scores, *arrays = to_host([stacked, *lists])
            labels = np.concatenate(exact_arrays(arrays, "gt_label", name))
        scores = self.checked_scores(scores, name)
        rows = np.repeat(np.arange(len(lists)), [len(part) for part in lists])
        return scores, _truth_of_lists(labels, rows, scores.shape, name)


def _checked_truth(truth: np.ndarray, num_classes: int, name: SampleName) -> np.ndarray:
    if truth.shape[1:] != (num_classes,):
        raise MetricInputError(
            f"'gt_score' of {name(0)} must hold {num_classes} values, one a class (found shape {truth.shape[1:]})"
        )
    if truth.dtype.kind == "b":
        return truth.astype(np.int8)
    good = (truth == 0) | (truth == 1) | (truth == -1)
    if not good.all():
        row = first_bad(good)
        raise MetricInputError(
            f"'gt_score' of {name(row)} must be 1, 0 or -1 for every class (found {truth[row][~good[row]][0]})"
        )
    return truth.astype(np.int8)


def _truth_of_lists(labels: np.ndarray, rows: np.ndarray, shape: Tuple[int, ...], name: SampleName) -> np.ndarray:
    num_classes = shape[1]
    good = (labels >= -1) & (labels < num_classes) & (labels == np.floor(labels))
    if not good.all():
        bad = int(np.flatnonzero(~good)[0])
        raise MetricInputError(
            f"'gt_label' of {name(int(rows[bad]))} must hold class indices from 0 to {num_classes - 1}, or -1 for none "
            f"(found {labels[bad]})"
        )
    truth = np.zeros(shape, dtype=np.int8)
    given = labels >= 0
    truth[rows[given], labels[given].astype(np.int64)] = 1
    return truth
