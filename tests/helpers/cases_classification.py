"""Cases of the classification metrics besides SingleLabelAUC.

Libraries that take seconds to import are imported inside functions: every process that is started imports this file.
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
from mm_metrics_plugin.functional import calibration_error
from mm_metrics_plugin.testing import MetricCase
from tests.helpers.cases_single_label import (
    INVALID,
    INVALID_SCORES,
    NAMES,
    NUM_CLASSES,
    labels_of,
    one_hot,
    only_predicted_labels,
    scores_of,
    single_label,
)
from tests.helpers.invalid_input import replaced, with_value, without

CLASSES = np.arange(NUM_CLASSES)
AVERAGES = ("macro", "micro", "weighted")


def without_ties(generator, count):
    """Softmax scores that never tie, for references that leave ties undefined."""
    samples = single_label(generator, count)
    for sample in samples:
        logits = torch.tensor(generator.normal(size=NUM_CLASSES))
        logits[sample["gt_label"]] += 1
        sample["pred_score"] = logits.softmax(0).float()
    return samples


# --- single-label -----------------------------------------------------------------------------------------------------


def rates(targets, predicted):
    """Precision, recall and F1 of scikit-learn; NaN is left out of its means too."""
    options, keys, values = dict(labels=CLASSES, zero_division=np.nan), ("precision", "recall", "f1"), {}
    for average, ending in zip(AVERAGES, ("", "_micro", "_weighted")):
        means = precision_recall_fscore_support(targets, predicted, average=average, **options)
        values.update({f"{key}{ending}": value for key, value in zip(keys, means)})
    for key, per_class in zip(keys, precision_recall_fscore_support(targets, predicted, **options)):
        values.update({f"{key}/{name}": value for name, value in zip(NAMES, per_class)})
    return values


def counts(targets, predicted):
    values = {}
    for name, ((tn, fp), (fn, tp)) in zip(NAMES, multilabel_confusion_matrix(targets, predicted, labels=CLASSES)):
        values.update({f"tp/{name}": tp, f"fp/{name}": fp, f"tn/{name}": tn, f"fn/{name}": fn})
        values[f"specificity/{name}"] = tn / (tn + fp) if tn + fp else np.nan
    values["specificity"] = np.nanmean([values[f"specificity/{name}"] for name in NAMES])
    return values


def prf(samples):
    targets, predicted = labels_of(samples), scores_of(samples).argmax(axis=1)
    return {
        **rates(targets, predicted),
        **counts(targets, predicted),
        "accuracy": accuracy_score(targets, predicted),
        "balanced_accuracy": balanced_accuracy_score(targets, predicted),
        "mcc": matthews_corrcoef(targets, predicted),
        "kappa": cohen_kappa_score(targets, predicted),
        "kappa_linear": cohen_kappa_score(targets, predicted, weights="linear", labels=CLASSES),
        "kappa_quadratic": cohen_kappa_score(targets, predicted, weights="quadratic", labels=CLASSES),
    }


def prf_threshold(samples):
    """Samples without a decision have class -1, which is not one of the ``labels`` of scikit-learn."""
    scores, targets = scores_of(samples), labels_of(samples)
    predicted = np.where(scores.max(axis=1) > 0.5, scores.argmax(axis=1), -1)
    all_rates = rates(targets, predicted)
    return {
        **{key: all_rates[key] for key in ("f1", "precision", "recall")},
        "accuracy": accuracy_score(targets, predicted),
        "mcc": matthews_corrcoef(targets, predicted),
        "kappa": cohen_kappa_score(targets, predicted),
        "kappa_linear": np.nan if (predicted < 0).any() else cohen_kappa_score(targets, predicted, weights="linear"),
    }


def prf_mmpretrain(samples):
    """The values of mmpretrain's classes, which are percentages in float32."""
    from mmpretrain.evaluation import Accuracy, SingleLabelMetric

    scores, targets = torch.tensor(scores_of(samples)).float(), torch.tensor(labels_of(samples))
    thrs, values = {"_no-thr": None, "_thr-0.25": 0.25, "_thr-0.60": 0.6}, {}
    for average, ending in (("macro", ""), ("micro", "_micro")):
        results = SingleLabelMetric.calculate(scores, targets, thrs=list(thrs.values()), average=average)
        for suffix, result in zip(thrs, results):
            for key, value in zip(("precision", "recall", "f1"), result):
                values[f"{key}{ending}{suffix}"] = float(value) / 100
    for k, row in zip((1, 3), Accuracy.calculate(scores, targets, topk=(1, 3), thrs=list(thrs.values()))):
        values.update({f"accuracy_top{k}{suffix}": float(value) / 100 for suffix, value in zip(thrs, row)})
    return values


