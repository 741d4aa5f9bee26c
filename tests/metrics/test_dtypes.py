"""Every field takes all dtypes of plain numbers, mixed in a batch and without rounding, and refuses other tensors."""

from __future__ import annotations

import copy
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import recall_score

from mm_metrics_plugin import (
    CalibrationError,
    DetectionPRF,
    DiceScore,
    FieldMean,
    FieldSum,
    MeanIoU,
    MetricInputError,
    MultiLabelAUC,
    MultiLabelPRF,
    PosNegRatio,
    RecallAtK,
    RegressionError,
    SingleLabelAUC,
    SingleLabelKS,
    SingleLabelPRF,
)
from mm_metrics_plugin.testing import evaluate

pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SCORES, BOXES, LABELS = torch.tensor([0.25, 0.75]), torch.tensor([[0.0, 0, 8, 8]]), torch.tensor([1])
ONE_LABEL = dict(pred_score=SCORES, gt_label=LABELS)
IMAGE = dict(
    img_id=3,
    scale_factor=torch.tensor([1.0, 1.0]),
    pred_instances=dict(bboxes=BOXES, scores=torch.tensor([0.5]), labels=LABELS),
    gt_instances=dict(bboxes=BOXES, labels=LABELS),
    ignored_instances=dict(bboxes=BOXES, labels=LABELS),
)
MAPS = dict(pred_sem_seg=dict(data=torch.tensor([[0, 1]])), gt_sem_seg=dict(data=torch.tensor([[0, 1]])))
SOFT = dict(seg_logits=dict(data=torch.tensor([[0.5, 0.25], [0.5, 0.75]])), gt_sem_seg=MAPS["gt_sem_seg"])
CASES = [
    *((build, ONE_LABEL) for build in (SingleLabelAUC, SingleLabelPRF, SingleLabelKS, CalibrationError)),
    (lambda: RecallAtK(topk=1), ONE_LABEL),
    (lambda: SingleLabelPRF(num_classes=2), dict(pred_label=LABELS, gt_label=LABELS)),
    (MultiLabelAUC, dict(pred_score=SCORES, gt_score=torch.tensor([1, 0]))),
    (MultiLabelPRF, dict(pred_score=SCORES, gt_label=torch.tensor([1, 0]))),
    (lambda: DetectionPRF(num_classes=2), IMAGE),
    (lambda: MeanIoU(num_classes=2), MAPS),
    (lambda: DiceScore(mode="soft", num_classes=2), SOFT),
    (RegressionError, dict(pred_score=SCORES, gt_score=torch.tensor([1.0, 2.0]))),
    (PosNegRatio, dict(pos_score=SCORES, neg_score=torch.tensor([0.5, 0.5]))),
    (lambda: FieldMean("x"), dict(x=torch.tensor([2.0]))),
]


def tensor_fields(sample, start=()):
    for key, value in sample.items():
        if isinstance(value, dict):
            yield from tensor_fields(value, (*start, key))
        elif isinstance(value, torch.Tensor):
            yield (*start, key)


def changed(sample, path, change):
    sample = copy.deepcopy(sample)
    inner = sample
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = change(inner[path[-1]])
    return sample


FIELDS = [
    pytest.param(build, sample, path, id=f"{type(build()).__name__}-{'.'.join(path)}")
    for build, sample in CASES
    for path in tensor_fields(sample)
]
REFUSED = {
    "sparse": (torch.Tensor.to_sparse, "torch.sparse_coo"),
    "meta": (lambda tensor: tensor.to("meta"), "on meta"),
    "float8": (lambda tensor: tensor.to(torch.float8_e5m2), "torch.float8_e5m2"),
    "masked": (lambda tensor: np.ma.MaskedArray(tensor.numpy(), mask=True), "masked"),
    "ragged": (lambda tensor: [[1], [1, 2]], "a list"),
}


