"""Comparison of two or more runs on the same images: from files to a :class:`ComparisonReport`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.evaluation.classification import load_classification
from mm_metrics_plugin.evaluation.examples import Disagreements, disagreements
from mm_metrics_plugin.evaluation.loading import DetectionInput, results_entry
from mm_metrics_plugin.evaluation.report import (
    SCHEMA_VERSION,
    Progress,
    Report,
    check_classes,
    input_entry,
    is_path,
    keyword_names,
)
from mm_metrics_plugin.evaluation.run_sets import ClassifierRuns, DetectorRuns, RunSet
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.functional.statistics.paired_tests import ChangedImage, Comparison, changed_images, significant
from mm_metrics_plugin.io.classification_results import ClassificationResults, classification_from_samples
from mm_metrics_plugin.io.files import PathLike, trim_memory
from mm_metrics_plugin.io.results import DetectionResults, results_from_images
from mm_metrics_plugin.io.safe_pickle import read_pickle
from mm_metrics_plugin.settings import (
    ClassificationSettings,
    ComparisonSettings,
    DetectionSettings,
    require_known_options,
    with_options,
)

COMPARISON_OPTIONS = (
    "ci",
    "permutations",
    "seed",
    "score_thr",
    "iou_thr",
    "nms_iou_thr",
    "max_dets",
    "task",
)
PICKLES = (".pkl", ".pickle")
_NOTHING = 1e-12  # rounding error of sums in another order
BETTER, WORSE, NOT_SIGNIFICANT, SAME = "better", "worse", "not significant", "no difference"


class DifferenceRow(NamedTuple):
    """One figure of two runs, as in :class:`~mm_metrics_plugin.functional.statistics.paired_tests.Difference`.

    ``class_name`` is None for figures over all classes.
    """

    metric: str
    class_name: Optional[str]
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


def verdict(difference: float, p_value: float, *, ci: float) -> str:
    """Whether the second run is significantly better or worse.

    Example:
        >>> [verdict(0.01, p, ci=0.95) for p in (0.003, 0.3)], verdict(-0.01, 0.003, ci=0.95)
        (['better', 'not significant'], 'worse')
    """
    if abs(difference) < _NOTHING:
        return SAME
    if not significant(np.asarray(p_value), ci=ci):
        return NOT_SIGNIFICANT
    return BETTER if difference > 0 else WORSE


class ChangedClass(NamedTuple):
    """True class of a sample, and the classes that two classifiers predict."""

    true_class: str
    first_class: str
    second_class: str


@dataclass(frozen=True, eq=False)
class PairwiseComparison:
    """Comparison of a run with the baseline.

    Attributes:
        first: Name of the baseline.
        second: Name of the other run.
        comparison: Differences of the rates, of average precision and of AUC.
        changed: The images on which the runs differ most.
        image_names: Names of these images, in the same order.
        disagreements: The images on which one run makes fewer errors than the other.
        changed_classes: Classes of the changed samples, in the same order; single-label classifiers only.
    """

    first: str
    second: str
    comparison: Comparison
    changed: Tuple[ChangedImage, ...]
    image_names: Tuple[Any, ...]
    disagreements: Disagreements
    changed_classes: Tuple[ChangedClass, ...] = ()

    def rows(self, classes: Tuple[str, ...]) -> List[DifferenceRow]:
        """Every difference, those over all classes first."""
        ci = self.comparison.ci

        def row(name: str, class_name: Optional[str], values: Dict[str, float]) -> DifferenceRow:
            said = verdict(values["difference"], values["p_value"], ci=ci)
            return DifferenceRow(name, class_name, verdict=said, **values)

        rows = [row(name, None, vars(one)) for name, one in self.comparison.overall.items()]
        for name, many in self.comparison.per_class.items():
            columns = [np.asarray(part).tolist() for part in vars(many).values()]
            rows += [
                row(name, class_name, dict(zip(vars(many), values)))
                for class_name, values in zip(classes, zip(*columns))
            ]
        return rows

    def changed_entries(self) -> List[Tuple[ChangedImage, Any, Dict[str, str]]]:
        """The changed images with their names, and the classes of a classifier by name."""
        classes = [one._asdict() for one in self.changed_classes] or [{}] * len(self.changed)
        return list(zip(self.changed, self.image_names, classes))

    def to_dict(self, classes: Tuple[str, ...]) -> Dict[str, Any]:
        """As plain Python values."""
        rows = self.rows(classes)
        return {
            "first": self.first,
            "second": self.second,
            "overall": [_plain(row, ("class_name",)) for row in rows if row.class_name is None],
            "per_class": [_plain(row) for row in rows if row.class_name is not None],
            "images_without_errors": dict(self.disagreements.agreement),
            "changed_images": [
                {**one.to_dict(), "image": name, **classes} for one, name, classes in self.changed_entries()
            ],
        }


def _plain(row: DifferenceRow, without: Tuple[str, ...] = ()) -> Dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if name not in without}


@dataclass(frozen=True, eq=False)
class ComparisonReport(Report):
    """Report on the differences between runs.

    Attributes:
        kind: ``'detection'`` or ``'classification'``.
        inputs: Provenance: the files that were read, and versions.
        images: Number of images that all runs were tested on.
        comparisons: Every other run against the first.
        runs: The runs that the report was made from.
    """

    kind: str
    classes: Tuple[str, ...]
    settings: ComparisonSettings
    inputs: Mapping[str, Any]
    images: int
    comparisons: Tuple[PairwiseComparison, ...]
    runs: Optional[RunSet] = field(default=None, repr=False)

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values, in the order of the JSON report."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": self.kind,
            "classes": list(self.classes),
            "settings": self.settings.to_dict(),
            "inputs": dict(self.inputs),
            "images": self.images,
            "comparisons": [one.to_dict(self.classes) for one in self.comparisons],
        }


def compare_runs(
    ground_truth: Any,
    runs: Sequence[Any],
    *,
    names: Optional[Sequence[str]] = None,
    classes: Optional[Sequence[str]] = None,
    settings: Optional[ComparisonSettings] = None,
    class_order: Optional[str] = None,
    image_set: Optional[PathLike] = None,
    cfg_options: Optional[Sequence[str]] = None,
    trust: bool = False,
    allow_missing: bool = False,
    progress: Optional[Progress] = None,
    **options: Any,
) -> ComparisonReport:
    """Compare runs on the same images, each with the first, as ``mm-metrics compare`` does.

    Args:
        ground_truth: That of detectors, as in :func:`~mm_metrics_plugin.evaluate_detection`; None for classifiers and
            where it is inside the results.
        runs: The results of each run, the baseline first: paths, or what is in memory as in
            :func:`~mm_metrics_plugin.evaluate_detection` and :func:`~mm_metrics_plugin.evaluate_classification`.
        names: Names of the runs; file names by default.
        classes: Class names in the order of the labels.
        settings: All options at once; by default those of ``options``.
        class_order: ``'annotations'`` or ``'classes'``: which order labels follow, where the two differ.
        image_set: List of the test images of a folder of VOC files.
        cfg_options: ``KEY=VALUE`` overrides of the config.
        trust: Read pickles with plain pickle, which runs whatever is in them.
        allow_missing: Evaluate images without results as images without detections.
        progress: Receives the steps.
        **options: ``ci``, ``permutations``, ``seed``; ``score_thr``, ``iou_thr``, ``nms_iou_thr``, ``max_dets`` of
            detectors; ``task``, ``score_thr`` of classifiers.

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
    _check_arguments(runs, names, classes, options)
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
    )
    inputs: Dict[str, Any] = {"runs": [input_entry(run) for run in runs]}
    if not source.in_results:
        inputs["ground_truth"] = source.ground_truth_entry()
    progress.step("reading")
    results = [_read(run, trust, options.get("task")) for run in progress.track(runs)]
    kinds = {isinstance(one, ClassificationResults) for one in results}
    if len(kinds) > 1:
        raise ResultFileError(f"{results[0].source} and the others: detectors cannot be compared with classifiers")
    run_set_type: Any = ClassifierRuns if kinds.pop() else DetectorRuns
    run_set: RunSet = run_set_type(source, results, settings, options, progress)
    inputs["runs"] = [
        {**(results_entry(entry, one) if isinstance(one, DetectionResults) else entry), "joined_by": joined_by}
        for entry, one, joined_by in zip(inputs["runs"], results, run_set.joined_by)
    ]
    del results  # the runs keep what they need
    inputs["versions"] = source.versions()
    inputs["class_order"] = run_set.class_order
    run_names = list(names) if names is not None else _run_names(runs)
    return ComparisonReport(
        kind=run_set.kind,
        classes=run_set.classes,
        settings=run_set.settings,
        inputs=inputs,
        images=len(run_set.image_names),
        comparisons=tuple(_compare_pair(run_set, other, run_names) for other in range(1, len(runs))),
        runs=run_set,
    )


