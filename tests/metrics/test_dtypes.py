"""Values depend neither on the dtype of other samples of the batch nor on byte order, strides or lazy bits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, precision_score, recall_score

from mm_metrics_plugin import (
    DetectionPRF,
    DiceScore,
    FieldMean,
    FieldSum,
    MeanIoU,
    MultiLabelPRF,
    PosNegRatio,
    RegressionError,
    SingleLabelAUC,
    SingleLabelPRF,
)
from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.testing import evaluate

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")


def lazy(values):
    """The same numbers as a tensor whose negative bit is set."""
    result = (
        torch.complex(torch.zeros(len(values), dtype=torch.float64), -torch.tensor(values, dtype=torch.float64))
        .conj()
        .imag
    )
    assert result.is_neg()
    return result


# --- thresholds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("thr", [0.1, 0.3, 0.6, 0.7])
def test_a_score_equal_to_the_threshold(dtype, thr):
    score = torch.tensor([thr, 0.01], dtype=dtype)
    one = dict(pred_score=score, gt_label=torch.tensor([0]))
    found = evaluate(MultiLabelPRF(thr=thr, counts=True), [one])
    assert found["multi-label-prf/tp/0"] == 1
    # A single-label decision is made above the threshold only.
    found = evaluate(SingleLabelPRF(thrs=thr, topk=1, counts=True), [one])
    assert (found["single-label-prf/tp/0"], found["single-label-prf/accuracy_top1"]) == (0, 0)
    assert evaluate(SingleLabelPRF(thrs=thr - 0.02, counts=True), [one])["single-label-prf/tp/0"] == 1
    pair = [one, dict(pred_score=torch.tensor([0.01, 0.95], dtype=dtype), gt_label=torch.tensor([1]))]
    assert evaluate(SingleLabelAUC(thrs=thr, average=None), pair)["single-label/auc/0"] == 0.5
    box = torch.tensor([[0.0, 0, 9, 9]])
    image = dict(
        pred_instances=dict(bboxes=box, scores=score[:1], labels=torch.tensor([0])),
        gt_instances=dict(bboxes=box, labels=torch.tensor([0])),
    )
    found = evaluate(DetectionPRF(score_thr=thr, num_classes=1, ci=0.9, resamples=20), [image] * 2)
    assert (found["det/tp"], found["det/fn"]) == (2, 0)
    region = dict(score=score, mask=torch.tensor([1, 0]))
    options = dict(mode="soft", threshold=thr, prediction_field="score", target_field="mask")
    assert evaluate(DiceScore(**options), [region])["sem-seg/mDice"] == 0


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 3), st.booleans()), min_size=1, max_size=12), st.data())
def test_mixed_precisions_in_a_batch(rows, data):
    """Every sample's threshold has the precision of that sample, whatever the batch; torch is the reference."""
    thr = data.draw(st.integers(1, 10)) / 10
    tensors = [torch.tensor([number / 10], dtype=FLOATS[code]) for number, code, _ in rows]
    decided = [bool(tensor >= torch.tensor(thr, dtype=tensor.dtype)) for tensor in tensors]
    truth = [right for _, _, right in rows]
    hits = sum(a and b for a, b in zip(decided, truth))
    box = torch.tensor([[0.0, 0, 9, 9]])
    for size in (1, 3, len(rows)):
        samples = [dict(pred_score=t, gt_score=torch.tensor([int(right)])) for t, right in zip(tensors, truth)]
        found = evaluate(MultiLabelPRF(thr=thr, counts=True), samples, batch_size=size)
        assert (found["multi-label-prf/tp/0"], found["multi-label-prf/fp/0"]) == (hits, sum(decided) - hits)
        images = [
            dict(
                pred_instances=dict(bboxes=box, scores=tensor, labels=torch.tensor([0])),
                gt_instances=dict(bboxes=box[:right], labels=torch.zeros(int(right), dtype=torch.int64)),
            )
            for tensor, right in zip(tensors, truth)
        ]
        found = evaluate(DetectionPRF(score_thr=thr, num_classes=1), images, batch_size=size)
        assert (found["det/tp"], found["det/fp"]) == (hits, sum(decided) - hits)