@pytest.mark.parametrize("form", REFUSED)
@pytest.mark.parametrize(("build", "sample", "path"), FIELDS)
def test_tensors_without_plain_numbers_are_refused(build, sample, path, form):
    change, form_name = REFUSED[form]
    metric = build()
    metric.process(None, [sample])
    with pytest.raises(MetricInputError) as caught:
        metric.process(None, [dict(changed(sample, path, change), img_id=4)])
    message = str(caught.value)
    for word in (type(metric).__name__, f"'{'.'.join(path)}'", "sample 1", form_name):
        assert word in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("build", "samples", "words"),
    [
        (DetectionPRF, [dict(IMAGE, **MAPS)], "num_classes=..."),
        (MeanIoU, [dict(IMAGE, **MAPS)], "num_classes=..."),
        (SingleLabelAUC, [dict(pred_score=torch.zeros(0), gt_label=LABELS)], "number per class (found shape (0,)"),
        (MultiLabelPRF, [dict(pred_score=torch.zeros(0), gt_label=LABELS)], "number per class (found shape (0,)"),
        (
            lambda: DetectionPRF(num_classes=2),
            [changed(IMAGE, ("pred_instances", "bboxes"), lambda _: torch.tensor(3.0))],
            "'pred_instances.bboxes' of sample 0 (3) must have shape (1, 4)",
        ),
        (SingleLabelAUC, dict(pred_score=SCORES), "found one dict of a whole batch with 'pred_score'"),
        # mmengine's Evaluator makes this of such a dict.
        (SingleLabelAUC, ["pred_score", "gt_label"], "found the text 'pred_score'"),
        (SingleLabelAUC, [torch.rand(4, 2), torch.zeros(4)], "found a Tensor"),
        (SingleLabelAUC, None, "found a NoneType"),
        (SingleLabelAUC, "pred_score", "found a str"),
        (SingleLabelAUC, torch.rand(4, 2), "found a Tensor"),
        (SingleLabelAUC, iter([dict()]), "found a list_iterator"),
    ],
)
def test_invalid_batches(build, samples, words):
    metric = build()
    metric.dataset_meta = dict(classes=())
    with pytest.raises(MetricInputError) as caught:
        metric.process(None, samples)
    assert words in str(caught.value) and type(metric).__name__ in str(caught.value)


# --- thresholds -------------------------------------------------------------------------------------------------------


