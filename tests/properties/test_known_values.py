"""Known values of every metric: 1 for perfect predictions, 0 for reversed ones; inputs are not changed."""

from __future__ import annotations

import inspect
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mm_metrics_plugin
from mm_metrics_plugin import (
    CalibrationError,
    DetectionPRF,
    DiceScore,
    FieldMean,
    FieldSum,
    MeanIoU,
    MultiLabelAUC,
    MultiLabelPRF,
    PosNegRatio,
    RecallAtK,
    RegressionError,
    SingleLabelAUC,
    SingleLabelKS,
    SingleLabelPRF,
    StreamingMetric,
)
from mm_metrics_plugin.functional.classification.auc import roc_auc
from mm_metrics_plugin.functional.classification.roc_curves import ks_statistic
from mm_metrics_plugin.states.scores import ScoreHistogramState
from tests.helpers.checks import check_inputs_kept, numbers
from tests.helpers.strategies import rolls, scored_labels_of, shared_by

pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")

CLASSES = 3


class Known(NamedTuple):
    """A metric, samples of labels that are all right or all wrong, and what it must then say."""

    build: type
    options: dict
    sample: callable
    right: dict
    wrong: dict


def scores_of(high, random):
    """High scores anywhere between 0.6 and 1, low ones between 0 and 0.4; many are alike."""
    return torch.tensor((random.integers(5, size=len(high)) / 10 + 0.6 * np.asarray(high)).astype(np.float32))


def scored(label, right, random):
    """The class has the one score that differs: the highest, or the lowest."""
    return dict(pred_score=scores_of((np.arange(CLASSES) == label) == right, random), gt_label=torch.tensor(label))


def certain(label, right, random):
    """The same, beyond doubt."""
    own = np.arange(CLASSES) == label
    return dict(pred_score=torch.tensor((own == right).astype(np.float32)), gt_label=torch.tensor(label))


def several(label, right, random):
    truth = (label + np.arange(CLASSES)) % 2
    return dict(pred_score=scores_of(truth == right, random), gt_score=torch.tensor(truth))


def region(label, right, random):
    truth = np.arange(12) % CLASSES == label
    return dict(x=torch.tensor(truth if right else ~truth).float(), y=torch.tensor(truth).float())


def labeled(label, right, random):
    truth = np.full((1, 2, 3), label)
    predicted = truth if right else (truth + 1) % CLASSES
    return dict(pred_sem_seg=dict(data=torch.tensor(predicted)), gt_sem_seg=dict(data=torch.tensor(truth)))


def boxed(label, right, random):
    boxes = torch.tensor([[0.0, 0, 40, 40], [100, 100, 150, 140]])
    labels = torch.tensor([label, (label + 1) % CLASSES])
    scores = scores_of([True, True], random)
    found = dict(bboxes=boxes if right else boxes + 500, labels=labels, scores=scores)
    return dict(pred_instances=found, gt_instances=dict(bboxes=boxes, labels=labels))


def paired(label, right, random):
    high, low = (scores_of([whether], random) for whether in (True, False))
    return dict(pos_score=high if right else low, neg_score=low if right else high)


def predicted_numbers(label, right, random):
    return dict(pred_score=torch.tensor(float(label if right else label + 1)), gt_score=torch.tensor(float(label)))


RATES = ("f1", "precision", "recall")
ONE, ZERO = dict.fromkeys(RATES, 1.0), dict.fromkeys(RATES, 0.0)
MICRO = {"f1_micro": 1.0, "precision_micro": 1.0, "recall_micro": 1.0}
NOTHING = dict.fromkeys(("mse", "rmse", "mae", "max_error"), 0.0)