# --- mixed dtypes -------------------------------------------------------------------------------------------------


def forms(number):
    """The number in every dtype that holds it, as tensors and arrays."""
    for dtype in [*FLOATS, torch.int64, torch.int32, torch.int16]:
        tensor = torch.tensor([number]).to(dtype)
        if float(tensor) == number:
            yield tensor
    for code in ("<i8", ">i8", "<i4", ">u2", "<f4", ">f8", "u8"):
        yield np.array([number], dtype=code)


@settings(max_examples=30)
@given(st.data())
def test_labels_beside_any_dtype(data):
    classes = 2060  # float16 and bfloat16 do not hold every one of them
    labels = data.draw(st.lists(st.integers(2040, classes - 1), min_size=2, max_size=8))
    predictions = data.draw(st.lists(st.integers(2040, classes - 1), min_size=len(labels), max_size=len(labels)))
    samples = [
        dict(pred_label=data.draw(st.sampled_from(list(forms(p)))), gt_label=data.draw(st.sampled_from(list(forms(t)))))
        for p, t in zip(predictions, labels)
    ]
    for size in (1, len(samples)):
        metric = SingleLabelPRF(num_classes=classes, convention="mmpretrain")
        found = evaluate(metric, samples, batch_size=size)
        every = dict(labels=range(classes), average="macro", zero_division=0)
        assert math.isclose(found["single-label-prf/precision"], precision_score(labels, predictions, **every))
        assert math.isclose(found["single-label-prf/recall"], recall_score(labels, predictions, **every))


@pytest.mark.parametrize("batch_size", [1, 2])
def test_boxes_and_labels_beside_any_dtype(batch_size):
    """Coordinates of int64 beside float16 would move by a pixel, and label 2051 would be 2052."""
    box = [[0, 0, 2049, 2051]]
    samples = []
    for dtype, number in ((torch.int64, 2051), (torch.float16, 3)):
        boxes, label = torch.tensor(box).to(torch.int64 if number == 2051 else dtype), torch.tensor([number])
        samples.append(
            dict(
                pred_instances=dict(bboxes=boxes, scores=torch.ones(1), labels=label.to(dtype)),
                gt_instances=dict(bboxes=boxes.numpy().copy(), labels=label.numpy().astype(">i2")),
            )
        )
    found = evaluate(DetectionPRF(num_classes=2060, iou_thr=1.0, classwise=True), samples, batch_size=batch_size)
    assert (found["det/tp"], found["det/fp"], found["det/fn"]) == (2, 0, 0)
    assert found["det/f1/2051"] == 1


def test_whole_numbers_that_would_have_to_be_rounded_are_refused():
    samples = [
        dict(pred_label=torch.tensor([0]), gt_label=torch.tensor([2**60 + 1])),
        dict(pred_label=torch.tensor([0]), gt_label=torch.tensor([1.0])),
    ]
    with pytest.raises(MetricInputError, match=r"'gt_label' of sample 0 must hold numbers that float64 holds exactly"):
        SingleLabelPRF(num_classes=3).process(None, samples)
    scores = [dict(pred_score=torch.tensor([2**60 + 1, 0]), gt_label=torch.tensor([0]))]
    with pytest.raises(MetricInputError, match=r"'pred_score' of sample 0 .* \(found 1152921504606846977\)"):
        SingleLabelAUC().process(None, scores)
    for metric, fields in (
        (RegressionError(), ("pred_score", "gt_score")),
        (PosNegRatio(), ("pos_score", "neg_score")),
    ):
        sample = dict(zip(fields, (torch.tensor([5, 2**60 + 1]), torch.tensor([5, 2**60]))))
        with pytest.raises(
            MetricInputError, match=rf"'{fields[0]}' of sample 0 .*\(found 1152921504606846977 at index 1"
        ):
            metric.process(None, [sample])


INTEGERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-10, 10), st.sampled_from([2**60, -(2**60)]))


@given(st.lists(st.one_of(INTEGERS, st.integers(2**63, 2**64 - 1), st.floats(-60000, 60000, width=16)), min_size=1))
def test_sums_of_whole_numbers_are_correctly_rounded(numbers):
    exact = sum(map(Fraction, numbers))
    samples = []
    for index, number in enumerate(numbers):
        if isinstance(number, float):
            value = torch.tensor(number, dtype=torch.float16 if index % 2 else torch.float64)
        else:
            value = torch.tensor(number) if number < 2**63 and index % 2 else np.array(number)
        samples.append(dict(x=value))
    for size in (1, 4, len(samples)):
        assert evaluate(FieldSum(field="x"), samples, batch_size=size)["field/sum"] == float(exact)
        assert evaluate(FieldMean(field="x"), samples, batch_size=size)["field/mean"] == float(exact / len(numbers))


def test_mixed_kinds_of_numbers_in_a_batch():
    samples = [
        dict(pred_score=torch.tensor([1.0]), gt_score=2),
        dict(pred_score=np.float64(2.0), gt_score=torch.tensor(2, dtype=torch.int32)),
        dict(pred_score=[[3.0]], gt_score=torch.tensor([True])),
    ]
    assert evaluate(RegressionError(), samples)["regression/mae"] == 1.0


# --- byte order, strides and lazy bits ----------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["i1", "u1", ">i2", ">u2", ">i4", ">u4", ">i8", ">u8", "<i2", "?"])
def test_label_maps_of_any_byte_order_and_stride(code):
    generator = np.random.default_rng(0)
    classes = 2 if code == "?" else 4
    truth, predicted = generator.integers(0, classes, (2, 9, 14))
    if code != "?":
        truth[0, :5] = 5  # ignored
    expected = confusion_matrix(truth[truth < 5], predicted[truth < 5])
    iou = np.diag(expected) / (expected.sum(axis=0) + expected.sum(axis=1) - np.diag(expected))
    metric = MeanIoU(num_classes=classes, ignore_index=None if code == "?" else 5)
    maps = [np.repeat(values, 2, axis=1).astype(code)[:, ::2] for values in (predicted, truth)]
    sample = dict(pred_sem_seg=dict(data=maps[0]), gt_sem_seg=dict(data=maps[1]))
    assert evaluate(metric, [sample])["sem-seg/mIoU"] == iou.mean()


def test_lazy_bits_are_resolved():
    targets, predictions = [1.0, -2.0, 4.0], [1.5, -2.5, 3.0]
    plain = [dict(pred_score=torch.tensor(predictions), gt_score=torch.tensor(targets))]
    for samples in (
        [dict(pred_score=lazy(predictions), gt_score=lazy(targets))],
        [dict(pred_score=lazy(predictions), gt_score=np.array(targets, dtype=">f8"))],
        [dict(pred_score=lazy([p])[0], gt_score=torch.tensor(t)) for p, t in zip(predictions, targets)],
    ):
        assert evaluate(RegressionError(), samples) == evaluate(RegressionError(), plain)
    soft = dict(mode="soft", prediction_field="x", target_field="y")
    found = evaluate(DiceScore(**soft), [dict(x=lazy([0.25, 1.0]), y=torch.tensor([0.0, 1.0]))])
    assert found["sem-seg/mDice"] == 2 / (1 + 1 + 0.0625)
    scores = [dict(pred_score=lazy(row), gt_score=torch.tensor([1, 0])) for row in ([0.75, 0.5], [0.25, 0.125])]
    assert evaluate(MultiLabelPRF(thr=0.5), scores)["multi-label-prf/accuracy"] == 0.5
    box = torch.tensor([[0.0, 0, 9, 9]])
    found = dict(bboxes=box, scores=lazy([0.9]), labels=torch.tensor([0]))
    image = dict(pred_instances=found, gt_instances=dict(bboxes=box, labels=torch.tensor([0])))
    assert evaluate(DetectionPRF(num_classes=1), [image])["det/tp"] == 1


