"""Read key points of data samples, as mmpose has them: the objects of an image may come in several samples."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError, first_ten, shortened
from mm_metrics_plugin.functional._inputs import InvalidValue
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry.boxes import first_invalid
from mm_metrics_plugin.functional.detection.geometry.keypoints import KeyPoints, sigmas_of
from mm_metrics_plugin.functional.detection.instances import Instances, flatten_instances, joined_rows, rows_of_images
from mm_metrics_plugin.functional.detection.keypoint_scores import (
    DEFAULT_SCORE_MODE,
    OKS_NMS_THR,
    SCORE_MODES,
    keypoint_scores,
)
from mm_metrics_plugin.io.arrays import JsonRows
from mm_metrics_plugin.io.class_order import Categories, coco_categories
from mm_metrics_plugin.io.files import read_json
from mm_metrics_plugin.metrics.detection_samples import ImageReader, WarnOnce, image_keys
from mm_metrics_plugin.metrics.sample_fields import Sample, SampleName, Samples, field_values, real_values, to_host
from mm_metrics_plugin.settings import DetectionSettings, require_choice
from mm_metrics_plugin.states.base import State
from mm_metrics_plugin.states.detection import DetectionState, encode_texts
from mm_metrics_plugin.states.keypoints import KeyPointBatch, KeyPointState

_Annotations = Sequence[Sequence[Any]]  # those of each sample or image, as dicts of COCO's files
_FIELDS = ("id", "category_id", "keypoints", "bbox", "area", "iscrowd")
_FIRST_HASH = 1 << 61  # ids below are their own numbers


class _AnnotationFile(NamedTuple):
    """What is read from a COCO annotation file."""

    name: str
    categories: Categories
    images: list[Any]  # ids
    annotations: _Annotations  # of each image


class KeyPointReader(ImageReader):
    """Reads samples of mmpose: all objects of an image (bottom-up), or one of them (top-down).

    Args:
        settings: What is matched.
        ann_file: The COCO annotation file with the ground truth; None: the samples have it.
        score_mode: Score of a detection, see :func:`keypoint_scores`.
    """

    own_options = ("sigmas", "score_mode")
    num_classes = 1

    def __init__(self, settings: DetectionSettings, ann_file: str | None, score_mode: str | None) -> None:
        super().__init__(settings, ann_file, score_mode)
        self.score_mode = DEFAULT_SCORE_MODE if score_mode is None else score_mode
        require_choice("score_mode", self.score_mode, list(SCORE_MODES))

    @property
    def target_fields(self) -> tuple[str, ...]:
        """The ground-truth fields that every sample must have."""
        return ("gt_instances",) if self.ann_file is None else ()

    def metainfo(self, dataset_meta: Mapping[str, Any]) -> Mapping[str, Any]:
        """The metainfo with ``classes``, the names of the categories."""
        names = self._categories(dataset_meta).names or tuple(dataset_meta.get("classes") or ("object",))
        return {**dataset_meta, "classes": names}

    def state(self, num_classes: int, dataset_meta: Any, keep: str) -> State:
        """A state without samples."""
        settings = self._with_sigmas(dataset_meta)
        nms_iou_thr = OKS_NMS_THR if settings.nms_iou_thr is None else settings.nms_iou_thr
        return KeyPointState(DetectionState(num_classes, replace(settings, nms_iou_thr=None), keep=keep), nms_iou_thr)

    def read(
        self,
        samples: Samples,
        name: SampleName,
        indices: np.ndarray,
        num_classes: int,
        dataset_meta: Any,
        once: WarnOnce,
    ) -> KeyPointBatch:
        """The objects of a batch of samples with these positions in the dataset."""
        labels = _Labels(self._categories(dataset_meta).ids, num_classes)
        names = [name(index) for index in range(len(samples))]
        found, nms_area = _predictions(samples, name, self._with_sigmas(dataset_meta).sigmas)
        scores = keypoint_scores(found.columns["bbox_scores"], found.columns["keypoint_scores"], self.score_mode)
        categories = [_scalar(sample.get("category_id", 1)) for sample in samples]
        label = labels(categories, lambda index: f"'category_id' of {names[index]}")
        dets = Detections(found.image, found.geometry, scores, label[found.image])
        annotations: _Annotations = [()] * len(samples)
        if self.ann_file is None:
            annotations = [_annotations(sample, names[index]) for index, sample in enumerate(samples)]
        else:
            self._check_images(samples, name)
        gts, gt_id = _ground_truths(annotations, name, "raw_ann_info", found.geometry.sigmas, labels)
        DetectionBatch(dets, gts, len(samples)).check(num_classes=num_classes, names=names)
        columns = _columns(samples, indices, names, dets, gts)
        return KeyPointBatch({**columns, "nms_area": nms_area, "gt_id": gt_id})

    def matched(self, state: Any) -> DetectionState:
        """The matches of the samples of a state, and of all images of the annotation file."""
        matches: DetectionState = state.matched(None if self.ann_file is None else self._annotated(state))
        return matches

    def _annotated(self, state: KeyPointState) -> KeyPointState:
        """A state with the ground truth of the annotation file."""
        file, matches = self._file, state.empty_matches
        sigmas, labels = sigmas_of(0, matches.settings.sigmas), _Labels(file.categories.ids, matches.num_classes)
        names = [f"image {image} in {file.name}" for image in file.images]
        gts, gt_id = _ground_truths(file.annotations, lambda index: names[index], "annotations", sigmas, labels)
        gts.check(num_classes=matches.num_classes, names=names)
        dets = Detections.empty(KeyPoints(np.empty((0, len(sigmas), 3)), sigmas))
        samples = [{"img_id": image, "id": file.name} for image in file.images]
        columns = _columns(samples, np.arange(len(samples)), names, dets, gts)
        return state.empty().update({**columns, "nms_area": np.empty(0), "gt_id": gt_id})

    def _with_sigmas(self, dataset_meta: Any) -> DetectionSettings:
        """The settings with the sigmas of the dataset, unless others were given."""
        sigmas = (dataset_meta or {}).get("sigmas")
        if self.settings.sigmas is not None or sigmas is None:
            return self.settings
        return replace(self.settings, sigmas=tuple(map(float, sigmas)))

    def _categories(self, dataset_meta: Any) -> Categories:
        """The categories, in the order of the labels; none if they are unknown."""
        if self.ann_file is not None:
            return self._file.categories
        # mmpose's datasets have the categories of their annotation file, as dicts.
        listed = [one for one in (dataset_meta or {}).get("CLASSES") or () if isinstance(one, Mapping)]
        return coco_categories({"categories": listed}, "CLASSES of the dataset")

    @cached_property
    def _file(self) -> _AnnotationFile:
        content, name = read_json(str(self.ann_file))[0], Path(str(self.ann_file)).name
        categories = coco_categories(content, name)
        images = JsonRows(content.get("images") or [], name, "image").ids("id")
        annotations = JsonRows(content.get("annotations") or [], name, "annotation")
        of_image: dict[Any, list[Any]] = {image: [] for image in images}
        for image, row in zip(annotations.ids("image_id"), annotations.rows):
            if image in of_image:
                of_image[image].append({key: row[key] for key in _FIELDS if key in row})
        return _AnnotationFile(name, categories, images, list(of_image.values()))

    def _check_images(self, samples: Samples, name: SampleName) -> None:
        """Raises MetricInputError if the annotation file does not have the image of a sample."""
        known = set(self._file.images)
        for index, sample in enumerate(samples):
            image = _scalar(sample.get("img_id"))
            if image not in known:
                raise MetricInputError(
                    f"'img_id' of {name(index)} must be an image of {self._file.name} (found {shortened(image)})"
                )


# --- detections -------------------------------------------------------------------------------------------------------


def _predictions(samples: Samples, name: SampleName, sigmas: Sequence[float] | None) -> tuple[Instances, np.ndarray]:
    """The detections with columns ``bbox_scores`` and ``keypoint_scores`` (N, K), and their areas for OKS-NMS."""
    prefix, images = "pred_instances.", []
    for field in ("keypoints", "keypoint_scores"):
        images.append(real_values(field_values(samples, prefix + field, name), prefix + field, name))
    given = [_box_scores(sample, len(points)) for sample, points in zip(samples, images[0])]
    images.append(real_values(given, f"{prefix}bbox_scores", name))
    arrays = to_host([value for column in images for value in column])
    number = len(samples)
    points, joint_scores, box_scores = arrays[:number], arrays[number : 2 * number], arrays[2 * number :]
    found = flatten_instances(
        [{"keypoints": one, "bbox_scores": scores} for one, scores in zip(points, box_scores)],
        "keypoints",
        ["bbox_scores"],
        partial(KeyPoints.from_images, sigmas=sigmas),
        name=name,
        prefix=prefix,
    )
    lengths = np.bincount(found.image, minlength=len(samples)).tolist()
    try:
        joints = joined_rows(rows_of_images(joint_scores, (len(found.geometry.sigmas),), np.asarray, lengths))
        invalid = first_invalid(joints)
        if invalid is not None:
            raise InvalidValue(int(found.image[invalid[0]]), *invalid[1:])
    except InvalidValue as error:
        raise error.named(f"{prefix}keypoint_scores", name) from None
    found.columns["keypoint_scores"] = joints
    return found, _nms_areas(samples, found, lengths)


def _box_scores(sample: Sample, number: int) -> Any:
    """The scores of the boxes: those of the model, else those of the boxes that it was given, else 1, as in mmpose."""
    for part in ("pred_instances", "gt_instances"):
        scores = _field(sample, part, "bbox_scores")
        if scores is not None and (part == "pred_instances" or len(scores) == number):
            return scores
    return np.ones(number, dtype=np.float32)


def _nms_areas(samples: Samples, found: Instances, lengths: Sequence[int]) -> np.ndarray:
    """The areas for OKS-NMS: those of the boxes that the model was given, else of the key points, as in mmpose."""
    areas = np.array(found.geometry.extents(), dtype=np.float64)
    stops = np.cumsum(lengths)
    for sample, stop, length in zip(samples, stops, lengths):
        scales = _field(sample, "gt_instances", "bbox_scales")
        if scales is not None and len(scales) == length:
            areas[stop - length : stop] = np.prod(np.asarray(scales), axis=1)
    return areas


def _field(sample: Sample, part: str, field: str) -> Any:
    """A field of a part of a sample; None if it has none."""
    values = sample.get(part)
    return values.get(field) if values is not None else None


# --- ground truth -----------------------------------------------------------------------------------------------------


def _annotations(sample: Sample, name: str) -> Sequence[Any]:
    """The annotations of a sample: COCO's in ``raw_ann_info``, else those of ``gt_instances``."""
    if "raw_ann_info" in sample:
        given = sample["raw_ann_info"]  # one in top-down samples; some images have None
        return [given] if isinstance(given, Mapping) else [one for one in given or () if one is not None]
    fields = [_field(sample, "gt_instances", field) for field in ("keypoints", "bboxes")]
    if any(value is None for value in fields):
        raise MetricInputError(f"{name} must have a field 'raw_ann_info', or keypoints and bboxes in 'gt_instances'")
    points, boxes = (np.asarray(value, dtype=np.float64) for value in fields)
    if points.size and points.max() <= 0:  # mmpose's datasets with a bbox_file
        raise MetricInputError(
            f"'gt_instances.keypoints' of {name} must be annotated (found zeros only): give ann_file=..., the "
            "annotation file of the dataset"
        )
    visible = _field(sample, "gt_instances", "keypoints_visible")
    visible = np.ones(points.shape[:2]) if visible is None else np.asarray(visible)
    labeled = visible.reshape(*points.shape[:2], -1)[..., :1]
    corners = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)
    return [{"keypoints": one, "bbox": box} for one, box in zip(np.concatenate([points, labeled], axis=2), corners)]


