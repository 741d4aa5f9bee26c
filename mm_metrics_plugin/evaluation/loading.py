"""Loads detections and ground truth, from files or from memory, on one process or those that torchrun started."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.evaluation.inputs import check_cfg_options, input_entry, versions
from mm_metrics_plugin.evaluation.joining import (
    JoinedImages,
    classes_from_labels,
    images_of_rank,
    in_image_order,
    join,
    match_image_ids,
    select_images,
)
from mm_metrics_plugin.exceptions import MetricInputError, ResultFileError, listing, shortened
from mm_metrics_plugin.functional.detection.data import DetectionBatch, ImageId
from mm_metrics_plugin.functional.detection.geometry import geometry_of
from mm_metrics_plugin.io.class_order import CLASS_ORDERS, CLASSES, LABELS
from mm_metrics_plugin.io.detection_data import AnnotationSet, DetectionResults
from mm_metrics_plugin.io.formats import DETECTIONS, GROUND_TRUTH
from mm_metrics_plugin.io.readers import read_all
from mm_metrics_plugin.reports.base import Progress
from mm_metrics_plugin.reports.detection_evaluator import DetectionEvaluator
from mm_metrics_plugin.reports.provenance import Entry, Provenance
from mm_metrics_plugin.row_counts import RowCounts
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.states.distributed import all_gather_or_raise, all_reduce_state, launched_processes


class ProcessGroup:
    """The processes that torchrun started, or this process alone. torch is imported only if there are several.

    Every process must call the same methods in the same order. An error on one of them is raised on all.
    """

    def __init__(self, *, distributed: bool) -> None:
        self.rank, self.world_size = launched_processes() if distributed else (0, 1)
        if self.world_size > 1:
            import torch.distributed

            if not torch.distributed.is_initialized():
                torch.distributed.init_process_group("gloo")

    def all_gather(self, value: Any, error: Exception | None = None) -> list[Any]:
        """The value of every process, in the order of ranks."""
        if self.world_size > 1:
            return all_gather_or_raise(value, error)
        if error is not None:
            raise error
        return [value]

    def merge(self, evaluator: DetectionEvaluator | None, error: Exception | None = None) -> DetectionEvaluator:
        """The merged evaluator of all processes; None on a process without images."""
        headers = self.all_gather(None if evaluator is None else evaluator.header(), error)
        if self.world_size == 1 and evaluator is not None:
            return evaluator
        parts = [DetectionEvaluator.from_header(header) for header in headers if header is not None]
        rank = sum(header is not None for header in headers[: self.rank])
        merged, numbered = parts[0].merged_images(*parts[1:])
        own = parts[0].state.empty() if evaluator is None else evaluator.state.renumbered(numbered[rank])
        images = 0 if evaluator is None else len(evaluator.provenance.image_ids)
        merged.state, _ = all_reduce_state(own, images, None)  # type: ignore[assignment]
        return merged

    def close(self) -> None:
        """Leave the process group."""
        if self.world_size > 1:
            import torch.distributed

            torch.distributed.destroy_process_group()


@dataclass(frozen=True, eq=False)
class DetectionInput:
    """The ground truth and the results of a detector before reading; see :func:`evaluate_detection`."""

    ground_truth: Any  # None if the results contain the ground truth
    results: tuple[Any, ...]  # files that are shards of one test set, or one list of results in memory
    classes: Sequence[str] | None = None
    class_order: str | None = None
    image_set: str | None = None
    cfg_options: Sequence[str] | None = None
    trust: bool = False
    allow_missing: bool = False
    score_mode: str | None = None

    def __post_init__(self) -> None:
        is_text = isinstance(self.class_order, str)
        if self.class_order is not None and not (is_text and self.class_order in CLASS_ORDERS):
            found = shortened(self.class_order)
            raise ResultFileError(f"class_order must be one of {', '.join(CLASS_ORDERS)} (found {found})")
        check_cfg_options(self.cfg_options)

    @property
    def in_results(self) -> bool:
        """Whether the results contain the ground truth."""
        return self.ground_truth is None

    def read_results(
        self, source: Any, settings: Sequence[DetectionSettings], on_progress: Callable[[float], None] | None = None
    ) -> list[DetectionResults]:
        """Read one result file, or results in memory, once for the IoU types of all settings."""
        results: list[DetectionResults] = self._read(
            source, "results", DETECTIONS, settings, trust=self.trust, on_progress=on_progress
        )
        return results

    def read_ground_truth(self, settings: Sequence[DetectionSettings], progress: Progress) -> list[AnnotationSet]:
        """Read the ground truth from a file, a folder, a config or memory, once for all IoU types."""
        ground_truths: list[AnnotationSet] = self._read(
            self.ground_truth,
            "ground_truth",
            GROUND_TRUTH,
            settings,
            classes=self.classes,
            class_order=self.class_order,
            image_set=self.image_set,
            cfg_options=self.cfg_options,
            track=progress.track,
        )
        return ground_truths

    def _read(self, source: Any, name: str, task: str, settings: Sequence[DetectionSettings], **options: Any) -> Any:
        iou_types = [each.iou_type for each in settings]
        if settings[0].sigmas is not None and not any("sigmas" in geometry_of(each).options for each in iou_types):
            raise ResultFileError(
                f"sigmas=... needs iou_type='keypoints' (found iou_type={', '.join(map(repr, iou_types))})"
            )
        return read_all(source, name, task, iou_types=iou_types, **options, **self.shape_options(settings[0], task))

    def shape_options(self, settings: DetectionSettings, task: str = DETECTIONS) -> dict[str, Any]:
        """The options of reading that depend on the IoU type."""
        options: dict[str, Any] = {"sigmas": settings.sigmas}
        if task == DETECTIONS:
            options.update(
                score_mode=self.score_mode, nms_iou_thr=settings.nms_iou_thr, ground_truth_inside=self.in_results
            )
        return options

    def ground_truth_entry(self, ground_truth: AnnotationSet) -> dict[str, Any]:
        """Name and SHA-256 of the ground truth and of its image set."""
        entry = input_entry(self.ground_truth, ground_truth.sha256)
        if self.image_set is None:
            return entry
        return {**entry, "image_set": input_entry(self.image_set, ground_truth.image_set_sha256)}

    def check_in_results(self) -> None:
        """Reject options that need a separate ground truth."""
        for option in ("class_order", "image_set", "cfg_options"):
            if getattr(self, option):
                raise ResultFileError(f"{option}=... requires a separate ground truth; the results contain it")

    def class_order_of(self, joined: JoinedImages) -> str:
        """The order that the labels follow."""
        if self.in_results:
            return CLASSES if self.classes else LABELS
        return joined.class_order


def ground_truth_in(results: DetectionResults) -> AnnotationSet:
    """The ground truth that results contain."""
    if results.ground_truth is None:
        raise ResultFileError(
            f"{results.source}: contains no ground truth; give the annotation file as ground_truth=..."
        )
    return results.ground_truth


def results_entry(entry: Entry, results: DetectionResults, evaluated: Sequence[str]) -> dict[str, Any]:
    """The provenance of results, with the fields of the shapes that they hold and that no IoU type evaluates."""
    fields = {geometry_of(iou_type).field for iou_type in evaluated}
    others = [field for field in results.also if field not in fields]
    return {**entry, "not_evaluated": others} if others else dict(entry)


def load_images(
    source: DetectionInput,
    settings: Sequence[DetectionSettings],
    *,
    group: ProcessGroup,
    progress: Progress,
    worst_images: int | None,
    partial: bool,
) -> list[DetectionEvaluator]:
    """Read, join and match all images, on all processes: one evaluator for each of the settings.

    With ``worst_images``, examples are kept for a page. With ``partial``, results may cover only some of the images.
    """
    loaders: list[_Loader] = []
    error = None
    try:
        loaders = _read_all(source, settings, group, progress, worst_images, partial)
    except Exception as caught:  # raised on every process by the next call
        error = caught
    infos = group.all_gather([(loader.files, loader.num_classes) for loader in loaders], error)
    evaluators = []
    for index, loader in enumerate(loaders):
        evaluator = None
        try:
            evaluator = loader.evaluator([info[index] for info in infos])
        except Exception as caught:  # raised on every process by the next call
            error = caught
        evaluators.append(group.merge(evaluator, error))
    return evaluators


def _read_all(
    source: DetectionInput,
    settings: Sequence[DetectionSettings],
    group: ProcessGroup,
    progress: Progress,
    worst_images: int | None,
    partial: bool,
) -> list[_Loader]:
    """The loaders of all settings, which have received the files of this process. Every file is read once."""
    ground_truths: Sequence[AnnotationSet | None] = [None] * len(settings)
    if source.in_results:
        source.check_in_results()
    else:
        progress.step("reading the ground truth")
        ground_truths = source.read_ground_truth(settings, progress)
    iou_types = [each.iou_type for each in settings]
    loaders = [
        _Loader(source, each, ground_truth, iou_types, group, progress, worst_images, partial)
        for each, ground_truth in zip(settings, ground_truths)
    ]
    progress.step("reading the results")
    several = len(source.results) > 1
    for path in progress.track(source.results[group.rank :: group.world_size] if several else source.results):
        read = source.read_results(path, settings, None if several else progress.fraction)
        for loader in loaders:
            loader.add(path, read.pop(0))
    return loaders


def evaluator_of_batch(
    batch: DetectionBatch, settings: DetectionSettings, classes: Sequence[str] | None, worst_images: int | None
) -> DetectionEvaluator:
    """The evaluator of detections and ground truths that are arrays already."""
    if not batch.num_images:
        raise MetricInputError("a DetectionBatch to evaluate must have at least one image (found num_images=0)")
    detections, gts = batch.detections, batch.ground_truths
    if classes is None:
        labels = np.concatenate([detections.labels, gts.labels])
        classes = [str(label) for label in range(int(labels.max(initial=-1)) + 1)]
    batch.check(num_classes=len(classes), names=range(batch.num_images))
    entry, gt_counts = input_entry(batch), RowCounts(len(gts), len(gts))
    evaluator = DetectionEvaluator(classes, settings, worst_images=worst_images)
    evaluator.provenance = Provenance(
        detections=RowCounts(len(detections), len(detections)),
        results=(entry,),
        ground_truths=(
            {**entry, "images": batch.num_images, "ground_truths": gt_counts.to_dict(), "class_order": LABELS},
        ),
        versions=(versions(),),
    )
    evaluator.add(batch)
    return evaluator


class _FileInfo(NamedTuple):
    """What the other processes need to know about a result file."""

    source: str
    lists_all_images: bool
    image_ids: tuple[ImageId, ...]


class _ReadFile(NamedTuple):
    """A result file and its ground truth."""

    entry: Entry
    results: DetectionResults
    ground_truth: AnnotationSet


class _Loader:
    """Joins and matches the part of this process: every n-th image of one file, or some of several files."""

    def __init__(
        self,
        source: DetectionInput,
        settings: DetectionSettings,
        ground_truth: AnnotationSet | None,
        iou_types: Sequence[str],
        group: ProcessGroup,
        progress: Progress,
        worst_images: int | None,
        partial: bool,
    ) -> None:
        self.source, self.settings, self.group, self.progress = source, settings, group, progress
        self.worst_images, self.partial, self.iou_types = worst_images, partial, iou_types
        self.several = len(source.results) > 1
        self.in_results = source.in_results
        self.classes = source.classes
        self.ground_truth: Any = ground_truth
        self.ground_truth_entry = {} if ground_truth is None else source.ground_truth_entry(ground_truth)
        self.versions = versions(*(() if ground_truth is None else ground_truth.libraries))
        self.files: list[_FileInfo] = []
        self.matched: list[DetectionEvaluator] = []
        self.waiting: list[_ReadFile] = []
        self.empty_results: DetectionResults | None = None  # of the same kind, without images
        self.num_classes = 0

    def add(self, path: Any, results: DetectionResults) -> None:
        """Add a file that was read. If there are several, match it at once, so that its shapes can be freed."""
        if self.several and results.image_ids is None:
            raise ResultFileError(f"{results.source}: has no image ids, so it cannot be one of several files")
        ground_truth = ground_truth_in(results) if self.in_results else self.ground_truth
        if not self.in_results:
            results = match_image_ids(ground_truth, results)
        self.files.append(_FileInfo(results.source, results.lists_all_images, results.image_ids or ()))
        self.empty_results = self.empty_results or _without_detections(results)
        file = _ReadFile(input_entry(path, results.sha256), results, ground_truth)
        without_names = self.classes is None and self.in_results
        if without_names:
            self.num_classes = max(self.num_classes, classes_from_labels(results, ground_truth))
        if self.several and not without_names:
            self.matched.append(self._match(file))
        else:
            self.waiting.append(file)

    def evaluator(self, infos: Sequence[tuple[list[_FileInfo], int]]) -> DetectionEvaluator | None:
        """Join and match the files that are not matched yet, given the files and class numbers of all processes.

        None if there are more processes than files.
        """
        self.progress.step("joining and matching")
        if self.in_results and self.classes is None and (self.several or self.group.world_size > 1):
            self.classes = [str(label) for label in range(max(number for _, number in infos))]
        matched = self.matched
        while self.waiting:
            matched.append(self._match(self.waiting.pop(0)))
        if self.several and not self.in_results and self.group.rank == 0:
            remaining = self._remaining([file for files, _ in infos for file in files])
            if remaining is not None:
                matched.append(self._evaluator(remaining, [], self.ground_truth, {}))
        return matched[0].merge(*matched[1:]) if len(matched) > 1 else next(iter(matched), None)

    def _match(self, file: _ReadFile) -> DetectionEvaluator:
        """The evaluator of one file; of a single file, of the images of this process."""
        ground_truth = file.ground_truth
        names_its_images = file.results.image_ids is not None and file.results.lists_all_images
        if self.several or (self.partial and names_its_images):
            ground_truth = select_images(file.ground_truth, file.results.image_ids or ())
        allow_missing = self.source.allow_missing and not self.several
        joined = join(ground_truth, file.results, classes=self.classes, allow_missing=allow_missing)
        if not self.several:
            joined = images_of_rank(joined, self.group.rank, self.group.world_size)
        return self._evaluator(
            joined, [results_entry(file.entry, file.results, self.iou_types)], file.ground_truth, file.entry
        )

    def _evaluator(
        self, joined: JoinedImages, entries: Sequence[Entry], ground_truth: AnnotationSet, entry: Entry
    ) -> DetectionEvaluator:
        joined = in_image_order(joined)  # the order breaks ties of scores and of examples
        settings = self.settings.with_frequency(joined.frequency)
        evaluator = DetectionEvaluator(joined.classes, settings, worst_images=self.worst_images)
        evaluator.provenance = Provenance(
            detections=joined.detections,
            missing_images=joined.missing_images,
            results=tuple({**result, "joined_by": joined.joined_by} for result in entries),
            ground_truths=(
                {
                    **(entry if self.in_results else self.ground_truth_entry),
                    "images": len(ground_truth.image_ids),
                    "ground_truths": ground_truth.row_counts.to_dict(),
                    "class_order": self.source.class_order_of(joined),
                    "image_folders": list(ground_truth.image_folders),
                },
            ),
            ground_truth_in_results=self.in_results,
            versions=(self.versions,),
            allow_missing=self.source.allow_missing,
        )
        evaluator.add(
            joined.batch,
            image_ids=joined.image_ids,
            image_names=joined.image_names,
            image_sizes=joined.image_sizes,
            on_progress=self.progress.fraction,
        )
        return evaluator

    def _remaining(self, files: Sequence[_FileInfo]) -> JoinedImages | None:
        """The images that no file has results for, if they belong to this report."""
        with_results = {image_id for file in files for image_id in file.image_ids}
        remaining = [image_id for image_id in self.ground_truth.image_ids if image_id not in with_results]
        lists_all_images = any(file.lists_all_images for file in files)
        if not remaining or (lists_all_images and self.partial):
            return None
        if lists_all_images and not self.source.allow_missing:
            raise ResultFileError(
                f"{files[0].source} and the other files: no results for {listing('image', remaining)} of "
                f"{self.ground_truth.source} (allow_missing=True takes them as without detections)"
            )
        return join(
            select_images(self.ground_truth, remaining),
            self.empty_results,  # type: ignore[arg-type]
            classes=self.classes,
            allow_missing=True,
        )


def _without_detections(results: DetectionResults) -> DetectionResults:
    return replace(
        results,
        num_images=0,
        image_ids=(),
        detections=results.detections.take(np.empty(0, dtype=np.int64)),
        row_counts=RowCounts(0, 0),
        category_ids=None if results.category_ids is None else (),
        ground_truth=None,
    )