def prf_paddlerec(samples):
    """The definition of PaddleRec: 0/0 counts as 1, and F1 is that of the mean precision and recall."""
    targets, predicted = labels_of(samples), np.array([int(sample["pred_label"]) for sample in samples])
    tp = np.array([np.sum((targets == c) & (predicted == c)) for c in CLASSES], dtype=float)
    precision, recall = (
        np.mean([t / n if n else 1.0 for t, n in zip(tp, np.bincount(rows, minlength=NUM_CLASSES))])
        for rows in (predicted, targets)
    )
    values = dict(precision=precision, recall=recall, f1=2 * precision * recall / (precision + recall))
    return {**values, **dict.fromkeys(("precision_micro", "recall_micro", "f1_micro"), tp.sum() / len(targets))}


def ks_of(samples, index):
    from scipy.stats import ks_2samp

    scores, positive = scores_of(samples)[:, index], labels_of(samples) == index
    return ks_2samp(scores[positive], scores[~positive], alternative="less", method="asymp").statistic


def ks_per_class(samples):
    values = {f"ks/{name}": ks_of(samples, index) for index, name in enumerate(NAMES)}
    return {"ks": np.mean(list(values.values())), **values}


def ks_positive(samples):
    return {"ks": ks_of(samples, 2)}


def recall_at_k(samples):
    """The classes are reversed, because scikit-learn prefers the higher of two classes with the same score."""
    scores, labels = scores_of(samples)[:, ::-1], NUM_CLASSES - 1 - labels_of(samples)
    values = {"sample_count": len(samples)}
    for k in (1, 3):
        values[f"recall@{k}"] = top_k_accuracy_score(labels, scores, k=k, labels=CLASSES)
        values[f"recall_count@{k}"] = top_k_accuracy_score(labels, scores, k=k, labels=CLASSES, normalize=False)
    return values


def brier_and_nll(samples):
    scores, labels = scores_of(samples), labels_of(samples)
    return {
        "brier": np.mean(((scores - one_hot(labels)) ** 2).sum(axis=1)),
        "nll": -np.mean(np.log(scores[np.arange(len(labels)), labels])),
    }


def calibration(samples, n_bins=10):
    from torchmetrics.functional.classification import multiclass_calibration_error

    scores, labels = torch.tensor(scores_of(samples)), torch.tensor(labels_of(samples))
    ece, mce = (
        float(multiclass_calibration_error(scores, labels, NUM_CLASSES, n_bins=n_bins, norm=norm))
        for norm in ("l1", "max")
    )
    return {"ece": ece, "mce": mce, **brier_and_nll(samples)}


def calibration_of_equal_mass(samples):
    """``tests/parity`` compares the function with scikit-learn."""
    scores = scores_of(samples)
    confidence, correct = scores.max(axis=1), scores.argmax(axis=1) == labels_of(samples)
    result = calibration_error(confidence, correct, num_bins=5, binning="equal-mass")
    return {"ece": result.ece, "mce": result.mce, **brier_and_nll(samples)}


PROBABILITY = ("a score above 1", with_value("pred_score", 1.5), ["'pred_score'", "0 to 1"])
PRF_RULES = {"[tf][pn]*/*": None, "classes_*": None}
LESS = {"*": "less"}

SINGLE_LABEL_CASES = [
    MetricCase(
        "prf",
        partial(SingleLabelPRF, average=AVERAGES, classwise=True, counts=True),
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
        without_ties,
        prf_mmpretrain,
        reference_tolerance=1e-6,
        rules=PRF_RULES,
    ),
    MetricCase(
        "prf-paddlerec",
        partial(SingleLabelPRF, num_classes=NUM_CLASSES, convention="paddlerec"),
        only_predicted_labels,
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
    # Different scores of two digits are in different bins of 4,096, so the binned values are exact.
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
        without_ties,
        calibration,
        reference_tolerance=1e-6,  # torchmetrics computes in float32
        invalid_inputs=[*INVALID, PROBABILITY],
        rules=LESS,
    ),
    MetricCase(
        "calibration-mass",
        partial(CalibrationError, num_bins=5, binning="equal-mass"),
        without_ties,
        calibration_of_equal_mass,
        rules=LESS,
    ),
    MetricCase(
        "calibration-binned",
        partial(CalibrationError, num_bins=2, num_thresholds=1 << 12),
        without_ties,
        partial(calibration, n_bins=2),  # the edge 0.5 is an edge of the histogram too
        reference_tolerance=4e-3,  # half of the widest cell
        invalid_inputs=[PROBABILITY],
        rules=LESS,
    ),
]


