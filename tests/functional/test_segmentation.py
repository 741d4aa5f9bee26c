"""Mean IoU and Dice compared with torchmetrics."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin import MetricInputError
from mm_metrics_plugin.functional.segmentation import (
    count_label_pairs,
    dice_score,
    label_overlap,
    mean_iou_report,
    soft_label_overlap,
    soft_overlap,
)


def test_mean_iou_equals_torchmetrics():
    import torch
    from torchmetrics.functional.segmentation import mean_iou as torchmetrics_mean_iou

    generator = np.random.default_rng(1)
    target, predicted = generator.integers(0, 4, (2, 1, 20, 30))
    matrix = count_label_pairs(target, predicted, num_classes=4)[:-1, :-1]
    expected = torchmetrics_mean_iou(
        torch.tensor(predicted), torch.tensor(target), num_classes=4, input_format="index", per_class=True
    )
    np.testing.assert_allclose(mean_iou_report(matrix).iou, expected[0].numpy(), rtol=1e-6)


def test_absent_classes_are_excluded_and_counted():
    result = mean_iou_report(np.array([[2, 0, 0], [1, 1, 0], [0, 0, 0]]))
    assert result.classes_averaged == 2
    assert np.isnan(result.iou[2])
    assert result.mean_iou == (2 / 3 + 1 / 2) / 2
    assert np.isnan(mean_iou_report(np.array([[2, 0], [0, 0]]), absent="nan").mean_iou)
    with pytest.raises(MetricInputError, match="classes 1"):
        mean_iou_report(np.array([[2, 0], [0, 0]]), absent="error")
    assert result.to_dict()["classes_averaged"] == 2


def test_counts_beyond_float32_are_exact():
    result = mean_iou_report(np.array([[2**40 + 1, 1], [0, 0]]))
    assert result.pixel_accuracy == (2**40 + 1) / (2**40 + 2)


def test_hard_dice_equals_torchmetrics():
    import torch
    from torchmetrics.functional.segmentation import dice_score as torchmetrics_dice

    generator = np.random.default_rng(2)
    target, predicted = generator.integers(0, 4, (2, 5, 20, 30))
    expected = torchmetrics_dice(
        torch.tensor(predicted), torch.tensor(target), num_classes=4, average="none", input_format="index"
    )
    actual = [
        dice_score(*label_overlap(count_label_pairs(t, p, num_classes=4)[:-1, :-1])) for t, p in zip(target, predicted)
    ]
    np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("smooth", [0.0, 1e-5, 1.0])
def test_empty_masks_have_a_dice_of_one_for_any_smooth(smooth):
    assert dice_score(np.zeros(1), np.zeros(1), smooth=smooth)[0] == 1
    assert np.isnan(dice_score(np.zeros(1), np.zeros(1), smooth=smooth, zero_division=np.nan)[0])
    assert dice_score(np.zeros(1), np.ones(1), smooth=smooth)[0] == 0


def test_labels_equal_one_hot_targets():
    generator = np.random.default_rng(3)
    scores = generator.random((3, 40)).astype(np.float32)
    labels = generator.integers(0, 3, 40)
    labels[::7] = 255
    kept = labels != 255
    expected = soft_overlap(scores[:, kept], np.eye(3)[labels[kept]].T)
    actual = soft_label_overlap(scores, labels, ignore_index=255)
    np.testing.assert_allclose(actual, expected, rtol=1e-14)


def test_soft_sums_are_in_float64():
    scores = np.full((1, 1 << 20), 0.1, dtype=np.float32)
    _, sizes = soft_overlap(scores, np.zeros_like(scores))
    assert sizes[0] == pytest.approx((1 << 20) * float(np.float32(0.1)) ** 2, rel=1e-12)