def _check_arguments(runs: Any, names: Any, classes: Any, options: Mapping[str, Any]) -> None:
    """Check what can be checked before anything is read."""
    if is_path(runs) or not isinstance(runs, (list, tuple)):
        raise ResultFileError(f"runs must be a list with the results of at least two runs (found {runs!r})")
    if len(runs) < 2:
        raise ResultFileError(f"a comparison needs the results of at least two runs (found {len(runs)})")
    for number, run in enumerate(runs):
        if not is_path(run) and not isinstance(run, (list, tuple)):
            raise ResultFileError(
                f"run number {number} must be a path, a list of results or a pair of arrays "
                f"(found {type(run).__name__})"
            )
    if names is not None and (isinstance(names, str) or len(set(names)) != len(runs)):
        raise ResultFileError(f"names must be {len(runs)} distinct names, one for each run (found {names!r})")
    check_classes(classes)
    require_known_options(options, COMPARISON_OPTIONS, keyword_names(compare_runs))
    for example in (DetectionSettings(), ClassificationSettings(), ComparisonSettings(DetectionSettings())):
        known = {one.name for one in fields(example)}
        with_options(example, {name: value for name, value in options.items() if name in known})


def _read(run: Any, trust: bool, task: Optional[str]) -> Any:
    """Results of either kind."""
    if not is_path(run):
        is_classifier = isinstance(run, tuple) or (len(run) and isinstance(run[0], dict) and "pred_score" in run[0])
        if is_classifier:
            return load_classification(run, task=task)
        return DetectionInput(None, ()).read_results(run)
    path = Path(run)
    if path.suffix.lower() not in PICKLES:
        return DetectionInput(None, (), trust=trust).read_results(path)
    content = read_pickle(path, trust=trust)
    size = path.stat().st_size
    if isinstance(content, list) and content and isinstance(content[0], dict) and "pred_score" in content[0]:
        results = classification_from_samples(content, path.name, most_bytes=size, task=task)
        del content
        trim_memory()
        return results
    return results_from_images(content, path.name, file_size=size)


