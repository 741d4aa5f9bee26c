"""The runs of a comparison: results of several detectors or several classifiers on the same images."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.evaluation.joining import JoinedImages, classes_from_labels, in_image_order, join
from mm_metrics_plugin.evaluation.loading import DetectionInput, ground_truth_in
from mm_metrics_plugin.evaluation.report import Progress, common_folder, warn_unreached
from mm_metrics_plugin.evaluation.shards import match_in_blocks
from mm_metrics_plugin.exceptions import ClassNamesError, MetricWarning, ResultFileError, listing, pluralize
from mm_metrics_plugin.functional.classification.delong import auc_swaps
from mm_metrics_plugin.functional.statistics.paired_tests import Comparison, compare_counts, paired_permutation_test
from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts, per_image_counts
from mm_metrics_plugin.functional.thresholding import hard_decisions, reach
from mm_metrics_plugin.io.classification_results import ClassificationResults
from mm_metrics_plugin.io.detection_results import DetectionResults
from mm_metrics_plugin.io.ground_truth import check_same_ground_truth
from mm_metrics_plugin.settings import (
    MULTI_LABEL_SCORE_THR,
    ClassificationSettings,
    ComparisonSettings,
    DetectionSettings,
)
from mm_metrics_plugin.states.detection import DetectionState

COMPARISON_OPTIONS = ("ci", "permutations", "seed")
TASK_OPTIONS = {
    "detection": ("score_thr", "iou_thr", "nms_iou_thr", "max_dets"),
    "classification": ("task", "score_thr"),
}


class Runs:
    """Base class of the runs of a comparison."""

    kind = ""
    other_kind = ""
    classes: Tuple[str, ...]
    settings: ComparisonSettings
    image_names: Tuple[Any, ...]  # file name or id of each image or sample
    image_folders: Sequence[str] = ()  # image names are paths below these folders
    image_sizes: Any = ()  # (images, 2) height and width, where known
    ground_truth: Any = None  # labels or targets of the samples of classifiers
    class_order = ""
    joined_by: Tuple[str, ...] = ()  # how the images of each run were found
    progress: Progress

    def counts(self, run: int) -> PerImageCounts:
        """TP, FP and FN per image or sample."""
        raise NotImplementedError

    def compare(self, first: int, second: int, counts: Tuple[PerImageCounts, PerImageCounts]) -> Comparison:
        """The paired permutation test of all metrics of two runs."""
        raise NotImplementedError

    def confidence(self, run: int) -> Optional[np.ndarray]:
        """(samples,) score of the predicted class; None for detectors and multi-label classifiers."""
        return None

    def decisions(self, run: int) -> Optional[np.ndarray]:
        """(samples,) predicted class; None for detectors and multi-label classifiers."""
        return None

    def _settings(
        self, settings: Optional[ComparisonSettings], options: Mapping[str, Any], default: Any, source: str
    ) -> ComparisonSettings:
        """The settings of the comparison, with the options of the comparison and of its runs."""
        task_options = TASK_OPTIONS[self.kind]
        for name in options:
            if name not in (*COMPARISON_OPTIONS, *task_options):
                raise ResultFileError(
                    f"--{name.replace('_', '-')}: is for {self.other_kind} ({source} holds {self.kind} results)"
                )
        task_settings = default if settings is None else getattr(settings, self.kind)
        if task_settings is None:
            raise ResultFileError(f"{source}: holds {self.kind} results, and the settings are for {self.other_kind}")
        changes: Dict[str, Any] = {name: options[name] for name in COMPARISON_OPTIONS if name in options}
        task_changes = {name: options[name] for name in task_options if name in options}
        changes[self.kind] = replace(task_settings, **task_changes)
        return ComparisonSettings(**changes) if settings is None else replace(settings, **changes)

    @property
    def _test_options(self) -> Dict[str, Any]:
        settings = self.settings
        return {
            "ci": settings.ci,
            "permutations": settings.permutations,
            "seed": settings.seed,
            "track": self.progress.track,
        }


class DetectionRuns(Runs):
    """Matched detections of several detectors."""

    kind = "detection"
    other_kind = "classifiers"

    def __init__(
        self,
        source: DetectionInput,
        results: Sequence[DetectionResults],
        settings: Optional[ComparisonSettings],
        options: Mapping[str, Any],
        progress: Progress,
    ) -> None:
        self.settings = self._settings(settings, options, DetectionSettings(), results[0].source)
        # A comparison needs neither object sizes nor error types.
        detection: Any = self.settings.detection
        self.detection: DetectionSettings = replace(detection, matching=("coco",), area_edges=())
        joined = self._join(source, results, progress)
        first = joined[0]
        self.classes = first.classes
        self.class_order = source.class_order_of(first)
        self.joined_by = tuple(run.joined_by for run in joined)
        self.image_names = tuple(name or image_id for name, image_id in zip(first.image_names, first.image_ids))
        self.image_sizes = () if first.image_sizes is None else first.image_sizes
        self.progress = progress
        progress.step("matching")
        self.tables: List[Any] = []
        for run in joined:
            state = DetectionState(len(self.classes), self.detection, table="scores")
            self.tables.append(match_in_blocks(state, run, progress).table())
        message = self.detection.truncation_message(max(table.most_detections for table in self.tables))
        if message:
            warnings.warn(message, MetricWarning)
        for table, source_name in zip(self.tables, (run.source for run in results)):
            if len(table.score) and not table.reach(self.detection.score_thr).any():
                warn_unreached(f"detection of {source_name}", self.detection.score_thr, table.score)

    def _join(
        self, source: DetectionInput, results: Sequence[DetectionResults], progress: Progress
    ) -> List[JoinedImages]:
        classes = source.classes
        if source.in_results:
            source.check_in_results()
            ground_truth, *others = [ground_truth_in(run) for run in results]
            for other in others:
                check_same_ground_truth(ground_truth, other)
            if classes is None:  # the largest number of any run
                number = max(classes_from_labels(run, ground_truth) for run in results)
                classes = [str(label) for label in range(number)]
        else:
            ground_truth = source.read_ground_truth(progress)
        self.image_folders = ground_truth.image_folders
        joined = [join(ground_truth, run, classes=classes, allow_missing=source.allow_missing) for run in results]
        if not joined[0].image_ids:
            raise ResultFileError(f"{ground_truth.source}: holds no images")
        return [in_image_order(run) for run in joined]  # the order breaks score ties

    def counts(self, run: int) -> PerImageCounts:
        """TP, FP and FN per image."""
        return per_image_counts(self.tables[run], score_thr=self.detection.score_thr, iou_thr=self.detection.iou_thr)

    def compare(self, first: int, second: int, counts: Tuple[PerImageCounts, PerImageCounts]) -> Comparison:
        """Rates at the thresholds, and average precision."""
        return paired_permutation_test(
            self.tables[first],
            self.tables[second],
            score_thr=self.detection.score_thr,
            iou_thr=self.detection.iou_thr,
            max_dets=self.detection.max_dets,
            **self._test_options,
        )


class ClassificationRuns(Runs):
    """Scores of several classifiers, samples in the same order."""

    kind = "classification"
    other_kind = "detectors"

    def __init__(
        self,
        source: DetectionInput,
        results: Sequence[ClassificationResults],
        settings: Optional[ComparisonSettings],
        options: Mapping[str, Any],
        progress: Progress,
    ) -> None:
        if not source.in_results:
            raise ResultFileError(f"{results[0].source}: contains its ground truth; GROUND_TRUTH must be -")
        source.check_in_results()
        self.settings = self._settings(settings, options, ClassificationSettings(), results[0].source)
        first, *others = _with_same_task(results)
        number = first.scores.shape[1]
        names = source.classes or [str(label) for label in range(number)]
        if len(names) != number:
            given = pluralize(len(names), "class name")
            raise ClassNamesError(f"{first.source}: holds scores of {pluralize(number, 'class')} for {given}")
        self.classes = tuple(names)
        self.progress = progress
        progress.step("joining")
        self.ground_truth = first.ground_truth
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

    def confidence(self, run: int) -> Optional[np.ndarray]:
        """The score of the predicted class."""
        return self.scores[run].max(axis=1) if self.ground_truth.ndim == 1 else None

    def decisions(self, run: int) -> Optional[np.ndarray]:
        """The predicted class."""
        return hard_decisions(self.scores[run], thresholds=[-np.inf])[:, 0] if self.ground_truth.ndim == 1 else None

    def compare(self, first: int, second: int, counts: Tuple[PerImageCounts, PerImageCounts]) -> Comparison:
        """Rates of the decisions, and AUC."""
        swaps = auc_swaps([self.scores[first]], [self.scores[second]], self.ground_truth)
        comparison = compare_counts(*counts, auc=swaps, **self._test_options)
        if self.ground_truth.ndim == 1:  # micro precision, recall and F1 are the accuracy
            overall = {name: value for name, value in comparison.overall.items() if not name.endswith("_micro")}
            comparison = replace(comparison, overall={"accuracy": comparison.overall["recall_micro"], **overall})
        return comparison


def _with_same_task(results: Sequence[ClassificationResults]) -> List[ClassificationResults]:
    """All runs as multi-label if any of them is: a run may happen to have one true class per sample."""
    first = next((run for run in results if run.targets is not None), None)
    if first is None:
        return list(results)
    reason = first.task_reason if first.task_reason == "--task" else f"{first.source}: {first.task_reason}"
    return [replace(run.as_multi_label(reason), task_reason=reason) for run in results]


def _sample_order(first: ClassificationResults, other: ClassificationResults) -> Tuple[Any, str]:
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


def _sample_keys(first: ClassificationResults, other: ClassificationResults) -> Tuple[List[Any], List[Any], str]:
    """Unique keys of the samples of both runs, and the field they are from."""
    fields: Dict[str, Any] = {
        "img_path": (list(first.names), list(other.names)),
        "sample_idx": (first.sample_idx.tolist(), other.sample_idx.tolist()),
    }
    for field, (keys, other_keys) in fields.items():
        if all("" not in run and -1 not in run and len(set(run)) == len(run) for run in (keys, other_keys)):
            return keys, other_keys, field
    return list(range(len(first.scores))), list(range(len(other.scores))), "position"