KNOWN = [
    Known(SingleLabelAUC, {}, scored, {"auc": 1.0}, {"auc": 0.0}),
    Known(SingleLabelAUC, dict(average="weighted"), scored, {"auc": 1.0}, {"auc": 0.0}),
    Known(SingleLabelAUC, dict(average="micro"), scored, {"auc": 1.0}, {"auc": 0.0}),
    Known(SingleLabelAUC, dict(multi_class="ovo"), scored, {"auc": 1.0}, {"auc": 0.0}),
    Known(SingleLabelAUC, dict(num_thresholds=16), scored, {"auc": 1.0, "auc_error": 0.0}, {"auc": 0.0}),
    Known(SingleLabelAUC, dict(curve="pr"), scored, {"auc": 1.0}, {}),
    Known(SingleLabelAUC, dict(max_fpr=0.5), scored, {"auc": 1.0}, {}),
    Known(SingleLabelKS, {}, scored, {"ks": 1.0}, {"ks": 0.0}),
    Known(SingleLabelKS, dict(num_thresholds=16), scored, {"ks": 1.0, "ks_error": 0.0}, {"ks": 0.0}),
    Known(SingleLabelPRF, {}, scored, {**ONE, "accuracy": 1.0, "mcc": 1.0, "kappa": 1.0}, {**ZERO, "accuracy": 0.0}),
    Known(SingleLabelPRF, dict(average="micro"), scored, MICRO, dict.fromkeys(MICRO, 0.0)),
    Known(RecallAtK, dict(topk=(1, 2)), scored, {"recall@1": 1.0, "recall@2": 1.0}, {"recall@1": 0.0, "recall@2": 0.0}),
    Known(CalibrationError, {}, certain, dict(ece=0.0, mce=0.0, brier=0.0, nll=0.0), dict(ece=1.0, brier=3.0)),
    Known(MultiLabelAUC, {}, several, {"auc": 1.0}, {"auc": 0.0}),
    Known(MultiLabelAUC, dict(average="micro"), several, {"auc": 1.0}, {"auc": 0.0}),
    Known(MultiLabelPRF, {}, several, {**ONE, "accuracy": 1.0}, {**ZERO, "accuracy": 0.0}),
    Known(RegressionError, {}, predicted_numbers, {**NOTHING, "r2": 1.0}, dict(mse=1.0, mae=1.0, max_error=1.0)),
    Known(MeanIoU, dict(num_classes=CLASSES), labeled, dict(mIoU=1.0, aAcc=1.0, mAcc=1.0), dict(mIoU=0.0, aAcc=0.0)),
    Known(DiceScore, dict(num_classes=CLASSES, empty="skip"), labeled, dict(mDice=1.0), dict(mDice=0.0)),
    Known(
        DiceScore, dict(mode="soft", prediction_field="x", target_field="y"), region, dict(mDice=1.0), dict(mDice=0.0)
    ),
    Known(DetectionPRF, dict(num_classes=CLASSES, ap=True), boxed, {**ONE, "mAP": 1.0}, {**ZERO, "mAP": 0.0}),
    Known(DetectionPRF, dict(num_classes=CLASSES, matching="mmdet"), boxed, ONE, ZERO),
    Known(DetectionPRF, dict(num_classes=CLASSES, matching="agnostic"), boxed, ONE, ZERO),
    Known(PosNegRatio, {}, paired, {"wrong": 0.0}, {"right": 0.0}),
]


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.build.__name__}-{known.options}")
def test_perfect_predictions_are_1_and_reversed_ones_0(known):
    @shared_by(sum(other.build is known.build for other in KNOWN))
    @given(labels=st.lists(st.integers(0, CLASSES - 1), max_size=4), seed=st.integers(0, 2**32 - 1))
    def tried(labels, seed):
        labels = [*range(CLASSES), *labels]  # all classes occur, so that everything has a value
        random = np.random.default_rng(seed)
        for right, expected in ((True, known.right), (False, known.wrong)):
            metric = known.build(**known.options)
            found = numbers(metric, [[known.sample(label, right, random) for label in labels]], len(labels))
            found = {key: found[f"{metric.prefix}/{key}"] for key in expected}
            assert found == pytest.approx(expected, rel=0, abs=1e-12)  # means may round in the last digit

    tried()


def test_every_metric_has_a_known_value():
    """But for those that only add up what somebody else made."""
    public = {
        value
        for _, value in inspect.getmembers(mm_metrics_plugin, inspect.isclass)
        if issubclass(value, StreamingMetric) and not inspect.isabstract(value)
    }
    assert public - {known.build for known in KNOWN} == {FieldMean, FieldSum}


@given(rolls)
def test_scores_and_labels_are_left_as_they_are(roll):
    problem = scored_labels_of(roll)

    def everything(scores, labels):
        for curve in ("roc", "pr"):
            for average in ("macro", "micro"):
                roc_auc([scores, scores], np.concatenate([labels, labels]), curve=curve, average=average)
        roc_auc([scores], labels, max_fpr=0.5)
        ks_statistic([scores], labels)
        ScoreHistogramState(4).update(scores, labels)

    check_inputs_kept(everything, (problem.scores, problem.labels))
