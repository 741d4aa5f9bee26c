"""The runs of a comparison: results of the same images, matched or aligned, ready to be compared pair by pair."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from typing import Any, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.evaluation.joining import JoinedImages, classes_from_labels, in_image_order, join
from mm_metrics_plugin.evaluation.loading import DetectionInput, ground_truth_in
from mm_metrics_plugin.evaluation.report import Progress, common_folder
from mm_metrics_plugin.evaluation.shards import match_in_blocks
from mm_metrics_plugin.exceptions import ClassNamesError, MetricWarning, ResultFileError, listing, pluralize
from mm_metrics_plugin.functional.classification.delong import auc_swaps
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.statistics.paired_tests import Comparison, compare_counts, paired_permutation_test
from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts, per_image_counts
from mm_metrics_plugin.functional.thresholding import hard_decisions, reach
from mm_metrics_plugin.io.classification_results import ClassificationResults
from mm_metrics_plugin.io.ground_truth import check_same_ground_truth
from mm_metrics_plugin.io.results import DetectionResults
from mm_metrics_plugin.settings import (
    MULTI_LABEL_SCORE_THR,
    ClassificationSettings,
    ComparisonSettings,
    DetectionSettings,
    with_options,
)
from mm_metrics_plugin.states.detection import DetectionState


class RunSet:
    """Runs of one kind.

    Attributes:
        image_names: File name or id of each image or sample.
        image_folders: Folders of a config, below which image names are paths.
        image_sizes: (images, 2) height and width, where known.
        ground_truth: Labels or targets of the samples of classifiers.
    """

    kind = ""
    other_kind = ""
    classes: Tuple[str, ...]
    settings: ComparisonSettings
    image_names: Tuple[Any, ...]
    image_folders: Sequence[str] = ()
    image_sizes: Any = ()
    ground_truth: Any = None
    class_order = ""
    joined_by: Tuple[str, ...] = ()
    progress: Progress

    def counts(self, run: int) -> PerImageCounts:
        """TP, FP and FN per image."""
        raise NotImplementedError

    def compare(self, first: int, second: int, counts: Tuple[PerImageCounts, PerImageCounts]) -> Comparison:
        """The paired permutation test of all figures of two runs."""
        raise NotImplementedError

    def confidence(self, run: int) -> Optional[np.ndarray]:
        """(samples,) score of the predicted class; None of detectors and multi-label classifiers."""
        return None

    def decisions(self, run: int) -> Optional[np.ndarray]:
        """(samples,) predicted class; None of detectors and multi-label classifiers."""
        return None

    def _settings(
        self, given: Optional[ComparisonSettings], options: Mapping[str, Any], default: Any, source: str
    ) -> ComparisonSettings:
        """The settings of the comparison and of one run, from options of both."""
        names = {one.name for one in fields(ComparisonSettings)} - {"detection", "classification"}
        other = ClassificationSettings if self.kind == "detection" else DetectionSettings
        own_names = {one.name for one in fields(default)}
        for name in options:
            if name not in names | own_names and name in {one.name for one in fields(other)}:
                raise ResultFileError(
                    f"--{name.replace('_', '-')}: is for {self.other_kind} ({source} holds {self.kind} results)"
                )
        task = {name: value for name, value in options.items() if name not in names}
        settings = getattr(given, self.kind) if given is not None else default
        if settings is None:
            raise ResultFileError(f"{source}: holds {self.kind} results, and the settings are for {self.other_kind}")
        both = {self.kind: with_options(settings, task)}
        both.update({name: value for name, value in options.items() if name in names})
        return ComparisonSettings(**both) if given is None else replace(given, **both)


class DetectorRuns(RunSet):
    """Detections of the same images, matched."""

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
        # Object sizes and error types are those of one run, so the table does without their columns.
        detection: Any = self.settings.detection
        self.detection: DetectionSettings = replace(detection, matching=("coco",), area_edges=())
        joined = self._join(source, results, progress)
        self.classes = joined[0].classes
        self.class_order = source.class_order_of(joined[0])
        self.joined_by = tuple(one.joined_by for one in joined)
        self.image_names = tuple(name or image_id for name, image_id in zip(joined[0].image_names, joined[0].image_ids))
        self.image_sizes = joined[0].image_sizes if joined[0].image_sizes is not None else ()
        self.progress = progress
        progress.step("matching")
        self.tables = [self._match(one, progress) for one in joined]
        message = self.detection.truncation_message(max(table.most_detections for table in self.tables))
        if message:
            warnings.warn(message, MetricWarning)

    def _join(
        self, source: DetectionInput, results: Sequence[DetectionResults], progress: Progress
    ) -> List[JoinedImages]:
        classes = source.classes
        if source.in_results:
            source.check_in_results()
            ground_truth, *others = [ground_truth_in(one) for one in results]
            for other in others:
                check_same_ground_truth(ground_truth, other)
            if classes is None:  # as many as any of the runs has
                classes = [
                    str(label) for label in range(max(classes_from_labels(one, ground_truth) for one in results))
                ]
        else:
            ground_truth = source.read_ground_truth(progress)
        self.image_folders = ground_truth.image_folders
        joined = [join(ground_truth, one, classes=classes, allow_missing=source.allow_missing) for one in results]
        if not joined[0].image_ids:
            raise ResultFileError(f"{ground_truth.source}: holds no images")
        return [in_image_order(one) for one in joined]  # it decides between equal scores

    def _match(self, joined: JoinedImages, progress: Progress) -> MatchTable:
        state = DetectionState(len(joined.classes), self.detection, table="scores")
        return match_in_blocks(state, joined, progress).table()  # type: ignore[return-value]

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
            ci=self.settings.ci,
            permutations=self.settings.permutations,
            seed=self.settings.seed,
            track=self.progress.track,
        )


class ClassifierRuns(RunSet):
    """Scores of the same samples, in one order."""

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
        first = results[0]
        if not source.in_results:
            raise ResultFileError(f"{first.source}: contains its ground truth; GROUND_TRUTH must be -")
        source.check_in_results()
        chosen = self._settings(settings, options, ClassificationSettings(), first.source)
        results = _of_one_task(results)
        first = results[0]
        number = first.scores.shape[1]
        names = source.classes or [str(label) for label in range(number)]
        if len(names) != number:
            given = pluralize(len(names), "class name")
            raise ClassNamesError(f"{first.source}: holds scores of {pluralize(number, 'class')} for {given}")
        self.classes = tuple(names)
        self.progress = progress
        progress.step("joining")
        self.ground_truth = first.ground_truth
        aligned = [_align(first, other) for other in results[1:]]
        self.scores = [first.scores, *(scores for scores, _, _ in aligned)]
        self.precision = [first.precision, *(precision for _, precision, _ in aligned)]
        ways = [way for _, _, way in aligned]
        self.joined_by = (ways[0], *ways)
        self.class_order = "classes" if source.classes else "labels"
        self.image_names = tuple(
            name or (int(index) if index >= 0 else position)
            for position, (name, index) in enumerate(zip(first.names, first.sample_idx))
        )
        folder = common_folder(first.names)
        self.image_folders = (folder,) if folder else ()
        task: Any = chosen.classification
        self.score_thr = MULTI_LABEL_SCORE_THR if task.score_thr is None else task.score_thr
        score_thr = None if first.labels is not None else self.score_thr
        task = replace(task, task=first.task, task_reason=first.task_reason, score_thr=score_thr)
        self.settings = replace(chosen, classification=task)

    def counts(self, run: int) -> PerImageCounts:
        """TP, FP and FN per sample."""
        if self.ground_truth.ndim == 2:
            decided = reach(self.scores[run], self.score_thr, self.precision[run])
            return PerImageCounts.from_decisions(self.ground_truth, decided)
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
        settings = self.settings
        comparison = compare_counts(
            *counts,
            auc=swaps,
            ci=settings.ci,
            permutations=settings.permutations,
            seed=settings.seed,
            track=self.progress.track,
        )
        if self.ground_truth.ndim == 1:  # micro precision, recall and F1 are the accuracy
            overall = {name: value for name, value in comparison.overall.items() if not name.endswith("_micro")}
            comparison = replace(comparison, overall={"accuracy": comparison.overall["recall_micro"], **overall})
        return comparison


def _align(first: ClassificationResults, other: ClassificationResults) -> Tuple[Any, Any, str]:
    """The other's scores and their precision in the order of the first's samples, and what joined the samples."""
    both = f"{first.source} and {other.source}"
    if first.scores.shape[1] != other.scores.shape[1]:
        raise ResultFileError(f"{both}: hold scores of {first.scores.shape[1]} and of {other.scores.shape[1]} classes")
    keys, joined_by = _sample_keys(first, other)
    if not keys:
        if len(first.scores) != len(other.scores):
            raise ResultFileError(
                f"{both}: name no samples, so they must have equally many (found {len(first.scores)} and "
                f"{len(other.scores)})"
            )
        order = np.arange(len(first.scores))
    else:
        place = {key: at for at, key in enumerate(keys[1])}
        for left, right, source in ((keys[0], place, other.source), (keys[1], set(keys[0]), first.source)):
            missing = [key for key in left if key not in right]
            if missing:
                raise ResultFileError(f"{source}: holds no {listing('sample', missing)}, unlike the other run")
        order = np.array([place[key] for key in keys[0]])
    for name in ("labels", "targets"):
        mine, theirs = getattr(first, name), getattr(other, name)
        if mine is None and theirs is None:
            continue
        different = (mine != theirs[order]).reshape(len(order), -1).any(axis=1)
        if different.any():
            at = int(np.argmax(different))
            sample: object = keys[0][at] if keys else at
            raise ResultFileError(
                f"{both}: differ in the ground truth of {pluralize(int(different.sum()), 'sample')}, first in sample "
                f"{sample!a}"
            )
    if np.array_equal(order, np.arange(len(order))):  # spares a copy of all scores
        return other.scores, other.precision, joined_by
    return other.scores[order], other.precision[order], joined_by


def _of_one_task(results: Sequence[ClassificationResults]) -> List[ClassificationResults]:
    """All runs as multi-label if one is: the runs are of one task, and a run may show it less clearly than another."""
    first = next((one for one in results if one.targets is not None), None)
    if first is None:
        return list(results)
    reason = first.task_reason if first.task_reason == "--task" else f"{first.source}: {first.task_reason}"
    return [replace(one.as_multi_label(reason), task_reason=reason) for one in results]


def _sample_keys(*runs: ClassificationResults) -> Tuple[List[List[Any]], str]:
    """What identifies the samples of all runs, and its field; nothing and 'position' where no field does."""
    fields = {"img_path": [list(one.names) for one in runs], "sample_idx": [one.sample_idx.tolist() for one in runs]}
    for field, found in fields.items():
        if all("" not in keys and -1 not in keys and len(set(keys)) == len(keys) for keys in found):
            return found, field
    return [], "position"
