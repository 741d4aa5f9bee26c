"""Cases of the classification metrics besides the AUC of one label.

Peers that take seconds to import are imported where they are asked: every process that is started reads this file.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    cohen_kappa_score,
    matthews_corrcoef,
    multilabel_confusion_matrix,
    precision_recall_fscore_support,
    roc_auc_score,
    top_k_accuracy_score,
)

from mm_metrics_plugin import (
    CalibrationError,
    MultiLabelAUC,
    MultiLabelPRF,
    RecallAtK,
    SingleLabelKS,
    SingleLabelPRF,
)
from mm_metrics_plugin.functional.classification.histograms import bin_edges
from mm_metrics_plugin.testing import InvalidInput, MetricCase
from tests.helpers.cases_single_label import (
    INVALID,
    NAMES,
    NUM_CLASSES,
    labels_of,
    one_hot,
    scores_of,
    single_label,
    single_label_decided,
)

CLASSES = np.arange(NUM_CLASSES)


def smooth(generator, count):
    """Softmax scores that never tie: for references that leave ties undefined."""
    samples = single_label(generator, count)
    for sample in samples:
        logits = torch.tensor(generator.normal(size=NUM_CLASSES))
        logits[sample["gt_label"]] += 1
        sample["pred_score"] = logits.softmax(0).float()
    return samples


# --- one label --------------------------------------------------------------------------------------------------------


def rates(truth, decided, *, names=NAMES):
    """Precision, recall and F1 of scikit-learn, whose rule for classes without a value is then ours."""
    options = dict(labels=CLASSES, zero_division=np.nan)
    values = {}
    for average, ending in (("macro", ""), ("micro", "_micro"), ("weighted", "_weighted")):
        found = precision_recall_fscore_support(truth, decided, average=average, **options)
        values.update({f"{key}{ending}": value for key, value in zip(("precision", "recall", "f1"), found)})
    for key, each in zip(("precision", "recall", "f1"), precision_recall_fscore_support(truth, decided, **options)):
        values.update({f"{key}/{name}": value for name, value in zip(names, each)})
    return values


def counts(truth, decided, **options):
    values = {}
    for name, ((tn, fp), (fn, tp)) in zip(NAMES, multilabel_confusion_matrix(truth, decided, **options)):
        values.update({f"tp/{name}": tp, f"fp/{name}": fp, f"tn/{name}": tn, f"fn/{name}": fn})
        values[f"specificity/{name}"] = tn / (tn + fp) if tn + fp else np.nan
    values["specificity"] = np.nanmean([values[f"specificity/{name}"] for name in NAMES])
    return values


def prf(samples):
    truth, decided = labels_of(samples), scores_of(samples).argmax(axis=1)
    return {
        **rates(truth, decided),
        **counts(truth, decided, labels=CLASSES),
        "accuracy": accuracy_score(truth, decided),
        "balanced_accuracy": balanced_accuracy_score(truth, decided),
        "mcc": matthews_corrcoef(truth, decided),
        "kappa": cohen_kappa_score(truth, decided),
        "kappa_linear": cohen_kappa_score(truth, decided, weights="linear", labels=CLASSES),
        "kappa_quadratic": cohen_kappa_score(truth, decided, weights="quadratic", labels=CLASSES),
    }


def prf_threshold(samples):
    """scikit-learn takes a class -1 that is in ``labels`` for no class at all."""
    scores, truth = scores_of(samples), labels_of(samples)
    decided = np.where(scores.max(axis=1) > 0.5, scores.argmax(axis=1), -1)
    wanted = {key: value for key, value in rates(truth, decided).items() if key in ("f1", "precision", "recall")}
    return {
        **wanted,
        "accuracy": accuracy_score(truth, decided),
        "mcc": matthews_corrcoef(truth, decided),
        "kappa": cohen_kappa_score(truth, decided),
        "kappa_linear": np.nan if (decided < 0).any() else cohen_kappa_score(truth, decided, weights="linear"),
    }


def prf_mmpretrain(samples):
    """The numbers of mmpretrain's own classes, which are percentages in float32."""
    from mmpretrain.evaluation import Accuracy, SingleLabelMetric

    scores, truth = torch.tensor(scores_of(samples)).float(), torch.tensor(labels_of(samples))
    values = {}
    thresholds = {"_no-thr": None, "_thr-0.25": 0.25, "_thr-0.60": 0.6}
    for average, ending in (("macro", ""), ("micro", "_micro")):
        found = SingleLabelMetric.calculate(scores, truth, thrs=list(thresholds.values()), average=average)
        for suffix, (precision, recall, f1, _) in zip(thresholds, found):
            values[f"precision{ending}{suffix}"] = float(precision) / 100
            values[f"recall{ending}{suffix}"] = float(recall) / 100
            values[f"f1{ending}{suffix}"] = float(f1) / 100
    for k, row in zip((1, 3), Accuracy.calculate(scores, truth, topk=(1, 3), thrs=list(thresholds.values()))):
        values.update({f"accuracy_top{k}{suffix}": float(value) / 100 for suffix, value in zip(thresholds, row)})
    return values


