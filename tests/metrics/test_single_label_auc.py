"""SingleLabelAUC's options, keys and refusals."""

# ruff: noqa: E501 - a row of the table of refusals is one line, so that it reads as a table
from __future__ import annotations

import numpy as np
import pytest
import torch
from mmengine.registry import METRICS
from sklearn.metrics import roc_auc_score

from mm_metrics_plugin import MetricInputError, SingleLabelAUC, UndefinedMetricWarning
from mm_metrics_plugin.testing import evaluate
from tests.helpers.cases_single_label import NAMES, labels_of, one_hot, scores_of, single_label

SAMPLES = single_label(np.random.default_rng(0), 50)


def changed(index, **fields):
    """The samples, one of them with other fields."""
    samples = [dict(sample) for sample in SAMPLES]
    samples[index].update(fields)
    return samples


def test_is_built_by_name_and_by_dotted_path():
    for name in ("SingleLabelAUC", "mm_metrics_plugin.SingleLabelAUC"):
        assert type(METRICS.build(dict(type=name))) is SingleLabelAUC


def test_headline_comes_first_and_classes_are_named():
    metric = SingleLabelAUC(classwise=True, num_thresholds=100)
    metric.dataset_meta = {"classes": NAMES}
    keys = list(evaluate(metric, SAMPLES))
    named = ["auc", "auc_error", "classes_averaged", *(f"auc/{name}" for name in NAMES)]
    assert keys == [f"single-label/{key}" for key in named]


def test_equal_class_names_stay_apart():
    metric = SingleLabelAUC(average=None)
    metric.dataset_meta = {"classes": ["a", "a", "b", "c"]}
    assert [key.split("/", 1)[1] for key in evaluate(metric, SAMPLES)] == ["auc/a_0", "auc/a_1", "auc/b", "auc/c"]


