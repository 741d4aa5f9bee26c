"""Comparison of two or more runs on the same images: from files to a :class:`ComparisonReport`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.evaluation.examples import Disagreements, disagreements
from mm_metrics_plugin.evaluation.inputs import check_classes, check_path, input_entry, keyword_names, versions
from mm_metrics_plugin.evaluation.loading import DetectionInput, results_entry
from mm_metrics_plugin.evaluation.run_summaries import RunSummary, RunWarning
from mm_metrics_plugin.evaluation.runs import (
    COMPARISON_OPTIONS,
    TASK_OPTIONS,
    ClassificationRuns,
    DetectionRuns,
    Runs,
)
from mm_metrics_plugin.exceptions import ResultFileError, shortened
from mm_metrics_plugin.functional.statistics.paired_tests import ChangedImage, Comparison, changed_images, significant
from mm_metrics_plugin.io.classification_results import ClassificationResults
from mm_metrics_plugin.io.detection_data import DetectionResults
from mm_metrics_plugin.io.files import PathLike
from mm_metrics_plugin.io.formats import CLASSIFICATION, DETECTIONS, is_path
from mm_metrics_plugin.io.readers import read
from mm_metrics_plugin.reports.base import SCHEMA_VERSION, Progress, Report, records
from mm_metrics_plugin.settings import (
    ClassificationSettings,
    ComparisonSettings,
    DetectionSettings,
    given_or_default,
    require_known_options,
    with_options,
)

_ROUNDING = 1e-12  # of sums in another order
BETTER, WORSE, NOT_SIGNIFICANT, SAME, UNDEFINED = "better", "worse", "not significant", "no difference", "undefined"


class DifferenceRow(NamedTuple):
    """One metric of two runs, as in :class:`~mm_metrics_plugin.functional.statistics.paired_tests.Difference`.

    ``class_name`` is None for metrics over all classes. ``classes_averaged`` is the number of classes of a mean, those
    with a value in both runs; else None. ``warnings`` are the codes of those that concern the metric.
    """

    metric: str
    class_name: str | None
    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float
    low_unadjusted: float
    high_unadjusted: float
    p_unadjusted: float
    verdict: str
    classes_averaged: int | None
    warnings: tuple[str, ...]


def verdict(difference: float, p_value: float, *, ci: float) -> str:
    """Whether the second run is significantly better or worse."""
    if difference != difference:
        return UNDEFINED
    if abs(difference) < _ROUNDING:
        return SAME
    if not significant(np.asarray(p_value), ci=ci):
        return NOT_SIGNIFICANT
    return BETTER if difference > 0 else WORSE


@dataclass(frozen=True, eq=False)
class PairwiseComparison:
    """Comparison of a run with the baseline."""

    first: str  # name of the baseline
    second: str  # name of the other run
    comparison: Comparison
    changed: tuple[ChangedImage, ...]  # images on which the runs differ, by descending difference
    image_names: tuple[Any, ...]  # of these images
    disagreements: Disagreements
    changed_classes: tuple[dict[str, str], ...] = ()  # true and predicted classes of these images; single-label only
    warnings: tuple[RunWarning, ...] = ()

    def rows(self, classes: tuple[str, ...]) -> list[DifferenceRow]:
        """Every difference, those over all classes first."""
        tables: list[Any] = [(None, name, [vars(value)]) for name, value in self.comparison.overall.items()]
        tables += [(classes, name, records(vars(values))) for name, values in self.comparison.per_class.items()]
        return [
            DifferenceRow(
                name,
                class_name,
                verdict=verdict(values["difference"], values["p_value"], ci=self.comparison.ci),
                classes_averaged=None if names else self.comparison.classes_averaged.get(name),
                warnings=tuple(dict.fromkeys(warning.code for warning in self.warnings if warning.concerns(name))),
                **values,
            )
            for names, name, rows in tables
            for class_name, values in zip(names or (None,), rows)
        ]

    def changed_entries(self) -> list[tuple[ChangedImage, Any, dict[str, str]]]:
        """The changed images with their names, and the classes of a classifier by name."""
        return list(zip(self.changed, self.image_names, self.changed_classes or [{}] * len(self.changed)))

    def to_dict(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """As plain Python values."""
        rows = [{**row._asdict(), "warnings": list(row.warnings)} for row in self.rows(classes)]
        overall = [row for row in rows if row["class_name"] is None]
        return {
            "first": self.first,
            "second": self.second,
            "warnings": [warning._asdict() for warning in self.warnings],
            "overall": [_without(row, "class_name") for row in overall],
            "per_class": [_without(row, "classes_averaged") for row in rows if row["class_name"] is not None],
            "images_without_errors": dict(self.disagreements.agreement),
            "changed_images": [
                {**change.to_dict(), "image": name, **classes} for change, name, classes in self.changed_entries()
            ],
        }


def _without(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonReport(Report):
    """Report on the differences between runs.

    Attributes:
        kind: ``'detection'`` or ``'classification'``.
        inputs: Provenance: the files that were read, and versions.
        images: Number of images, the same for all runs.
        summaries: What was read and used of each run.
        comparisons: Every other run against the first.
        runs: The runs that the report was made from.
    """

    kind: str
    classes: tuple[str, ...]
    settings: ComparisonSettings
    inputs: Mapping[str, Any]
    images: int
    summaries: tuple[RunSummary, ...]
    comparisons: tuple[PairwiseComparison, ...]
    runs: Runs | None = field(default=None, repr=False)

    def _content(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": self.kind,
            "classes": list(self.classes),
            "settings": self.settings.to_dict(),
            "inputs": dict(self.inputs),
            "images": self.images,
            "runs": [summary.to_dict() for summary in self.summaries],
            "comparisons": [pair.to_dict(self.classes) for pair in self.comparisons],
        }


def compare_runs(
    ground_truth: Any,
    runs: Sequence[Any],
    *,
    names: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    settings: ComparisonSettings | None = None,
    class_order: str | None = None,
    image_set: PathLike | None = None,
    cfg_options: Sequence[str] | None = None,
    trust: bool = False,
    allow_missing: bool = False,
    score_mode: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> ComparisonReport:
    """Compare runs on the same images, each with the first, as ``mm-metrics compare`` does.

    Args:
        ground_truth: That of detectors, as in :func:`~mm_metrics_plugin.evaluate_detection`; None for classifiers and
            where it is inside the results.
        runs: The results of each run, the baseline first: paths, or objects in memory as in
            :func:`~mm_metrics_plugin.evaluate_detection` and :func:`~mm_metrics_plugin.evaluate_classification`.
        names: Names of the runs; file names by default.
        classes: Class names in the order of the labels.
        settings: All options at once; by default those of ``options``.
        class_order: ``'annotations'`` or ``'classes'``: which order labels follow, where the two differ.
        image_set: List of the test images of a folder of VOC files.
        cfg_options: ``KEY=VALUE`` overrides of the config.
        trust: Read pickles with plain pickle, which runs whatever is in them.
        allow_missing: Evaluate images without results as images without detections.
        score_mode: Score of mmpose's key points, as in :func:`~mm_metrics_plugin.evaluate_detection`.
        progress: Receives the steps.
        **options: ``ci``, ``permutations``, ``seed``; ``iou_type``, ``sigmas``, ``score_thr`` or
            ``operating_point``, ``iou_thr``, ``nms_iou_thr``,
            ``iou_thrs``, ``max_dets`` of detectors; ``task``, ``score_thr`` of classifiers.

    Raises:
        ResultFileError: A file is damaged, or the runs were not made on the same images.

    Example:
        >>> labels = np.array([0, 1, 1])
        >>> first = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
        >>> second = np.array([[0.9, 0.1], [0.1, 0.9], [0.2, 0.8]])
        >>> report = compare_runs(None, [(first, labels), (second, labels)], names=["old", "new"], permutations=100)
        >>> report.comparisons[0].rows(report.classes)[0][:5]
        ('accuracy', None, 0.6666666666666666, 1.0, 0.33333333333333337)
    """
    _check_arguments(runs, names, classes, settings, image_set, options)
    progress = progress or Progress()
    source = DetectionInput(
        ground_truth=ground_truth,
        results=tuple(runs),
        classes=classes,
        class_order=class_order,
        image_set=None if image_set is None else str(image_set),
        cfg_options=cfg_options,
        trust=trust,
        allow_missing=allow_missing,
        score_mode=score_mode,
    )
    known: dict[str, Any] = {name: options[name] for name in ("iou_type", "sigmas", "nms_iou_thr") if name in options}
    detection = with_options((settings and settings.detection) or DetectionSettings(), known)
    shapes = {"iou_type": detection.iou_type, **source.shape_options(detection)}
    progress.step("reading")
    results = [
        read(run, f"run {number}", DETECTIONS, CLASSIFICATION, trust=trust, task=options.get("task"), **shapes)
        for number, run in enumerate(progress.track(runs), start=1)
    ]
    if len({type(run) for run in results}) > 1:
        raise ResultFileError(f"{results[0].source} and the others: detectors cannot be compared with classifiers")
    runs_type: Any = ClassificationRuns if isinstance(results[0], ClassificationResults) else DetectionRuns
    loaded: Runs = runs_type(source, results, settings, options, progress)
    entries = [input_entry(run, read.sha256) for run, read in zip(runs, results)]
    inputs: dict[str, Any] = {
        "runs": [
            {
                **(results_entry(entry, run, [detection.iou_type]) if isinstance(run, DetectionResults) else entry),
                "joined_by": joined_by,
            }
            for entry, run, joined_by in zip(entries, results, loaded.joined_by)
        ]
    }
    if loaded.ground_truth_entry is not None:
        inputs["ground_truth"] = loaded.ground_truth_entry
    del results  # the runs keep what they need
    inputs["versions"] = versions(*loaded.libraries)
    inputs["class_order"] = loaded.class_order
    if loaded.kind == "detection":
        inputs["allow_missing"] = allow_missing
    run_names = list(names) if names is not None else _run_names(runs)
    return ComparisonReport(
        kind=loaded.kind,
        classes=loaded.classes,
        settings=loaded.settings,
        inputs=inputs,
        images=len(loaded.image_names),
        summaries=tuple(loaded.summary(run, name) for run, name in enumerate(run_names)),
        comparisons=tuple(_compare_pair(loaded, other, run_names) for other in range(1, len(runs))),
        runs=loaded,
    )


def _check_arguments(
    runs: Any, names: Any, classes: Any, settings: Any, image_set: Any, options: Mapping[str, Any]
) -> None:
    """Check what can be checked before anything is read."""
    if not isinstance(runs, (list, tuple)):
        raise ResultFileError(f"runs must be a list with the results of at least two runs (found {shortened(runs)})")
    if len(runs) < 2:
        raise ResultFileError(f"a comparison needs the results of at least two runs (found {len(runs)})")
    if names is not None:
        is_list = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
        if not is_list or len(names) != len(runs) or len(set(names)) != len(runs):
            raise ResultFileError(
                f"names must be {len(runs)} distinct names, one for each run (found {shortened(names)})"
            )
    check_classes(classes)
    given_or_default(settings, ComparisonSettings(DetectionSettings()))
    check_path("image_set", image_set)
    known_options = [*COMPARISON_OPTIONS, *TASK_OPTIONS["detection"], *TASK_OPTIONS["classification"]]
    require_known_options(options, known_options, keyword_names(compare_runs))
    for example in (DetectionSettings(), ClassificationSettings(), ComparisonSettings(DetectionSettings())):
        known = {option.name for option in fields(example)}
        with_options(example, {name: value for name, value in options.items() if name in known})


def _run_names(runs: Sequence[Any]) -> list[str]:
    """File names; paths if two files have the same name; numbers for objects in memory and repeated runs."""
    names = [Path(run).name if is_path(run) else f"run {number}" for number, run in enumerate(runs, start=1)]
    if len(set(names)) < len(names):
        names = [str(run) if is_path(run) else name for run, name in zip(runs, names)]
    if len(set(names)) < len(names):
        names = [f"{name} (run {number})" for number, name in enumerate(names, start=1)]
    return names


def _compare_pair(runs: Runs, other: int, names: Sequence[str]) -> PairwiseComparison:
    """Another run against the first."""
    runs.progress.step(f"comparing run {other + 1} with run 1")
    counts = runs.counts(0), runs.counts(other)
    confidence: Any = runs.confidence(0), runs.confidence(other)
    changed = changed_images(*counts)
    decisions: Any = runs.decisions(0), runs.decisions(other)
    changed_classes = []
    if decisions[0] is not None:
        labels = [[labels[change.image] for labels in (runs.ground_truth, *decisions)] for change in changed]
        keys = ("true_class", "first_class", "second_class")
        changed_classes = [dict(zip(keys, (runs.classes[label] for label in row))) for row in labels]
    return PairwiseComparison(
        first=names[0],
        second=names[other],
        comparison=runs.compare(0, other, counts),
        changed=changed,
        image_names=tuple(runs.image_names[change.image] for change in changed),
        disagreements=disagreements(*counts, confidence=None if confidence[0] is None else np.stack(confidence)),
        changed_classes=tuple(changed_classes),
        warnings=runs.warnings(0, other, names),
    )
