"""SingleLabelAUC's options, keys and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mm_metrics_plugin import MetricInputError, SingleLabelAUC, UndefinedMetricWarning
from mm_metrics_plugin.testing import evaluate
from tests.helpers.cases_single_label import NAMES, single_label

SAMPLES = single_label(np.random.default_rng(0), 50)


def changed(index, **fields):
    """The samples, one of them with other fields."""
    samples = [dict(sample) for sample in SAMPLES]
    samples[index].update(fields)
    return samples


def test_headline_comes_first_and_classes_are_named():
    metric = SingleLabelAUC(classwise=True, num_thresholds=100)
    metric.dataset_meta = {"classes": NAMES}
    keys = list(evaluate(metric, SAMPLES))
    named = ["auc", "auc_error", "classes_averaged", *(f"auc/{name}" for name in NAMES)]
    assert keys == [f"single-label/{key}" for key in named]


def test_intervals_without_a_mean_are_those_of_the_classes():
    found = evaluate(SingleLabelAUC(average=None, classwise=True, ci=0.9), SAMPLES)
    assert "single-label/auc_low/0" in found and "single-label/auc_low" not in found


def test_scores_that_require_gradients():
    samples = [dict(s, pred_score=s["pred_score"].clone().requires_grad_()) for s in SAMPLES]
    assert evaluate(SingleLabelAUC(), samples) == evaluate(SingleLabelAUC(), SAMPLES)


# --- absent classes ---

WITHOUT_LAST = [sample for sample in SAMPLES if int(sample["gt_label"]) != 3]


def feed(metric, samples):
    metric.process(None, samples)
    return metric.evaluate(len(samples))


def test_absent_nan_and_error():
    with pytest.warns(UndefinedMetricWarning):
        assert np.isnan(feed(SingleLabelAUC(absent="nan"), WITHOUT_LAST)["single-label/auc"])
    with pytest.raises(MetricInputError, match=r"1 of 4 classes have no value on this data \(classes 3\)"):
        feed(SingleLabelAUC(absent="error"), WITHOUT_LAST)


def test_slide_steps_zero_means_all_batches():
    found = evaluate(SingleLabelAUC(slide_steps=0), SAMPLES)
    assert found["single-label/batch_auc"] == found["single-label/auc"]


# --- refusals ---


def test_a_sample_has_one_label():
    with pytest.raises(MetricInputError, match=r"'gt_label' of sample 0 must be one label \(found 2 values\)"):
        evaluate(SingleLabelAUC(), [dict(s, gt_label=torch.tensor([0, 1])) for s in SAMPLES])


def test_binned_scores_must_be_probabilities():
    with pytest.raises(MetricInputError, match=r"'pred_score' of sample 2 must lie in 0 to 1 for num_thresholds"):
        evaluate(SingleLabelAUC(num_thresholds=10), changed(2, pred_score=torch.tensor([0.1, 3.0, 0.2, 0.3])))