def image(score, objects=1):
    box = torch.tensor([[0.0, 0, 9, 9]])
    return dict(
        pred_instances=dict(bboxes=box, scores=score, labels=torch.tensor([0])),
        gt_instances=dict(bboxes=box[:objects], labels=torch.zeros(objects, dtype=torch.int64)),
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("thr", [0.1, 0.3, 0.6, 0.7])
def test_a_score_equal_to_the_threshold(dtype, thr):
    score = torch.tensor([thr, 0.01], dtype=dtype)
    sample = dict(pred_score=score, gt_label=torch.tensor([0]))
    assert evaluate(MultiLabelPRF(thr=thr, counts=True), [sample])["multi-label-prf/tp/0"] == 1
    # A single-label decision needs a score above the threshold.
    values = evaluate(SingleLabelPRF(thrs=thr, topk=1, counts=True), [sample])
    assert (values["single-label-prf/tp/0"], values["single-label-prf/accuracy_top1"]) == (0, 0)
    pair = [sample, dict(pred_score=torch.tensor([0.01, 0.95], dtype=dtype), gt_label=torch.tensor([1]))]
    assert evaluate(SingleLabelAUC(thrs=thr, average=None), pair)["single-label/auc/0"] == 0.5
    detector = DetectionPRF(score_thr=thr, num_classes=1, ci=0.9, resamples=20)
    assert evaluate(detector, [image(score[:1])] * 2)["det/tp"] == 2
    dice = DiceScore(mode="soft", threshold=thr, prediction_field="pred_score", target_field="mask")
    assert evaluate(dice, [dict(sample, mask=torch.tensor([1, 0]))])["sem-seg/mDice"] == 0


@given(st.lists(st.tuples(st.integers(0, 10), st.sampled_from(FLOATS), st.booleans()), min_size=1, max_size=12))
def test_mixed_precisions_in_a_batch(rows):
    """Every sample's threshold has the precision of that sample; torch is the reference."""
    scores = [torch.tensor([tenths / 10], dtype=dtype) for tenths, dtype, _ in rows]
    decisions = [bool(score >= torch.tensor(0.7, dtype=score.dtype)) for score in scores]
    targets = [positive for _, _, positive in rows]
    tp = sum(decision and target for decision, target in zip(decisions, targets))
    samples = [dict(pred_score=score, gt_score=torch.tensor([int(y)])) for score, y in zip(scores, targets)]
    values = evaluate(MultiLabelPRF(thr=0.7, counts=True), samples, batch_size=3)
    assert (values["multi-label-prf/tp/0"], values["multi-label-prf/fp/0"]) == (tp, sum(decisions) - tp)
    images = [image(score, int(target)) for score, target in zip(scores, targets)]
    values = evaluate(DetectionPRF(score_thr=0.7, num_classes=1), images, batch_size=3)
    assert (values["det/tp"], values["det/fp"]) == (tp, sum(decisions) - tp)


# --- exact integers ---------------------------------------------------------------------------------------------------


def forms(number):
    """The number in every dtype that holds it, as tensors and arrays."""
    tensors = [torch.tensor([number]).to(dtype) for dtype in (*FLOATS, torch.int64, torch.int32, torch.int16)]
    arrays = [np.array([number], dtype=code) for code in ("<i8", ">i8", "<i4", ">u2", "<f4", ">f8", "u8")]
    return [tensor for tensor in tensors if float(tensor) == number] + arrays


LARGE_LABELS = st.integers(2040, 2059)  # float16 and bfloat16 do not hold all of them


@settings(max_examples=30)
@given(st.lists(st.tuples(LARGE_LABELS, LARGE_LABELS), min_size=2, max_size=8), st.data())
def test_labels_of_mixed_dtypes(pairs, data):
    samples = [
        dict(pred_label=data.draw(st.sampled_from(forms(p))), gt_label=data.draw(st.sampled_from(forms(t))))
        for p, t in pairs
    ]
    predicted, labels = zip(*pairs)
    expected = recall_score(labels, predicted, labels=range(2060), average="macro", zero_division=0)
    for batch_size in (1, len(samples)):
        values = evaluate(SingleLabelPRF(num_classes=2060, convention="mmpretrain"), samples, batch_size=batch_size)
        assert values["single-label-prf/recall"] == pytest.approx(expected)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_boxes_and_labels_of_mixed_dtypes(batch_size):
    """Coordinates of int64 beside float16 would move by a pixel, and label 2051 would be 2052."""
    samples = []
    for dtype, number in ((torch.int64, 2051), (torch.float16, 3)):
        boxes, label = torch.tensor([[0, 0, 2049, 2051]]), torch.tensor([number])
        boxes = boxes if number == 2051 else boxes.to(dtype)
        predictions = dict(bboxes=boxes, scores=torch.ones(1), labels=label.to(dtype))
        targets = dict(bboxes=boxes.numpy().copy(), labels=label.numpy().astype(">i2"))
        samples.append(dict(pred_instances=predictions, gt_instances=targets))
    metric = DetectionPRF(num_classes=2060, iou_thr=1.0, classwise=True)
    values = evaluate(metric, samples, batch_size=batch_size)
    assert (values["det/tp"], values["det/fp"], values["det/fn"], values["det/f1/2051"]) == (2, 0, 0, 1)


def test_integers_that_would_be_rounded_are_refused():
    large = torch.tensor([2**60 + 1])
    mixed = [dict(pred_label=LABELS, gt_label=large), dict(pred_label=LABELS, gt_label=torch.tensor([1.0]))]
    pair = torch.cat([torch.tensor([5]), large]), torch.tensor([5, 2**60])
    for metric, samples, words in (
        (SingleLabelPRF(num_classes=3), mixed, "'gt_label' of sample 0 must hold numbers that float64 holds exactly"),
        (
            SingleLabelAUC(),
            [dict(pred_score=pair[0], gt_label=LABELS)],
            r"'pred_score' of sample 0 .*found 11529215046",
        ),
        (RegressionError(), [dict(zip(("pred_score", "gt_score"), pair))], "'pred_score' of sample 0 .* at index 1"),
        (PosNegRatio(), [dict(zip(("pos_score", "neg_score"), pair))], "'pos_score' of sample 0 .* at index 1"),
    ):
        with pytest.raises(MetricInputError, match=words):
            metric.process(None, samples)


INTEGERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-10, 10), st.sampled_from([2**60, -(2**60)]))


