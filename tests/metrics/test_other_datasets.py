"""One metric object evaluates several datasets, each with its own number of classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mmengine.dist import get_dist_info
from sklearn.metrics import f1_score, roc_auc_score

from mm_metrics_plugin import (
    CalibrationError,
    MultiLabelAUC,
    MultiLabelPRF,
    RecallAtK,
    SingleLabelAUC,
    SingleLabelKS,
    SingleLabelPRF,
)
from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.testing import evaluate, run_processes

pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")
METRICS = [
    SingleLabelAUC,
    SingleLabelPRF,
    SingleLabelKS,
    CalibrationError,
    RecallAtK,
    MultiLabelAUC,
    MultiLabelPRF,
    lambda: SingleLabelAUC(thrs=0.2),
    lambda: SingleLabelAUC(num_thresholds=64),
    lambda: SingleLabelPRF(topk=(1, 2), thrs=(0.1, 0.5)),
]


def scored(classes, count=40, seed=0):
    generator = np.random.default_rng(seed)
    scores = generator.dirichlet(np.ones(classes), size=count).astype(np.float32)
    labels = generator.permutation(np.arange(count) % classes)
    return [dict(pred_score=torch.tensor(s), gt_label=torch.tensor([int(y)])) for s, y in zip(scores, labels)]


@pytest.mark.parametrize("build", METRICS)
@pytest.mark.parametrize("named", [False, True])
def test_another_number_of_classes(build, named):
    metric = build()
    for classes in (10, 7, 12):
        metric.dataset_meta = dict(classes=[f"c{index}" for index in range(classes)]) if named else {}
        fresh = build()
        fresh.dataset_meta = metric.dataset_meta
        samples = scored(classes, seed=classes)
        np.testing.assert_equal(evaluate(metric, samples), evaluate(fresh, samples))


def test_no_samples_after_another_dataset():
    metric = SingleLabelAUC(classwise=True)
    evaluate(metric, scored(10))
    metric.dataset_meta = dict(classes=["a", "b"])
    found = evaluate(metric, [], size=1)
    assert list(found) == [
        "single-label/auc",
        "single-label/classes_averaged",
        "single-label/auc/a",
        "single-label/auc/b",
    ]


@pytest.mark.parametrize("build", [SingleLabelAUC, SingleLabelPRF])
def test_num_classes_is_kept(build):
    metric = build(num_classes=4)
    evaluate(metric, scored(4))
    assert metric.num_classes == 4
    with pytest.raises(MetricInputError, match="must hold 4 scores, one per class"):
        metric.process(None, scored(3))


def test_batches_of_one_evaluation_must_agree():
    metric = SingleLabelAUC()
    evaluate(metric, scored(3))
    metric.process(None, scored(5))
    with pytest.raises(MetricInputError, match=r"sample 40 must hold 5 scores, one per class \(found 3\)"):
        metric.process(None, scored(3))


# --- decisions without scores -------------------------------------------------------------------------------------


def decided(classes, count=40):
    generator = np.random.default_rng(classes)
    labels, decisions = generator.permutation(np.arange(count) % classes), generator.integers(0, classes, count)
    return (
        labels,
        decisions,
        [dict(pred_label=torch.tensor([int(p)]), gt_label=torch.tensor([int(t)])) for p, t in zip(decisions, labels)],
    )


def test_class_names_of_the_dataset_give_the_number_of_classes():
    prf, auc = SingleLabelPRF(), SingleLabelAUC()
    for classes in (4, 6):
        labels, decisions, samples = decided(classes)
        for metric in (prf, auc):
            metric.dataset_meta = dict(classes=[f"c{index}" for index in range(classes)])
        assert evaluate(prf, samples)["single-label-prf/f1"] == pytest.approx(
            f1_score(labels, decisions, average="macro")
        )
        onehot = np.eye(classes)
        expected = roc_auc_score(onehot[labels], onehot[decisions], average="macro")
        assert evaluate(auc, samples)["single-label/auc"] == pytest.approx(expected)


@pytest.mark.parametrize("build", [SingleLabelPRF, SingleLabelAUC])
def test_decisions_need_class_names_or_num_classes(build):
    _, _, samples = decided(3)
    with pytest.raises(MetricInputError, match="num_classes"):
        build().process(None, samples)
    metric = build()
    metric.dataset_meta = dict(classes=["a", "b"])
    with pytest.raises(MetricInputError, match="must be a class index from 0 to 1"):
        metric.process(None, samples)


def two_data_sets(data_sets):
    rank, world_size = get_dist_info()
    metric, found = SingleLabelAUC(thrs=0.2), []
    for classes, count in data_sets:
        mine = scored(classes, count=count)[rank::world_size]
        if mine:
            metric.process(None, mine)
        found.append(metric.evaluate(count))
    return found


def test_a_process_without_samples_learns_the_classes_of_the_others():
    data_sets = [(5, 8), (3, 1)]  # the second leaves the second process without samples
    one = SingleLabelAUC(thrs=0.2)
    expected = [evaluate(one, scored(classes, count=count)) for classes, count in data_sets]
    (found,) = run_processes(2, two_data_sets, [data_sets])
    np.testing.assert_equal(found, [expected, expected])
