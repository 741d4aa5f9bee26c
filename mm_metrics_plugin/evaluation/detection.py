"""Evaluation of a detector: from files or arrays to a :class:`DetectionReport`."""

from __future__ import annotations

from typing import Any, Sequence

from mm_metrics_plugin.conventions import DEFAULT_IOU_TYPE, IOU_TYPES
from mm_metrics_plugin.evaluation.inputs import check_classes, check_path, keyword_names
from mm_metrics_plugin.evaluation.loading import DetectionInput, ProcessGroup, evaluator_of_batch, load_images
from mm_metrics_plugin.evaluation.saved_states import read_evaluators, save_evaluators
from mm_metrics_plugin.exceptions import ResultFileError, pluralize, shortened
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.io.files import PathLike, trim_memory
from mm_metrics_plugin.io.formats import is_path
from mm_metrics_plugin.reports.base import GALLERY, Progress, Report
from mm_metrics_plugin.reports.detection import DetectionReport
from mm_metrics_plugin.reports.detection_evaluator import DetectionEvaluator
from mm_metrics_plugin.reports.detection_reports import DetectionReports
from mm_metrics_plugin.settings import DetectionSettings, given_or_default, require_choice, require_int, with_options


def evaluate_detection(
    ground_truth: Any,
    results: Any = None,
    *,
    classes: Sequence[str] | None = None,
    settings: DetectionSettings | None = None,
    class_order: str | None = None,
    image_set: PathLike | None = None,
    cfg_options: Sequence[str] | None = None,
    trust: bool = False,
    allow_missing: bool = False,
    score_mode: str | None = None,
    gallery: int | None = GALLERY,
    save_state: PathLike | None = None,
    distributed: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> DetectionReport:
    """Evaluate a detector, as ``mm-metrics detection`` does.

    Args:
        ground_truth: The path of COCO annotations (``.json``), a folder of VOC files or DOTA files or an mmdet config
            (``.py``); a dict of COCO annotations; a :class:`~mm_metrics_plugin.functional.DetectionBatch`, which holds
            detections as well; or None if the ground truth is inside the results.
        results: The path of ``results.pkl`` or COCO results (``.json``), several paths that are shards of one test
            set, or a list of results in memory: one dict per image as mmdet writes them, or COCO results.
        classes: Class names in the order of the labels.
        settings: All options at once; by default those of ``options`` with the ``matching`` of the IoU type:
            ``('coco', 'mmdet')`` of boxes, ``('coco', 'agnostic')`` of others.
        class_order: ``'annotations'`` or ``'classes'``: which order labels follow, where the two differ.
        image_set: List of the test images of a folder of VOC or DOTA files.
        cfg_options: ``KEY=VALUE`` overrides of the config.
        trust: Read pickles with plain pickle, which runs whatever is in them.
        allow_missing: Evaluate images without results as images without detections.
        score_mode: Score of mmpose's key points: ``'bbox'``, ``'keypoint'``, ``'bbox_keypoint'`` (default) or
            ``'bbox_rle'``. Their NMS by OKS has the threshold ``nms_iou_thr``, by default 0.9; 1 disables it.
        gallery: Keep examples for the HTML page, and this many of the worst images; None keeps none.
        save_state: Save the state of this shard to an ``.npz`` file for :func:`merge_states`. The results may then
            cover only some of the images.
        distributed: Divide the work among the processes that torchrun started. Only the first gets a report.
        progress: Receives the steps.
        **options: Fields of :class:`~mm_metrics_plugin.settings.DetectionSettings`, such as ``score_thr=0.5``.
            ``iou_type`` may be several types, such as ``('bbox', 'segm')``: the result is then one
            :class:`~mm_metrics_plugin.evaluation.DetectionReports` with a report of each.

    Raises:
        ResultFileError: An input is damaged, or does not fit the others.

    Example:
        >>> annotations = {
        ...     "images": [{"id": 7, "file_name": "a.jpg", "height": 48, "width": 64}],
        ...     "categories": [{"id": 3, "name": "cat"}],
        ...     "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [0, 0, 10, 10]}]}
        >>> results = [{"image_id": 7, "category_id": 3, "bbox": [0, 0, 10, 10], "score": 0.9}]
        >>> report = evaluate_detection(annotations, results, score_thr=0.5)
        >>> report.matching_rules[0].columns["tp"].tolist(), report.analysis.average_precision.to_dict()["mAP"]
        ([1], 1.0)
    """
    all_settings = _settings_by_type(settings, options)
    check_classes(classes)
    check_path("image_set", image_set)
    if save_state is not None and not str(save_state).endswith(".npz"):
        raise ResultFileError(f"save_state={str(save_state)!r} must end in .npz")
    if gallery is not None:
        require_int("gallery", gallery, low=0)
    progress = progress or Progress()
    group = ProcessGroup(distributed=distributed)
    if isinstance(ground_truth, DetectionBatch):
        evaluators = [evaluator_of_batch(ground_truth, each, classes, gallery) for each in all_settings]
    else:
        several = isinstance(results, (list, tuple)) and len(results) > 0 and all(map(is_path, results))
        source = DetectionInput(
            ground_truth=ground_truth,
            results=tuple(results) if several else (results,),
            classes=classes,
            class_order=class_order,
            image_set=None if image_set is None else str(image_set),
            cfg_options=cfg_options,
            trust=trust,
            allow_missing=allow_missing,
            score_mode=score_mode,
        )
        partial = save_state is not None and not allow_missing
        evaluators = load_images(
            source, all_settings, group=group, progress=progress, worst_images=gallery, partial=partial
        )
    trim_memory()  # of the input
    group.close()
    if group.rank > 0:
        return None  # type: ignore[return-value]
    if save_state is not None:
        save_evaluators(save_state, evaluators)
    report: DetectionReport = _report(evaluators, progress)
    return report


def _settings_by_type(settings: DetectionSettings | None, options: dict[str, Any]) -> list[DetectionSettings]:
    """The settings of each IoU type."""
    settings = None if settings is None else given_or_default(settings, DetectionSettings())
    given = options.get("iou_type", DEFAULT_IOU_TYPE if settings is None else settings.iou_type)
    iou_types = list(given) if isinstance(given, (list, tuple)) else [given]
    if not iou_types or len(set(map(str, iou_types))) < len(iou_types):
        raise ResultFileError(f"iou_type=... must be one or several distinct types (found {shortened(given)})")
    result = []
    for iou_type in iou_types:
        require_choice("iou_type", iou_type, list(IOU_TYPES))
        base = settings or DetectionSettings(iou_type=iou_type, matching=IOU_TYPES[iou_type].matching)
        result.append(with_options(base, {**options, "iou_type": iou_type}, keyword_names(evaluate_detection)))
    return result


def _report(evaluators: Sequence[Any], progress: Progress) -> Any:
    """The report of one evaluator, or one report of several IoU types."""
    progress.step("computing metrics")
    reports = [evaluator.compute(progress) for evaluator in evaluators]
    return reports[0] if len(reports) == 1 else DetectionReports({each.settings.iou_type: each for each in reports})


def merge_states(files: Sequence[PathLike], *, progress: Progress | None = None) -> Report:
    """One report from states that ``save_state`` wrote, with the numbers of one run on all images.

    Of one file, the report that it was saved from.

    Args:
        files: The ``.npz`` files. They must have the same classes and settings, share no image, and together hold
            every image of the ground truth.
        progress: Receives the steps.

    Raises:
        ResultFileError: A file is damaged, or the files do not fit together.
    """
    if not isinstance(files, (list, tuple)) or not files or not all(map(is_path, files)):
        raise ResultFileError(f"files must be a list of .npz files (found {shortened(files)})")
    progress = progress or Progress()
    progress.step("reading")
    read = [read_evaluators(file) for file in progress.track(files)]
    if len(set(map(len, read))) > 1:
        raise ResultFileError("states of different IoU types cannot be merged (iou_type=...)")
    evaluators: list[Any] = []
    for parts in zip(*read):
        first, *others = parts
        if any(type(other) is not type(first) for other in others):
            raise ResultFileError("states of detectors and of classifiers cannot be merged")
        evaluator: Any = first.merge(*others) if others else first
        if isinstance(evaluator, DetectionEvaluator) and evaluator.provenance.images_in_other_shards:
            names = ", ".join(entry["file"] for entry in evaluator.provenance.ground_truths)
            missing = evaluator.provenance.images_in_other_shards
            if missing < 0:  # only files have a checksum
                raise ResultFileError(
                    f"{names}: the states hold {pluralize(-missing, 'image')} more than this ground truth; ground "
                    "truths in memory are taken for the same, so evaluate each part with the whole ground truth, or "
                    "with files"
                )
            raise ResultFileError(f"{names}: shards with {pluralize(missing, 'image')} are missing")
        evaluators.append(evaluator)
    report: Report = _report(evaluators, progress)
    return report
