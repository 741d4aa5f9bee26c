"""Readers of inputs: one module per format, and the list of all.

A new format is a module with a tuple ``FORMATS``, added to ``READERS``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Sequence

from mm_metrics_plugin.conventions import DEFAULT_IOU_TYPE, IOU_TYPES
from mm_metrics_plugin.exceptions import MetricInputError, ResultFileError
from mm_metrics_plugin.io.classification_results import ClassificationResults
from mm_metrics_plugin.io.detection_data import AnnotationSet, DetectionResults
from mm_metrics_plugin.io.file_heads import FILE_FORMATS, JSON, PICKLE, file_head
from mm_metrics_plugin.io.files import read_json, trim_memory
from mm_metrics_plugin.io.formats import (
    CLASSIFICATION,
    DETECTIONS,
    GROUND_TRUTH,
    Format,
    ReadOptions,
    description,
    is_path,
    plain_content,
)
from mm_metrics_plugin.io.readers import coco, dataset_config, dota, mmdet, mmdet_2, mmpose, mmpretrain, voc
from mm_metrics_plugin.io.safe_pickle import collector_paused, read_hashed_pickle
from mm_metrics_plugin.io.unsupported_formats import UNSUPPORTED_FORMATS

READERS: tuple[Format, ...] = (
    *mmpretrain.FORMATS,
    *mmpose.FORMATS,
    *mmdet.FORMATS,
    *mmdet_2.FORMATS,
    *coco.FORMATS,
    *voc.FORMATS,
    *dota.FORMATS,
    *dataset_config.FORMATS,
)
_EXPECTED = {
    DETECTIONS: "results of a detector are the results.pkl of tools/test.py --out, or COCO results: a list of dicts "
    "with image_id, category_id, score and bbox, segmentation or keypoints",
    GROUND_TRUTH: "ground truth is a COCO annotation file (.json), a folder of VOC files (.xml) or DOTA files "
    "(.txt), or the config of the test dataset (.py), and comes before the results",
    CLASSIFICATION: "results of a classifier are the results.pkl of mmpretrain's tools/test.py --out, or in Python two "
    "arrays: evaluate_classification(scores, labels)",
}
_OPTIONS = ("class_order", "image_set", "cfg_options", "score_mode")
JSON_EXPANSION = 4  # a number takes 8 bytes in an array, and at least 2 in JSON


def recognize(content: Any, iou_types: Sequence[str] = (DEFAULT_IOU_TYPE,)) -> Format | None:
    """The format of what a file holds, or of an object in memory; None if it is unknown.

    Content of several formats has the first one that can hold what is asked for.
    """
    contents = (*UNSUPPORTED_FORMATS, *(form for form in READERS if not form.on_disk))
    forms = [form for form in contents if form.detect(content)]
    suited = (form for form in forms if form.read is None or set(iou_types) <= set(form.iou_types))
    return next(suited, next(iter(forms), None))


def read_detections(source: Any, name: str = "results", **options: Any) -> DetectionResults:
    """Read the results of a detector; see :func:`read`."""
    results: DetectionResults = read(source, name, DETECTIONS, **options)
    return results


def read_ground_truth(source: Any, name: str = "ground_truth", **options: Any) -> AnnotationSet:
    """Read the ground truth of a detector; see :func:`read`."""
    ground_truth: AnnotationSet = read(source, name, GROUND_TRUTH, **options)
    return ground_truth


def read_classification(source: Any, name: str = "results", **options: Any) -> ClassificationResults:
    """Read the results of a classifier; see :func:`read`."""
    results: ClassificationResults = read(source, name, CLASSIFICATION, **options)
    return results


def read(source: Any, name: str, *tasks: str, iou_type: str = DEFAULT_IOU_TYPE, **options: Any) -> Any:
    """Read an input; see :func:`read_all`."""
    return read_all(source, name, *tasks, iou_types=(iou_type,), **options)[0]


def read_all(
    source: Any,
    name: str,
    *tasks: str,
    iou_types: Sequence[str],
    trust: bool = False,
    on_progress: Callable[[float], None] | None = None,
    **options: Any,
) -> list[Any]:
    """Read an input once, for each IoU type.

    Args:
        source: A path, or an object in memory.
        name: What messages call an object in memory.
        *tasks: What it may be read as: ``DETECTIONS``, ``GROUND_TRUTH`` or ``CLASSIFICATION``.
        iou_types: What is read of a detector, such as boxes and masks.
        trust: Read a pickle with plain pickle, which runs any code in it.
        on_progress: Receives the fraction of a pickle that was read.
        **options: Fields of ``ReadOptions``.

    Raises:
        ResultFileError: The input is damaged, of another format, or does not take an option.
    """
    if not is_path(source):
        return _read_content(plain_content(source, name), tasks, iou_types, ReadOptions(name, **options))
    path = Path(source)
    head = file_head(path)
    form = next(form for form in (*(form for form in READERS if form.on_disk), *FILE_FORMATS) if form.detect(head))
    size = 0 if head.is_folder else path.stat().st_size
    own = ReadOptions(path.name, file_size=size, most_bytes=size, **options)
    if form not in (JSON, PICKLE):
        return _read_as(form, path, tasks, iou_types, own)
    with collector_paused():
        if form is JSON:
            content, digest = read_json(path)
            own = replace(own, most_bytes=JSON_EXPANSION * size)
        else:
            content, digest = read_hashed_pickle(path, trust=trust, on_progress=on_progress)
            if isinstance(content, list) and not content:  # a pickle has an entry for every image or sample
                raise _refusal(path.name, "an empty list", tasks)
        results = _read_content(content, tasks, iou_types, own)
        del content
    trim_memory()
    return [replace(result, sha256=digest) for result in results]


def _read_content(content: Any, tasks: Sequence[str], iou_types: Sequence[str], options: ReadOptions) -> list[Any]:
    """What the reader of the format returns."""
    form = recognize(content, iou_types)
    if isinstance(content, list) and not content and DETECTIONS not in tasks:  # else COCO results without detections
        raise _refusal(options.source, "an empty list", tasks)
    if form is None:
        raise _refusal(options.source, description(content), tasks)
    return _read_as(form, content, tasks, iou_types, options)


def _read_as(
    form: Format, value: Any, tasks: Sequence[str], iou_types: Sequence[str], options: ReadOptions
) -> list[Any]:
    """What the reader of a format returns, if the format has one for this task and takes the options."""
    if form.read is None or form.task not in tasks:
        raise _refusal(options.source, form.what, tasks, _remedy(form, tasks))
    for option in _OPTIONS:
        if getattr(options, option) and option not in form.options:
            accepted = " or ".join(dict.fromkeys(other.what for other in READERS if option in other.options))
            raise ResultFileError(f"{options.source}: {option}=... requires {accepted} (found {form.what})")
    for iou_type in iou_types:
        if form.task != CLASSIFICATION and iou_type not in form.iou_types:
            choices = " or ".join(f"iou_type={choice!r}" for choice in form.iou_types)
            raise ResultFileError(
                f"{options.source}: found {form.what}, from which {IOU_TYPES[iou_type].description} "
                f"(iou_type={iou_type!r}) cannot be read; use {choices}"
            )
    content = value if form.load is None else form.load(value, options)
    try:
        return [form.read(content, replace(options, iou_type=iou_type)) for iou_type in iou_types]
    except ResultFileError:
        raise
    except (MetricInputError, ImportError) as error:  # an invalid shape; polygons without pycocotools
        raise ResultFileError(f"{options.source}: {error}") from None


def _remedy(form: Format, tasks: Sequence[str]) -> str:
    """What to do with an input that cannot be read for these tasks."""
    if form.task == CLASSIFICATION and CLASSIFICATION not in tasks:
        return "evaluate_classification and mm-metrics classification read them"
    if form.task and set(tasks) == {CLASSIFICATION}:
        return "evaluate_detection and mm-metrics detection read them"
    return form.remedy


def _refusal(source: str, what: str, tasks: Sequence[str], remedy: str = "") -> ResultFileError:
    """The error for an input that cannot be read for these tasks."""
    return ResultFileError(f"{source}: found {what}; {remedy or _EXPECTED[tasks[0]]}")