def _run_names(runs: Sequence[Any]) -> List[str]:
    """File names; whole paths where two are alike, numbers of what is in memory or given twice."""
    names = [Path(run).name if is_path(run) else f"run {number}" for number, run in enumerate(runs, start=1)]
    if len(set(names)) < len(names):
        names = [str(run) if is_path(run) else name for run, name in zip(runs, names)]
    if len(set(names)) < len(names):
        names = [f"{name} (run {number})" for number, name in enumerate(names, start=1)]
    return names


def _compare_pair(runs: RunSet, other: int, names: Sequence[str]) -> PairwiseComparison:
    """Another run against the first."""
    runs.progress.step(f"comparing run {other + 1} with run 1")
    counts = runs.counts(0), runs.counts(other)
    confidence: Any = runs.confidence(0), runs.confidence(other)
    changed = changed_images(*counts)
    return PairwiseComparison(
        first=names[0],
        second=names[other],
        comparison=runs.compare(0, other, counts),
        changed=changed,
        image_names=tuple(runs.image_names[one.image] for one in changed),
        disagreements=disagreements(*counts, confidence=None if confidence[0] is None else np.stack(confidence)),
        changed_classes=_changed_classes(runs, other, changed),
    )


def _changed_classes(runs: RunSet, other: int, changed: Sequence[ChangedImage]) -> Tuple[ChangedClass, ...]:
    """The true class and the two predicted classes of changed samples, where every sample has one class."""
    decided: Any = runs.decisions(0), runs.decisions(other)
    if decided[0] is None:
        return ()
    rows = [(runs.ground_truth[one.image], *(each[one.image] for each in decided)) for one in changed]
    return tuple(ChangedClass(*(runs.classes[label] for label in labels)) for labels in rows)
