"""Detections and ground truths of many images, as arrays with one row per instance."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Iterator, Mapping, Sequence, TypeVar, Union

import numpy as np
import numpy.typing as npt

from mm_metrics_plugin.exceptions import MetricInputError, pluralize, shortened
from mm_metrics_plugin.functional._arrays import Rows, index_array, stable_order
from mm_metrics_plugin.functional.detection.geometry import Geometry, geometry_of_settings, nms
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes, first_invalid, floats
from mm_metrics_plugin.functional.detection.instances import flatten_instances
from mm_metrics_plugin.functional.thresholding import PRECISIONS, precision_of, reach
from mm_metrics_plugin.settings import DetectionSettings, require_choice, require_int

_R = TypeVar("_R", bound="_Instances")
ImageId = Union[int, str]
# Columns with one row per image, which travel with the images: the group of each image, such as its camera, for slices;
# and (images, classes) which classes are known to be absent (LVIS), or have unlabeled objects.
IMAGE_COLUMNS = ("groups", "negative", "not_exhaustive")


def image_order(image_ids: Sequence[ImageId]) -> list[ImageId]:
    """Image ids in the order that breaks score ties: numbers ascending as in pycocotools, then texts."""
    return sorted(image_ids, key=lambda image_id: (isinstance(image_id, str), image_id))


class _Instances:
    """Base class of detections and ground truths."""

    image: np.ndarray
    geometry: Any
    labels: np.ndarray
    field_prefix: ClassVar[str] = ""
    fields: ClassVar[tuple[str, ...]] = ("labels",)
    optional_fields: ClassVar[Mapping[str, Any]] = {}  # with the value of images without the field

    def __post_init__(self) -> None:
        object.__setattr__(self, "image", index_array(f"{self.field_prefix}image", self.image))
        object.__setattr__(self, "labels", _whole_numbers(self.labels))
        if isinstance(self.geometry, (np.ndarray, list, tuple)):
            object.__setattr__(self, "geometry", Boxes(self.geometry))

    def __len__(self) -> int:
        return len(self.image)

    @classmethod
    def from_images(
        cls: type[_R],
        images: Sequence[Mapping[str, Any]],
        *,
        geometry: type[Any] = Boxes,
        options: Mapping[str, Any] | None = None,
        shapes: str = "",
        names: Sequence[object] | None = None,
        **flattening: Any,
    ) -> _R:
        """The instances of all images, one dict each.

        A field that only some images have is filled with its default, and left out if it has none.

        Args:
            images: The fields of each image.
            geometry: The class of the shapes.
            options: Arguments of its ``from_images``.
            shapes: The field with the shapes; that of the geometry by default.
            names: The names of the images in messages.
            **flattening: Arguments of :func:`instances.flatten_instances`.
        """
        fields, given = list(cls.fields), {key for image in images for key in image}
        for key, default in cls.optional_fields.items():
            everywhere = all(key in image for image in images)
            if key in given and (everywhere or default is not None):
                fields.append(key)
            if key in given and not everywhere and default is not None:
                images = [{key: np.full(len(image.get("labels", ())), default), **image} for image in images]
        name = "image {}".format if names is None else lambda index: f"image {names[index]!r}"
        flattening = {
            "name": name,
            "prefix": cls.field_prefix,
            "instead": {"scores": geometry.score_field},
            **flattening,
        }
        from_images = partial(geometry.from_images, **(options or {}))
        flat = flatten_instances(images, shapes or geometry.field, fields, from_images, **flattening)
        return cls(flat.image, flat.geometry, **flat.columns)  # type: ignore[call-arg]

    @classmethod
    def empty(cls: type[_R], geometry: Geometry | None = None) -> _R:
        """No instances; of boxes, or of another ``geometry`` without rows."""
        nothing = [np.empty(0)] * (2 if issubclass(cls, Detections) else 1)
        shapes = Boxes.empty() if geometry is None else geometry
        return cls(np.empty(0), shapes, *nothing)  # type: ignore[call-arg]

    @property
    def boxes(self) -> Boxes:
        """The geometry as axis-aligned boxes."""
        if not isinstance(self.geometry, Boxes):
            raise TypeError(f"the geometry must be Boxes (found {type(self.geometry).__name__})")
        return self.geometry

    def columns(self) -> dict[str, np.ndarray]:
        """The arrays by name, without the geometry."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def take(self: _R, rows: Rows) -> _R:
        """The selected rows (indices, a mask or a slice)."""
        columns = {name: column[rows] for name, column in self.columns().items()}
        return replace(self, geometry=self.geometry.take(rows), **columns)  # type: ignore[type-var]

    def images(self: _R, start: int, stop: int) -> _R:
        """The rows of images ``start:stop``, renumbered from 0."""
        rows = self.take((self.image >= start) & (self.image < stop))
        return replace(rows, image=rows.image - start)  # type: ignore[type-var]

    @classmethod
    def concatenate(cls, parts: Sequence[_R]) -> _R:
        """The rows of all parts; image indices are not changed."""
        first = parts[0]
        names = list(first.columns())
        if any(list(part.columns()) != names for part in parts):
            raise ValueError("parts with and without areas cannot be concatenated")
        return replace(  # type: ignore[type-var]
            first,
            geometry=first.geometry.concatenate([part.geometry for part in parts[1:]]),
            **{name: np.concatenate([part.columns()[name] for part in parts]) for name in names},
        )

    def check(self, *, num_classes: int, names: Sequence[object] | None = None) -> None:
        """Raises MetricInputError if a value is invalid; ``names`` are the image names for the message."""
        prefix, labels = self.field_prefix, self.labels

        def fail(column: str, row: int, expected: str, found: object) -> None:
            image = int(self.image[row])
            name = repr(names[image]) if names is not None and 0 <= image < len(names) else str(image)
            index = int(np.count_nonzero(self.image[:row] == image))
            raise MetricInputError(
                f"'{prefix}{column}' of image {name} must {expected} (found {found} at index {index})"
            )

        field_name = self.geometry.field
        problem = self.geometry.check()
        if problem is not None:
            raise MetricInputError(f"'{prefix}{field_name}' {problem}")
        shapes = {field_name: (len(self.geometry),), **{name: column.shape for name, column in self.columns().items()}}
        for name, shape in shapes.items():
            if shape != (len(self),):
                raise MetricInputError(
                    f"'{prefix}{name}' must have {pluralize(len(self), 'row')}, one per instance "
                    f"(found {shape[0] if len(shape) == 1 else f'shape {shape}'})"
                )
        if not len(self):
            return
        invalid = {field_name: self.geometry.first_invalid()}
        invalid.update(
            (name, first_invalid(column))
            for name, column in self.columns().items()
            if column.dtype.kind == "f" and name != "labels"
        )
        for name, place in invalid.items():
            if place is not None:
                fail(name, *place)
        if labels.dtype != np.int64:
            row = int(np.argmax(labels != np.floor(labels))) if labels.dtype.kind == "f" else 0
            fail("labels", row, "be whole numbers", labels[row])
        if labels.min() < 0 or labels.max() >= num_classes:
            row = int(np.argmax((labels < 0) | (labels >= num_classes)))
            expected = f"be between 0 and {num_classes - 1}" if num_classes else "be none, as there are no classes"
            fail("labels", row, expected, int(labels[row]))
        precision = self.columns().get("precision")
        if precision is not None and precision.max() >= len(PRECISIONS):
            raise MetricInputError(f"'precision' must be a code below {len(PRECISIONS)} (found {int(precision.max())})")


