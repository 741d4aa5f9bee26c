"""Detections and objects of many images, laid flat: one row a box, and a column that says of which image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence, TypeVar

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.score_precision import PRECISIONS, precision_of, reach

BOX_FORMATS = ("xyxy", "xywh")
LARGEST = 1e100  # of a coordinate; areas of larger boxes are beyond float64

_R = TypeVar("_R", bound="_Rows")


class _Rows:
    """What detections and objects have in common: columns of equal length, one row a box."""

    image: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray
    box_format: str

    def _columns(self) -> list[str]:
        return [name for name, value in vars(self).items() if isinstance(value, np.ndarray)]

    def _with(self: _R, **columns: np.ndarray) -> _R:
        return type(self)(**{**vars(self), **columns})

    def __post_init__(self) -> None:
        boxes = _floats(self.boxes)
        if boxes.size == 0:
            boxes = boxes.reshape(0, 4)
        object.__setattr__(self, "boxes", boxes)
        object.__setattr__(self, "image", np.asarray(self.image, dtype=np.int64))
        object.__setattr__(self, "labels", _labels(self.labels))
        if self.box_format not in BOX_FORMATS:
            raise ValueError(f"'box_format' must be one of {BOX_FORMATS} (found {self.box_format!r})")

    def __len__(self) -> int:
        return len(self.image)

    def take(self: _R, rows: np.ndarray) -> _R:
        """The chosen rows (indices or a mask)."""
        return self._with(**{name: getattr(self, name)[rows] for name in self._columns()})

    def images(self: _R, start: int, stop: int) -> _R:
        """The rows of the images from ``start`` up to ``stop``, renumbered from 0."""
        chosen = self.take((self.image >= start) & (self.image < stop))
        return chosen._with(image=chosen.image - start)

    @classmethod
    def concatenate(cls: type[_R], parts: Sequence[_R]) -> _R:
        """The rows of all parts, one after the other; image numbers stay as they are."""
        first = parts[0]
        for part in parts:
            if part.box_format != first.box_format:
                raise ValueError("parts with boxes in different formats cannot be joined")
            if part._columns() != first._columns():
                raise ValueError("parts with and without areas cannot be joined")
        return first._with(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in first._columns()}
        )


@dataclass(frozen=True, eq=False)
class Detections(_Rows):
    """What a detector found.

    Args:
        image: (N,) number of the image of each detection, from 0. Any order will do.
        boxes: (N, 4) in pixels. float32 and float64 are kept as they are.
        scores: (N,) confidence.
        labels: (N,) class index.
        box_format: ``'xyxy'`` (left, top, right, bottom) or ``'xywh'`` (left, top, width, height).
        precision: (N,) code of the precision in which each score was given (see
            :mod:`~mm_metrics_plugin.functional.score_precision`). None: that of the dtype of ``scores``.

    Example:
        >>> found = Detections([0, 1], [[0, 0, 10, 10], [5, 5, 9, 9]], [0.9, 0.4], [2, 0])
        >>> len(found), found.images(1, 2).labels.tolist()
        (2, [0])
    """

    image: np.ndarray
    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    box_format: str = "xyxy"
    precision: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        given = np.asarray(self.scores)
        object.__setattr__(self, "scores", _floats(given))
        precision = np.full(given.shape[:1], precision_of(given.dtype)) if self.precision is None else self.precision
        object.__setattr__(self, "precision", np.asarray(precision, dtype=np.uint8))

    def reach(self, threshold: float) -> np.ndarray:
        """(N,) whether each score is at least the threshold, compared in the precision the score was given in."""
        return reach(self.scores, threshold, self.precision)

    @classmethod
    def empty(cls) -> Detections:
        """No detections."""
        nothing = np.empty(0)
        return cls(nothing, nothing, nothing, nothing)


@dataclass(frozen=True, eq=False)
class Objects(_Rows):
    """What is really there.

    Args:
        image: (M,) number of the image of each object, from 0.
        boxes: (M, 4) in pixels.
        labels: (M,) class index.
        crowd: (M,) True where an object makes a detection neither right nor wrong: COCO's ``iscrowd``, VOC's
            ``difficult``, mmdet's ``ignored_instances``. None: nowhere.
        area: (M,) area that decides between small, medium and large (COCO annotations carry the area of the
            mask). None: width times height.
        box_format: ``'xyxy'`` or ``'xywh'``.

    Example:
        >>> there = Objects([0, 0], [[0, 0, 10, 10], [5, 5, 9, 9]], [2, 0], crowd=[False, True])
        >>> len(there), int(there.crowd.sum())
        (2, 1)
    """

    image: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray
    crowd: np.ndarray = None  # type: ignore[assignment]
    area: np.ndarray | None = None
    box_format: str = "xyxy"

    def __post_init__(self) -> None:
        super().__post_init__()
        crowd = np.zeros(len(self.image), dtype=bool) if self.crowd is None else np.asarray(self.crowd, dtype=bool)
        object.__setattr__(self, "crowd", crowd)
        if self.area is not None:
            object.__setattr__(self, "area", np.asarray(self.area, dtype=np.float64))

    @classmethod
    def empty(cls) -> Objects:
        """No objects."""
        nothing = np.empty(0)
        return cls(nothing, nothing, nothing)


@dataclass(frozen=True, eq=False)
class DetectionBatch:
    """Detections and objects of the same images.

    Args:
        detections: What was found.
        objects: What is there.
        num_images: How many images, those without any box included.

    Example:
        >>> batch = DetectionBatch.from_images(
        ...     boxes=[[[0, 0, 10, 10]], []], scores=[[0.9], []], labels=[[1], []],
        ...     object_boxes=[[[0, 0, 10, 9]], [[2, 2, 4, 4]]], object_labels=[[1], [0]])
        >>> batch.num_images, len(batch.detections), len(batch.objects), len(batch.images(0, 1).objects)
        (2, 1, 2, 1)
        >>> DetectionBatch.concatenate([batch, batch]).objects.image
        array([0, 1, 2, 3])
    """

    detections: Detections
    objects: Objects
    num_images: int

    @classmethod
    def from_images(
        cls,
        *,
        boxes: Sequence[Any],
        scores: Sequence[Any],
        labels: Sequence[Any],
        object_boxes: Sequence[Any],
        object_labels: Sequence[Any],
        object_crowd: Sequence[Any] | None = None,
        object_area: Sequence[Any] | None = None,
        box_format: str = "xyxy",
        object_box_format: str = "xyxy",
        names: Sequence[Any] | None = None,
    ) -> DetectionBatch:
        """Lays per-image arrays flat.

        Raises:
            MetricInputError: The arrays of an image differ in length; the message names image and field.
        """
        found = _flat({"scores": scores, "labels": labels}, boxes, "boxes", names)
        truth = {"object labels": object_labels, "object crowd": object_crowd, "object area": object_area}
        there = _flat(
            {key: value for key, value in truth.items() if value is not None}, object_boxes, "object boxes", names
        )
        return cls(
            Detections(
                found["image"],
                found["boxes"],
                found["scores"],
                found["labels"],
                box_format=box_format,
                precision=np.repeat(
                    np.array([precision_of(np.asarray(one).dtype) for one in scores], dtype=np.uint8),
                    [len(one) for one in scores],
                ),
            ),
            Objects(
                there["image"],
                there["object boxes"],
                there["object labels"],
                crowd=there.get("object crowd"),
                area=there.get("object area"),
                box_format=object_box_format,
            ),
            len(boxes),
        )

    def images(self, start: int, stop: int) -> DetectionBatch:
        """The images from ``start`` up to ``stop``, renumbered from 0."""
        stop = min(stop, self.num_images)
        return DetectionBatch(self.detections.images(start, stop), self.objects.images(start, stop), stop - start)

    @classmethod
    def concatenate(cls, batches: Sequence[DetectionBatch]) -> DetectionBatch:
        """All images, one batch after the other, renumbered."""
        sizes = [batch.num_images for batch in batches]
        starts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
        found = [b.detections._with(image=b.detections.image + start) for b, start in zip(batches, starts)]
        there = [b.objects._with(image=b.objects.image + start) for b, start in zip(batches, starts)]
        return cls(Detections.concatenate(found), Objects.concatenate(there), starts[-1])


def check_rows(rows: _Rows, *, num_classes: int, names: Sequence[Any] | None = None) -> int:
    """Raises if no metric can be computed from the rows, else counts the boxes that have no area.

    Args:
        rows: :class:`Detections` or :class:`Objects`.
        num_classes: Labels must be below it.
        names: Names of the images for the message; their numbers by default.

    Returns:
        How many boxes have no area or are inverted. They overlap nothing.

    Raises:
        MetricInputError: Columns differ in length, a number is NaN, infinite or above 1e100, a label is no whole
            number or out of range.

    Example:
        >>> check_rows(Objects([0], [[4, 4, 4, 9]], [0]), num_classes=1)
        1
        >>> check_rows(Detections([0], [[0, 0, 1, 1]], [np.nan], [0]), num_classes=1, names=["cat.jpg"])
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.MetricInputError: 'scores' of image 'cat.jpg' must be finite (found nan)
    """
    prefix = "object " if isinstance(rows, Objects) else ""
    labels: np.ndarray = rows.labels
    if rows.boxes.ndim != 2 or rows.boxes.shape[1] != 4:
        raise MetricInputError(f"'{prefix}boxes' must have shape (N, 4) (found {rows.boxes.shape})")
    for name in rows._columns():
        column = getattr(rows, name)
        if len(column) != len(rows):
            raise MetricInputError(f"'{prefix}{name}' must have {len(rows)} rows, one a box (found {len(column)})")
        # Both ends are inside the bounds unless an element is not, or is NaN: only then look at every element.
        if column.dtype.kind == "f" and name != "labels" and column.size:
            if float(column.min()) >= -LARGEST and float(column.max()) <= LARGEST:
                continue
            bad = ~(np.abs(column.astype(np.float64)) <= LARGEST)
            row = int(np.argmax(bad.reshape(len(column), -1).any(axis=1)))
            value = float(column[row].ravel()[np.argmax(bad[row])])
            wanted = f"be at most {LARGEST:g} in size" if np.isfinite(value) else "be finite"
            raise MetricInputError(f"'{prefix}{name}' of image {_name(rows, row, names)} must {wanted} (found {value})")
    if len(rows):
        if labels.dtype.kind == "f":
            row = int(np.argmax(labels != np.floor(labels)))
            raise MetricInputError(
                f"'{prefix}labels' of image {_name(rows, row, names)} must be whole numbers (found {labels[row]})"
            )
        if labels.min() < 0 or labels.max() >= num_classes:
            row = int(np.argmax((labels < 0) | (labels >= num_classes)))
            raise MetricInputError(
                f"'{prefix}labels' of image {_name(rows, row, names)} must be between 0 and {num_classes - 1} "
                f"(found {int(labels[row])})"
            )
        if rows.image.min() < 0:
            raise MetricInputError(f"'{prefix}image' must not be negative (found {int(rows.image.min())})")
        if isinstance(rows, Detections) and rows.precision.max() >= len(PRECISIONS):
            raise MetricInputError(
                f"'precision' must be a code below {len(PRECISIONS)} (found {int(rows.precision.max())})"
            )
    sides = rows.boxes[:, 2:]
    if rows.box_format == "xyxy":
        return int(np.count_nonzero((sides[:, 0] <= rows.boxes[:, 0]) | (sides[:, 1] <= rows.boxes[:, 1])))
    return int(np.count_nonzero((sides[:, 0] <= 0) | (sides[:, 1] <= 0)))


def _name(rows: _Rows, row: int, names: Sequence[Any] | None) -> str:
    image = int(rows.image[row])
    return repr(names[image]) if names is not None and 0 <= image < len(names) else str(image)


def _floats(values: Any) -> np.ndarray:
    """Float32 and float64 stay; anything else becomes the narrowest of the two that holds it."""
    array = np.asarray(values)
    if array.dtype in (np.float32, np.float64):  # in the byte order of this machine
        return array
    narrow = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    return array.astype(np.float32 if narrow else np.float64)


def _labels(values: Any) -> np.ndarray:
    """Whole numbers as int64; what int64 cannot hold stays as it is, for :func:`check_rows` to refuse by name."""
    array = np.asarray(values)
    if array.dtype.kind == "f" and not (np.abs(array.astype(np.float64)) < 2.0**62).all():
        return array
    whole = array.astype(np.int64, copy=False)
    return whole if array.dtype == np.int64 or (whole == array).all() else array


def _flat(columns: Any, boxes: Sequence[Any], box_field: str, names: Sequence[Any] | None) -> Any:
    lengths = [len(value) for value in boxes]
    flat: dict[str, np.ndarray] = {"image": np.repeat(np.arange(len(lengths)), lengths)}
    for field, values in {box_field: boxes, **columns}.items():
        found = [len(value) for value in values]
        if found != lengths:
            if len(found) != len(lengths):
                raise MetricInputError(f"'{field}' must be given for {len(lengths)} images (found {len(found)})")
            image = next(i for i, (a, b) in enumerate(zip(found, lengths)) if a != b)
            name = repr(names[image]) if names is not None else image
            raise MetricInputError(
                f"'{field}' of image {name} must have {lengths[image]} rows, one a box (found {found[image]})"
            )
        # An empty list has no shape or dtype of its own and must not widen those of the others.
        parts = [np.asarray(value) for value, length in zip(values, lengths) if length]
        flat[field] = np.concatenate(parts) if parts else np.empty(0)
    return flat
