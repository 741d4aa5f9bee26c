"""Rotated boxes and convex quadrilaterals: IoU in float64."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Callable, ClassVar, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt

from mm_metrics_plugin.functional._arrays import Rows
from mm_metrics_plugin.functional.detection.geometry import Edges, Outlines
from mm_metrics_plugin.functional.detection.geometry._clipping import intersection_areas, polygon_areas
from mm_metrics_plugin.functional.detection.geometry.boxes import first_invalid, floats
from mm_metrics_plugin.functional.detection.instances import joined_rows, rows_of_images

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.detection.data import GroundTruths

_ROUNDING = 1e-12  # a smaller overlap is that of boxes that touch
_CONVEX = 1e-9  # relative to the area around: how far a corner may turn the other way


class _Corners(NamedTuple):
    """Corners around a center, so that distances between boxes do not lose digits."""

    center: np.ndarray  # (2, N)
    offset: np.ndarray  # (2, 4, N) corners - center, in the direction of a positive area
    area: np.ndarray  # (N,) at least 0


class RotatedBoxes:
    """Rotated boxes, or quadrilaterals, in pixels.

    Args:
        array: (N, 5) center x and y, width, height and angle in radians, clockwise with y down, as in mmrotate (its
            angle versions name the same boxes); or (N, 8) corners of convex quadrilaterals as x and y in turn.

    Example:
        >>> boxes = RotatedBoxes([[5, 5, 4, 2, 0], [5, 5, 4, 2, np.pi / 2]])
        >>> boxes.areas(), boxes.corners()[0].tolist()
        (array([8., 8.]), [[7.0, 6.0], [3.0, 6.0], [3.0, 4.0], [7.0, 4.0]])
        >>> float(rotated_box_iou(boxes.array[:1], boxes.array[1:])[0].round(6))
        0.333333
    """

    field: ClassVar[str] = "boxes"
    score_field: ClassVar[str] = "scores"
    options: ClassVar[tuple[str, ...]] = ()
    overlap_name: ClassVar[str] = "IoU"
    ignored_name: ClassVar[str] = "crowd region"
    prefiltered = True

    def __init__(self, array: npt.ArrayLike) -> None:
        values = floats(array, self.field)
        self.array = values.reshape(0, 5) if not values.size else values

    @classmethod
    def empty(cls) -> RotatedBoxes:
        """No boxes."""
        return cls(np.empty((0, 5)))

    @classmethod
    def from_images(
        cls, values: Sequence[Any], to_array: Callable[[Any], np.ndarray]
    ) -> tuple[RotatedBoxes, list[int]]:
        """The boxes of several images, each an (N, 5) or (N, 8) array, and their numbers."""
        columns = next((shape[1] for shape in map(np.shape, values) if len(shape) == 2 and shape[0]), 5)
        arrays = rows_of_images(values, (8 if columns == 8 else 5,), to_array)
        return cls(joined_rows(arrays)), [len(array) for array in arrays]

    def __len__(self) -> int:
        return len(self.array)

    def check(self) -> str | None:
        """The end of an error message if the shape is invalid, else None."""
        shape = self.array.shape
        return None if shape[1:] in ((5,), (8,)) else f"must have shape (N, 5) or (N, 8) (found {shape})"

    def first_invalid(self) -> tuple[int, str, object] | None:
        """Row, expected and found value of the first box with an infinite number, a negative side or a wrong corner."""
        invalid = first_invalid(self.array)
        if invalid is not None or not len(self):
            return invalid
        if self.array.shape[1] == 5:
            side = self.array[:, 2:4].min(axis=1)
            row = int(np.argmax(side < 0))
            return (row, "have sides of at least 0", float(side[row])) if side[row] < 0 else None
        x, y = self._corners.offset
        x, y = np.roll(x, -1, axis=0) - x, np.roll(y, -1, axis=0) - y
        turn = x * np.roll(y, -1, axis=0) - np.roll(x, -1, axis=0) * y
        wrong = (turn < -_CONVEX * (np.abs(x).sum(axis=0) + np.abs(y).sum(axis=0)) ** 2).any(axis=0)
        row = int(np.argmax(wrong))
        return (row, "be convex quadrilaterals", self.array[row].tolist()) if wrong[row] else None

    def is_ignored(self) -> np.ndarray:
        """(N,) False."""
        return np.zeros(len(self), dtype=bool)

    def mismatch(self, image: np.ndarray, ground_truths: GroundTruths, image_sizes: np.ndarray | None = None) -> None:
        """None: all boxes can be compared."""

    def drawn_like(self, other: RotatedBoxes) -> RotatedBoxes:
        """These boxes."""
        return self

    def take(self, rows: Rows) -> RotatedBoxes:
        """The selected rows."""
        return RotatedBoxes(self.array[rows])

    def concatenate(self, others: Sequence[RotatedBoxes]) -> RotatedBoxes:
        """These boxes followed by those of ``others``; as quadrilaterals if one of them has quadrilaterals."""
        parts = [self, *others]
        if len({part.array.shape[1] for part in parts}) > 1:
            return RotatedBoxes(np.concatenate([part.corners().reshape(len(part), 8) for part in parts]))
        return RotatedBoxes(np.concatenate([part.array for part in parts]))

    @cached_property
    def _corners(self) -> _Corners:
        values = np.array(self.array.T, dtype=np.float64, order="C")
        if len(values) == 5:
            center, (width, height, angle) = values[:2], values[2:]
            cosine, sine = np.cos(angle), np.sin(angle)
            along, across = np.stack([cosine, sine]) * (width / 2), np.stack([-sine, cosine]) * (height / 2)
            offset = np.stack([along + across, across - along, -along - across, along - across], axis=1)
        else:
            corners = np.stack([values[::2], values[1::2]])
            center = corners.mean(axis=1)
            offset = corners - center[:, None]
            offset = np.where(polygon_areas(*offset) < 0, offset[:, ::-1], offset)
        return _Corners(center, offset, polygon_areas(*offset))

    def corners(self) -> np.ndarray:
        """(N, 4, 2) the corners."""
        if self.array.shape[1] == 8:
            return self.array.reshape(-1, 4, 2)
        return np.asarray((self._corners.center[:, None] + self._corners.offset).transpose(2, 1, 0))

    def areas(self) -> np.ndarray:
        """(N,) the areas."""
        return self._corners.area

    def ground_truth_areas(self) -> np.ndarray:
        """(N,) the areas."""
        return self.areas()

    def is_empty(self) -> np.ndarray:
        """(N,) whether the area is 0."""
        return np.asarray(self._corners.area <= 0)

    def bounding_boxes(self) -> Edges:
        """The bounding boxes."""
        corners = self.corners().astype(np.float64)
        low, high = corners.min(axis=1).T, corners.max(axis=1).T
        return Edges(*map(np.ascontiguousarray, (*low, *high)))

    def scaled(self, factors: np.ndarray) -> RotatedBoxes:
        """The boxes with x and y multiplied by ``factors`` (N, 2), as quadrilaterals."""
        return RotatedBoxes((self.corners() * factors[:, None]).reshape(-1, 8))

    def outlines(self) -> Outlines:
        """The four sides."""
        corners = self.corners()
        closed = np.concatenate([corners, corners[:, :1]], axis=1).astype(np.float64)
        return Outlines(closed.reshape(-1, 2), np.full(len(self), 5, dtype=np.int32))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The boxes as given."""
        return {"boxes": self.array}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> RotatedBoxes:
        """The inverse of :meth:`to_arrays`."""
        return cls(arrays["boxes"])

    def overlaps(self, ground_truths: GroundTruths, rows: np.ndarray, gt_rows: np.ndarray) -> np.ndarray:
        """(P,) IoU; for a crowd, intersection / detection area."""
        return self._iou(ground_truths.geometry, rows, gt_rows, ground_truths.crowd[gt_rows])

    def _iou(self, gts: RotatedBoxes, rows: np.ndarray, gt_rows: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        own, other = self._corners, gts._corners
        area, gt_area = own.area[rows], other.area[gt_rows]
        result = np.zeros(len(rows))
        filled = np.flatnonzero((area > 0) & (gt_area > 0))
        rows, gt_rows, area, gt_area, crowd = (v[filled] for v in (rows, gt_rows, area, gt_area, crowd))
        moved = other.center[:, gt_rows] - own.center[:, rows]
        intersection = intersection_areas(own.offset[..., rows], other.offset[..., gt_rows] + moved[:, None])
        overlap = intersection / np.where(crowd, area, area + gt_area - intersection)
        result[filled] = np.where(overlap < _ROUNDING, 0, overlap)
        return result


def rotated_box_iou(first: npt.ArrayLike, second: npt.ArrayLike) -> np.ndarray:
    """Pairwise (row by row) IoU of rotated boxes (N, 5) or convex quadrilaterals (N, 8).

    Example:
        >>> rotated_box_iou([[0, 0, 2, 2, 0.3]], [[0, 0, 2, 2, 0.3]])
        array([1.])
    """
    boxes = RotatedBoxes(first)
    rows = np.arange(len(boxes))
    return boxes._iou(RotatedBoxes(second), rows, rows, np.zeros(len(boxes), dtype=bool))