@dataclass(frozen=True, eq=False)
class Detections(_Instances):
    """Predicted objects.

    Example:
        >>> detections = Detections([0, 1], [[0, 0, 10, 10], [5, 5, 9, 9]], [0.9, 0.4], [2, 0])
        >>> len(detections), detections.images(1, 2).labels.tolist()
        (2, [0])
    """

    image: np.ndarray  # (N,) image index from 0, in any order
    geometry: Any  # shapes; an (N, 4) array becomes ``Boxes`` in xyxy format
    scores: np.ndarray  # (N,) confidence, float32 or float64
    labels: np.ndarray  # (N,) class index
    # (N,) precision code of each score (index into ``thresholding.PRECISIONS``); None: that of the dtype
    precision: np.ndarray = None  # type: ignore[assignment]
    fields: ClassVar[tuple[str, ...]] = ("scores", "labels")

    def __post_init__(self) -> None:
        super().__post_init__()
        scores = np.asarray(self.scores)
        object.__setattr__(self, "scores", floats(scores, "scores"))
        precision = np.full(scores.shape[:1], precision_of(scores.dtype)) if self.precision is None else self.precision
        object.__setattr__(self, "precision", np.asarray(precision, dtype=np.uint8))

    def reach(self, score_thr: float) -> np.ndarray:
        """(N,) whether each score is at least the threshold, in the precision of the score."""
        return reach(self.scores, score_thr, self.precision)

    def score_order(self) -> np.ndarray | None:
        """Indices that sort the rows by image and descending score (stable); None if they are sorted."""
        image, score = self.image, self.scores
        step = image[1:] - image[:-1]
        if not ((step < 0) | ((step == 0) & (score[1:] > score[:-1]))).any():
            return None
        return stable_order(image, -score)


