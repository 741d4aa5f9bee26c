"""What an input is: the formats that are read, and formats that are only recognized, so that errors can name them.

``CONTENTS`` recognizes what a file holds or an object in memory, ``file_formats.FILES`` the file itself. The first
format whose ``detect`` is true names the input. A new reader adds its format to one of the lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, Callable, Optional

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError, first_ten
from mm_metrics_plugin.io.files import parse_json

# What an input can be read as.
DETECTIONS, GROUND_TRUTH, CLASSIFICATION = "detections", "ground truth", "classification"
_EXPECTED = {
    DETECTIONS: "results of a detector are the results.pkl of tools/test.py --out, or COCO results: a list of dicts "
    "with image_id, category_id, bbox and score",
    GROUND_TRUTH: "ground truth is a COCO annotation file (.json), a folder of VOC files (.xml) or the config of the "
    "test dataset (.py), and comes before the results",
    CLASSIFICATION: "results of a classifier are the results.pkl of mmpretrain's tools/test.py --out, or in Python two "
    "arrays: evaluate_classification(scores, labels)",
}


@dataclass(frozen=True, eq=False)
class Format:
    """A format of inputs.

    Args:
        what: What an input of this format is.
        detect: Whether an input is of this format.
        remedy: What to do with an input that cannot be read; "" names what is expected instead.
        task: What it is read as; "" if it is only recognized.
    """

    what: str
    detect: Callable[[Any], bool]
    remedy: str = ""
    task: str = ""


def refusal(source: str, found: Any, task: str) -> ResultFileError:
    """The error for an input that is not what ``task`` needs.

    Args:
        source: Name of the input in messages.
        found: Its format, or its content.
        task: ``DETECTIONS``, ``GROUND_TRUTH`` or ``CLASSIFICATION``.
    """
    form = found if isinstance(found, Format) else recognize(found) or Format(_description(found), lambda _: True)
    remedy = form.remedy or _EXPECTED[task]
    if form.task and CLASSIFICATION in (form.task, task):
        name = "classification" if form.task == CLASSIFICATION else "detection"
        remedy = f"evaluate_{name} and mm-metrics {name} read them"
    return ResultFileError(f"{source}: found {form.what}; {remedy}")


def recognize(content: Any) -> Optional[Format]:
    """The format of what a file holds, or of an object in memory; None if it is not recognized."""
    return next((form for form in CONTENTS if form.detect(content)), None)


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
    if _has(dataset, "images"):
        return dataset
    if hasattr(_first(content), "metainfo_keys"):
        return [sample.to_dict() if hasattr(sample, "metainfo_keys") else sample for sample in content]
    return content


def _description(content: Any) -> str:
    """What an input that is not recognized is."""
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


def _first(content: Any) -> Any:
    return content[0] if isinstance(content, (list, tuple)) and content else None


def _has(value: Any, *fields: str) -> bool:
    return isinstance(value, dict) and all(field in value for field in fields)


def _dict(*fields: str) -> Callable[[Any], bool]:
    return lambda content: _has(content, *fields)


def _rows(*fields: str, without: str = "") -> Callable[[Any], bool]:
    """A list of dicts whose first has all fields and lacks another one."""
    return lambda content: _has(_first(content), *fields) and without not in _first(content)


def _predicted(*fields: str, without: str = "") -> Callable[[Any], bool]:
    """A list of dicts, in which the ``pred_instances`` of the first have all fields and lack another one."""

    def detect(content: Any) -> bool:
        instances = _first(content).get("pred_instances") if isinstance(_first(content), dict) else {}
        return _has(instances, *fields) and without not in instances

    return detect


def _arrays(ndim: int, kinds: str) -> Callable[[Any], bool]:
    """A list of arrays with this number of dimensions and a dtype of one of the kinds."""

    def detect(content: Any) -> bool:
        array = _first(content)
        return isinstance(array, np.ndarray) and array.ndim == ndim and array.dtype.kind in kinds

    return detect


def _annotated(*fields: str) -> Callable[[Any], bool]:
    """COCO annotations, the first of which has the fields."""
    return lambda content: COCO_ANNOTATIONS.detect(content) and _has(_first(content["annotations"]), *fields)


def _part_of_annotations(content: Any) -> bool:
    return isinstance(content, dict) and not {"images", "annotations"}.isdisjoint(content)


def _is_mmdet_2(content: Any) -> bool:
    """Lists of arrays, one list per image, or tuples of these and masks."""
    image = _first(content)
    image = _first(image) if isinstance(image, tuple) else image
    return isinstance(image, list) and not isinstance(_first(image), (int, float, str))


def _by_image(content: Any) -> bool:
    """A dict from image ids to detections."""
    return isinstance(content, dict) and any(_has(value, "boxes", "scores") for value in islice(content.values(), 1))


_SEGMENTATION = "evaluate segmentation with MeanIoU or DiceScore in the test_evaluator of the config"
_KEY_POINTS = "key points are not evaluated; mmpose and pycocotools compute their AP"
_NO_IMAGES = (
    "they do not name their images: give COCO results, one dict per box with image_id, category_id, bbox and score"
)
_ADD_BOXES = "add the box of each mask, such as pycocotools.mask.toBbox returns"

NOTHING = Format("an empty list", lambda content: isinstance(content, list) and not content)
MMDET = Format("results of mmdet", _rows("pred_instances"), task=DETECTIONS)
MMDET_2 = Format("results of mmdet 2.x", _is_mmdet_2, task=DETECTIONS)
COCO_RESULTS = Format("COCO results", _rows("image_id"), task=DETECTIONS)
COCO_ANNOTATIONS = Format("COCO annotations", _dict("images", "annotations", "categories"), task=GROUND_TRUTH)
SCORED_ANNOTATIONS = Format(
    "COCO annotations with scores", _annotated("score"), "COCO results are only their list 'annotations'"
)
MMPRETRAIN = Format("results of mmpretrain", _rows("pred_score"), task=CLASSIFICATION)
CONTENTS = (
    NOTHING,
    MMPRETRAIN,
    # pickles of OpenMMLab's tools
    Format("key points of mmpose ('keypoints')", _predicted("keypoints", without="labels"), _KEY_POINTS),
    Format("masks without boxes ('masks' without 'bboxes')", _predicted("masks", without="bboxes"), _ADD_BOXES),
    Format("text regions of mmocr ('polygons')", _predicted("polygons", without="bboxes")),
    MMDET,
    Format("semantic segmentation of mmseg ('pred_sem_seg')", _rows("pred_sem_seg"), _SEGMENTATION),
    Format(
        "panoptic segmentation ('pred_panoptic_seg')", _rows("pred_panoptic_seg"), "panoptic quality is not computed"
    ),
    Format("3D boxes of mmdet3d ('pred_instances_3d')", _rows("pred_instances_3d"), "3D boxes are not evaluated"),
    Format("tracks ('pred_track_instances')", _rows("pred_track_instances"), "tracks are not evaluated"),
    Format("text of mmocr ('pred_text')", _rows("pred_text"), "text is not evaluated"),
    Format("key points of mmpose 0.x ('preds')", _rows("preds", "image_paths"), _KEY_POINTS),
    Format("results of mmcls 0.x ('class_scores')", _dict("class_scores")),
    Format("annotations in the middle format of mmdet ('filename', 'ann')", _rows("filename", "ann")),
    Format("annotations of a dataset of OpenMMLab ('metainfo', 'data_list')", _dict("metainfo", "data_list")),
    MMDET_2,
    Format("a list of segmentation maps", _arrays(2, "iu"), _SEGMENTATION),
    Format("a list of scores without labels", _arrays(1, "f")),
    # COCO
    Format("COCO key points ('keypoints' without 'bbox')", _rows("image_id", "keypoints", without="bbox"), _KEY_POINTS),
    Format("COCO masks ('segmentation' without 'bbox')", _rows("image_id", "segmentation", without="bbox"), _ADD_BOXES),
    Format(
        "the list of COCO annotations ('bbox' without 'score')",
        _rows("image_id", "bbox", "id", without="score"),
        "ground truth is the whole dict with 'images', 'annotations' and 'categories', and results have a 'score'",
    ),
    COCO_RESULTS,
    Format(
        "COCO panoptic annotations ('segments_info')", _annotated("segments_info"), "panoptic quality is not computed"
    ),
    SCORED_ANNOTATIONS,
    COCO_ANNOTATIONS,
    Format("part of COCO annotations", _part_of_annotations, "'images', 'annotations' and 'categories' are all needed"),
    # other tools
    Format("detections of torchvision ('boxes', 'scores', 'labels')", _rows("boxes", "scores", "labels"), _NO_IMAGES),
    Format("the detections of one image", _dict("boxes", "scores", "labels"), _NO_IMAGES),
    Format(
        "a dict of detections by image id",
        _by_image,
        "give COCO results: one dict per box with image_id, category_id, bbox [x, y, width, height] and score",
    ),
    Format(
        "detections of DetInferencer ('bboxes', 'scores', 'labels')", _rows("bboxes", "scores", "labels"), _NO_IMAGES
    ),
    Format("the output of an inferencer ('predictions')", _dict("predictions"), _NO_IMAGES),
    Format("a checkpoint ('state_dict')", _dict("state_dict"), "test it first: tools/test.py --out results.pkl"),
    Format("a report of this package", _dict("schema_version", "settings", "inputs")),
    Format("a LabelMe file ('shapes')", _dict("shapes", "imagePath")),
)
