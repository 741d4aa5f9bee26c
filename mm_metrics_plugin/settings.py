"""Options of metrics, functions and the command: frozen dataclasses, validated once, standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Sequence, Tuple

# The floats of numpy.linspace(0.5, 0.95, 10), which pycocotools uses.
COCO_IOU_THRS: Tuple[float, ...] = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.8999999999999999, 0.95)
COCO_AREA_EDGES: Tuple[float, ...] = (32.0**2, 96.0**2)
LARGEST_AREA = 1e10
MATCHING_RULES = ("coco", "mmdet", "agnostic")


def require(condition: bool, message: str) -> None:
    """Raises a ValueError with the message unless the condition holds."""
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True)
class AreaRange:
    """Areas of ground truths in square pixels, both ends included, as COCO has it.

    Example:
        >>> AreaRange("small", 0.0, 1024.0).high
        1024.0
    """

    name: str
    low: float
    high: float


def area_ranges(edges: Sequence[float] = COCO_AREA_EDGES) -> Tuple[AreaRange, ...]:
    """All areas, and the ranges between edges; COCO's names where there are three of them.

    Example:
        >>> [one.name for one in area_ranges()], [one.name for one in area_ranges([100])]
        (['all', 'small', 'medium', 'large'], ['all', 'area_0_100', 'area_100_up'])
    """
    ends = [0.0, *(float(edge) for edge in edges), LARGEST_AREA]
    require(
        all(low < high for low, high in zip(ends, ends[1:])),
        f"area edges must be positive and ascending (found {list(edges)})",
    )
    pairs = list(zip(ends, ends[1:]))
    names = ["small", "medium", "large"]
    if len(pairs) != len(names):
        names = [f"area_{low:g}_{high:g}" for low, high in pairs[:-1]] + [f"area_{ends[-2]:g}_up"]
    return (AreaRange("all", 0.0, LARGEST_AREA), *(AreaRange(name, *pair) for name, pair in zip(names, pairs)))


COCO_AREA_RANGES = area_ranges()


@dataclass(frozen=True)
class DetectionSettings:
    """Options of the evaluation of detectors.

    The first group decides what is matched, so that shards and runs must agree on it. The second group only decides
    what is computed from it.

    Example:
        >>> DetectionSettings(iou_thr=2)
        Traceback (most recent call last):
        ValueError: iou_thr must be above 0 and at most 1 (found 2)
    """

    score_thr: float = 0.3
    iou_thr: float = 0.5
    nms_iou_thr: Optional[float] = None
    matching: Tuple[str, ...] = ("coco",)
    iou_thrs: Tuple[float, ...] = COCO_IOU_THRS
    area_ranges: Tuple[AreaRange, ...] = COCO_AREA_RANGES
    background_iou_thr: float = 0.1

    max_dets: Tuple[int, ...] = (1, 10, 100)
    operating_point: Optional[str] = None
    ci: Optional[float] = None
    resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        _require_number("score_thr", self.score_thr)
        require(0 < self.iou_thr <= 1, f"iou_thr must be above 0 and at most 1 (found {self.iou_thr})")
        require(
            self.nms_iou_thr is None or 0 <= self.nms_iou_thr <= 1,
            f"nms_iou_thr must be from 0 to 1 (found {self.nms_iou_thr})",
        )
        require(
            bool(self.matching) and set(self.matching) <= set(MATCHING_RULES),
            f"matching must be among {', '.join(MATCHING_RULES)} (found {', '.join(map(str, self.matching))})",
        )
        for name in ("iou_thrs", "max_dets"):
            values = list(getattr(self, name))
            require(
                bool(values) and values == sorted(values) and values[0] > 0,
                f"{name} must be positive and ascending (found {values})",
            )
        require(self.ci is None or 0 < self.ci < 1, f"ci must be above 0 and below 1 (found {self.ci})")
        require(self.resamples >= 1, f"resamples must be at least 1 (found {self.resamples})")


def _require_number(name: str, value: Any) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    require(number and abs(value) < float("inf"), f"{name} must be a finite number (found {value!r})")
