"""The runs of a comparison: results of several detectors or several classifiers on the same images."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Mapping, Sequence

import numpy as np

from mm_metrics_plugin.conventions import ANALYSIS_RULE
from mm_metrics_plugin.evaluation.inputs import common_folder
from mm_metrics_plugin.evaluation.joining import JoinedImages, classes_from_labels, in_image_order, join
from mm_metrics_plugin.evaluation.loading import DetectionInput, ground_truth_in
from mm_metrics_plugin.evaluation.run_summaries import (
    CrossFittedPoint,
    RunSummary,
    RunWarning,
    missing_warnings,
    threshold_warnings,
)
from mm_metrics_plugin.exceptions import ClassNamesError, MetricWarning, ResultFileError, listing, pluralize
from mm_metrics_plugin.functional.classification.delong import auc_swaps
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.matching import SCORES
from mm_metrics_plugin.functional.statistics.paired_tests import Comparison, compare_counts, paired_permutation_test
from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts, per_image_counts
from mm_metrics_plugin.functional.thresholding import hard_decisions, reach
from mm_metrics_plugin.io.classification_results import TASK_GIVEN, ClassificationResults
from mm_metrics_plugin.io.detection_data import AnnotationSet, DetectionResults, check_same_ground_truth
from mm_metrics_plugin.reports.base import Progress, warn_unreached
from mm_metrics_plugin.reports.provenance import row_counts
from mm_metrics_plugin.settings import (
    COMPARED_OPTIONS,
    MULTI_LABEL_SCORE_THR,
    ClassificationSettings,
    ComparisonSettings,
    DetectionSettings,
    OperatingRule,
    number_text,
    with_options,
)
from mm_metrics_plugin.states.detection import DetectionState

COMPARISON_OPTIONS = ("ci", "permutations", "seed")
TASK_OPTIONS = {
    "detection": COMPARED_OPTIONS,
    "classification": ("task", "score_thr"),
}


class Runs:
    """Base class of the runs of a comparison."""

    kind = ""
    other_kind = ""
    classes: tuple[str, ...]
    settings: ComparisonSettings
    image_names: tuple[Any, ...]  # file name or id of each image or sample
    image_folders: Sequence[str] = ()  # image names are paths below these folders
    image_sizes: Any = ()  # (images, 2) height and width, where known
    ground_truth: Any = None  # labels or targets of the samples of classifiers
    libraries: tuple[str, ...] = ()  # modules that read the ground truth
    ground_truth_entry: Mapping[str, Any] | None = None  # provenance of the ground truth; None if in the results
    class_order = ""
    joined_by: tuple[str, ...] = ()  # how the images of each run were found
    progress: Progress

    def counts(self, run: int) -> PerImageCounts:
        """TP, FP and FN per image or sample."""
        raise NotImplementedError

    def compare(self, first: int, second: int, counts: tuple[PerImageCounts, PerImageCounts]) -> Comparison:
        """The paired permutation test of all metrics of two runs."""
        raise NotImplementedError

    def summary(self, run: int, name: str) -> RunSummary:
        """What was read and used of a run."""
        raise NotImplementedError

    def warnings(self, first: int, second: int, names: Sequence[str]) -> tuple[RunWarning, ...]:
        """Reasons to doubt the verdicts on two runs."""
        return ()

    def confidence(self, run: int) -> np.ndarray | None:
        """(samples,) score of the predicted class; None for detectors and multi-label classifiers."""
        return None

    def decisions(self, run: int) -> np.ndarray | None:
        """(samples,) predicted class; None for detectors and multi-label classifiers."""
        return None

    def _settings(
        self, settings: ComparisonSettings | None, options: Mapping[str, Any], default: Any, source: str
    ) -> ComparisonSettings:
        """The settings of the comparison, with the options of the comparison and of its runs."""
        task_options = TASK_OPTIONS[self.kind]
        for name in options:
            if name not in (*COMPARISON_OPTIONS, *task_options):
                raise ResultFileError(f"{name}=... is for {self.other_kind} ({source} holds {self.kind} results)")
        task_settings = default if settings is None else getattr(settings, self.kind)
        if task_settings is None:
            raise ResultFileError(f"{source}: holds {self.kind} results, and the settings are for {self.other_kind}")
        changes: dict[str, Any] = {name: options[name] for name in COMPARISON_OPTIONS if name in options}
        task_changes = {name: options[name] for name in task_options if name in options}
        changes[self.kind] = with_options(task_settings, task_changes)
        return ComparisonSettings(**changes) if settings is None else replace(settings, **changes)

    @property
    def _test_options(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "ci": settings.ci,
            "permutations": settings.permutations,
            "seed": settings.seed,
            "track": self.progress.track,
        }


@dataclass(frozen=True, eq=False)
class MatchedRun:
    """Matched detections of a detector."""

    table: MatchTable
    counts: PerImageCounts  # at the score threshold of the comparison
    read: Mapping[str, Any]  # what was read, used and dropped
    best: CrossFittedPoint | None  # None with fewer than two images
    without_results: np.ndarray  # (images,)
    lists_all_images: bool  # COCO results list only images with detections


class DetectionRuns(Runs):
    """Matched detections of several detectors."""

    kind = "detection"
    other_kind = "classifiers"

    def __init__(
        self,
        source: DetectionInput,
        results: Sequence[DetectionResults],
        settings: ComparisonSettings | None,
        options: Mapping[str, Any],
        progress: Progress,
    ) -> None:
        self.settings = self._settings(settings, options, DetectionSettings(), results[0].source)
        # A comparison needs neither object sizes nor error types.
        detection: Any = self.settings.detection
        self.detection: DetectionSettings = replace(detection, matching=(ANALYSIS_RULE,), area_edges=(), area_ranges=())
        if detection.operating_point is not None and "score_thr" in options:
            raise ResultFileError(
                f"score_thr=... excludes operating_point={detection.operating_point!r}, which gives each run its own "
                "score threshold"
            )
        joined, ground_truths = self._join(source, results, progress)
        first = joined[0]
        self.classes = first.classes
        self.class_order = source.class_order_of(first)
        self.joined_by = tuple(run.joined_by for run in joined)
        self.image_names = tuple(name or image_id for name, image_id in zip(first.image_names, first.image_ids))
        self.image_sizes = () if first.image_sizes is None else first.image_sizes
        self.progress = progress
        progress.step("matching")
        self.runs = [self._match(*run) for run in zip(joined, results, ground_truths)]
        most = max(run.table.most_detections for run in self.runs)
        if most > self.detection.max_dets:
            warnings.warn(self.detection.truncation_message(most), MetricWarning)

    def _match(self, joined: JoinedImages, results: DetectionResults, ground_truth: AnnotationSet) -> MatchedRun:
        settings = self.detection
        state = DetectionState(len(self.classes), settings, keep=SCORES)
        order = np.arange(joined.batch.num_images)
        state.update(joined.batch, order, names=joined.image_ids, on_progress=self.progress.fraction)
        table: Any = state.table()
        best = None
        if settings.operating_point is not None or table.num_images > 1:
            rule = OperatingRule.parse(settings.operating_point or "f1")
            best = CrossFittedPoint.select(table, rule, seed=self.settings.seed)
        if best is None or settings.operating_point is None:
            counts, reason = per_image_counts(table), f"score below {number_text(settings.score_thr)}"
            below = state.counts_by_name["detections_below_threshold"]
            if 0 < len(table.score) == below:
                warn_unreached(f"detection of {results.source}", settings.score_thr, table.score)
        else:
            counts, reason = best.counts, "score below the best threshold"
            below = int(np.count_nonzero(~best.reached))
            undefined = int(np.isnan(best.thresholds).sum())
            if undefined:
                raise ResultFileError(
                    f"{results.source}: no score threshold satisfies operating_point={settings.operating_point!r} on "
                    f"the images of {undefined} of {len(best.thresholds)} folds"
                )
        read = row_counts(
            state.counts_by_name,
            joined.detections,
            ground_truth.row_counts,
            images=table.num_images,
            missing_images=joined.missing_images,
            below={reason: below},
        )
        return MatchedRun(table, counts, read, best, joined.without_results, results.lists_all_images)

    def _join(
        self, source: DetectionInput, results: Sequence[DetectionResults], progress: Progress
    ) -> tuple[list[JoinedImages], list[AnnotationSet]]:
        classes = source.classes
        if source.in_results:
            source.check_in_results()
            ground_truths = [ground_truth_in(run) for run in results]
            ground_truth = ground_truths[0]
            for other in ground_truths[1:]:
                check_same_ground_truth(ground_truth, other)
            if classes is None:  # the largest number of any run
                number = max(classes_from_labels(run, ground_truth) for run in results)
                classes = [str(label) for label in range(number)]
        else:
            (ground_truth,) = source.read_ground_truth([self.detection], progress)
            ground_truths = [ground_truth] * len(results)
            self.ground_truth_entry = source.ground_truth_entry(ground_truth)
            self.libraries = ground_truth.libraries
        self.image_folders = ground_truth.image_folders
        joined = [join(ground_truth, run, classes=classes, allow_missing=source.allow_missing) for run in results]
        if not joined[0].image_ids:
            raise ResultFileError(f"{ground_truth.source}: holds no images")
        return [in_image_order(run) for run in joined], ground_truths  # the order breaks score ties

    def counts(self, run: int) -> PerImageCounts:
        """TP, FP and FN per image."""
        return self.runs[run].counts

    def summary(self, run: int, name: str) -> RunSummary:
        """Images, detections and ground truths, and the best score threshold."""
        return RunSummary(name, self.runs[run].read, self.runs[run].best)

    def warnings(self, first: int, second: int, names: Sequence[str]) -> tuple[RunWarning, ...]:
        """Images without results, and a score threshold that is far from the best."""
        found: list[RunWarning] = []
        for number, other in ((first, second), (second, first)):
            name, run, table = names[number], self.runs[number], self.runs[other].table
            found += missing_warnings(name, run.without_results, lists_all_images=run.lists_all_images, other=table)
            if run.best is not None and self.detection.operating_point is None:
                found += threshold_warnings(name, run.counts, run.best, score_thr=self.detection.score_thr)
        return tuple(found)

    def compare(self, first: int, second: int, counts: tuple[PerImageCounts, PerImageCounts]) -> Comparison:
        """Rates at the thresholds, and average precision."""
        return paired_permutation_test(self.runs[first].table, self.runs[second].table, **self._test_options)


class ClassificationRuns(Runs):
    """Scores of several classifiers, samples in the same order."""

    kind = "classification"
    other_kind = "detectors"

    def __init__(
        self,
        source: DetectionInput,
        results: Sequence[ClassificationResults],
        settings: ComparisonSettings | None,
        options: Mapping[str, Any],
        progress: Progress,
    ) -> None:
        if not source.in_results:
            raise ResultFileError(f"{results[0].source}: contains its ground truth, which requires ground_truth=None")
        source.check_in_results()
        if source.allow_missing:
            raise ResultFileError(
                f"allow_missing=True is for detectors ({results[0].source} holds classification results)"
            )
        self.settings = self._settings(settings, options, ClassificationSettings(), results[0].source)
        first, *others = _with_same_task(results)
        number = first.scores.shape[1]
        names = source.classes or first.classes or [str(label) for label in range(number)]
        if len(names) != number:
            given = pluralize(len(names), "class name")
            raise ClassNamesError(f"{first.source}: holds scores of {pluralize(number, 'class')} for {given}")
        self.classes = tuple(names)
        self.progress = progress
        progress.step("joining")
        self.ground_truth = first.ground_truth
        self.read = [{"samples": run.row_counts.to_dict()} for run in results]
        self.scores, self.precision, joined_by = [first.scores], [first.precision], []
        for other in others:
            order, key = _sample_order(first, other)
            self.scores.append(other.scores[order])
            self.precision.append(other.precision[order])
            joined_by.append(key)
        self.joined_by = (joined_by[0], *joined_by)
        self.class_order = "classes" if source.classes else "labels"
        self.image_names = tuple(
            name or (int(index) if index >= 0 else position)
            for position, (name, index) in enumerate(zip(first.names, first.sample_idx))
        )
        folder = common_folder(first.names)
        self.image_folders = (folder,) if folder else ()
        task: Any = self.settings.classification
        self.score_thr = MULTI_LABEL_SCORE_THR if task.score_thr is None else task.score_thr
        score_thr = None if first.labels is not None else self.score_thr
        task = replace(task, task=first.task, task_reason=first.task_reason, score_thr=score_thr)
        self.settings = replace(self.settings, classification=task)

    def counts(self, run: int) -> PerImageCounts:
        """TP, FP and FN per sample."""
        if self.ground_truth.ndim == 2:
            reached = reach(self.scores[run], self.score_thr, self.precision[run])
            return PerImageCounts.from_decisions(self.ground_truth, reached)
        decisions: Any = self.decisions(run)
        return PerImageCounts.from_labels(self.ground_truth, decisions, num_classes=len(self.classes))

    def summary(self, run: int, name: str) -> RunSummary:
        """Samples."""
        return RunSummary(name, self.read[run])

    def confidence(self, run: int) -> np.ndarray | None:
        """The score of the predicted class."""
        return self.scores[run].max(axis=1) if self.ground_truth.ndim == 1 else None

    def decisions(self, run: int) -> np.ndarray | None:
        """The predicted class."""
        return hard_decisions(self.scores[run], thresholds=[-np.inf])[:, 0] if self.ground_truth.ndim == 1 else None

    def compare(self, first: int, second: int, counts: tuple[PerImageCounts, PerImageCounts]) -> Comparison:
        """Rates of the decisions, and AUC."""
        swaps = auc_swaps([self.scores[first]], [self.scores[second]], self.ground_truth)
        comparison = compare_counts(*counts, auc=swaps, **self._test_options)
        if self.ground_truth.ndim == 1:  # micro precision, recall and F1 are the accuracy
            overall = {name: value for name, value in comparison.overall.items() if not name.endswith("_micro")}
            comparison = replace(comparison, overall={"accuracy": comparison.overall["recall_micro"], **overall})
        return comparison


def _with_same_task(results: Sequence[ClassificationResults]) -> list[ClassificationResults]:
    """All runs as multi-label if any of them is: a run may happen to have one true class per sample."""
    first = next((run for run in results if run.targets is not None), None)
    if first is None:
        return list(results)
    reason = first.task_reason if first.task_reason == TASK_GIVEN else f"{first.source}: {first.task_reason}"
    return [replace(run.as_multi_label(reason), task_reason=reason) for run in results]


def _sample_order(first: ClassificationResults, other: ClassificationResults) -> tuple[Any, str]:
    """The order in which the samples of another run are those of the first, and the field that identifies samples."""
    both = f"{first.source} and {other.source}"
    if first.scores.shape[1] != other.scores.shape[1]:
        raise ResultFileError(f"{both}: hold scores of {first.scores.shape[1]} and of {other.scores.shape[1]} classes")
    keys, other_keys, field = _sample_keys(first, other)
    if field == "position" and len(first.scores) != len(other.scores):
        raise ResultFileError(
            f"{both}: name no samples, so they must have equally many (found {len(first.scores)} and "
            f"{len(other.scores)})"
        )
    for source, own, others in ((other.source, other_keys, keys), (first.source, keys, other_keys)):
        known = set(own)
        missing = [key for key in others if key not in known]
        if missing:
            raise ResultFileError(f"{source}: holds no {listing('sample', missing)}, unlike the other run")
    order: Any = slice(None)  # spares a copy of all scores
    if keys != other_keys:
        index_of = {key: index for index, key in enumerate(other_keys)}
        order = np.array([index_of[key] for key in keys])
    different = (first.ground_truth != other.ground_truth[order]).reshape(len(keys), -1).any(axis=1)
    if different.any():
        raise ResultFileError(
            f"{both}: differ in the ground truth of {pluralize(int(different.sum()), 'sample')}, first in sample "
            f"{keys[int(np.argmax(different))]!a}"
        )
    return order, field


def _sample_keys(first: ClassificationResults, other: ClassificationResults) -> tuple[list[Any], list[Any], str]:
    """Unique keys of the samples of both runs, and the field they are from."""
    fields: dict[str, Any] = {
        "img_path": (list(first.names), list(other.names)),
        "sample_idx": (first.sample_idx.tolist(), other.sample_idx.tolist()),
    }
    for field, (keys, other_keys) in fields.items():
        if all("" not in run and -1 not in run and len(set(run)) == len(run) for run in (keys, other_keys)):
            return keys, other_keys, field
    return list(range(len(first.scores))), list(range(len(other.scores))), "position"
