"""Evaluation of a classifier: from a file or arrays to a :class:`ClassificationReport`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Sequence

from mm_metrics_plugin.evaluation.inputs import (
    check_cfg_options,
    check_classes,
    check_path,
    input_entry,
    keyword_names,
    versions,
)
from mm_metrics_plugin.exceptions import ClassNamesError, ResultFileError, pluralize
from mm_metrics_plugin.io.class_order import describe_orders
from mm_metrics_plugin.io.classification_results import ClassificationResults
from mm_metrics_plugin.io.files import PathLike
from mm_metrics_plugin.io.readers import read_classification
from mm_metrics_plugin.io.readers.dataset_config import read_class_names
from mm_metrics_plugin.reports.base import Progress
from mm_metrics_plugin.reports.classification import ClassificationReport
from mm_metrics_plugin.reports.classification_evaluator import ClassificationEvaluator
from mm_metrics_plugin.settings import ClassificationSettings, given_or_default, with_options


def evaluate_classification(
    results: Any,
    labels: Any = None,
    *,
    classes: Sequence[str] | None = None,
    settings: ClassificationSettings | None = None,
    config: PathLike | None = None,
    cfg_options: Sequence[str] | None = None,
    trust: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> ClassificationReport:
    """Evaluate a classifier, as ``mm-metrics classification`` does.

    Args:
        results: The path of mmpretrain's ``results.pkl``, a list of one dict per sample, or scores: (samples, classes),
            or (samples,) of the positive class.
        labels: With scores: labels (samples,), or multi-label targets (samples, classes) of 1, 0 and -1 (ignored).
            ``(scores, labels)`` may also be one argument.
        classes: Class names in the order of the scores.
        settings: All options at once; by default those of ``options``.
        config: mmpretrain config whose test data set names the classes.
        cfg_options: ``KEY=VALUE`` overrides of the config.
        trust: Read a pickle with plain pickle, which runs whatever is in it.
        progress: Receives the steps.
        **options: Fields of :class:`~mm_metrics_plugin.settings.ClassificationSettings`, such as ``ci=0.95``.

    Raises:
        ResultFileError: The results are damaged, or do not fit the class names.

    Example:
        >>> import numpy as np
        >>> scores = np.array([[0.8, 0.2], [0.4, 0.6], [0.7, 0.3]])
        >>> report = evaluate_classification(scores, np.array([0, 1, 1]), classes=["cat", "dog"])
        >>> round(report.accuracy, 3), report.matrix.tolist()
        (0.667, [[1, 0], [1, 1]])
    """
    settings = with_options(
        given_or_default(settings, ClassificationSettings()), options, keyword_names(evaluate_classification)
    )
    check_classes(classes)
    check_path("config", config)
    check_cfg_options(cfg_options)
    results = results if labels is None else (results, labels)
    progress = progress or Progress()
    inputs: dict[str, Any] = {}
    progress.step("reading the results")
    samples = read_classification(results, trust=trust, task=settings.task, on_progress=progress.fraction)
    inputs["results"] = input_entry(results, samples.sha256)
    names = _class_names(samples, classes, config, cfg_options, inputs)
    progress.step("computing metrics")
    settings = replace(settings, task=samples.task, task_reason=samples.task_reason)
    evaluator = ClassificationEvaluator(names, settings)
    evaluator.state = evaluator.state.with_arrays(
        {
            "scores": samples.scores,
            "labels": samples.ground_truth,
            "precision": samples.precision,
            "sample_idx": samples.sample_idx,
        }
    )
    evaluator.names, evaluator.row_counts = samples.names, samples.row_counts
    evaluator.inputs = {**inputs, "versions": versions("mmengine", "mmpretrain")}
    return evaluator.compute(progress)


def _class_names(
    results: ClassificationResults,
    classes: Sequence[str] | None,
    config: PathLike | None,
    cfg_options: Sequence[str] | None,
    inputs: dict[str, Any],
) -> tuple[str, ...]:
    number, names = results.scores.shape[1], classes
    if config is not None:
        inputs["config"] = input_entry(config)
        config_names = read_class_names(config, options=cfg_options)
        if names is not None and sorted(names) == sorted(config_names) and list(names) != list(config_names):
            orders = describe_orders(config_names, Path(config).name, names, "classes=[...]")
            raise ResultFileError(f"{orders}; labels follow the data set, so leave out classes=[...] or config=...")
        inputs["class_order"] = "metainfo" if names is None else "classes"
        names = config_names if names is None else names
    elif cfg_options:
        raise ResultFileError("cfg_options=[...] overrides settings of config=..., which is not given")
    inputs.setdefault("class_order", "labels" if names is None else "classes")
    if names is None:
        names = results.classes or [str(index) for index in range(number)]
    if len(names) != number:
        raise ClassNamesError(
            f"{results.source}: holds scores of {pluralize(number, 'class')} for {pluralize(len(names), 'class name')}"
        )
    return tuple(names)
