"""Options of the classification metrics, and several datasets with one metric object."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from mmengine.dist import get_dist_info
from mmengine.evaluator import Evaluator
from mmpretrain.evaluation import MultiLabelMetric, SingleLabelMetric
from mmpretrain.structures import DataSample
from sklearn.metrics import f1_score

from mm_metrics_plugin import (
    CalibrationError,
    MetricInputError,
    MultiLabelAUC,
    MultiLabelPRF,
    RecallAtK,
    SingleLabelAUC,
    SingleLabelKS,
    SingleLabelPRF,
)
from mm_metrics_plugin.testing import evaluate, run_processes
from tests.helpers.cases_single_label import NAMES, single_label

pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")
SAMPLES = single_label(np.random.default_rng(0), 50)


def scored(scores, labels):
    return [dict(pred_score=torch.tensor(s), gt_label=torch.tensor([y])) for s, y in zip(scores, labels)]


def predicted(predictions, labels):
    return [dict(pred_label=torch.tensor([p]), gt_label=torch.tensor([y])) for p, y in zip(predictions, labels)]


def test_mmpretrain_convention_has_the_threshold_0():
    samples = scored([[-1.0, -2.0], [2.0, 1.0]], [0, 0])
    scores = torch.stack([sample["pred_score"] for sample in samples])
    ((_, recall, _, _),) = SingleLabelMetric.calculate(scores, torch.tensor([0, 0]))
    values = evaluate(SingleLabelPRF(convention="mmpretrain"), samples)
    assert values["single-label-prf/recall"] == float(recall) / 100 == 0.25
    assert evaluate(SingleLabelPRF(), samples)["single-label-prf/recall"] == 1


def test_mmpretrain_data_samples():
    generator = np.random.default_rng(0)
    samples = []
    for _ in range(20):
        sample = DataSample().set_pred_score(torch.tensor(generator.random(3), dtype=torch.float32))
        samples.append(sample.set_gt_label(np.flatnonzero(generator.integers(0, 2, 3)).tolist()))
    ours = Evaluator([MultiLabelPRF(convention="mmpretrain"), MultiLabelAUC()]).offline_evaluate(samples)
    theirs = Evaluator(MultiLabelMetric(thr=0.5)).offline_evaluate(samples)
    for our_key, their_key in (("f1", "f1-score"), ("precision", "precision"), ("recall", "recall")):
        assert ours[f"multi-label-prf/{our_key}"] == pytest.approx(theirs[f"multi-label/{their_key}"] / 100, abs=1e-6)


def test_empty_label_lists_and_labels_of_minus_one():
    samples = [dict(pred_score=torch.tensor([0.9, 0.2]), gt_label=labels) for labels in ([0], [], [-1, 1], 0)]
    values = evaluate(MultiLabelPRF(counts=True), samples)
    counts = {key: [values[f"multi-label-prf/{key}/{c}"] for c in (0, 1)] for key in ("tp", "fp", "fn", "tn")}
    assert counts == {"tp": [2, 0], "fp": [2, 0], "fn": [0, 1], "tn": [0, 3]}


def test_boolean_targets():
    samples = [dict(pred_score=torch.tensor(s), gt_score=torch.tensor([1, 0])) for s in ([0.9, 0.2], [0.1, 0.7])]
    boolean = [dict(sample, gt_score=sample["gt_score"].bool()) for sample in samples]
    np.testing.assert_equal(*(evaluate(MultiLabelPRF(counts=True), rows) for rows in (boolean, samples)))


def test_topk_accuracy_uses_the_threshold():
    values = evaluate(SingleLabelPRF(topk=2, thrs=(None, 0.5)), scored([[0.6, 0.3, 0.1]] * 3, (0, 1, 2)))
    assert values["single-label-prf/accuracy_top2_no-thr"] == 2 / 3
    assert values["single-label-prf/accuracy_top2_thr-0.50"] == 1 / 3


def test_beta_is_in_the_key():
    values = evaluate(SingleLabelPRF(beta=2, num_classes=2), predicted([0, 1, 1], [0, 0, 1]))
    assert values["single-label-prf/f2"] == pytest.approx(np.mean([5 * 1 / (5 + 4 * 1), 5 * 1 / (5 + 1)]))
    assert "single-label-prf/f1" not in values


def test_nll_of_probability_0_is_infinite():
    samples = scored([[1.0, 0.0]] * 2, (0, 1))
    assert evaluate(CalibrationError(), samples)["single-label/nll"] == math.inf
    floored = evaluate(CalibrationError(floor=1e-7), samples)["single-label/nll"]
    assert floored == pytest.approx(-math.log(1e-7) / 2)


@pytest.mark.parametrize(
    ("metric", "samples", "words"),
    [
        (SingleLabelPRF(topk=5), SAMPLES, "'pred_score' of sample 0 must hold at least 5 scores for topk (found 4)"),
        (RecallAtK(topk=5), SAMPLES, "'pred_score' of sample 0 must hold at least 5 scores for topk (found 4)"),
        (SingleLabelKS(positive_label=4), SAMPLES, "'pred_score' of sample 0 must hold a score of class 4"),
        (SingleLabelPRF(num_classes=4), scored([[0.5] * 3], [0]), "must hold 4 scores, one per class (found 3)"),
        (SingleLabelPRF(thrs=0.5, num_classes=2), predicted([0], [0]), "sample 0 must have a field 'pred_score'"),
        (SingleLabelPRF(), predicted([0], [0]), "SingleLabelPRF then needs num_classes=..."),
        (SingleLabelAUC(num_classes=2), predicted([0], [2]), "must be a class index from 0 to 1 (found 2)"),
        (SingleLabelAUC(), [dict(SAMPLES[0], gt_label=torch.tensor([0, 1]))], "must be one label (found 2 values)"),
        (
            MultiLabelPRF(),
            [dict(pred_score=torch.ones(2), gt_score=torch.ones(3))],
            "must hold 2 values, one per class",
        ),
        (SingleLabelAUC(absent="error"), SAMPLES[:1], "classes 0, 1, 2, 3"),
    ],
)
def test_samples_that_do_not_fit_the_options(metric, samples, words):
    with pytest.raises(MetricInputError) as caught:
        evaluate(metric, samples)
    assert words in str(caught.value)


def test_keys_of_auc():
    metric = SingleLabelAUC(classwise=True, num_thresholds=100)
    metric.dataset_meta = {"classes": NAMES}
    keys = ["auc", "auc_error", "classes_averaged", *(f"auc/{name}" for name in NAMES)]
    assert list(evaluate(metric, SAMPLES)) == [f"single-label/{key}" for key in keys]
    values = evaluate(SingleLabelAUC(average=None, ci=0.9), SAMPLES)
    assert "single-label/auc_low/0" in values and "single-label/auc_low" not in values
    values = evaluate(SingleLabelAUC(slide_steps=0), SAMPLES)
    assert values["single-label/batch_auc"] == values["single-label/auc"]


def test_scores_that_require_gradients():
    samples = [dict(s, pred_score=s["pred_score"].clone().requires_grad_()) for s in SAMPLES]
    assert evaluate(SingleLabelAUC(), samples) == evaluate(SingleLabelAUC(), SAMPLES)


# --- several datasets with one metric object --------------------------------------------------------------------------


def random_scores(classes, count=40):
    generator = np.random.default_rng(classes)
    scores = generator.dirichlet(np.ones(classes), size=count).astype(np.float32)
    return scored(scores, generator.permutation(np.arange(count) % classes).tolist())


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    "build",
    [
        *(SingleLabelAUC, SingleLabelPRF, SingleLabelKS, CalibrationError, RecallAtK, MultiLabelAUC, MultiLabelPRF),
        lambda: SingleLabelAUC(thrs=0.2),
        lambda: SingleLabelAUC(num_thresholds=64),
        lambda: SingleLabelPRF(topk=(1, 2), thrs=(0.1, 0.5)),
    ],
)
def test_datasets_with_different_numbers_of_classes(build, named):
    metric = build()
    for classes in (10, 7, 12):
        metric.dataset_meta = dict(classes=[f"c{index}" for index in range(classes)]) if named else {}
        new = build()
        new.dataset_meta = metric.dataset_meta
        np.testing.assert_equal(*(evaluate(one, random_scores(classes)) for one in (metric, new)))
    metric.process(None, random_scores(5))
    with pytest.raises(MetricInputError, match=r"sample 40 must hold 5 scores, one per class \(found 10\)"):
        metric.process(None, random_scores(10))


def test_an_empty_dataset_after_another_one():
    metric = SingleLabelAUC(classwise=True)
    evaluate(metric, random_scores(10))
    metric.dataset_meta = dict(classes=["a", "b"])
    keys = ["auc", "classes_averaged", "auc/a", "auc/b"]
    assert list(evaluate(metric, [], size=1)) == [f"single-label/{key}" for key in keys]


def test_predicted_labels_use_the_number_of_class_names():
    metric = SingleLabelPRF()
    for classes in (4, 6):
        labels, predictions = np.arange(40) % classes, np.random.default_rng(classes).integers(0, classes, 40)
        metric.dataset_meta = dict(classes=[f"c{index}" for index in range(classes)])
        values = evaluate(metric, predicted(predictions.tolist(), labels.tolist()))
        assert values["single-label-prf/f1"] == pytest.approx(f1_score(labels, predictions, average="macro"))


def two_datasets(datasets):
    (rank, world_size), metric, results = get_dist_info(), SingleLabelAUC(thrs=0.2), []
    for classes, count in datasets:
        metric.process(None, random_scores(classes, count)[rank::world_size])
        results.append(metric.evaluate(count))
    return results


def test_a_process_without_samples_gets_the_classes_of_the_others():
    datasets = [(5, 8), (3, 1)]  # the second process has no sample of the second dataset
    metric = SingleLabelAUC(thrs=0.2)
    expected = [evaluate(metric, random_scores(classes, count)) for classes, count in datasets]
    (results,) = run_processes(2, two_datasets, [datasets])
    np.testing.assert_equal(results, [expected, expected])
