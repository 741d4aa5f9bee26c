"""The description of a format: how an input of it is recognized, and what reads it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from typing import Any, Callable, Iterable, Sequence

import numpy as np

from mm_metrics_plugin.conventions import DEFAULT_IOU_TYPE
from mm_metrics_plugin.exceptions import first_ten
from mm_metrics_plugin.io.files import PathLike, parse_json

# What an input can be read as.
DETECTIONS, GROUND_TRUTH, CLASSIFICATION = "detections", "ground truth", "classification"


@dataclass(frozen=True)
class ReadOptions:
    """What a reader is told about an input.

    Args:
        source: Name of the input in messages.
        file_size: In bytes; None of an object in memory. Bounds the memory of what is read.
        most_bytes: How many bytes the numbers of the file can take.
        task: A classification task; inferred by default.
        iou_type: What is read of a detector: boxes, masks, ...
        ground_truth_inside: Whether the results contain the ground truth.
        track: Wraps the indices of images to show progress.

    The others are arguments of :func:`mm_metrics_plugin.evaluate_detection`. A format names those that it takes.
    """

    source: str
    file_size: int | None = None
    most_bytes: int | None = None
    classes: Sequence[str] | None = None
    class_order: str | None = None
    image_set: PathLike | None = None
    cfg_options: Sequence[str] | None = None
    task: str | None = None
    iou_type: str = DEFAULT_IOU_TYPE
    sigmas: Sequence[float] | None = None
    score_mode: str | None = None
    nms_iou_thr: float | None = None
    ground_truth_inside: bool = False
    track: Callable[[Sequence[int]], Iterable[int]] = lambda indices: indices


@dataclass(frozen=True, eq=False)
class Format:
    """A format of inputs.

    Args:
        what: What an input of this format is.
        detect: Whether an input is of this format; it receives what a file holds, or an object in memory.
        task: What it is read as; "" if it is only recognized, so that errors can name it.
        read: Reads what ``detect`` receives; of a format ``on_disk`` the path.
        remedy: What to do with an input that cannot be read; "" names what is expected instead.
        on_disk: Whether ``detect`` receives the ``FileHead`` of a file or folder instead.
        options: The options of its own, besides ``classes``.
        iou_types: What it can hold.
        load: Makes what ``read`` receives; by default that is what ``detect`` receives, or the path.
    """

    what: str
    detect: Callable[[Any], bool]
    task: str = ""
    read: Callable[[Any, ReadOptions], Any] | None = None
    remedy: str = ""
    on_disk: bool = False
    options: tuple[str, ...] = ()
    iou_types: tuple[str, ...] = (DEFAULT_IOU_TYPE,)
    load: Callable[[Any, ReadOptions], Any] | None = None


def is_path(source: Any) -> bool:
    """Whether an input is a path, not an object in memory or JSON text."""
    return isinstance(source, (str, os.PathLike)) and not is_json_text(source)


def is_json_text(value: Any) -> bool:
    """Whether text is JSON, not the name of a file."""
    if not isinstance(value, str):
        return False
    text = value.strip()
    return text in ("{}", "[]") or ('"' in text and text[:1] + text[-1:] in ("{}", "[]"))


def plain_content(content: Any, source: str) -> Any:
    """The plain Python values of JSON text, data samples of mmengine, and the annotations of a pycocotools ``COCO``."""
    if is_json_text(content):
        return parse_json(content, source)
    dataset = getattr(content, "dataset", None)
    if has_fields(dataset, "images"):
        return dataset
    if hasattr(first_of(content), "metainfo_keys"):
        return [sample.to_dict() if hasattr(sample, "metainfo_keys") else sample for sample in content]
    return content


def description(content: Any) -> str:
    """What an input of an unknown format is."""
    if hasattr(content, "shape") and hasattr(content, "dtype"):
        return f"an array of shape {tuple(content.shape)}"
    if isinstance(content, (list, tuple)) and content:
        return f"a {type(content).__name__} of {_type_name(content[0])}{_fields(content[0])}"
    if isinstance(content, dict):
        return f"a dict{_fields(content)}"
    return "nothing" if content is None else f"an object of type {_type_name(content)}"


def _type_name(value: Any) -> str:
    """The type with the library that it is from, such as ``pandas.DataFrame``."""
    kind = type(value)
    library = kind.__module__.split(".")[0]
    return kind.__name__ if library == "builtins" else f"{library}.{kind.__name__}"


def _fields(value: Any) -> str:
    keys = [str(key)[:40] for key in islice(value, 11)] if isinstance(value, dict) else []
    return f" with {first_ten(keys)}" if keys else ""


# -- functions for ``detect`` ------------------------------------------------------------------------------------------


def first_of(content: Any) -> Any:
    """The first element of a list or tuple, else None."""
    return content[0] if isinstance(content, (list, tuple)) and content else None


def has_fields(value: Any, *fields: str, without: str = "") -> bool:
    """Whether a value is a dict with all these fields, and without another one."""
    return isinstance(value, dict) and all(field in value for field in fields) and without not in value


def dict_with(*fields: str, without: str = "") -> Callable[[Any], bool]:
    """A dict with these fields."""
    return lambda content: has_fields(content, *fields, without=without)


def rows_with(*fields: str, without: str = "") -> Callable[[Any], bool]:
    """A list of dicts, the first of which has the fields."""
    return lambda content: has_fields(first_of(content), *fields, without=without)


def predicted_with(*fields: str, without: str = "") -> Callable[[Any], bool]:
    """A list of dicts, in which the ``pred_instances`` of the first have the fields."""

    def detect(content: Any) -> bool:
        first = first_of(content)
        return has_fields(first, "pred_instances") and has_fields(first["pred_instances"], *fields, without=without)

    return detect


def annotated_with(*fields: str) -> Callable[[Any], bool]:
    """COCO annotations, the first of which has the fields."""

    def detect(content: Any) -> bool:
        whole = has_fields(content, "images", "annotations", "categories")
        return whole and has_fields(first_of(content["annotations"]), *fields)

    return detect


def arrays_of(ndim: int, kinds: str) -> Callable[[Any], bool]:
    """A list of arrays, the first of which has this number of dimensions and a dtype of one of the kinds."""

    def detect(content: Any) -> bool:
        array = first_of(content)
        return (
            isinstance(content, list)
            and isinstance(array, np.ndarray)
            and array.ndim == ndim
            and array.dtype.kind in kinds
        )

    return detect