@dataclass(frozen=True, eq=False)
class GroundTruths(_Instances):
    """Annotated objects.

    Example:
        >>> ground_truths = GroundTruths([0, 0], [[0, 0, 10, 10], [5, 5, 9, 9]], [2, 0], crowd=[False, True])
        >>> len(ground_truths), int(ground_truths.crowd.sum())
        (2, 1)
    """

    image: np.ndarray  # (M,) image index from 0
    geometry: Any  # shapes; an (M, 4) array becomes ``Boxes`` in xyxy format
    labels: np.ndarray  # (M,) class index
    # (M,) regions of many objects, COCO's ``iscrowd``: any number of detections may be matched, and are ignored
    crowd: np.ndarray = None  # type: ignore[assignment]
    area: np.ndarray | None = None  # (M,) annotated area; None: that of the shape
    # (M,) single objects that are neither TP nor FN, such as VOC's ``difficult``
    ignore: np.ndarray = None  # type: ignore[assignment]
    field_prefix: ClassVar[str] = "ground-truth "
    optional_fields: ClassVar[Mapping[str, Any]] = {"crowd": False, "ignore": False, "area": None}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("crowd", "ignore"):
            value = getattr(self, name)
            column = np.zeros(len(self.image), dtype=bool) if value is None else _flags(name, value)
            object.__setattr__(self, name, column)
        if self.area is not None:
            object.__setattr__(self, "area", np.asarray(self.area, dtype=np.float64))

    def areas(self) -> np.ndarray:
        """The annotated areas, or those that the geometry has for objects without one."""
        return np.asarray(self.geometry.ground_truth_areas() if self.area is None else self.area)

    def as_crowd(self) -> GroundTruths:
        """The same objects, all marked as ``crowd``."""
        return replace(self, crowd=np.ones(len(self), dtype=bool))

    @property
    def ignored(self) -> np.ndarray:
        """(M,) crowds and ignored objects, which are neither TP nor FN."""
        return np.asarray(self.crowd | self.ignore | self.geometry.is_ignored())