def _ground_truths(
    annotations: _Annotations,
    name: SampleName,
    field: str,
    sigmas: np.ndarray,
    labels: _Labels,
) -> tuple[GroundTruths, np.ndarray]:
    """The ground truths of all samples, and a number for each by which those of an image differ."""
    rows = [(index, at, row) for index, several in enumerate(annotations) for at, row in enumerate(several)]

    def place(row: int, key: str) -> str:
        index, at, _ = rows[row]
        return f"'{field}.{key}' of {name(index)}, annotation {at}"

    def numbers(key: str, shape: tuple[int, ...], what: str, default: Any = None) -> np.ndarray:
        """A value of every annotation."""
        result = np.empty((len(rows), *shape))
        for row, (_, _, annotation) in enumerate(rows):
            value = annotation.get(key, default)
            try:
                result[row] = np.asarray(value, dtype=np.float64).reshape(shape)
            except (TypeError, ValueError):
                raise MetricInputError(f"{place(row, key)} must be {what} (found {shortened(value)})") from None
        return result

    joints = len(sigmas)
    array = numbers("keypoints", (joints, 3), f"x, y and visibility of {joints} key points")
    points = KeyPoints(array, sigmas, numbers("bbox", (4,), "left, top, width and height"))
    area = numbers("area", (), "a number")
    gts = GroundTruths(
        np.array([index for index, _, _ in rows], dtype=np.int64),
        points,
        labels([row.get("category_id", 1) for _, _, row in rows], lambda row: place(row, "category_id")),
        crowd=numbers("iscrowd", (), "a number", 0) != 0,
        area=np.where(np.isnan(area), points.ground_truth_areas(), area),
    )
    ids = [_number_of(row.get("id"), -1 - at) for at, (_, _, row) in enumerate(rows)]
    return gts, np.array(ids, dtype=np.int64)


