"""The interface of every geometry (boxes; later masks, rotated boxes, key points)."""

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
    """Shapes, one per row. Matching uses only this interface."""

    prefiltered: bool  # whether shapes overlap only where their bounding boxes meet; others are not computed

    def __len__(self) -> int:
        """How many shapes."""

    def check(self) -> str | None:
        """What is wrong with the array as a whole, as the end of a sentence; None if nothing is."""

    def first_invalid(self) -> tuple | None:
        """Row and value of the first coordinate that is not usable; None if all are."""

    def take(self: _G, rows: np.ndarray) -> _G:
        """The chosen rows (indices, a mask or a slice)."""

    def concatenate(self: _G, others: Sequence[_G]) -> _G:
        """These shapes and those of ``others``, one after the other."""

    def areas(self) -> np.ndarray:
        """(N,) float64."""

    def is_empty(self) -> np.ndarray:
        """(N,) whether a shape has no area, so that it overlaps nothing."""

    def bounding_boxes(self) -> Edges:
        """The boxes around the shapes themselves."""

    def overlaps(self: _G, gts: _G, rows: np.ndarray, gt_rows: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        """(P,) float64, how much detection ``rows[i]`` overlaps ground truth ``gt_rows[i]``, from 0 to 1.

        Where ``crowd[i]`` holds, the denominator is the area of the detection instead of the union, as COCO has it.
        """
