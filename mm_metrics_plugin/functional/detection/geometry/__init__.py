"""The interface of geometries such as boxes, and non-maximum suppression.

A new geometry is one class with these methods, an entry of ``conventions.IOU_TYPES``, and a reader that makes it.
Matching, examples, states and pages use nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Callable, ClassVar, NamedTuple, Protocol, Sequence, TypeVar

import numpy as np
import numpy.typing as npt

from mm_metrics_plugin.conventions import IOU_TYPES
from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import Rows, group_starts, stable_order

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.detection.data import GroundTruths
    from mm_metrics_plugin.settings import DetectionSettings

_G = TypeVar("_G", bound="Geometry")


class Edges(NamedTuple):
    """Axis-aligned boxes as contiguous float64 columns."""

    left: np.ndarray
    top: np.ndarray
    right: np.ndarray
    bottom: np.ndarray


class Outlines(NamedTuple):
    """Lines to draw, one row per shape: the points of all shapes one after the other.

    A row of NaN separates two lines of a shape. A closed line ends at its first point.
    """

    points: np.ndarray  # (P, 2) float64, x and y
    lengths: np.ndarray  # (N,) int32, number of points of each shape; 0 draws nothing

    def take(self, rows: Rows) -> Outlines:
        """The outlines of the chosen shapes; the index -1 selects an empty one."""
        rows = np.asarray(rows)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        lengths = np.append(self.lengths, np.int32(0))[rows]
        first = np.append(np.cumsum(self.lengths) - self.lengths, 0)[rows]
        offset = np.repeat(first - (np.cumsum(lengths) - lengths), lengths)
        return Outlines(self.points[np.arange(len(offset)) + offset], lengths.astype(np.int32))

    @classmethod
    def concatenate(cls, parts: Sequence[Outlines]) -> Outlines:
        """The outlines of all parts, in order."""
        return cls(*map(np.concatenate, zip(*parts)))

    def lines(self) -> list[np.ndarray]:
        """The points of each shape."""
        return np.split(self.points, np.cumsum(self.lengths)[:-1]) if len(self.lengths) else []


class Geometry(Protocol):
    """Shapes, one per row."""

    field: ClassVar[str]  # the field of the shapes in dicts and messages, such as ``boxes``
    score_field: ClassVar[str]  # the scores of detections, ``scores`` if they lack this field
    options: ClassVar[tuple[str, ...]]  # the settings that ``from_images`` takes
    overlap_name: ClassVar[str]  # such as ``IoU``
    ignored_name: ClassVar[str]  # an ignored ground truth, with a plural in -s
    prefiltered: bool  # whether shapes overlap only if their bounding boxes intersect

    @classmethod
    def empty(cls: type[_G]) -> _G:
        """No shapes."""

    @classmethod
    def from_images(
        cls: type[_G], values: Sequence[Any], to_array: Callable[[Any], np.ndarray], *args: Any, **options: Any
    ) -> tuple[_G, list[int]]:
        """The shapes of several images and their numbers; ``to_array`` converts what is no array.

        Raises:
            InvalidValue: The value of an image is invalid.
        """

    def __len__(self) -> int:
        """Number of shapes."""

    def check(self) -> str | None:
        """The end of an error message if the arrays are invalid, else None."""

    def first_invalid(self) -> tuple[int, str, object] | None:
        """Row of the first invalid shape, what it must be (``be finite``) and what was found, or None."""

    def is_ignored(self) -> np.ndarray:
        """(N,) whether a ground truth of this shape is neither TP nor FN, such as one without labeled key points."""

    def mismatch(
        self, image: np.ndarray, ground_truths: GroundTruths, image_sizes: np.ndarray | None = None
    ) -> tuple[int, str, object] | None:
        """The first image with shapes that cannot be compared, what they must be and what was found, or None.

        ``image`` (N,) are the images of these shapes; rows of both are in any order. ``image_sizes`` (images, 2) are
        heights and widths, 0 if unknown.
        """

    def drawn_like(self: _G, other: _G) -> _G:
        """These detections with the lines of ground truths, such as a skeleton."""

    def take(self: _G, rows: Rows) -> _G:
        """The selected rows (indices, a mask or a slice)."""

    def concatenate(self: _G, others: Sequence[_G]) -> _G:
        """These shapes followed by those of ``others``."""

    def areas(self) -> np.ndarray:
        """(N,) float64."""

    def ground_truth_areas(self) -> np.ndarray:
        """(N,) float64: the areas of ground truths that are annotated without one."""

    def is_empty(self) -> np.ndarray:
        """(N,) whether a shape has no area, so it overlaps nothing."""

    def bounding_boxes(self) -> Edges:
        """The bounding boxes of the shapes."""

    def scaled(self: _G, factors: np.ndarray) -> _G:
        """The shapes with x and y multiplied by ``factors`` (N, 2)."""

    def outlines(self) -> Outlines:
        """The lines that draw the shapes."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything as arrays, for files and comparison."""

    @classmethod
    def from_arrays(cls: type[_G], arrays: dict[str, np.ndarray]) -> _G:
        """The inverse of :meth:`to_arrays`."""

    def overlaps(self, ground_truths: GroundTruths, rows: np.ndarray, gt_rows: np.ndarray) -> np.ndarray:
        """(P,) overlap of detections ``rows`` and ground truths ``gt_rows``; of a crowd by COCO's rule.

        A matching rule or a convention may ask for another method with this signature, such as ``mmdet_overlaps`` of
        boxes; ``margins`` is then how far apart the bounding boxes of shapes that overlap by it may be. NMS calls
        ``nms_overlaps`` of geometries that have it.
        """