def test_prefix():
    assert list(evaluate(SingleLabelAUC(prefix="mine"), SAMPLES)) == ["mine/auc", "mine/classes_averaged"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes(dtype):
    samples = single_label(np.random.default_rng(0), 50, dtype=dtype)
    expected = roc_auc_score(one_hot(labels_of(samples)), scores_of(samples))
    assert evaluate(SingleLabelAUC(), samples)["single-label/auc"] == pytest.approx(expected, abs=1e-12)


def test_arrays_numbers_and_mixed_dtypes_are_read_too():
    expected = evaluate(SingleLabelAUC(), SAMPLES)
    plain = [dict(pred_score=s["pred_score"].numpy(), gt_label=int(s["gt_label"])) for s in SAMPLES]
    assert evaluate(SingleLabelAUC(), plain) == expected
    mixed = [
        dict(s, pred_score=s["pred_score"].to((torch.float32, torch.float64)[i % 2])) for i, s in enumerate(SAMPLES)
    ]
    assert evaluate(SingleLabelAUC(), mixed) == expected
    half_way = SAMPLES[:20] + [dict(s, pred_score=s["pred_score"].double()) for s in SAMPLES[20:]]
    assert evaluate(SingleLabelAUC(), half_way, batch_size=10) == expected


def test_scores_that_require_gradients():
    samples = [dict(s, pred_score=s["pred_score"].clone().requires_grad_()) for s in SAMPLES]
    assert evaluate(SingleLabelAUC(), samples) == evaluate(SingleLabelAUC(), SAMPLES)


# --- absent classes ---

WITHOUT_LAST = [sample for sample in SAMPLES if int(sample["gt_label"]) != 3]


def feed(metric, samples):
    metric.process(None, samples)
    return metric.evaluate(len(samples))


def test_absent_class_is_skipped_counted_and_announced_once():
    metric = SingleLabelAUC()
    metric.dataset_meta = {"classes": NAMES}
    with pytest.warns(UndefinedMetricWarning, match="AUC is undefined for fish"):
        found = feed(metric, WITHOUT_LAST)
    truth, scores = one_hot(labels_of(WITHOUT_LAST))[:, :3], scores_of(WITHOUT_LAST)[:, :3]
    assert found["single-label/auc"] == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
    assert found["single-label/classes_averaged"] == 3.0
    feed(metric, WITHOUT_LAST)  # a second warning would be an error here


def test_absent_nan_and_error():
    with pytest.warns(UndefinedMetricWarning):
        assert np.isnan(feed(SingleLabelAUC(absent="nan"), WITHOUT_LAST)["single-label/auc"])
    with pytest.raises(MetricInputError, match=r"1 of 4 classes have no value on this data \(classes 3\)"):
        feed(SingleLabelAUC(absent="error"), WITHOUT_LAST)


@pytest.mark.parametrize("options", [{}, {"num_thresholds": 10}, {"thrs": (0.1, 0.2)}, {"slide_steps": 2}])
def test_no_samples_at_all(options):
    with pytest.warns(UndefinedMetricWarning, match="there were no samples"):
        found = SingleLabelAUC(**options).evaluate(0)
    assert found
    assert all(np.isnan(value) or value == 0 for value in found.values())


def test_one_sample():
    assert np.isnan(evaluate(SingleLabelAUC(), SAMPLES[:1])["single-label/auc"])


def test_slide_steps_zero_means_all_batches():
    found = evaluate(SingleLabelAUC(slide_steps=0), SAMPLES)
    assert found["single-label/batch_auc"] == found["single-label/auc"]


# --- refusals ---


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (changed(11, pred_score=torch.tensor([0.1, float("nan"), 0.2, 0.3])), "'pred_score' of sample 11 must be finite (found nan at index 1)"),
        (changed(8, pred_score=torch.tensor([0.1, 0.2, 0.3, float("inf")]), img_path="x/8.png"), "'pred_score' of sample 8 (x/8.png) must be finite (found inf at index 3)"),
        (changed(4, gt_label=torch.tensor([4])), "'gt_label' of sample 4 must be a class index from 0 to 3 (found 4)"),
        (changed(5, gt_label=torch.tensor([-1])), "'gt_label' of sample 5 must be a class index from 0 to 3 (found -1)"),
        ([dict(s, gt_label=s["gt_label"] + 0.5) for s in SAMPLES], "'gt_label' of sample 0 must be a class index from 0 to 3"),
        ([dict(s, gt_label=torch.tensor([0, 1])) for s in SAMPLES], "'gt_label' of sample 0 must be one label (found 2 values)"),
        (changed(9, pred_score=torch.rand(5)), "'pred_score' of sample 9 must have the shape of the samples before it, (4,) (found (5,))"),
        (SAMPLES[:7] + [dict(s, pred_score=torch.rand(5)) for s in SAMPLES[7:]], "'pred_score' of sample 7 must hold 4 scores, one per class (found 5)"),
        ([dict(s, pred_score=torch.rand(4, 2)) for s in SAMPLES], "'pred_score' of sample 0 must be one number per class (found shape (4, 2)"),
        ([{k: v for k, v in s.items() if k != "gt_label"} for s in SAMPLES], "sample 0 must have a field 'gt_label' (found pred_label, pred_score, sample_idx)"),
        ([dict(gt_label=s["gt_label"]) for s in SAMPLES], "sample 0 must have a field 'pred_score'"),
        ([{k: v for k, v in s.items() if k != "pred_score"} for s in SAMPLES], "sample 0 has no 'pred_score', only 'pred_label': SingleLabelAUC then needs num_classes="),
    ],
)  # fmt: skip
def test_bad_samples_are_named(samples, message):
    with pytest.raises(MetricInputError) as caught:
        evaluate(SingleLabelAUC(), samples)
    assert message in str(caught.value)


def test_binned_scores_must_be_probabilities():
    with pytest.raises(MetricInputError, match=r"'pred_score' of sample 2 must lie in 0 to 1 for num_thresholds"):
        evaluate(SingleLabelAUC(num_thresholds=10), changed(2, pred_score=torch.tensor([0.1, 3.0, 0.2, 0.3])))


@pytest.mark.parametrize(
    "options",
    [
        {"average": "mean"},
        {"curve": "det"},
        {"multi_class": "all"},
        {"absent": "zero"},
        {"multi_class": "ovo", "average": "micro"},
        {"multi_class": "ovo", "curve": "pr"},
        {"max_fpr": 0.0},
        {"max_fpr": 0.5, "curve": "pr"},
        {"num_thresholds": 1},
        {"num_thresholds": 10, "thrs": 0.5},
        {"num_thresholds": 10, "max_fpr": 0.5},
        {"thrs": 0.5, "slide_steps": 1},
    ],
)
def test_options_that_do_not_go_together(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        SingleLabelAUC(**options)