# --- multi-label ------------------------------------------------------------------------------------------------------


def multi_label(generator, count, *, listed=False, ties=True):
    """Every class has a positive and a negative if there are 2 samples; ``listed``: targets are lists of classes."""
    targets = generator.integers(0, 2, (count, NUM_CLASSES))
    targets[::2][:1], targets[1::2][:1] = 1, 0
    scores = np.round(np.clip(0.35 + 0.3 * targets + 0.3 * generator.normal(size=targets.shape), 0, 1), 2)
    scores = scores if ties else generator.random(scores.shape)
    targets[2:][generator.random(targets[2:].shape) < 0.15] = -1
    samples = []
    for index, (score, target) in enumerate(zip(scores, targets)):
        field = (
            dict(gt_label=torch.tensor(np.flatnonzero(target == 1))) if listed else dict(gt_score=torch.tensor(target))
        )
        samples.append(dict(pred_score=torch.tensor(score, dtype=torch.float32), sample_idx=index, **field))
    return samples


def targets_of(samples):
    if "gt_score" in samples[0]:
        return np.stack([sample["gt_score"].numpy() for sample in samples])
    return np.stack([np.isin(CLASSES, sample["gt_label"].numpy()).astype(int) for sample in samples])


def per_class(function, samples):
    scores, targets = scores_of(samples), targets_of(samples)
    return [function(targets[targets[:, c] >= 0, c], scores[targets[:, c] >= 0, c]) for c in CLASSES]


def multi_auc(samples):
    values = per_class(roc_auc_score, samples)
    return {"auc": np.mean(values), **{f"auc/{name}": value for name, value in zip(NAMES, values)}}


def multi_auc_micro(samples):
    scores, targets = scores_of(samples), targets_of(samples)
    return {"auc": average_precision_score(targets[targets >= 0], scores[targets >= 0])}


def multi_auc_weighted(samples):
    support = (targets_of(samples) == 1).sum(axis=0)
    return {"auc": np.average(per_class(average_precision_score, samples), weights=support)}


def multi_prf(samples):
    targets, predicted = targets_of(samples), (scores_of(samples) >= 0.5).astype(int)
    return {**rates(targets, predicted), **counts(targets, predicted), "accuracy": np.mean(targets == predicted)}


def multi_prf_mmpretrain(samples):
    from mmpretrain.evaluation import MultiLabelMetric

    values = MultiLabelMetric.calculate(torch.tensor(scores_of(samples)), torch.tensor(targets_of(samples)), topk=2)
    return {key: float(value) / 100 for key, value in zip(("precision", "recall", "f1"), values)}


MULTI_INVALID = (
    *INVALID_SCORES,
    ("a target of 2", with_value("gt_score", 2), ["'gt_score'", "1, 0 or -1", "2"]),
    ("too few targets", replaced("gt_score", torch.ones(3)), ["'gt_score'", "(4,)", "(3,)"]),
    ("no target", without("gt_score"), ["'gt_score'"]),
)
LIST_INVALID = (
    *INVALID_SCORES,
    ("a label out of range", replaced("gt_label", torch.tensor([1, 4])), ["'gt_label'", "4"]),
    ("a fractional label", replaced("gt_label", torch.tensor([1.5])), ["'gt_label'", "1.5"]),
    ("no labels", without("gt_label"), ["'gt_label'"]),
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
        partial(MultiLabelPRF, average=AVERAGES, classwise=True, counts=True),
        partial(multi_label, listed=True),
        multi_prf,
        classes=NAMES,
        invalid_inputs=LIST_INVALID,
        rules=PRF_RULES,
    ),
    MetricCase(
        "multi-prf-top",
        partial(MultiLabelPRF, topk=2, convention="mmpretrain"),
        partial(multi_label, ties=False),
        multi_prf_mmpretrain,
        reference_tolerance=1e-6,
        invalid_inputs=MULTI_INVALID,
    ),
]

CLASSIFICATION_CASES = [*SINGLE_LABEL_CASES, *MULTI_LABEL_CASES]