def prf_paddlerec(samples):
    """PaddleRec's six, written from its definition: an empty denominator counts as 1, F1 is of the means."""
    truth, decided = labels_of(samples), np.array([int(sample["pred_label"]) for sample in samples])
    tp = np.array([np.sum((truth == c) & (decided == c)) for c in CLASSES], dtype=float)
    given, own = np.bincount(decided, minlength=NUM_CLASSES), np.bincount(truth, minlength=NUM_CLASSES)
    precision = np.mean([t / n if n else 1.0 for t, n in zip(tp, given)])
    recall = np.mean([t / n if n else 1.0 for t, n in zip(tp, own)])
    micro = tp.sum() / len(truth)
    six = dict(precision=precision, recall=recall, f1=2 * precision * recall / (precision + recall))
    return {**six, "precision_micro": micro, "recall_micro": micro, "f1_micro": micro}


def ks_of(samples, index):
    from scipy.stats import ks_2samp

    scores, truth = scores_of(samples)[:, index], labels_of(samples) == index
    return ks_2samp(scores[truth], scores[~truth], alternative="less", method="asymp")


def ks_per_class(samples):
    values = {f"ks/{name}": ks_of(samples, index).statistic for index, name in enumerate(NAMES)}
    return {"ks": np.mean(list(values.values())), **values}


def ks_positive(samples):
    return {"ks": ks_of(samples, 2).statistic}


def recall_at_k(samples):
    """Of equal scores scikit-learn prefers the higher index, so the classes are given to it in reverse."""
    scores, labels = scores_of(samples)[:, ::-1], NUM_CLASSES - 1 - labels_of(samples)
    values = {"sample_count": len(samples)}
    for k in (1, 3):
        values[f"recall@{k}"] = top_k_accuracy_score(labels, scores, k=k, labels=CLASSES)
        values[f"recall_count@{k}"] = top_k_accuracy_score(labels, scores, k=k, labels=CLASSES, normalize=False)
    return values


def likelihoods(samples):
    scores, labels = scores_of(samples), labels_of(samples)
    return {
        "brier": np.mean(((scores - one_hot(labels)) ** 2).sum(axis=1)),
        "nll": -np.mean(np.log(scores[np.arange(len(labels)), labels])),
    }


def calibration_width(samples):
    from torchmetrics.functional.classification import multiclass_calibration_error

    scores, labels = torch.tensor(scores_of(samples)), torch.tensor(labels_of(samples))
    found = [multiclass_calibration_error(scores, labels, NUM_CLASSES, n_bins=10, norm=norm) for norm in ("l1", "max")]
    return {"ece": float(found[0]), "mce": float(found[1]), **likelihoods(samples)}


def calibration_mass(samples):
    from sklearn.calibration import calibration_curve

    scores = scores_of(samples)
    confidence, right = scores.max(axis=1), scores.argmax(axis=1) == labels_of(samples)
    accuracy, mean = calibration_curve(right, confidence, n_bins=5, strategy="quantile")
    inside = np.quantile(confidence, np.linspace(0, 1, 6))[1:-1]
    sizes = np.unique(np.searchsorted(inside, confidence), return_counts=True)[1]
    gaps = np.abs(accuracy - mean)
    return {"ece": np.sum(gaps * sizes) / len(samples), "mce": gaps.max(), **likelihoods(samples)}


CALIBRATION_CELLS = 1 << 12