@given(st.lists(st.one_of(INTEGERS, st.integers(2**63, 2**64 - 1), st.floats(-60000, 60000, width=16)), min_size=1))
def test_sums_of_integers_are_correctly_rounded(numbers):
    exact = sum(map(Fraction, numbers))
    samples = []
    for index, number in enumerate(numbers):
        if isinstance(number, float):
            value = torch.tensor(number, dtype=torch.float16 if index % 2 else torch.float64)
        else:
            value = torch.tensor(number) if index % 2 and number < 2**63 else np.array(number)
        samples.append(dict(x=value))
    for batch_size in (1, 4):
        assert evaluate(FieldSum(field="x"), samples, batch_size)["field/sum"] == float(exact)
        assert evaluate(FieldMean(field="x"), samples, batch_size)["field/mean"] == float(exact / len(numbers))


# --- other values -----------------------------------------------------------------------------------------------------


def test_numbers_lists_and_tensors_in_a_batch():
    samples = [
        dict(pred_score=torch.tensor([1.0]), gt_score=2),
        dict(pred_score=np.float64(2.0), gt_score=torch.tensor(2, dtype=torch.int32)),
        dict(pred_score=[[3.0]], gt_score=torch.tensor([True])),
        dict(pred_score=torch.tensor([-3.0]), gt_score=-4.0),
    ]
    for batch_size in (1, 4):
        assert evaluate(RegressionError(), samples, batch_size)["regression/mae"] == 1.0


SIZES = st.sampled_from([1.0, 1e-300, 1e-160, 1e-140, 1e10, 1e140, 5e-324])


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), SIZES, SIZES), min_size=1, max_size=6))
@example([(1, 0, 1e10, 1.0), (0, 1, 1.0, 1e-160)])  # R² is beyond float64
@example([(1, 1, 1e-170, 1e-170), (2, 3, 1e-170, 1e-170)])  # squares are below float64
def test_regression_of_very_small_and_large_numbers(rows):
    predicted, target = [p * size for p, _, size, _ in rows], [t * size for _, t, _, size in rows]
    samples = [dict(pred_score=p, gt_score=t) for p, t in zip(predicted, target)]
    values = {key.split("/")[1]: value for key, value in evaluate(RegressionError(), samples, batch_size=2).items()}
    # Errors are rounded to float64; all sums are exact.
    squared, count = sum(Fraction(abs(p - t)) ** 2 for p, t in zip(predicted, target)), len(rows)
    mean = sum(map(Fraction, target)) / count
    spread = sum((Fraction(t) - mean) ** 2 for t in target)
    assert math.isclose(values["mse"], float(squared / count), rel_tol=1e-14)
    assert math.isclose(Fraction(values["rmse"]) ** 2, squared / count, rel_tol=1e-14) or values["rmse"] < 1e-300
    r2 = 1 - squared / spread if spread else math.nan
    if not spread:
        assert math.isnan(values["r2"])
    elif abs(r2) < Fraction(10) ** 308:
        assert math.isclose(values["r2"], float(r2), rel_tol=1e-13, abs_tol=1e-13)
    elif abs(r2) > Fraction(18 * 10**307):
        assert values["r2"] == -math.inf


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("scale_factor", factor) for factor in (None, 2.0, 1, np.float32(2), [2.0] * 4, torch.tensor([2.0, 2.0]))),
        *(("ori_shape", shape) for shape in (None, [9, 9, 3], np.array([9, 9]), torch.Size([9, 9]))),
    ],
)
def test_forms_of_scale_factor_and_ori_shape(field, value):
    resized = dict(image(torch.ones(1)), scale_factor=(2.0, 2.0))
    assert evaluate(DetectionPRF(num_classes=1), [{**resized, field: value}, resized])["det/tp"] == 2


@pytest.mark.parametrize("shape", [9, "99", (9,), (9, None), (np.nan, 9), {"h": 9}])
def test_invalid_ori_shape(shape):
    sample = dict(image(torch.ones(1)), img_path="cat.jpg", scale_factor=2.0, ori_shape=shape)
    with pytest.raises(MetricInputError, match=r"'ori_shape' of sample 0 \(cat.jpg\) must be height and width"):
        DetectionPRF(num_classes=1).process(None, [sample])
