"""Boundary IoU: the smaller one of the IoU of two masks and that of their boundaries.

The boundary of a mask are its pixels at most d pixels from its contour or the border of the image, where d is 2% of the
diagonal of the image. For crowds, the overlap is that of masks.

Reference: B. Cheng, R. Girshick, P. Dollár, A. C. Berg, A. Kirillov, Boundary IoU (CVPR 2021).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mm_metrics_plugin.functional.detection.geometry._runs import Columns, Runs, runs_of_columns, segment_starts
from mm_metrics_plugin.functional.detection.geometry.masks import Masks

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.detection.data import GroundTruths

DILATION_RATIO = 0.02  # d / diagonal of the image
MAX_BOX_PIXELS = 1 << 27  # of the box of a mask
_BLOCK_PIXELS = 1 << 21  # of boxes eroded at once


class Boundaries(Masks):
    """Masks that are compared by boundary IoU.

    Example:
        >>> square = np.zeros((2, 100, 100), dtype=bool)
        >>> square[0, 10:60, 10:60] = square[1, 10:60, 20:70] = True
        >>> masks = Boundaries.from_bitmaps(square)
        >>> masks.boundaries.areas()
        array([564., 564.])
    """

    overlap_name: ClassVar[str] = "boundary IoU"

    def first_invalid(self) -> tuple[int, str, object] | None:
        """Row, expected and found value of the first mask that is invalid, or too large to be eroded."""
        invalid = super().first_invalid()
        if invalid is not None:
            return invalid
        left, top, right, bottom = self.bounding_boxes()
        pixels = (right - left) * (bottom - top)
        row = int(np.argmax(pixels > MAX_BOX_PIXELS)) if len(self) else 0
        if not len(self) or pixels[row] <= MAX_BOX_PIXELS:
            return None
        return row, f"have bounding boxes of at most {MAX_BOX_PIXELS} pixels for boundary IoU", int(pixels[row])

    @cached_property
    def boundaries(self) -> Masks:
        """The boundaries of the masks."""
        eroded = _eroded(self)
        row, top = self._runs.rows(), eroded.rows()
        # A boundary begins or ends where the mask or the eroded mask does.
        position = np.append(self.runs.astype(np.int64).ravel(), eroded.runs.ravel())
        mask = np.append(np.repeat(row, 2), np.repeat(top, 2))
        order = np.argsort((mask << 32) + position, kind="stable")
        runs = Runs(position[order].reshape(-1, 2), self.lengths + eroded.lengths).joined()
        return Masks._of(runs, self.sizes)

    def overlaps(self, ground_truths: GroundTruths, rows: np.ndarray, gt_rows: np.ndarray) -> np.ndarray:
        """(P,) boundary IoU; for a crowd, intersection / detection area of the masks."""
        crowd = ground_truths.crowd[gt_rows]
        result = super().overlaps(ground_truths, rows, gt_rows)
        others = np.flatnonzero(~crowd & (result > 0))
        iou = self.boundaries._iou(ground_truths.geometry.boundaries, rows[others], gt_rows[others], crowd[others])
        result[others] = np.minimum(result[others], iou)
        return result


def _eroded(masks: Masks) -> Runs:
    """The pixels of masks that are not in the boundary: all pixels within d rows and columns are in the mask."""
    height, width = masks.sizes.T.astype(np.float64)
    distance = np.maximum(np.rint(DILATION_RATIO * np.sqrt(height**2 + width**2)), 1).astype(np.int64)
    left, top, right, bottom = (edge.astype(np.int64) for edge in masks.bounding_boxes())
    box_width, box_height = right - left, bottom - top
    thick = np.flatnonzero(np.minimum(box_width, box_height) > 2 * distance)
    # Masks of equal distance and similar height share an array, one beside the other.
    thick = thick[np.lexsort((box_height[thick], distance[thick]))]
    parts, begin = [Columns(*np.empty((4, 0), dtype=np.int64))], 0
    while begin < len(thick):
        same = thick[begin : np.searchsorted(distance[thick], distance[thick[begin]], side="right")]
        number = np.searchsorted(np.cumsum(box_width[same]) * box_height[same], _BLOCK_PIXELS, side="right")
        rows = same[: max(int(number), 1)]
        row, x, start, stop = _eroded_columns(
            masks.take(rows), left[rows], top[rows], box_width[rows], int(box_height[rows[-1]]), int(distance[rows[0]])
        )
        parts.append(Columns(rows[row], x, start, stop))
        begin += len(rows)
    return runs_of_columns(Columns(*map(np.concatenate, zip(*parts))), masks.sizes[:, 0])


def _eroded_columns(
    masks: Masks, left: np.ndarray, top: np.ndarray, width: np.ndarray, height: int, distance: int
) -> Columns:
    """The columns of eroded masks with the given boxes, of at most the given height."""
    row, x, start, stop = masks._columns()
    start, stop = start - top[row] + distance, stop - top[row] - distance
    tall = np.flatnonzero(start < stop)
    first, length = (
        segment_starts(width + 1),
        height + 1,
    )  # an empty column follows every mask, an empty row every column
    column = (first[row] + x - left[row])[tall]
    # Number of pixels of the same row that stay in a column or one before it.
    number = np.zeros((int((width + 1).sum()) + 1, length), dtype=np.int16)
    number[column + 1, start[tall]] = 1
    number[column + 1, stop[tall]] -= 1
    for axis in (1, 0):
        np.cumsum(number, axis=axis, dtype=np.int16, out=number)
    window = 2 * distance + 1
    stays = number[window:] - number[:-window] == window  # right even if the sums overflow
    changes = np.flatnonzero(np.diff(stays.ravel(), prepend=False, append=False))
    start, stop = changes.reshape(-1, 2).T
    column = start // length + distance
    row = np.searchsorted(first, column, side="right") - 1
    return Columns(row, column - first[row] + left[row], start % length + top[row], stop % length + top[row])