@dataclass(frozen=True, eq=False)
class DetectionBatch:
    """Detections and ground truths of the same images; ``num_images`` includes images without instances.

    Example:
        >>> batch = DetectionBatch.from_images(
        ...     boxes=[[[0, 0, 10, 10]], []], scores=[[0.9], []], labels=[[1], []],
        ...     gt_boxes=[[[0, 0, 10, 9]], [[2, 2, 4, 4]]], gt_labels=[[1], [0]])
        >>> batch.num_images, len(batch.detections), len(batch.ground_truths), len(batch.images(0, 1).ground_truths)
        (2, 1, 2, 1)
    """

    detections: Detections
    ground_truths: GroundTruths
    num_images: int
    image_columns: Mapping[str, np.ndarray] = field(default_factory=dict)  # some of ``IMAGE_COLUMNS``

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_images", require_int("num_images", self.num_images, low=0))
        for name, kind in (("detections", Detections), ("ground_truths", GroundTruths)):
            rows: Any = getattr(self, name)
            if not isinstance(rows, kind):
                raise TypeError(f"{name} must be {kind.__name__} (found {type(rows).__name__})")
            index_array(f"{rows.field_prefix}image", rows.image, "num_images", self.num_images)
        object.__setattr__(self, "image_columns", _image_columns(self.image_columns, self.num_images))

    @classmethod
    def from_images(
        cls,
        *,
        boxes: Sequence[Any],
        scores: Sequence[Any],
        labels: Sequence[Any],
        gt_boxes: Sequence[Any],
        gt_labels: Sequence[Any],
        gt_crowd: Sequence[Any] | None = None,
        gt_area: Sequence[Any] | None = None,
        gt_ignore: Sequence[Any] | None = None,
        box_format: str = "xyxy",
        gt_box_format: str = "xyxy",
        names: Sequence[object] | None = None,
    ) -> DetectionBatch:
        """Concatenates per-image arrays.

        Raises:
            MetricInputError: The arrays of an image differ in length.
        """
        targets = {"boxes": gt_boxes, "labels": gt_labels, "crowd": gt_crowd, "area": gt_area, "ignore": gt_ignore}
        predicted = _images({"boxes": boxes, "scores": scores, "labels": labels}, len(boxes), "", names)
        given = {name: values for name, values in targets.items() if values is not None}
        annotated = _images(given, len(boxes), GroundTruths.field_prefix, names)
        dets = Detections.from_images(predicted, options={"box_format": box_format}, names=names)
        gts = GroundTruths.from_images(annotated, options={"box_format": gt_box_format}, names=names)
        return cls(dets, gts, len(boxes))

    @classmethod
    def from_dicts(
        cls,
        predictions: Sequence[Mapping[str, Any]],
        targets: Sequence[Mapping[str, Any]] | None,
        *,
        settings: DetectionSettings | None = None,
        names: Sequence[object] | None = None,
    ) -> DetectionBatch:
        """Concatenates one dict per image.

        Predictions have ``boxes``, ``scores`` and ``labels``; targets ``boxes`` and ``labels``, and possibly ``crowd``,
        ``ignore`` and ``area``. Another ``iou_type`` of the settings asks for ``masks`` or ``keypoints`` instead of
        boxes.

        Raises:
            MetricInputError: A field is missing, or the arrays of an image differ in length.
        """
        targets = [] if targets is None else targets
        if len(predictions) != len(targets):
            raise MetricInputError(
                f"predictions and targets must be of the same images (found {len(predictions)} and {len(targets)})"
            )
        geometry, options = geometry_of_settings(settings or DetectionSettings())
        dets = Detections.from_images(predictions, geometry=geometry, options=options, names=names)
        gts = GroundTruths.from_images(targets, geometry=geometry, options=options, names=names)
        return cls(dets, gts, len(predictions))

    def check(self, *, num_classes: int, names: Sequence[object] | None = None) -> None:
        """Raises MetricInputError if a value is invalid; ``names`` are the image names for the message."""
        for rows in (self.detections, self.ground_truths):
            rows.check(num_classes=num_classes, names=names)
        shapes = self.detections.geometry
        mismatch = shapes.mismatch(self.detections.image, self.ground_truths)
        if mismatch is not None:
            image, expected, found = mismatch
            name = image if names is None else names[image]
            raise MetricInputError(f"'{shapes.field}' of image {name!r} must {expected} (found {found})")

    def images(self, start: int, stop: int) -> DetectionBatch:
        """Images ``start:stop``, renumbered from 0."""
        stop = min(stop, self.num_images)
        dets, gts = self.detections.images(start, stop), self.ground_truths.images(start, stop)
        return DetectionBatch(dets, gts, stop - start, self.columns_of(slice(start, stop)))

    def columns_of(self, images: Rows) -> dict[str, np.ndarray]:
        """The image columns of some images (indices, a mask or a slice)."""
        return {name: column[images] for name, column in self.image_columns.items()}

    def suppressed(self, iou_thr: float) -> DetectionBatch:
        """The batch after non-maximum suppression within every image and class."""
        dets = self.detections
        groups = dets.image * (int(dets.labels.max(initial=0)) + 1) + dets.labels
        kept = nms(dets.geometry, dets.scores, groups, iou_thr=iou_thr)
        return replace(self, detections=dets.take(kept))

    def blocks(self, num_dets: int) -> Iterator[tuple[int, DetectionBatch]]:
        """Blocks of images with about ``num_dets`` detections each, with the index of their first image."""
        instances = [_sorted_by_image(self.detections), _sorted_by_image(self.ground_truths)]
        bounds = [np.searchsorted(rows.image, np.arange(self.num_images + 1)) for rows in instances]
        start = 0
        while start < self.num_images:
            stop = int(np.searchsorted(bounds[0], bounds[0][start] + num_dets, side="right")) - 1
            stop = min(max(stop, start + 1), self.num_images)
            dets, gts = (rows.take(slice(bound[start], bound[stop])) for rows, bound in zip(instances, bounds))
            if start or stop < self.num_images:
                dets, gts = (replace(part, image=part.image - start) for part in (dets, gts))
            yield start, DetectionBatch(dets, gts, stop - start, self.columns_of(slice(start, stop)))
            start = stop

    @classmethod
    def concatenate(cls, batches: Sequence[DetectionBatch]) -> DetectionBatch:
        """The images of all batches, renumbered."""
        starts = np.cumsum([0, *(batch.num_images for batch in batches)]).tolist()
        dets = [replace(b.detections, image=b.detections.image + start) for b, start in zip(batches, starts)]
        gts = [replace(b.ground_truths, image=b.ground_truths.image + start) for b, start in zip(batches, starts)]
        names = batches[0].image_columns
        if any(set(batch.image_columns) != set(names) for batch in batches):
            raise ValueError("batches with and without image columns cannot be concatenated")
        columns = {name: np.concatenate([batch.image_columns[name] for batch in batches]) for name in names}
        return cls(Detections.concatenate(dets), GroundTruths.concatenate(gts), starts[-1], columns)