def calibration_cells(samples):
    """The definition over bins whose edges are the histogram's nearest to every tenth, with the true confidences."""
    scores = scores_of(samples).astype(np.float64)
    confidence, right = scores.max(axis=1), scores.argmax(axis=1) == labels_of(samples)
    cells = np.append(bin_edges(CALIBRATION_CELLS), 1.0)
    inside = [cells[np.abs(cells - edge).argmin()] for edge in np.arange(1, 10) / 10]
    bins = np.searchsorted(inside, confidence, side="right")
    gaps = [abs(right[bins == one].mean() - confidence[bins == one].mean()) for one in np.unique(bins)]
    sizes = np.unique(bins, return_counts=True)[1]
    return {"ece": np.sum(gaps * sizes) / len(samples), "mce": max(gaps), **likelihoods(samples)}


PROBABILITY = InvalidInput("a score above 1", lambda sample: sample["pred_score"].add_(1), ["'pred_score'", "0 to 1"])
PRF_RULES = {"[tf][pn]*/*": None, "classes_*": None}

SINGLE_LABEL_CASES = [
    MetricCase(
        "prf",
        partial(SingleLabelPRF, average=("macro", "micro", "weighted"), classwise=True, counts=True),
        single_label,
        prf,
        classes=NAMES,
        invalid_inputs=INVALID,
        rules=PRF_RULES,
    ),
    MetricCase("prf-threshold", partial(SingleLabelPRF, thrs=0.5), single_label, prf_threshold, rules=PRF_RULES),
    MetricCase(
        "prf-mmpretrain",
        partial(
            SingleLabelPRF, average=("macro", "micro"), thrs=(None, 0.25, 0.6), topk=(1, 3), convention="mmpretrain"
        ),
        smooth,
        prf_mmpretrain,
        reference_tolerance=1e-6,
        rules=PRF_RULES,
    ),
    MetricCase(
        "prf-paddlerec",
        partial(SingleLabelPRF, num_classes=NUM_CLASSES, convention="paddlerec"),
        single_label_decided,
        prf_paddlerec,
    ),
    MetricCase(
        "ks",
        partial(SingleLabelKS, classwise=True),
        single_label,
        ks_per_class,
        classes=NAMES,
        invalid_inputs=INVALID,
        rules={"ks_threshold*": None, "classes_in_ks": None},
    ),
    # Scores of two digits never share one of 4,096 bins unless they are equal, so here binned is exact.
    MetricCase(
        "ks-binned",
        partial(SingleLabelKS, positive_label=2, num_thresholds=1 << 12),
        single_label,
        ks_positive,
        invalid_inputs=[PROBABILITY],
        rules={"ks_threshold": None, "ks_error": "less"},
    ),
    MetricCase(
        "recall-at-k",
        partial(RecallAtK, topk=(1, 3)),
        single_label,
        recall_at_k,
        invalid_inputs=INVALID,
        rules={"*count*": None},
    ),
    MetricCase(
        "calibration",
        partial(CalibrationError, num_bins=10),
        smooth,
        calibration_width,
        reference_tolerance=1e-6,  # torchmetrics reckons in float32
        invalid_inputs=[*INVALID, PROBABILITY],
        rules={"*": "less"},
    ),
    MetricCase(
        "calibration-mass",
        partial(CalibrationError, num_bins=5, binning="equal-mass"),
        smooth,
        calibration_mass,
        rules={"*": "less"},
    ),
    MetricCase(
        "calibration-binned",
        partial(CalibrationError, num_bins=10, num_thresholds=CALIBRATION_CELLS),
        smooth,
        calibration_cells,
        reference_tolerance=4e-3,  # half of the widest cell, that at a half
        invalid_inputs=[PROBABILITY],
        rules={"*": "less"},
    ),
]


# --- several labels ---------------------------------------------------------------------------------------------------


def multi_label(generator, count, *, listed=False, ignored=0.15):
    """Scores of two digits; every class has a positive and a negative from 2 samples on."""
    truth = generator.integers(0, 2, (count, NUM_CLASSES))
    truth[::2][:1], truth[1::2][:1] = 1, 0
    scores = np.round(np.clip(0.35 + 0.3 * truth + 0.3 * generator.normal(size=truth.shape), 0, 1), 2)
    truth[2:][generator.random(truth[2:].shape) < ignored] = -1
    samples = []
    for index, (score, own) in enumerate(zip(scores, truth)):
        sample = dict(pred_score=torch.tensor(score, dtype=torch.float32), sample_idx=index)
        if listed:
            sample["gt_label"] = torch.tensor(np.flatnonzero(own == 1))
        else:
            sample["gt_score"] = torch.tensor(own)
        samples.append(sample)
    return samples


