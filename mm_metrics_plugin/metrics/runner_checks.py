"""Checks of the evaluators of a Runner before training starts: keys, monitored keys and ground truth."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import torch
from mmengine.evaluator import BaseMetric, DumpResults, Evaluator
from mmengine.hooks import CheckpointHook, EarlyStoppingHook
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement

from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.settings import nearest_name

_MOST_KEYS = 40  # in a message


class MetricKeys(NamedTuple):
    """The keys of a metric in an evaluator."""

    metric: BaseMetric
    prefix: str  # of all its keys, such as ``det/``; empty if unknown
    keys: list[str] | None  # None if unknown


def check_evaluations(runner: Runner) -> None:
    """Raises an error if the validation or the test of a Runner would fail; only loops that are built are checked."""
    for loop in (runner._val_loop, runner._test_loop):  # val_loop and test_loop would build them
        evaluator = getattr(loop, "evaluator", None)
        if not isinstance(evaluator, Evaluator):
            continue
        check_keys(evaluator)
        if loop is runner._val_loop:
            _check_monitors(runner, evaluator)
        metrics = [metric for metric in evaluator.metrics if isinstance(metric, StreamingMetric)]
        if any(metric.target_fields for metric in metrics):
            _check_targets(metrics, getattr(getattr(loop, "dataloader", None), "dataset", None))


def metrics_of(loop: Any) -> Iterator[tuple[str, StreamingMetric]]:
    """The metrics of this package in a loop, each with the prefix of its task inside mmpretrain's MultiTasksMetric."""
    for task, metric in _unwrapped(getattr(getattr(loop, "evaluator", None), "metrics", ())):
        if isinstance(metric, StreamingMetric):
            yield task, metric


