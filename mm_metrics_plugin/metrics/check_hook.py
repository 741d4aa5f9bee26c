"""Checks of an evaluator and its dataset before training starts."""

from __future__ import annotations

import copy
import random
import warnings
from contextlib import contextmanager
from typing import Any, Iterator, Mapping

import numpy as np
import torch
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.log import python_warnings
from mm_metrics_plugin.metrics.sample_fields import Sample, field_values


@HOOKS.register_module()
class EvaluationCheckHook(Hook):  # type: ignore[misc]  # mmengine has no types
    """Stops a run before training starts if its evaluation would fail after the first epoch.

    It checks, of the metrics of this package, that no two of them give the same keys, and that the first sample of the
    dataset has the ground truth that they read. :class:`MetricFigureHook` checks the same and warns.

    Example:
        >>> HOOKS.build(dict(type="EvaluationCheckHook")).priority
        'NORMAL'
    """

    def before_run(self, runner: Runner) -> None:
        """Check the evaluators that are built by then."""
        check_evaluations(runner)


def check_evaluations(runner: Runner) -> None:
    """Check the validation and the test that a Runner has built.

    Raises:
        ValueError: Two metrics would give the same key.
        MetricInputError: Samples lack the ground truth that a metric reads.
    """
    # Not val_loop and test_loop, which would build them.
    for loop in (runner._val_loop, runner._test_loop):
        evaluator = getattr(loop, "evaluator", None)
        if not isinstance(evaluator, Evaluator):
            continue
        metrics = [metric for metric in evaluator.metrics if isinstance(metric, StreamingMetric)]
        if not hasattr(evaluator, "dataset_prefixes"):  # mmdet's MultiDatasetsEvaluator adds them to the keys
            check_keys(metrics)
        if any(metric.target_fields for metric in metrics):
            sample = _first_sample(getattr(getattr(loop, "dataloader", None), "dataset", None))
            if sample is not None:
                for metric in metrics:
                    check_targets(metric, sample)


def check_keys(metrics: list[StreamingMetric]) -> None:
    """Raises ValueError if two metrics of an evaluator give the same key, which mmengine refuses after evaluating.

    Example:
        >>> from mm_metrics_plugin import SingleLabelAUC
        >>> check_keys([SingleLabelAUC(), SingleLabelAUC(curve="pr")])
        Traceback (most recent call last):
        ValueError: SingleLabelAUC and SingleLabelAUC of one evaluator both give the key 'single-label/auc': give one of
        them another prefix=...
        >>> check_keys([SingleLabelAUC(), SingleLabelAUC(curve="pr", prefix="average-precision")])
    """
    metric_of_key: dict[str, str] = {}
    for metric in metrics:
        name = type(metric).__name__
        for key in _keys(metric):
            if key in metric_of_key:
                raise ValueError(
                    f"{metric_of_key[key]} and {name} of one evaluator both give the key {key!r}: give one of them "
                    "another prefix=..."
                )
            metric_of_key[key] = name


def check_targets(metric: StreamingMetric, sample: Sample) -> None:
    """Raises MetricInputError unless a sample has the ground truth that a metric reads.

    Example:
        >>> from mm_metrics_plugin import DetectionPRF
        >>> check_targets(DetectionPRF(), dict(img_path="a.jpg", gt_instances=dict()))
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.MetricInputError: DetectionPRF: sample 0 (a.jpg) must have a field
        'gt_instances.bboxes' (found nothing): add dict(type='LoadAnnotations', with_bbox=True) after Resize in the test
        pipeline
    """
    for field in metric.target_fields:
        try:
            field_values([sample], field, lambda index: metric.sample_name(sample, index))
        except MetricInputError as error:
            raise MetricInputError(f"{type(metric).__name__}: {error}") from None


def _keys(metric: StreamingMetric) -> list[str]:
    """The keys of an evaluation without samples; none if the metric needs samples."""
    metric = copy.deepcopy(metric)  # it warns once, and must warn again
    try:
        with warnings.catch_warnings(), python_warnings():
            warnings.simplefilter("ignore")
            keys = metric.compute(metric.empty_state())
    except Exception:  # the evaluation raises it
        return []
    return [f"{metric.prefix}/{key}" if metric.prefix else key for key in keys]


def _first_sample(dataset: Any) -> dict[str, Any] | None:
    """The first data sample of a dataset, as metrics get it; None if there is no such sample."""
    try:
        with _random_state_kept():
            item = dataset[0]
    except Exception:  # an empty dataset, or one that fails in the loop
        return None
    sample = item.get("data_samples") if isinstance(item, Mapping) else None
    return sample.to_dict() if isinstance(sample, BaseDataElement) else None


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Restores the random states: random transforms do not change the training."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 (transforms use it)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])
