"""Readers of inputs: one module per format, and the list of all.

A new format is a module with a tuple ``FORMATS``, added to ``READERS``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Sequence

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.classification_results import ClassificationResults
from mm_metrics_plugin.io.detection_data import AnnotationSet, DetectionResults
from mm_metrics_plugin.io.file_formats import FILE_FORMATS, JSON, PICKLE, file_head
from mm_metrics_plugin.io.files import read_json, trim_memory
from mm_metrics_plugin.io.foreign_formats import FOREIGN_FORMATS
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
from mm_metrics_plugin.io.readers import coco, dataset_config, mmdet, mmdet_2, mmpretrain, voc
from mm_metrics_plugin.io.safe_pickle import collector_paused, read_hashed_pickle

READERS: tuple[Format, ...] = (
    *mmpretrain.FORMATS,
    *mmdet.FORMATS,
    *mmdet_2.FORMATS,
    *coco.FORMATS,
    *voc.FORMATS,
    *dataset_config.FORMATS,
)
_EXPECTED = {
    DETECTIONS: "results of a detector are the results.pkl of tools/test.py --out, or COCO results: a list of dicts "
    "with image_id, category_id, bbox and score",
    GROUND_TRUTH: "ground truth is a COCO annotation file (.json), a folder of VOC files (.xml) or the config of the "
    "test dataset (.py), and comes before the results",
    CLASSIFICATION: "results of a classifier are the results.pkl of mmpretrain's tools/test.py --out, or in Python two "
    "arrays: evaluate_classification(scores, labels)",
}
_OPTIONS = ("class_order", "image_set", "cfg_options")
JSON_EXPANSION = 4  # a number takes 8 bytes in an array, and at least 2 in JSON


def recognize(content: Any) -> Format | None:
    """The format of what a file holds, or of an object in memory; None if it is unknown."""
    forms = (*FOREIGN_FORMATS, *(form for form in READERS if not form.on_disk))
    return next((form for form in forms if form.detect(content)), None)


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


def read(
    source: Any,
    name: str,
    *tasks: str,
    trust: bool = False,
    on_progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Any:
    """Read an input.

    Args:
        source: A path, or an object in memory.
        name: What messages call an object in memory.
        *tasks: What it may be read as: ``DETECTIONS``, ``GROUND_TRUTH`` or ``CLASSIFICATION``.
        trust: Read a pickle with plain pickle, which runs any code in it.
        on_progress: Receives the fraction of a pickle that was read.
        **options: Fields of ``ReadOptions``.

    Raises:
        ResultFileError: The input is damaged, of another format, or does not take an option.
    """
    if not is_path(source):
        return _read_content(plain_content(source, name), tasks, ReadOptions(name, **options))
    path = Path(source)
    head = file_head(path)
    form = next(form for form in (*(form for form in READERS if form.on_disk), *FILE_FORMATS) if form.detect(head))
    size = 0 if head.is_folder else path.stat().st_size
    own = ReadOptions(path.name, file_size=size, most_bytes=size, **options)
    if form not in (JSON, PICKLE):
        return _read_as(form, path, tasks, own)
    with collector_paused():
        if form is JSON:
            content, digest = read_json(path)
            own = replace(own, most_bytes=JSON_EXPANSION * size)
        else:
            content, digest = read_hashed_pickle(path, trust=trust, on_progress=on_progress)
            if isinstance(content, list) and not content:  # a pickle has an entry for every image or sample
                raise _refusal(path.name, "an empty list", tasks)
        result = _read_content(content, tasks, own)
        del content
    trim_memory()
    return replace(result, sha256=digest)


def _read_content(content: Any, tasks: Sequence[str], options: ReadOptions) -> Any:
    """What the reader of the format returns."""
    form = recognize(content)
    if form is None:
        raise _refusal(options.source, description(content), tasks)
    return _read_as(form, content, tasks, options)


def _read_as(form: Format, value: Any, tasks: Sequence[str], options: ReadOptions) -> Any:
    """What the reader of a format returns, if the format has one for this task and takes the options."""
    if form.read is None or form.task not in tasks:
        raise _refusal(options.source, form.what, tasks, _remedy(form, tasks))
    for option in _OPTIONS:
        if getattr(options, option) and option not in form.options:
            accepted = " or ".join(other.what for other in READERS if option in other.options)
            raise ResultFileError(f"{options.source}: {option}=... requires {accepted} (found {form.what})")
    return form.read(value, options)


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