def _unwrapped(metrics: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The metrics, with those inside of a MultiTasksMetric in place of it."""
    waiting = [("", metric) for metric in metrics]
    while waiting:
        task, metric = waiting.pop(0)
        if type(metric).__name__ == "MultiTasksMetric":
            waiting += [(f"{task}{name}_", child) for name, children in metric._metrics.items() for child in children]
        else:
            yield task, metric


# --- keys -------------------------------------------------------------------------------------------------------------


def keys_of(evaluator: Evaluator) -> list[MetricKeys]:
    """The keys of every metric of an evaluator, also of mmdet's MultiDatasetsEvaluator."""
    datasets = getattr(evaluator, "dataset_prefixes", None)
    metas = evaluator.dataset_meta if isinstance(evaluator.dataset_meta, Sequence) else ()
    found = []
    for index, (task, metric) in enumerate(_unwrapped(evaluator.metrics)):
        if datasets is not None and index >= len(datasets):
            break  # it is not evaluated
        start = task if datasets is None else f"{datasets[index]}/"
        prefix = f"{start}{metric.prefix}/" if metric.prefix else start
        keys: list[str] | None = None
        if isinstance(metric, StreamingMetric):
            own = metric.log_keys(metas[index] if index < len(metas) else None)
            keys = None if own is None else [f"{start}{key}" for key in own]
        elif isinstance(metric, DumpResults):
            keys = []
        elif type(metric).evaluate is not BaseMetric.evaluate:  # it may add other prefixes
            prefix = ""
        found.append(MetricKeys(metric, prefix, keys))
    return found


def describe_keys(loop: Any) -> str:
    """The keys of a loop's metrics of this package for the log, one for all classes; empty without such metrics."""
    evaluator = getattr(loop, "evaluator", None)
    if not isinstance(evaluator, Evaluator):
        return ""
    found = [one for one in keys_of(evaluator) if isinstance(one.metric, StreamingMetric)]
    return _listed([key for one in found for key in _short(one)])


def _short(found: MetricKeys) -> list[str]:
    """The keys of a metric, one for all classes."""
    if found.keys is None:
        return [f"{found.prefix}... (unknown before the first sample)"]
    bare = [key[len(found.prefix) :].partition("/") for key in found.keys]
    return list(dict.fromkeys(f"{found.prefix}{name}{'/<class>' if slash else ''}" for name, slash, _ in bare))


def _listed(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
    return ", ".join(keys[:_MOST_KEYS]) + more


def check_keys(evaluator: Evaluator) -> None:
    """Raises ValueError if two metrics of an evaluator give the same key, which mmengine refuses after evaluating."""
    metric_of_key: dict[str, str] = {}
    for found in keys_of(evaluator):
        name = type(found.metric).__name__
        for key in found.keys or ():
            if key in metric_of_key:
                raise ValueError(
                    f"{metric_of_key[key]} and {name} of one evaluator both give the key {key!r}: give one of them "
                    "another prefix=..."
                )
            metric_of_key[key] = name


# --- monitored keys ---------------------------------------------------------------------------------------------------


def _check_monitors(runner: Runner, evaluator: Evaluator) -> None:
    """Raises ValueError if the validation does not give a key that decides about checkpoints, stopping or the rate."""
    found = keys_of(evaluator)
    for option, key, fails in _monitored(runner):
        message = missing_key(found, option, key)
        if message is None:
            continue
        if fails:
            raise ValueError(message)
        runner.logger.warning(f"EvaluationCheckHook: {message}")


def _monitored(runner: Runner) -> Iterator[tuple[str, str, bool]]:
    """The options that name keys, the keys, and whether a missing one raises an error in mmengine."""
    for hook in runner.hooks:
        if isinstance(hook, CheckpointHook) and hook.save_best is not None:
            for key in hook.save_best:
                yield "save_best", key, True
        elif isinstance(hook, EarlyStoppingHook):
            yield "monitor of EarlyStoppingHook", hook.monitor, bool(hook.strict)
    schedulers: Any = runner.param_schedulers or ()
    if isinstance(schedulers, dict):
        schedulers = [one for several in schedulers.values() for one in several]
    for scheduler in schedulers:
        if getattr(scheduler, "need_val_args", False):
            yield f"monitor of {type(scheduler).__name__}", scheduler.monitor, True


def missing_key(found: Sequence[MetricKeys], option: str, key: str) -> str | None:
    """A message if no metric gives a key; None if one does, or may do so."""
    keys = [one for metric in found for one in metric.keys or ()]
    if key in (*keys, "auto") or "loss" in key or any(_may_give(metric, key) for metric in found):
        return None
    of_class = next((one for one in keys if one.startswith(f"{key}/")), None)
    bare = {one[len(metric.prefix) :]: one for metric in found for one in metric.keys or ()}
    nearest = nearest_name(key, [*keys, *bare])
    hint = "" if nearest is None else f"; did you mean {bare.get(nearest, nearest)!r}?"
    if of_class is not None:
        hint = f"; it is given per class only, such as {of_class!r} (average=None leaves out the mean)"
    listed = _listed([one for metric in found for one in _short(metric)])
    return f"{option}={key!r}: no metric gives this key{hint} (the keys are {listed})"


def _may_give(found: MetricKeys, key: str) -> bool:
    """Whether a metric may give a key that is not among its known ones."""
    if found.keys is None:
        return key.startswith(found.prefix)
    metric = found.metric
    classes_unknown = not getattr(metric, "dataset_classes", ()) and not getattr(metric, "num_classes", None)
    return classes_unknown and key.startswith(found.prefix) and "/" in key[len(found.prefix) :]


# --- ground truth -----------------------------------------------------------------------------------------------------


def _check_targets(metrics: list[StreamingMetric], dataset: Any) -> None:
    """Raises MetricInputError unless the first sample of a dataset has the ground truth that the metrics read."""
    try:
        with _restored_random_states():
            item = dataset[0]
    except Exception:  # an empty dataset, or one that fails in the loop
        return
    sample = item.get("data_samples") if isinstance(item, Mapping) else None
    if not isinstance(sample, BaseDataElement):
        return
    samples = [sample.to_dict()]
    for metric in metrics:
        with metric.named_errors():
            metric.check_targets(samples)


@contextmanager
def _restored_random_states() -> Iterator[None]:
    """Restores the random states, so that random transforms do not change the training."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 (transforms use it)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])
