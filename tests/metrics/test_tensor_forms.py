"""Every field of every metric takes the dtypes that hold plain numbers, and refuses other forms in one sentence."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

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

SCORES = torch.tensor([0.25, 0.75])
ONE_LABEL = dict(pred_score=SCORES, gt_label=torch.tensor([1]))
BOXES, LABELS = torch.tensor([[0.0, 0, 8, 8]]), torch.tensor([1])
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
    (MultiLabelPRF, dict(pred_score=SCORES, gt_score=torch.tensor([1, 0]))),
    (MultiLabelPRF, dict(pred_score=SCORES, gt_label=torch.tensor([1, 0]))),
    (lambda: DetectionPRF(num_classes=2), IMAGE),
    (lambda: MeanIoU(num_classes=2), MAPS),
    (lambda: DiceScore(num_classes=2), MAPS),
    (lambda: DiceScore(mode="soft", num_classes=2), SOFT),
    (RegressionError, dict(pred_score=SCORES, gt_score=torch.tensor([1.0, 2.0]))),
    (PosNegRatio, dict(pos_score=SCORES, neg_score=torch.tensor([0.5, 0.5]))),
    *((lambda build=build: build("x"), dict(x=torch.tensor([2.0]))) for build in (FieldMean, FieldSum)),
]


def fields(sample, start=()):
    for key, value in sample.items():
        if isinstance(value, dict):
            yield from fields(value, (*start, key))
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
    for path in fields(sample)
]
REFUSED = {
    "sparse_coo": (torch.Tensor.to_sparse, "torch.sparse_coo", "to_dense"),
    "nested": (lambda tensor: torch.nested.nested_tensor([tensor.float()] * 2), "nested tensor", "unbind"),
    "meta": (lambda tensor: tensor.to("meta"), "meta device", "real device"),
    "quantized": (lambda t: torch.quantize_per_tensor(t.float(), 0.25, 0, torch.quint8), "quint8", "dequantize"),
    "bits": (lambda tensor: torch.empty(tensor.shape, dtype=torch.bits8), "torch.bits8", "float32 or int64"),
    "masked": (lambda tensor: np.ma.MaskedArray(tensor.numpy(), mask=True), "masked", "filled"),
    "ragged": (lambda tensor: [[1], [1, 2]], "a list", "must be a tensor, an array or a number"),
}


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor|.*nested tensors is in prototype stage")
@pytest.mark.parametrize("form", REFUSED)
@pytest.mark.parametrize(("build", "sample", "path"), FIELDS)
def test_forms_without_plain_numbers_are_refused(build, sample, path, form):
    change, found, remedy = REFUSED[form]
    metric = build()
    metric.process(None, [sample])
    with pytest.raises(MetricInputError) as caught:
        metric.process(None, [changed(sample, path, change)])
    message = str(caught.value)
    for word in (type(metric).__name__, f"'{'.'.join(path)}'", "sample 1", found, remedy):
        assert word in message
    assert "\n" not in message


@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.UndefinedMetricWarning")
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize(("build", "sample", "path"), FIELDS)
def test_other_dtypes_of_plain_numbers_change_nothing(build, sample, path, dtype):
    converted = changed(sample, path, lambda tensor: tensor.to(getattr(torch, dtype)))
    plain = changed(sample, path, lambda tensor: tensor.to(getattr(torch, dtype)).to(torch.float64))
    if path[-1] == "scale_factor" and dtype.startswith("uint"):
        plain = sample
    found, expected = (evaluate(build(), [sample, one]) for one in (converted, plain))
    assert found == pytest.approx(expected, nan_ok=True, rel=0, abs=0)


def test_unsigned_integers_are_read_exactly():
    number = 2**63 + 1  # neither int64 nor float64 holds it
    samples = [dict(x=torch.tensor(number, dtype=torch.uint64)), dict(x=torch.tensor(2**16 - 1, dtype=torch.uint16))]
    assert evaluate(FieldSum("x"), samples)["field/sum"] == float(number + 2**16 - 1)


def test_no_boxes_and_a_lone_number():
    with pytest.raises(MetricInputError, match=r"'pred_instances.bboxes' of sample 0 \(3\) must have shape \(1, 4\)"):
        DetectionPRF(num_classes=2).process(
            None, [changed(IMAGE, ("pred_instances", "bboxes"), lambda _: torch.tensor(3.0))]
        )


@pytest.mark.parametrize("build", [SingleLabelAUC, SingleLabelPRF, SingleLabelKS, MultiLabelAUC, MultiLabelPRF])
def test_zero_classes(build):
    nothing = dict(pred_score=torch.zeros(0), gt_label=torch.tensor([0]))
    with pytest.raises(
        MetricInputError, match=r"'pred_score' of sample 0 must be one number per class \(found shape \(0,\)"
    ):
        build().process(None, [nothing])


@pytest.mark.parametrize("build", [DetectionPRF, MeanIoU])
def test_no_class_is_known(build):
    metric = build()
    metric.dataset_meta = dict(classes=())
    with pytest.raises(MetricInputError, match=r"num_classes=\.\.\."):
        metric.process(None, [{**IMAGE, **MAPS}])


@pytest.mark.parametrize(
    ("samples", "found"),
    [
        (dict(pred_score=torch.rand(4, 2), gt_label=torch.zeros(4)), "one dict of a whole batch with 'pred_score'"),
        (["pred_score", "gt_label"], "found the text 'pred_score'"),  # what mmengine's Evaluator makes of that dict
        ([torch.rand(4, 2), torch.zeros(4)], "found a Tensor"),
        ([None], "found a NoneType"),
        (None, "found a NoneType"),
        ("pred_score", "found a str"),
        (torch.rand(4, 2), "found a Tensor"),
        (iter([dict()]), "found a list_iterator"),
    ],
)
@pytest.mark.parametrize("build", [SingleLabelAUC, MultiLabelPRF, DetectionPRF, MeanIoU, RegressionError])
def test_samples_that_are_no_list_of_dicts(build, samples, found):
    with pytest.raises(MetricInputError, match="one dict per sample") as caught:
        build().process(None, samples)
    assert found in str(caught.value) and build.__name__ in str(caught.value)