def geometry_of(iou_type: str) -> type[Any]:
    """The geometry of an IoU type.

    Example:
        >>> geometry_of("segm").overlap_name, geometry_of("keypoints").overlap_name
        ('IoU', 'OKS')
    """
    module, _, name = IOU_TYPES[iou_type].geometry.partition(".")
    geometry: type[Any] = getattr(import_module(f"{__name__}.{module}"), name)
    return geometry


def geometry_of_settings(settings: DetectionSettings) -> tuple[type[Any], dict[str, Any]]:
    """The geometry, and the options of its ``from_images``."""
    geometry = geometry_of(settings.iou_type)
    return geometry, {name: getattr(settings, name) for name in geometry.options}


def nms(boxes: Geometry | npt.ArrayLike, scores: np.ndarray, groups: np.ndarray, *, iou_thr: float) -> np.ndarray:
    """Indices kept by non-maximum suppression within groups, ascending.

    All groups are processed at once: the best shape of each group suppresses the others, then the best remaining one.
    Boxes have the overlap of mmdet, so the result equals ``mmcv.ops.nms`` on each group; key points, that of mmpose.

    Args:
        boxes: (N, 4) in xyxy format, or another geometry.
        scores: (N,) confidence; ties keep their order.
        groups: (N,) integers, such as ``image * num_classes + label``.
        iou_thr: Shapes with a higher overlap are suppressed.

    Example:
        >>> boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 9]])
        >>> nms(boxes, np.array([0.8, 0.9, 0.7]), np.array([0, 0, 1]), iou_thr=0.5)
        array([1, 2])
    """
    from mm_metrics_plugin.functional.detection.data import GroundTruths

    zeros = np.zeros(len(groups), dtype=np.int64)
    shapes = GroundTruths(zeros, boxes, zeros)
    geometry = shapes.geometry
    if not len(geometry) == len(scores) == len(groups):
        raise MetricInputError(
            f"'boxes', 'scores' and 'groups' must have the same length (found {len(geometry)}, {len(scores)}, "
            f"{len(groups)})"
        )
    overlaps = getattr(geometry, "nms_overlaps", geometry.overlaps)
    return greedy_nms(lambda rows, best: overlaps(shapes, rows, best), scores, groups, iou_thr)


def greedy_nms(
    overlaps: Callable[[np.ndarray, np.ndarray], np.ndarray], scores: Any, groups: Any, iou_thr: float
) -> np.ndarray:
    """:func:`nms` of shapes with these overlaps of pairs of rows."""
    groups, scores = np.asarray(groups), np.asarray(scores)
    remaining = stable_order(groups, -scores)
    kept = []
    while len(remaining):
        starts = group_starts(groups[remaining])
        kept.append(remaining[starts])
        best = np.repeat(remaining[starts], np.diff(np.append(starts, len(remaining))))
        overlap = overlaps(remaining, best)
        stays = ~(overlap > overlap.dtype.type(iou_thr))
        stays[starts] = False
        remaining = remaining[stays]
    return np.sort(np.concatenate(kept)) if kept else np.empty(0, dtype=np.int64)