def _image_columns(columns: Mapping[str, npt.ArrayLike], num_images: int) -> dict[str, np.ndarray]:
    """The columns as arrays with one row of numbers or text per image."""
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    for name, array in arrays.items():
        require_choice("an image column", name, IMAGE_COLUMNS)
        if array.dtype.kind not in "biufSU" or array.shape[:1] != (num_images,):
            raise MetricInputError(
                f"'{name}' must be numbers or texts of {pluralize(num_images, 'image')} (found {array.dtype} of shape "
                f"{array.shape})"
            )
    return arrays


def _sorted_by_image(rows: Any) -> Any:
    """Detections or ground truths in a stable order by image."""
    return rows.take(stable_order(rows.image)) if (rows.image[1:] < rows.image[:-1]).any() else rows


def _flags(name: str, values: npt.ArrayLike) -> np.ndarray:
    """Flags of ground truths as booleans; MetricInputError unless they are 0, 1 or booleans."""
    array = np.asarray(values)
    valid = (array == 0) | (array == 1) if array.dtype.kind in "biuf" else np.zeros(array.shape, dtype=bool)
    if not np.all(valid):
        index = int(np.argmin(valid))
        found = shortened(array.reshape(-1)[index : index + 1].tolist()[0])
        raise MetricInputError(f"'{GroundTruths.field_prefix}{name}' must be 0 or 1 (found {found} in row {index})")
    return array.astype(bool, copy=False)


def _whole_numbers(values: npt.ArrayLike) -> np.ndarray:
    """Integers as int64; other values are kept, and rejected by ``check``."""
    array = np.asarray(values)
    if array.dtype == np.int64 or array.dtype.kind not in "iuf":
        return array
    if array.dtype.kind == "f" and not (np.abs(array.astype(np.float64)) < 2.0**62).all():
        return array
    whole = array.astype(np.int64)
    return whole if (whole == array).all() else array


def _images(
    columns: Mapping[str, Sequence[Any]], number: int, prefix: str, names: Sequence[object] | None
) -> list[dict[str, Any]]:
    """One dict per image from the values of each field."""
    for name, values in {**columns, "names": range(number) if names is None else names}.items():
        if len(values) != number:
            raise MetricInputError(
                f"'{'' if name == 'names' else prefix}{name}' must be given for {pluralize(number, 'image')} "
                f"(found {len(values)})"
            )
    return [dict(zip(columns, values)) for values in zip(*columns.values())]
