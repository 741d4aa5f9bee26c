"""What is particular to the classification metrics, beside what all metrics are checked for."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from mmengine.evaluator import Evaluator
from mmpretrain.evaluation import MultiLabelMetric, SingleLabelMetric
from mmpretrain.structures import DataSample

from mm_metrics_plugin import (
    CalibrationError,
    MetricInputError,
    MultiLabelAUC,
    MultiLabelPRF,
    RecallAtK,
    SingleLabelAUC,
    SingleLabelKS,
    SingleLabelPRF,
    UndefinedMetricWarning,
)
from mm_metrics_plugin.testing import evaluate
from tests.helpers.cases_single_label import NAMES, single_label


def decided(predicted, truth):
    return [dict(pred_label=torch.tensor([p]), gt_label=torch.tensor([t])) for p, t in zip(predicted, truth)]


def test_mmpretrain_convention_has_its_threshold_at_zero():
    samples = [dict(pred_score=torch.tensor(s), gt_label=torch.tensor([0])) for s in ([-1.0, -2.0], [2.0, 1.0])]
    scores = torch.stack([sample["pred_score"] for sample in samples])
    ((_, theirs, _, _),) = SingleLabelMetric.calculate(scores, torch.tensor([0, 0]))
    found = evaluate(SingleLabelPRF(convention="mmpretrain"), samples)
    assert found["single-label-prf/recall"] == float(theirs) / 100 == 0.25
    assert evaluate(SingleLabelPRF(), samples)["single-label-prf/recall"] == 1


def test_an_empty_dataset_is_undefined_in_every_convention():
    for convention in ("mmpretrain", "paddlerec"):
        metric = SingleLabelPRF(convention=convention)
        with pytest.warns(UndefinedMetricWarning, match="no samples"):
            found = metric.evaluate(0)
        assert all(map(math.isnan, found.values()))


def test_mmpretrain_samples_work_as_they_come():
    generator = np.random.default_rng(0)
    samples = []
    for _ in range(20):
        sample = DataSample().set_pred_score(torch.tensor(generator.random(3), dtype=torch.float32))
        samples.append(sample.set_gt_label(np.flatnonzero(generator.integers(0, 2, 3)).tolist()))
    ours = Evaluator([MultiLabelPRF(convention="mmpretrain"), MultiLabelAUC()]).offline_evaluate(samples)
    theirs = Evaluator(MultiLabelMetric(thr=0.5)).offline_evaluate(samples)
    for mine, their in (("f1", "f1-score"), ("precision", "precision"), ("recall", "recall")):
        assert ours[f"multi-label-prf/{mine}"] == pytest.approx(theirs[f"multi-label/{their}"] / 100, abs=1e-6)


def test_empty_label_lists_and_labels_of_minus_one():
    samples = [dict(pred_score=torch.tensor([0.9, 0.2]), gt_label=labels) for labels in ([0], [], [-1, 1], 0)]
    found = evaluate(MultiLabelPRF(counts=True), samples)
    counts = {key: [found[f"multi-label-prf/{key}/{c}"] for c in (0, 1)] for key in ("tp", "fp", "fn", "tn")}
    assert counts == {"tp": [2, 0], "fp": [2, 0], "fn": [0, 1], "tn": [0, 3]}


def test_multi_label_targets_are_integers_or_booleans():
    scores, truth = torch.tensor([[0.9, 0.2], [0.1, 0.7]]), torch.tensor([[1, 0], [0, 0]])
    samples = [dict(pred_score=row, gt_score=own) for row, own in zip(scores, truth)]
    expected = evaluate(MultiLabelPRF(counts=True), samples)
    found = evaluate(MultiLabelPRF(counts=True), [{**one, "gt_score": one["gt_score"].bool()} for one in samples])
    np.testing.assert_equal(found, expected)
    with pytest.raises(MetricInputError, match=r"'gt_score' of sample 0 must hold 2 values, one per class"):
        evaluate(MultiLabelPRF(), [{**one, "gt_score": torch.ones(3)} for one in samples])


def test_topk_accuracy_uses_the_threshold():
    samples = [dict(pred_score=torch.tensor([0.6, 0.3, 0.1]), gt_label=torch.tensor([label])) for label in (0, 1, 2)]
    found = evaluate(SingleLabelPRF(topk=2, thrs=(None, 0.5)), samples)
    assert found["single-label-prf/accuracy_top2_no-thr"] == 2 / 3
    assert found["single-label-prf/accuracy_top2_thr-0.50"] == 1 / 3


def test_beta_is_in_the_key():
    found = evaluate(SingleLabelPRF(beta=2, num_classes=2), decided([0, 1, 1], [0, 0, 1]))
    assert found["single-label-prf/f2"] == pytest.approx(np.mean([5 * 1 / (5 + 4 * 1), 5 * 1 / (5 + 1)]))
    assert "single-label-prf/f1" not in found


def test_nll_of_probability_zero_is_infinite():
    samples = [dict(pred_score=torch.tensor([1.0, 0.0]), gt_label=torch.tensor([label])) for label in (0, 1)]
    assert evaluate(CalibrationError(), samples)["single-label/nll"] == math.inf
    floored = evaluate(CalibrationError(floor=1e-7), samples)["single-label/nll"]
    assert floored == pytest.approx(-math.log(1e-7) / 2)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (lambda: SingleLabelPRF(topk=5), ["'pred_score' of sample 0", "at least 5", "found 4"]),
        (lambda: RecallAtK(topk=5), ["'pred_score' of sample 0", "at least 5", "found 4"]),
        (lambda: SingleLabelKS(positive_label=4), ["'pred_score' of sample 0", "class 4"]),
    ],
)
def test_options_that_do_not_fit_the_samples_are_refused(metric, words):
    with pytest.raises(MetricInputError) as caught:
        metric().process(None, single_label(np.random.default_rng(0), 2))
    for word in words:
        assert word in str(caught.value)


def test_thresholds_need_scores():
    with pytest.raises(MetricInputError, match="sample 0 must have a field 'pred_score'"):
        SingleLabelPRF(thrs=0.5, num_classes=2).process(None, decided([0], [0]))


# --- AUC ---

SAMPLES = single_label(np.random.default_rng(0), 50)


def test_auc_comes_first_and_classes_are_named():
    metric = SingleLabelAUC(classwise=True, num_thresholds=100)
    metric.dataset_meta = {"classes": NAMES}
    keys = ["auc", "auc_error", "classes_averaged", *(f"auc/{name}" for name in NAMES)]
    assert list(evaluate(metric, SAMPLES)) == [f"single-label/{key}" for key in keys]
    found = evaluate(SingleLabelAUC(average=None, ci=0.9), SAMPLES)
    assert "single-label/auc_low/0" in found and "single-label/auc_low" not in found


def test_scores_that_require_gradients():
    samples = [dict(s, pred_score=s["pred_score"].clone().requires_grad_()) for s in SAMPLES]
    assert evaluate(SingleLabelAUC(), samples) == evaluate(SingleLabelAUC(), SAMPLES)


def test_absent_classes_make_the_mean_nan_or_raise():
    samples = [sample for sample in SAMPLES if int(sample["gt_label"]) != 3]
    assert np.isnan(evaluate(SingleLabelAUC(absent="nan"), samples)["single-label/auc"])
    with pytest.raises(MetricInputError, match=r"classes 3"):
        evaluate(SingleLabelAUC(absent="error"), samples)


def test_slide_steps_zero_means_all_batches():
    found = evaluate(SingleLabelAUC(slide_steps=0), SAMPLES)
    assert found["single-label/batch_auc"] == found["single-label/auc"]


def test_a_sample_has_one_label():
    with pytest.raises(MetricInputError, match=r"'gt_label' of sample 0 .*found 2 values"):
        evaluate(SingleLabelAUC(), [dict(s, gt_label=torch.tensor([0, 1])) for s in SAMPLES])