class _Labels:
    """The labels of categories."""

    def __init__(self, category_ids: Sequence[Any], num_classes: int) -> None:
        self._of = {category: label for label, category in enumerate(category_ids)}
        self._num_classes = num_classes

    def __call__(self, categories: Sequence[Any], place: Callable[[int], str]) -> np.ndarray:
        """The labels; ``place(index)`` names a category in messages. A single class has all of them."""
        if self._num_classes == 1:
            return np.zeros(len(categories), dtype=np.int64)
        try:
            return np.array([self._of[category] for category in categories], dtype=np.int64)
        except (KeyError, TypeError):
            index = next(at for at, one in enumerate(categories) if one not in list(self._of))
            raise MetricInputError(
                f"{place(index)} must be one of the categories {first_ten(list(map(str, self._of)))} (found "
                f"{shortened(categories[index])})"
            ) from None


# --- columns of the state ---------------------------------------------------------------------------------------------


def _columns(
    samples: Samples, indices: np.ndarray, names: Sequence[str], dets: Detections, gts: GroundTruths
) -> dict[str, np.ndarray]:
    """The columns of a :class:`KeyPointBatch`, but ``nms_area`` and ``gt_id``."""
    order, texts = image_keys(samples, indices, names)
    # An image without an id is that of one sample.
    own = [f"\uffff{position:019d}" if text is None else text for text, position in zip(texts, order[:, 1].tolist())]
    ids = [_number_of(sample.get("id"), -1 - position) for sample, position in zip(samples, order[:, 1].tolist())]
    return {
        "key": order[:, 0],
        "text": encode_texts(own),
        "position": order[:, 1],
        "id": np.array(ids, dtype=np.int64),
        "dets": np.bincount(dets.image, minlength=len(samples)),
        "gts": np.bincount(gts.image, minlength=len(samples)),
        "keypoints": dets.geometry.array[..., :2],
        "score": dets.scores,
        "precision": dets.precision,
        "label": dets.labels,
        "gt_keypoints": gts.geometry.array,
        "gt_boxes": gts.geometry.boxes,
        "gt_label": gts.labels,
        "gt_crowd": gts.crowd,
        "gt_area": gts.areas(),
    }


def _scalar(value: Any) -> Any:
    """The value as a number or text of Python; of equal values, one."""
    values = np.unique(np.ravel(value))
    return values[0].item() if len(values) == 1 else value


def _number_of(value: Any, other: int) -> int:
    """A number that equal ids share: a whole number itself, ``other`` without an id."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if value is None:
        return other
    if isinstance(value, int) and 0 <= value < _FIRST_HASH:
        return value
    return -_FIRST_HASH - int.from_bytes(blake2b(repr(value).encode(), digest_size=7).digest(), "big")
