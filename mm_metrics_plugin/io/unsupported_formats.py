"""Formats that are not read: they are recognized, so that errors say what an input is and what to do."""

from __future__ import annotations

from typing import Any

from mm_metrics_plugin.io.formats import (
    Format,
    annotated_with,
    arrays_of,
    dict_with,
    has_fields,
    predicted_with,
    rows_with,
)

_SEGMENTATION = "evaluate segmentation with MeanIoU or DiceScore in the test_evaluator of the config"
_KEY_POINTS = "test the model with mmpose 1.x, or give COCO results"
_NO_IMAGES = (
    "they do not name their images: give COCO results, one dict per box with image_id, category_id, bbox and score"
)


def _part_of_annotations(content: Any) -> bool:
    """Images or annotations, but not both with categories."""
    some = has_fields(content, "images") or has_fields(content, "annotations")
    return some and not has_fields(content, "images", "annotations", "categories")


def _by_image(content: Any) -> bool:
    """A dict from image ids to detections."""
    first = next(iter(content.values()), None) if isinstance(content, dict) else None
    return has_fields(first, "boxes", "scores")


UNSUPPORTED_FORMATS = tuple(
    Format(what, detect, remedy=remedy)
    for what, detect, remedy in (
        # pickles of OpenMMLab's tools
        ("text regions of mmocr ('polygons')", predicted_with("polygons", without="bboxes"), ""),
        (
            "semantic segmentation of mmseg ('pred_sem_seg')",
            rows_with("pred_sem_seg", without="pred_instances"),
            _SEGMENTATION,
        ),
        (
            "panoptic segmentation ('pred_panoptic_seg')",
            rows_with("pred_panoptic_seg", without="pred_instances"),
            "panoptic quality is not computed",
        ),
        ("3D boxes of mmdet3d ('pred_instances_3d')", rows_with("pred_instances_3d"), "3D boxes are not evaluated"),
        (
            "tracks ('pred_track_instances')",
            rows_with("pred_track_instances", without="pred_instances"),
            "tracks are not evaluated",
        ),
        ("text of mmocr ('pred_text')", rows_with("pred_text"), "text is not evaluated"),
        ("key points of mmpose 0.x ('preds')", rows_with("preds", "image_paths"), _KEY_POINTS),
        ("results of mmcls 0.x ('class_scores')", dict_with("class_scores"), ""),
        ("annotations in the middle format of mmdet ('filename', 'ann')", rows_with("filename", "ann"), ""),
        ("annotations of a dataset of OpenMMLab ('metainfo', 'data_list')", dict_with("metainfo", "data_list"), ""),
        ("a list of segmentation maps", arrays_of(2, "iu"), _SEGMENTATION),
        ("a list of scores without labels", arrays_of(1, "f"), ""),
        # COCO
        (
            "the list of COCO annotations ('bbox' without 'score')",
            rows_with("image_id", "bbox", "id", without="score"),
            "ground truth is the whole dict with 'images', 'annotations' and 'categories', and results have a 'score'",
        ),
        (
            "COCO panoptic annotations ('segments_info')",
            annotated_with("segments_info"),
            "panoptic quality is not computed",
        ),
        (
            "part of COCO annotations",
            _part_of_annotations,
            "'images', 'annotations' and 'categories' are all needed",
        ),
        # other tools
        (
            "detections of torchvision ('boxes', 'scores', 'labels')",
            rows_with("boxes", "scores", "labels"),
            _NO_IMAGES,
        ),
        ("the detections of one image", dict_with("boxes", "scores", "labels"), _NO_IMAGES),
        (
            "a dict of detections by image id",
            _by_image,
            "give COCO results: one dict per box with image_id, category_id, bbox [x, y, width, height] and score",
        ),
        (
            "detections of DetInferencer ('bboxes', 'scores', 'labels')",
            rows_with("bboxes", "scores", "labels"),
            _NO_IMAGES,
        ),
        ("the output of an inferencer ('predictions')", dict_with("predictions"), _NO_IMAGES),
        ("a checkpoint ('state_dict')", dict_with("state_dict"), "test it first: tools/test.py --out results.pkl"),
        ("a report of this package", dict_with("schema_version", "settings", "inputs"), ""),
        ("a LabelMe file ('shapes')", dict_with("shapes", "imagePath"), ""),
    )
)
