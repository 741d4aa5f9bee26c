"""The interface of geometries such as boxes."""

from __future__ import annotations

from typing import NamedTuple, Protocol, Sequence, TypeVar

import numpy as np

_G = TypeVar("_G", bound="Geometry")


class Edges(NamedTuple):
    """Axis-aligned boxes as contiguous float64 columns."""

    left: np.ndarray
    top: np.ndarray
    right: np.ndarray
    bottom: np.ndarray


class Geometry(Protocol):
    """Shapes, one per row. Matching depends on this interface only."""

    prefiltered: bool  # whether shapes overlap only if their bounding boxes intersect

    def __len__(self) -> int:
        """Number of shapes."""

    def check(self) -> str | None:
        """The end of an error message if the array is invalid, else None."""

    def first_invalid(self) -> tuple[int, float] | None:
        """Row and value of the first invalid coordinate, or None."""

    def take(self: _G, rows: np.ndarray) -> _G:
        """The selected rows (indices, a mask or a slice)."""

    def concatenate(self: _G, others: Sequence[_G]) -> _G:
        """These shapes followed by those of ``others``."""

    def areas(self) -> np.ndarray:
        """(N,) float64."""

    def is_empty(self) -> np.ndarray:
        """(N,) whether a shape has no area, so it overlaps nothing."""

    def bounding_boxes(self) -> Edges:
        """The bounding boxes of the shapes."""

    def overlaps(self: _G, gts: _G, rows: np.ndarray, gt_rows: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        """(P,) IoU of detections ``rows`` and ground truths ``gt_rows``; for a crowd, intersection / detection area."""