def truth_of(samples):
    if "gt_score" in samples[0]:
        return np.stack([sample["gt_score"].numpy() for sample in samples])
    return np.stack([np.isin(CLASSES, sample["gt_label"].numpy()).astype(int) for sample in samples])


def class_by_class(function, samples):
    scores, truth = scores_of(samples), truth_of(samples)
    return [function(truth[truth[:, c] >= 0, c], scores[truth[:, c] >= 0, c]) for c in CLASSES]


def multi_auc(samples):
    values = class_by_class(roc_auc_score, samples)
    return {"auc": np.mean(values), **{f"auc/{name}": value for name, value in zip(NAMES, values)}}


def multi_auc_micro(samples):
    scores, truth = scores_of(samples), truth_of(samples)
    return {"auc": average_precision_score(truth[truth >= 0], scores[truth >= 0])}


def multi_auc_weighted(samples):
    support = (truth_of(samples) == 1).sum(axis=0)
    return {"auc": np.average(class_by_class(average_precision_score, samples), weights=support)}


def multi_prf(samples):
    truth, decided = truth_of(samples), (scores_of(samples) >= 0.5).astype(int)
    return {
        **rates(truth, decided),
        **counts(truth, decided, labels=CLASSES),
        "accuracy": np.mean(truth == decided),
    }


def multi_prf_mmpretrain(samples):
    from mmpretrain.evaluation import MultiLabelMetric

    scores, truth = torch.tensor(scores_of(samples)), torch.tensor(truth_of(samples))
    precision, recall, f1, _ = MultiLabelMetric.calculate(scores, truth, topk=2)
    return {"precision": float(precision) / 100, "recall": float(recall) / 100, "f1": float(f1) / 100}


def multi_label_smooth(generator, count):
    samples = multi_label(generator, count)
    for sample in samples:
        sample["pred_score"] = torch.tensor(generator.random(NUM_CLASSES)).float()
    return samples


SCORE_INVALID = [invalid for invalid in INVALID if "'pred_score'" in invalid.words]
MULTI_INVALID = (
    *SCORE_INVALID,
    InvalidInput("a truth of 2", lambda sample: sample["gt_score"].fill_(2), ["'gt_score'", "1, 0 or -1", "2"]),
    InvalidInput(
        "too short a truth", lambda sample: sample.update(gt_score=torch.ones(3)), ["'gt_score'", "(4,)", "(3,)"]
    ),
    InvalidInput("no truth", lambda sample: sample.pop("gt_score"), ["'gt_score'"]),
)
LIST_INVALID = (
    InvalidInput(
        "a label out of range", lambda sample: sample.update(gt_label=torch.tensor([1, 4])), ["'gt_label'", "4"]
    ),
    InvalidInput("half a label", lambda sample: sample.update(gt_label=torch.tensor([1.5])), ["'gt_label'", "1.5"]),
    InvalidInput("no labels", lambda sample: sample.pop("gt_label"), ["'gt_label'"]),
)

MULTI_LABEL_CASES = [
    MetricCase(
        "multi-auc",
        partial(MultiLabelAUC, classwise=True),
        multi_label,
        multi_auc,
        classes=NAMES,
        invalid_inputs=MULTI_INVALID,
        rules={"classes_averaged": None},
    ),
    MetricCase("multi-auc-micro", partial(MultiLabelAUC, average="micro", curve="pr"), multi_label, multi_auc_micro),
    MetricCase(
        "multi-auc-binned",
        partial(MultiLabelAUC, average="weighted", curve="pr", num_thresholds=1 << 12),
        multi_label,
        multi_auc_weighted,
        invalid_inputs=[PROBABILITY],
        rules={"auc_error": "never", "classes_averaged": None},
    ),
    MetricCase(
        "multi-prf",
        partial(MultiLabelPRF, average=("macro", "micro", "weighted"), classwise=True, counts=True),
        partial(multi_label, listed=True),
        multi_prf,
        classes=NAMES,
        invalid_inputs=[*SCORE_INVALID, *LIST_INVALID],
        rules=PRF_RULES,
    ),
    MetricCase(
        "multi-prf-top",
        partial(MultiLabelPRF, topk=2, convention="mmpretrain"),
        multi_label_smooth,
        multi_prf_mmpretrain,
        reference_tolerance=1e-6,
        invalid_inputs=MULTI_INVALID,
    ),
]

CLASSIFICATION_CASES = [*SINGLE_LABEL_CASES, *MULTI_LABEL_CASES]