# --- regression of very small and very large numbers --------------------------------------------------------------


SIZES = st.sampled_from([1.0, 1e-300, 1e-160, 1e-140, 1e10, 1e140, 5e-324])


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), SIZES, SIZES), min_size=1, max_size=6))
@example([(1, 0, 1e10, 1.0), (0, 1, 1.0, 1e-160)])  # R² is beyond float64
@example([(1, 1, 1e-170, 1e-170), (2, 3, 1e-170, 1e-170)])  # squares are below float64
def test_regression_of_any_size(rows):
    predicted = [p * size for p, _, size, _ in rows]
    target = [t * size for _, t, _, size in rows]
    samples = [dict(pred_score=p, gt_score=t) for p, t in zip(predicted, target)]
    found = {key.split("/")[1]: value for key, value in evaluate(RegressionError(), samples, batch_size=2).items()}
    # The errors are those of float64; everything after them is exact.
    errors = [Fraction(abs(p - t)) for p, t in zip(predicted, target)]
    squared, count = sum(error**2 for error in errors), len(rows)
    mean = sum(map(Fraction, target)) / count
    spread = sum((Fraction(t) - mean) ** 2 for t in target)
    assert math.isclose(found["mse"], float(squared / count), rel_tol=1e-14)
    assert math.isclose(Fraction(found["rmse"]) ** 2, squared / count, rel_tol=1e-14) or found["rmse"] < 1e-300
    if not spread:
        assert math.isnan(found["r2"])
        return
    r2 = 1 - squared / spread
    if abs(r2) < Fraction(10) ** 308:
        assert math.isclose(found["r2"], float(r2), rel_tol=1e-13, abs_tol=1e-13)
    elif abs(r2) > Fraction(18 * 10**307):
        assert found["r2"] == -math.inf


# --- scale_factor -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "factor",
    [None, 2.0, 1, np.float32(2), (2.0, 2.0), [2.0, 2.0, 2.0, 2.0], np.array([2.0, 2.0]), torch.tensor([2.0, 2.0])],
)
def test_forms_of_scale_factor(factor):
    box = torch.tensor([[0.0, 0, 9, 9]])
    image = dict(
        pred_instances=dict(bboxes=box, scores=torch.ones(1), labels=torch.tensor([0])),
        gt_instances=dict(bboxes=box, labels=torch.tensor([0])),
        ori_shape=None,
    )
    samples = [dict(image, scale_factor=factor), dict(image, scale_factor=(2.0, 2.0)), image]
    assert evaluate(DetectionPRF(num_classes=1), samples)["det/tp"] == 3


@pytest.mark.parametrize("shape", [None, (9, 9), [9, 9, 3], np.array([9, 9]), torch.Size([9, 9]), torch.tensor([9, 9])])
def test_forms_of_ori_shape(shape):
    box = torch.tensor([[0.0, 0, 9, 9]])
    image = dict(
        pred_instances=dict(bboxes=box, scores=torch.ones(1), labels=torch.tensor([0])),
        gt_instances=dict(bboxes=box, labels=torch.tensor([0])),
        img_path="cat.jpg",
        scale_factor=(2.0, 2.0),
    )
    assert evaluate(DetectionPRF(num_classes=1), [dict(image, ori_shape=shape), image])["det/tp"] == 2
    for wrong in (9, "99", (9,), (9, None), (np.nan, 9), {"h": 9}):
        with pytest.raises(MetricInputError, match=r"'ori_shape' of sample 0 \(cat.jpg\) must be height and width"):
            DetectionPRF(num_classes=1).process(None, [dict(image, ori_shape=wrong)])
