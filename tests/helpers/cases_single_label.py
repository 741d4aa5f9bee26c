"""Cases of the metrics of samples with one true class."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from mm_metrics_plugin import SingleLabelAUC
from mm_metrics_plugin.testing import InvalidInput, MetricCase
from tests.helpers.interval_reference import auc_interval, auc_variance, wilson

NUM_CLASSES = 4
NAMES = ("cat", "dog", "bird", "fish")


def single_label(generator, count, *, dtype=torch.float32):
    """Softmax scores rounded to two digits, so that many tie; every class occurs from 4 samples on."""
    labels = np.concatenate([np.arange(NUM_CLASSES), generator.integers(0, NUM_CLASSES, count)])[:count]
    logits = generator.normal(size=(count, NUM_CLASSES))
    logits[np.arange(count), labels] += 1
    scores = np.round(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), 2)
    return [
        dict(
            pred_score=torch.tensor(score, dtype=dtype),
            pred_label=torch.tensor([int(score.argmax())]),
            gt_label=torch.tensor([int(label)]),
            sample_idx=index,
        )
        for index, (score, label) in enumerate(zip(scores, labels))
    ]


def single_label_decided(generator, count):
    return [{k: v for k, v in sample.items() if k != "pred_score"} for sample in single_label(generator, count)]


def scores_of(samples):
    return np.stack([sample["pred_score"].double().numpy() for sample in samples])


def labels_of(samples):
    return np.array([int(sample["gt_label"]) for sample in samples])


def one_hot(labels):
    return np.eye(NUM_CLASSES)[labels]


def normalised_auc(samples, **options):
    """scikit-learn insists on rows that sum to one; class by class it does not."""
    average = options.pop("average", "macro")
    scores, truth = scores_of(samples), one_hot(labels_of(samples))
    return {"auc": roc_auc_score(truth, scores, average=average, **options)}


def auc_per_class(samples):
    values = roc_auc_score(one_hot(labels_of(samples)), scores_of(samples), average=None)
    return {f"auc/{name}": value for name, value in zip(NAMES, values)}


def partial_auc(samples):
    scores, truth = scores_of(samples), one_hot(labels_of(samples))
    return {"auc": np.mean([roc_auc_score(truth[:, c], scores[:, c], max_fpr=0.3) for c in range(NUM_CLASSES)])}


def average_precision(samples):
    return {"auc": average_precision_score(one_hot(labels_of(samples)), scores_of(samples), average="macro")}


def hard_auc(samples):
    return {"auc": roc_auc_score(one_hot(labels_of(samples)), one_hot([int(s["pred_label"]) for s in samples]))}


def thresholded_auc(samples):
    scores, truth = scores_of(samples), one_hot(labels_of(samples))
    decided = one_hot(scores.argmax(axis=1))
    best, dtype = scores.max(axis=1, keepdims=True), samples[0]["pred_score"].dtype
    rounded = {thr: torch.tensor(thr, dtype=dtype).item() for thr in (0.3, 0.5)}  # to the precision of the scores
    return {f"auc_thr-{thr:.2f}": roc_auc_score(truth, decided * (best > rounded[thr])) for thr in (0.3, 0.5)}


def last_batches(samples, batch_size=7):
    recent = samples[(len(samples) - 1) // batch_size * batch_size - batch_size :]
    present = np.unique(labels_of(recent))
    values = roc_auc_score(one_hot(labels_of(recent))[:, present], scores_of(recent)[:, present], average=None)
    return {**normalised_auc(samples), "batch_auc": np.mean(values)}


def auc_ends(samples, level=0.95):
    """The formulas written out, over every pair of a sample of the class and another one."""
    scores, truth = scores_of(samples), one_hot(labels_of(samples))
    result, raised, constant, kept, near, df = {}, 0.0, 0.0, [], [], []
    for name, column, own in zip(NAMES, scores.T, truth.T == 1):
        auc, low, high = auc_interval(column, own, level)
        result.update({f"auc/{name}": auc, f"auc_low/{name}": low, f"auc_high/{name}": high})
        pairs = np.sign(column[own][:, None] - column[~own][None]) / 2 + 0.5
        influence = np.zeros(len(samples))
        for rows, placement in ((own, pairs.mean(axis=1)), (~own, pairs.mean(axis=0))):
            number = len(placement)
            influence[rows] = (placement - auc) / np.sqrt(max(number * (number - 1), 1))
        number, others = own.sum(), (~own).sum()
        _, shrunken, variance = auc_variance(pairs)
        near.append(shrunken)
        kept.append(variance)
        if influence.any():
            raised = raised + influence * np.sqrt(kept[-1] / (influence**2).sum())
        else:
            constant += kept[-1]
        df.append((2 if min(number, others) < 5 else 4) * min(number, others))
    value, total, share = (
        np.mean([result[f"auc/{name}"] for name in NAMES]),
        np.sum(raised**2) + constant,
        np.mean(near),
    )
    freedom = total**2 / (np.array(kept) ** 2 / df).sum()
    ends = wilson(value, share * (1 - share) * len(NAMES) ** 2 / total, freedom, level)
    return {**result, "auc": value, "auc_low": ends[0], "auc_high": ends[1]}


INVALID = (
    InvalidInput("a NaN", lambda sample: sample["pred_score"][2:].fill_(np.nan), ["'pred_score'", "nan", "index 2"]),
    InvalidInput(
        "too few scores", lambda sample: sample.update(pred_score=torch.rand(3)), ["'pred_score'", "(4,)", "(3,)"]
    ),
    InvalidInput("a label out of range", lambda sample: sample["gt_label"].fill_(9), ["'gt_label'", "0 to 3", "9"]),
    InvalidInput("a negative label", lambda sample: sample["gt_label"].fill_(-1), ["'gt_label'", "-1"]),
    InvalidInput("two labels", lambda sample: sample.update(gt_label=torch.tensor([0, 1])), ["'gt_label'", "(2,)"]),
    InvalidInput("no label", lambda sample: sample.pop("gt_label"), ["'gt_label'", "pred_score"]),
    InvalidInput("no scores", lambda sample: sample.pop("pred_score"), ["'pred_score'"]),
)
RULES = {"classes_averaged*": None, "auc_error*": "never"}

AUC_CASES = [
    MetricCase("auc", SingleLabelAUC, single_label, normalised_auc, invalid_inputs=INVALID),
    MetricCase(
        "auc-half",
        SingleLabelAUC,
        partial(single_label, dtype=torch.float16),
        normalised_auc,
    ),
    MetricCase(
        "auc-weighted",
        partial(SingleLabelAUC, average="weighted"),
        single_label,
        partial(normalised_auc, average="weighted"),
    ),
    MetricCase(
        "auc-micro", partial(SingleLabelAUC, average="micro"), single_label, partial(normalised_auc, average="micro")
    ),
    MetricCase("auc-per-class", partial(SingleLabelAUC, average=None), single_label, auc_per_class, classes=NAMES),
    MetricCase("auc-ci", partial(SingleLabelAUC, ci=0.95, classwise=True), single_label, auc_ends, classes=NAMES),
    MetricCase("auc-partial", partial(SingleLabelAUC, max_fpr=0.3), single_label, partial_auc),
    MetricCase("auc-pr", partial(SingleLabelAUC, curve="pr"), single_label, average_precision),
    # Scores of two digits never share one of 65,536 bins unless they are equal, so here binned is exact.
    MetricCase(
        "auc-binned", partial(SingleLabelAUC, num_thresholds=1 << 16), single_label, normalised_auc, rules=RULES
    ),
    MetricCase(
        "auc-binned-pr", partial(SingleLabelAUC, num_thresholds=1 << 16, curve="pr"), single_label, average_precision
    ),
    MetricCase("auc-decided", partial(SingleLabelAUC, num_classes=NUM_CLASSES), single_label_decided, hard_auc),
    MetricCase("auc-thresholds", partial(SingleLabelAUC, thrs=(0.3, 0.5)), single_label, thresholded_auc),
    MetricCase("auc-slide", partial(SingleLabelAUC, slide_steps=2), single_label, last_batches, order_matters=True),
]
