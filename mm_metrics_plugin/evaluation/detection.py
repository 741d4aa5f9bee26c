"""Evaluation of a detector: from files or arrays to a :class:`DetectionReport`."""

from __future__ import annotations

from typing import Any, Sequence

from mm_metrics_plugin.conventions import DEFAULT_MATCHING
from mm_metrics_plugin.evaluation.distributed import ProcessGroup
from mm_metrics_plugin.evaluation.inputs import check_classes, check_path, keyword_names
from mm_metrics_plugin.evaluation.loading import DetectionInput, evaluator_of_batch, load_images
from mm_metrics_plugin.evaluation.saved_states import read_evaluator, save_evaluator
from mm_metrics_plugin.exceptions import ResultFileError, pluralize, shortened
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.io.files import PathLike, trim_memory
from mm_metrics_plugin.io.formats import is_path
from mm_metrics_plugin.reports.base import GALLERY, Progress, Report
from mm_metrics_plugin.reports.detection import DetectionReport
from mm_metrics_plugin.reports.detection_evaluator import DetectionEvaluator
from mm_metrics_plugin.settings import DetectionSettings, given_or_default, require_int, with_options


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
    gallery: int | None = GALLERY,
    save_state: PathLike | None = None,
    distributed: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> DetectionReport:
    """Evaluate a detector, as ``mm-metrics detection`` does.

    Args:
        ground_truth: The path of COCO annotations (``.json``), a folder of VOC files or an mmdet config (``.py``); a
            dict of COCO annotations; a :class:`~mm_metrics_plugin.functional.DetectionBatch`, which holds detections
            as well; or None if the ground truth is inside the results.
        results: The path of ``results.pkl`` or COCO results (``.json``), several paths that are shards of one test
            set, or a list of results in memory: one dict per image as mmdet writes them, or COCO results.
        classes: Class names in the order of the labels.
        settings: All options at once; by default those of ``options`` with ``matching=('coco', 'mmdet')``.
        class_order: ``'annotations'`` or ``'classes'``: which order labels follow, where the two differ.
        image_set: List of the test images of a folder of VOC files.
        cfg_options: ``KEY=VALUE`` overrides of the config.
        trust: Read pickles with plain pickle, which runs whatever is in them.
        allow_missing: Evaluate images without results as images without detections.
        gallery: Keep examples for the HTML page, and this many of the worst images; None keeps none.
        save_state: Save the state of this shard to an ``.npz`` file for :func:`merge_states`. The results may then
            cover only some of the images.
        distributed: Divide the work among the processes that torchrun started. Only the first gets a report.
        progress: Receives the steps.
        **options: Fields of :class:`~mm_metrics_plugin.settings.DetectionSettings`, such as ``score_thr=0.5``.

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
    settings = given_or_default(settings, DetectionSettings(matching=DEFAULT_MATCHING))
    settings = with_options(settings, options, keyword_names(evaluate_detection))
    check_classes(classes)
    check_path("image_set", image_set)
    if save_state is not None and not str(save_state).endswith(".npz"):
        raise ResultFileError(f"save_state={str(save_state)!r} must end in .npz")
    if gallery is not None:
        require_int("gallery", gallery, low=0)
    progress = progress or Progress()
    group = ProcessGroup(distributed=distributed)
    if isinstance(ground_truth, DetectionBatch):
        evaluator = evaluator_of_batch(ground_truth, settings, classes, gallery)
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
        )
        partial = save_state is not None and not allow_missing
        evaluator = load_images(source, settings, group=group, progress=progress, worst_images=gallery, partial=partial)
    trim_memory()  # of the input
    group.close()
    if group.rank > 0:
        return None  # type: ignore[return-value]
    if save_state is not None:
        save_evaluator(save_state, evaluator)
    progress.step("computing metrics")
    return evaluator.compute(progress)


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
    evaluators: list[Any] = [read_evaluator(file) for file in progress.track(files)]
    first, *others = evaluators
    if any(type(other) is not type(first) for other in others):
        raise ResultFileError("states of detectors and of classifiers cannot be merged")
    evaluator: Any = first.merge(*others) if others else first
    if isinstance(evaluator, DetectionEvaluator) and evaluator.provenance.images_in_other_shards:
        names = ", ".join(entry["file"] for entry in evaluator.provenance.ground_truths)
        raise ResultFileError(
            f"{names}: shards with {pluralize(evaluator.provenance.images_in_other_shards, 'image')} are missing"
        )
    progress.step("computing metrics")
    report: Report = evaluator.compute(progress)
    return report
