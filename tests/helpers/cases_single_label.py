"""Single-label samples, and cases of SingleLabelAUC."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from mm_metrics_plugin import SingleLabelAUC
from mm_metrics_plugin.testing import MetricCase
from tests.helpers.interval_reference import auc_interval, auc_variance, wilson
from tests.helpers.invalid_input import replaced, with_value, without

NUM_CLASSES = 4
NAMES = ("cat", "dog", "bird", "fish")


def single_label(generator, count):
    """Softmax scores rounded to two digits, so that many tie; every class occurs if there are 4 samples."""
    labels = np.concatenate([np.arange(NUM_CLASSES), generator.integers(0, NUM_CLASSES, count)])[:count]
    logits = generator.normal(size=(count, NUM_CLASSES))
    logits[np.arange(count), labels] += 1
    scores = np.round(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), 2)
    return [
        dict(
            pred_score=torch.tensor(score, dtype=torch.float32),
            pred_label=torch.tensor([int(score.argmax())]),
            gt_label=torch.tensor([int(label)]),
            sample_idx=index,
        )
        for index, (score, label) in enumerate(zip(scores, labels))
    ]


def only_predicted_labels(generator, count):
    return [{k: v for k, v in sample.items() if k != "pred_score"} for sample in single_label(generator, count)]


def scores_of(samples):
    return np.stack([sample["pred_score"].double().numpy() for sample in samples])


def labels_of(samples):
    return np.array([int(sample["gt_label"]) for sample in samples])


def one_hot(labels):
    return np.eye(NUM_CLASSES)[labels]


def auc(samples, average="macro"):
    """On one-hot labels, because scikit-learn requires multi-class scores that sum to 1."""
    return {"auc": roc_auc_score(one_hot(labels_of(samples)), scores_of(samples), average=average)}


def auc_per_class(samples):
    values = roc_auc_score(one_hot(labels_of(samples)), scores_of(samples), average=None)
    return {f"auc/{name}": value for name, value in zip(NAMES, values)}


def partial_auc(samples):
    scores, targets = scores_of(samples), one_hot(labels_of(samples))
    return {"auc": np.mean([roc_auc_score(targets[:, c], scores[:, c], max_fpr=0.3) for c in range(NUM_CLASSES)])}


def average_precision(samples):
    return {"auc": average_precision_score(one_hot(labels_of(samples)), scores_of(samples), average="macro")}


def auc_of_predicted_labels(samples):
    predicted = one_hot([int(sample["pred_label"]) for sample in samples])
    return {"auc": roc_auc_score(one_hot(labels_of(samples)), predicted)}


def auc_at_thresholds(samples):
    scores, targets = scores_of(samples), one_hot(labels_of(samples))
    best, predicted = scores.max(axis=1, keepdims=True), one_hot(scores.argmax(axis=1))
    dtype = samples[0]["pred_score"].dtype  # thresholds are rounded to it
    return {
        f"auc_thr-{thr:.2f}": roc_auc_score(targets, predicted * (best > torch.tensor(thr, dtype=dtype).item()))
        for thr in (0.3, 0.5)
    }


def auc_of_last_batches(samples, batch_size=7):
    recent = samples[(len(samples) - 1) // batch_size * batch_size - batch_size :]
    present = np.unique(labels_of(recent))
    values = roc_auc_score(one_hot(labels_of(recent))[:, present], scores_of(recent)[:, present], average=None)
    return {**auc(samples), "batch_auc": np.mean(values)}


def auc_intervals(samples, level=0.95):
    """The formulas of the intervals, over all pairs of a sample of the class and another sample."""
    scores, targets = scores_of(samples), one_hot(labels_of(samples))
    result, influences, constant, variances, shrunken, df = {}, 0.0, 0.0, [], [], []
    for name, column, positive in zip(NAMES, scores.T, targets.T == 1):
        value, low, high = auc_interval(column, positive, level)
        result.update({f"auc/{name}": value, f"auc_low/{name}": low, f"auc_high/{name}": high})
        pairs = np.sign(column[positive][:, None] - column[~positive][None]) / 2 + 0.5
        influence = np.zeros(len(samples))
        for rows, placement in ((positive, pairs.mean(axis=1)), (~positive, pairs.mean(axis=0))):
            number = len(placement)
            influence[rows] = (placement - value) / np.sqrt(max(number * (number - 1), 1))
        _, near, variance = auc_variance(pairs)
        shrunken.append(near)
        variances.append(variance)
        if influence.any():
            influences = influences + influence * np.sqrt(variance / (influence**2).sum())
        else:
            constant += variance
        fewest = min(pairs.shape)
        df.append((2 if fewest < 5 else 4) * fewest)
    mean, total, share = (
        np.mean([result[f"auc/{n}"] for n in NAMES]),
        np.sum(influences**2) + constant,
        np.mean(shrunken),
    )
    freedom = total**2 / (np.array(variances) ** 2 / df).sum()
    low, high = wilson(mean, share * (1 - share) * len(NAMES) ** 2 / total, freedom, level)
    return {**result, "auc": mean, "auc_low": low, "auc_high": high}


INVALID_SCORES = (
    ("a NaN", with_value("pred_score", np.nan), ["'pred_score'", "nan", "index 0"]),
    ("too few scores", replaced("pred_score", torch.rand(3)), ["'pred_score'", "(4,)", "(3,)"]),
    ("no scores", without("pred_score"), ["'pred_score'"]),
)
INVALID = (
    *INVALID_SCORES,
    ("a label out of range", with_value("gt_label", 9), ["'gt_label'", "0 to 3", "9"]),
    ("a negative label", with_value("gt_label", -1), ["'gt_label'", "-1"]),
    ("two labels", replaced("gt_label", torch.tensor([0, 1])), ["'gt_label'", "(2,)"]),
    ("no label", without("gt_label"), ["'gt_label'", "pred_score"]),
)
RULES = {"classes_averaged*": None, "auc_error*": "never"}


def auc_case(name, reference, samples=single_label, classes=None, order_matters=False, invalid_inputs=(), **options):
    return MetricCase(
        name,
        partial(SingleLabelAUC, **options),
        samples,
        reference,
        classes=classes,
        order_matters=order_matters,
        invalid_inputs=invalid_inputs,
        rules=RULES,
    )


AUC_CASES = [
    auc_case("auc", auc, invalid_inputs=INVALID),
    auc_case("auc-weighted", partial(auc, average="weighted"), average="weighted"),
    auc_case("auc-micro", partial(auc, average="micro"), average="micro"),
    auc_case("auc-per-class", auc_per_class, classes=NAMES, average=None),
    auc_case("auc-ci", auc_intervals, classes=NAMES, ci=0.95, classwise=True),
    auc_case("auc-partial", partial_auc, max_fpr=0.3),
    auc_case("auc-pr", average_precision, curve="pr"),
    # Different scores of two digits are in different bins of 65,536, so the binned values are exact.
    auc_case("auc-binned", auc, num_thresholds=1 << 16),
    auc_case("auc-binned-pr", average_precision, num_thresholds=1 << 16, curve="pr"),
    auc_case("auc-predicted-labels", auc_of_predicted_labels, only_predicted_labels, num_classes=NUM_CLASSES),
    auc_case("auc-thresholds", auc_at_thresholds, thrs=(0.3, 0.5)),
    auc_case("auc-slide", auc_of_last_batches, order_matters=True, slide_steps=2),
]
