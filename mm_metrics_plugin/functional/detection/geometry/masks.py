"""Masks: areas, boxes and IoU as in ``pycocotools``, computed on runs without decoding a mask."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Sequence, TypeVar

import numpy as np
import numpy.typing as npt

from mm_metrics_plugin.exceptions import MetricInputError, shortened
from mm_metrics_plugin.functional._arrays import Rows
from mm_metrics_plugin.functional._inputs import InvalidValue
from mm_metrics_plugin.functional.detection.geometry import Edges, Outlines
from mm_metrics_plugin.functional.detection.geometry._coco_rle import (
    MAX_PIXELS,
    InvalidMask,
    checked_sizes,
    read_rles,
    rles_of_segmentations,
)
from mm_metrics_plugin.functional.detection.geometry._contours import contours
from mm_metrics_plugin.functional.detection.geometry._runs import (
    NO_RUNS,
    Columns,
    Runs,
    columns_of_runs,
    expanded,
    intersections,
    runs_of_bitmaps,
    runs_of_columns,
    segment_starts,
    segment_sums,
)
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.detection.data import GroundTruths

_M = TypeVar("_M", bound="Masks")
MAX_DRAWN_COLUMNS = 1 << 15  # of the runs of a mask
_BLOCK_COLUMNS = 1 << 18  # drawn at once


class Masks:
    """Masks of images, stored as runs of foreground in column-major order.

    They are made by :meth:`from_rle`, :meth:`from_bitmaps` or :meth:`from_segmentations`. A mask takes 8 bytes for
    each run, as much as the run lengths of its RLE, and 24 bytes.

    Args:
        runs: (R, 2) first pixel and last pixel + 1 of each run.
        lengths: (N,) number of runs of each mask.
        sizes: (N, 2) height and width of the image of each mask.

    Example:
        >>> masks = Masks.from_bitmaps(np.array([[[0, 1, 1], [0, 1, 0]], [[0, 0, 0], [0, 0, 0]]]))
        >>> masks.runs.tolist(), masks.areas(), masks.is_empty()
        ([[2, 5]], array([3., 0.]), array([False,  True]))
    """

    field: ClassVar[str] = "masks"
    score_field: ClassVar[str] = "mask_scores"
    options: ClassVar[tuple[str, ...]] = ()
    overlap_name: ClassVar[str] = "IoU"
    ignored_name: ClassVar[str] = "crowd region"
    prefiltered = True

    def __init__(self, runs: Any, lengths: Any, sizes: Any) -> None:
        self.runs, self.lengths, self.sizes = np.asarray(runs), np.asarray(lengths), np.asarray(sizes)

    @classmethod
    def _of(cls: type[_M], masks: Runs, sizes: np.ndarray) -> _M:
        return cls(masks.runs, masks.lengths, sizes)

    @classmethod
    def empty(cls: type[_M]) -> _M:
        """No masks."""
        return cls._of(NO_RUNS, np.empty((0, 2), dtype=np.int64))

    @classmethod
    def from_images(cls: type[_M], values: Sequence[Any], to_array: Callable[[Any], Any]) -> tuple[_M, list[int]]:
        """The masks of several images, and their numbers.

        Those of an image are a list of COCO's RLE dicts, an array (N, height, width), or :class:`Masks`, which
        ``to_array`` may also return.
        """
        listed = all(isinstance(value, (list, tuple)) and _are_dicts(value) for value in values)
        groups = [list(chain.from_iterable(values))] if listed else values
        parts = [cls.empty()]
        for index, group in enumerate(groups):
            try:
                parts.append(cls._of_image(group, to_array))
            except InvalidMask as error:
                row = error.row
                while listed and row >= len(values[index]):
                    row, index = row - len(values[index]), index + 1
                expected = f"be valid masks: mask {row} must {error.expected}"
                raise InvalidValue(index, expected, shortened(error.found)) from None
            except (TypeError, ValueError, RuntimeError, OverflowError):
                expected = "be COCO RLE dicts or a boolean or integer array of shape (N, height, width)"
                has_dtype = hasattr(group, "dtype")
                found = f"{group.dtype} of shape {tuple(group.shape)}" if has_dtype else shortened(group)
                raise InvalidValue(index, expected, found) from None
        return parts[0].concatenate(parts[1:]), [len(value) for value in values] if listed else list(
            map(len, parts[1:])
        )

    @classmethod
    def _of_image(cls: type[_M], value: Any, to_array: Callable[[Any], Any]) -> _M:
        """The masks of one image, or of several as RLE dicts."""
        if isinstance(value, (list, tuple)) and _are_dicts(value):
            return cls.from_rle(value)
        shapes = value if isinstance(value, Masks) else to_array(value)
        if isinstance(shapes, Masks):
            return cls(shapes.runs, shapes.lengths, shapes.sizes)
        return cls.from_bitmaps(shapes) if shapes.size else cls.empty()

    @classmethod
    def from_rle(cls: type[_M], rles: Sequence[Any], *, names: Sequence[object] | None = None) -> _M:
        """Masks from COCO's RLE dicts, with ``counts`` as compressed string or bytes or as list of run lengths.

        Args:
            rles: The dicts of any number of images.
            names: The image of each dict, for error messages.

        Raises:
            MetricInputError: A dict is not the RLE of a mask.

        Example:
            >>> Masks.from_rle([{"size": [2, 3], "counts": [2, 3, 1]}, {"size": [2, 3], "counts": b"231"}]).areas()
            array([3., 3.])
        """
        return cls._of(*read_rles(rles, names))

    @classmethod
    def from_bitmaps(cls: type[_M], bitmaps: npt.ArrayLike) -> _M:
        """Masks from a boolean or integer array (N, height, width).

        Example:
            >>> Masks.from_bitmaps(np.eye(3, dtype=bool)[None]).runs.tolist()
            [[0, 1], [4, 5], [8, 9]]
        """
        array = np.asarray(bitmaps)
        if array.ndim != 3 or array.dtype.kind not in "biu":
            raise MetricInputError(
                "bitmaps must be a boolean or integer array of shape (N, height, width) "
                f"(found {array.dtype} of shape {array.shape})"
            )
        sizes = checked_sizes([array.shape[1:]] * len(array), None)
        return cls._of(runs_of_bitmaps(array if array.dtype == bool else array != 0), sizes)

    @classmethod
    def from_segmentations(
        cls: type[_M], segmentations: Sequence[Any], sizes: Sequence[Any], *, names: Sequence[object] | None = None
    ) -> _M:
        """Masks from COCO's ``segmentation``: lists of polygons, which ``pycocotools`` draws, or RLE dicts.

        Args:
            segmentations: A list of polygons per mask, each a list of x and y in turn, or a dict.
            sizes: Height and width of the image of each mask.
            names: The image of each mask, for error messages.

        Raises:
            ImportError: There are polygons, and ``pycocotools`` is not installed.
            MetricInputError: A segmentation is invalid.

        Example:
            >>> triangle, run = [[0, 0, 4, 0, 0, 4]], {"size": [5, 6], "counts": [25, 5]}
            >>> Masks.from_segmentations([triangle, run], [(5, 6), (5, 6)]).areas()
            array([6., 5.])
        """
        return cls.from_rle(rles_of_segmentations(segmentations, sizes, names), names=names)

    def __len__(self) -> int:
        return len(self.lengths)

    def check(self) -> str | None:
        """The end of an error message if the arrays do not fit together, else None."""
        shapes = [array.shape for array in (self.runs, self.lengths, self.sizes)]
        whole = all(array.dtype.kind in "iu" for array in (self.runs, self.lengths, self.sizes))
        if not whole or [len(shape) for shape in shapes] != [2, 1, 2] or {shapes[0][1], shapes[2][1]} != {2}:
            return f"must be whole numbers of shapes (R, 2), (N,) and (N, 2) (found {', '.join(map(str, shapes))})"
        if len(self.sizes) != len(self) or int(self.lengths.min(initial=0)) < 0 or self.lengths.sum() != shapes[0][0]:
            return f"must have {shapes[0][0]} runs in all and one size each (found {self.lengths.sum()} runs)"
        return None

    def first_invalid(self) -> tuple[int, str, object] | None:
        """Row, expected and found value of the first mask with a wrong size, or runs that are not in its image."""
        height, width = self.sizes.T.astype(np.float64)
        wrong = (height < 1) | (width < 1) | (height * width > MAX_PIXELS)
        if wrong.any():
            row = int(np.argmax(wrong))
            return row, f"have a size of 1 to {MAX_PIXELS} pixels", tuple(self.sizes[row].tolist())
        if self._runs_are_valid():
            return None
        rows = self._runs.rows()
        start, stop = self.runs.T.astype(np.int64)
        before = np.append(0, np.where(rows[1:] == rows[:-1], stop[:-1], -1))[: len(rows)]
        wrong = (
            (start < 0) | (start >= stop) | (start <= before) & (before > 0) | (stop > self.sizes.prod(axis=1)[rows])
        )
        if wrong.any():
            run = int(np.argmax(wrong))
            return int(rows[run]), "have ascending runs inside of its image", tuple(self.runs[run].tolist())
        return None

    def _runs_are_valid(self) -> bool:
        filled = np.flatnonzero(self.lengths)
        last = np.cumsum(self.lengths[filled]) - 1
        start, stop = self.runs.T
        ascending = start[1:] > stop[:-1]
        ascending[last[:-1]] = True
        inside = stop[last] <= self.sizes[filled].prod(axis=1)
        return bool((start >= 0).all() and (start < stop).all() and ascending.all() and inside.all())

    def is_ignored(self) -> np.ndarray:
        """(N,) False."""
        return np.zeros(len(self), dtype=bool)

    def mismatch(
        self, image: np.ndarray, ground_truths: GroundTruths, image_sizes: np.ndarray | None = None
    ) -> tuple[int, str, object] | None:
        """Image, expected and found value of the first image whose masks differ in size, from it or each other."""
        known = np.empty((0, 2), dtype=np.int64) if image_sizes is None else image_sizes
        with_size = np.flatnonzero(known.all(axis=1))
        columns = (with_size, ground_truths.image, image)
        images = np.concatenate(columns)
        sizes = np.concatenate([known[with_size], ground_truths.geometry.sizes, self.sizes])
        _, first, inverse = np.unique(images, return_index=True, return_inverse=True)
        differs = np.flatnonzero((sizes != sizes[first[inverse]]).any(axis=1))
        if not len(differs):
            return None
        row = differs[0]
        starts = np.append(0, np.cumsum(list(map(len, columns))))

        def of(row: int) -> str:
            """The size and the place of a mask."""
            kind = int(np.searchsorted(starts, row, side="right")) - 1
            index = int(np.count_nonzero(images[starts[kind] : row] == images[row]))
            place = ("the image", f"ground truth {index}", f"detection {index}")[kind]
            return f"{sizes[row, 0]} x {sizes[row, 1]} of {place}"

        return int(images[row]), "have one size", f"{of(first[inverse[row]])} and {of(row)}"

    def drawn_like(self: _M, other: _M) -> _M:
        """These masks."""
        return self

    def take(self: _M, rows: Rows) -> _M:
        """The selected rows; a slice is not copied."""
        return self._of(self._runs.take(rows), self.sizes[rows])

    def concatenate(self: _M, others: Sequence[_M]) -> _M:
        """These masks followed by those of ``others``."""
        parts = [self, *others]
        columns = ([getattr(part, name) for part in parts] for name in ("runs", "lengths", "sizes"))
        return type(self)(*map(np.concatenate, columns))

    @property
    def _runs(self) -> Runs:
        return Runs(self.runs, self.lengths)

    def _columns(self) -> Columns:
        return columns_of_runs(self._runs, self.sizes[:, 0])

    def areas(self) -> np.ndarray:
        """(N,) number of pixels."""
        return self._areas

    @cached_property
    def _areas(self) -> np.ndarray:
        return np.asarray(segment_sums(self.runs[:, 1] - self.runs[:, 0], self.lengths), dtype=np.float64)

    def ground_truth_areas(self) -> np.ndarray:
        """(N,) number of pixels."""
        return self.areas()

    def is_empty(self) -> np.ndarray:
        """(N,) whether a mask has no pixel."""
        return np.asarray(self.lengths == 0)

    def bounding_boxes(self) -> Edges:
        """The boxes as in ``pycocotools``: a run in several columns makes them as high as the image."""
        result, filled = np.zeros((4, len(self))), np.flatnonzero(self.lengths)
        if len(filled):
            first = segment_starts(self.lengths)[filled]
            last = first + self.lengths[filled] - 1
            height, (start, stop) = self.sizes[filled, 0], self.runs.T
            y = start % np.repeat(height.astype(self.runs.dtype), self.lengths[filled])
            top, bottom = np.minimum.reduceat(y, first), np.maximum.reduceat(y + (stop - start), first)
            several = bottom > height
            result[0, filled], result[2, filled] = start[first] // height, (stop[last] - 1) // height + 1
            result[1, filled], result[3, filled] = np.where(several, 0, top), np.where(several, height, bottom)
        return Edges(*result)

    def scaled(self: _M, factors: np.ndarray) -> _M:
        """The masks with x and y multiplied by ``factors`` (N, 2), by the nearest pixel."""
        sizes = np.maximum(np.rint(self.sizes * factors[:, ::-1]), 1).astype(np.int64)
        row, *lines = self._columns()

        def moved(values: np.ndarray, axis: int) -> np.ndarray:
            """The first pixel whose center is at or after the scaled values."""
            position = np.ceil(values * factors[row, axis] - 0.5).astype(np.int64)
            return np.asarray(np.clip(position, 0, sizes[row, 1 - axis]))

        first, stop = moved(lines[0], 0), moved(lines[0] + 1, 0)
        number = stop - first
        row, top, bottom = (np.repeat(values, number) for values in (row, moved(lines[1], 1), moved(lines[2], 1)))
        return self._of(runs_of_columns(Columns(row, expanded(first, number), top, bottom), sizes[:, 0]), sizes)

    def outlines(self) -> Outlines:
        """The outer and inner contours, simplified by about a pixel; the boxes of masks with very many runs or columns.

        A run of a few bytes can be an image of 4 billion columns.
        """
        height = np.repeat(self.sizes[:, 0], self.lengths)
        start, stop = self.runs.T.astype(np.int64)
        columns = segment_sums((stop - 1) // height - start // height + 1, self.lengths)
        drawn = np.flatnonzero(columns <= MAX_DRAWN_COLUMNS)
        blocks = np.cumsum(columns[drawn]) // _BLOCK_COLUMNS
        parts = [self.take(rows) for rows in np.split(drawn, np.flatnonzero(np.diff(blocks)) + 1)]
        boxes = np.flatnonzero(columns > MAX_DRAWN_COLUMNS)
        edges = Boxes(np.stack(self.take(boxes).bounding_boxes(), axis=1)).outlines()
        outlines = Outlines.concatenate([*(contours(part._columns(), len(part)) for part in parts), edges])
        return outlines.take(np.argsort(np.append(drawn, boxes))) if len(boxes) else outlines

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The runs, their number per mask and the image sizes."""
        return {"runs": self.runs, "lengths": self.lengths, "sizes": self.sizes}

    @classmethod
    def from_arrays(cls: type[_M], arrays: dict[str, np.ndarray]) -> _M:
        """The inverse of :meth:`to_arrays`."""
        return cls(arrays["runs"], arrays["lengths"], arrays["sizes"])

    def overlaps(self, ground_truths: GroundTruths, rows: np.ndarray, gt_rows: np.ndarray) -> np.ndarray:
        """(P,) IoU; for a crowd, intersection / detection area."""
        return self._iou(ground_truths.geometry, rows, gt_rows, ground_truths.crowd[gt_rows])

    def _iou(self, gts: Masks, rows: np.ndarray, gt_rows: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        if not len(rows):
            return np.empty(0)
        # Only the masks between the first and the last row are looked at: a block of pairs is of neighboring images.
        low, gt_low = int(rows.min()), int(gt_rows.min())
        masks, others = self.take(slice(low, int(rows.max()) + 1)), gts.take(slice(gt_low, int(gt_rows.max()) + 1))
        intersection = intersections(masks._runs, others._runs, rows - low, gt_rows - gt_low)
        area, gt_area = self.areas()[rows], gts.areas()[gt_rows]
        union = np.where(crowd, area, area + gt_area - intersection)
        result = np.zeros(len(rows))
        np.divide(intersection, union, out=result, where=intersection > 0)
        return result


def _are_dicts(values: Sequence[Any]) -> bool:
    """Whether a list has dicts, or nothing."""
    return not len(values) or isinstance(values[0], dict)
