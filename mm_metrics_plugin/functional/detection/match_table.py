"""The table of matched detections and ground truths, the input of all analyses."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, Mapping, NamedTuple

import numpy as np

from mm_metrics_plugin.functional._arrays import stable_order
from mm_metrics_plugin.functional.detection.federated import MAX_DETS_PER, judged
from mm_metrics_plugin.functional.detection.grid import MatchGrid
from mm_metrics_plugin.functional.thresholding import precision_of, reach
from mm_metrics_plugin.settings import DetectionSettings

DEFAULT_SETTINGS = DetectionSettings()


class Outcome(IntEnum):
    """What a detection or a ground truth is at the score and IoU threshold.

    An unmatched detection is a DUPLICATE if a ground truth of its class (matched already) reaches the IoU threshold,
    else CONFUSION_MATCHED if one of another class does, else BACKGROUND.
    """

    TP = 0
    CONFUSION = 1
    CONFUSION_MATCHED = 2
    DUPLICATE = 3
    BACKGROUND = 4
    IGNORED = 5
    BELOW_THRESHOLD = 6
    MISSED = 7


class ErrorType(IntEnum):
    """TIDE's type of a detection."""

    CLASSIFICATION = 0
    LOCALIZATION = 1
    BOTH = 2
    DUPLICATE = 3
    BACKGROUND = 4
    TRUE_POSITIVE = 5


class RankedRows(NamedTuple):
    """The rows of a table by class, descending score and image."""

    order: np.ndarray  # (N,) int32 rows of the table
    rank: np.ndarray  # (N,) rank of each row of ``order`` within what ``max_dets`` limits, from 0


@dataclass(frozen=True, eq=False)
class MatchTable:
    """Matched detections and ground truths, the input of all analyses.

    Detections of an image are sorted by descending score; ground truths keep their order. Indices are positions within
    the image, so tables of different images can be concatenated.
    """

    grid: MatchGrid  # layout of the bits
    num_classes: int
    num_images: int
    image: np.ndarray  # (N,) int32, ascending
    label: np.ndarray  # (N,) int16, or int32 with more than 32,767 classes
    score: np.ndarray  # (N,) float32 or float64
    matched: np.ndarray  # (N, words) uint64, bits of the settings under which the detection is matched
    ignored: np.ndarray  # (N, words) uint64, bits of the settings under which it is neither TP nor FP
    gt_image: np.ndarray  # (M,) int32, ascending
    gt_label: np.ndarray  # (M,) dtype of ``label``
    gt_valid: np.ndarray  # (M, words) uint64, bits of the settings under which the ground truth counts; 0 if ignored
    precision: np.ndarray | None = None  # (N,) uint8, precision code of each score; None: that of the dtype
    details: MatchDetails | None = None  # None if only AP and counts are needed
    settings: DetectionSettings = DEFAULT_SETTINGS
    image_columns: Mapping[str, np.ndarray] = field(default_factory=dict)  # those of the batch
    # ``matched``, ``ignored`` and ``gt_valid`` of average precision, if its convention assigns in another way
    ap_matched: np.ndarray | None = None
    ap_ignored: np.ndarray | None = None
    gt_ap_valid: np.ndarray | None = None
    num_runs: int = 1  # models whose images take turns, of which the limits of average precision are separate

    def settings_with(self, **options: Any) -> DetectionSettings:
        """The settings of the table with other values of some options; None keeps the table's value."""
        return replace(self.settings, **{name: value for name, value in options.items() if value is not None})

    def tp_fp_masks(self, iou_thr: float, area: str = "any") -> tuple[np.ndarray, np.ndarray]:
        """(N,) which detections are TP, and which are TP or FP."""
        counts = ~self.grid.at(self.ignored, area, iou_thr)
        return counts & self.grid.at(self.matched, area, iou_thr), counts

    @property
    def precision_codes(self) -> np.ndarray:
        """(N,) precision code of each score."""
        if self.precision is not None:
            return self.precision
        return np.full(len(self.score), precision_of(self.score.dtype), dtype=np.uint8)

    def reach(self, score_thr: float) -> np.ndarray:
        """(N,) whether each score is at least the threshold, in the precision of the score."""
        return reach(self.score, score_thr, self.precision)

    @cached_property
    def _rank(self) -> np.ndarray:
        """(N,) rank of each row by score within what ``max_dets`` limits, from 0."""
        return MAX_DETS_PER[self.settings.ap_convention.max_dets_per](self)

    @cached_property
    def ranked(self) -> RankedRows:
        """The rows by class, descending score and image."""
        order = stable_order(self.label, -self.score).astype(np.int32)
        return RankedRows(order, self._rank[order])

    @cached_property
    def ap_ranked(self) -> RankedRows:
        """The rows that average precision may use, by class, descending score and image."""
        if not self.settings.ap_convention.federated:
            return self.ranked
        # They keep their ranks: detections of classes that are not judged take places.
        rows = np.flatnonzero(judged(self))
        order = rows[stable_order(self.label[rows], -self.score[rows])].astype(np.int32)
        return RankedRows(order, self._rank[order])

    @property
    def most_detections(self) -> int:
        """Maximum number of detections in what ``max_dets`` limits: by default, of one class in one image."""
        return int(self._rank.max(initial=-1)) + 1

    @cached_property
    def ap_values(self) -> dict[Any, np.ndarray]:
        """Cache of (thresholds, classes) AP by area range, max_dets and IoU thresholds."""
        return {}

    @property
    def ap_bits(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``matched``, ``ignored`` and ``gt_valid`` of average precision."""
        if self.ap_matched is None or self.ap_ignored is None or self.gt_ap_valid is None:
            return self.matched, self.ignored, self.gt_valid
        return self.ap_matched, self.ap_ignored, self.gt_ap_valid

    def num_gts(self, area: str) -> np.ndarray:
        """(C,) number of ground truths that count in an area range."""
        valid = self.grid.of_range(self.gt_valid, area) != 0
        return np.bincount(self.gt_label[valid], minlength=self.num_classes)

    def gt_rows(self, position: np.ndarray) -> np.ndarray:
        """(N,) rows of ground truths, from their positions in the images of the detections; -1 stays -1."""
        first = np.searchsorted(self.gt_image, np.arange(self.num_images)).astype(np.int32)
        rows: np.ndarray = first[self.image] + position
        rows[position < 0] = -1
        return rows

    def select_images(self, images: np.ndarray) -> MatchTable:
        """The table of some images (a mask or ascending indices), renumbered: a slice of the dataset.

        All analyses of a slice follow from it, as if the dataset had only these images:
        ``table.select_images(table.image_columns["groups"] == "night")``.
        """
        chosen = np.zeros(self.num_images, dtype=bool)
        chosen[images] = True
        number = np.cumsum(chosen, dtype=np.int32) - 1
        rows, gt_rows = np.flatnonzero(chosen[self.image]), np.flatnonzero(chosen[self.gt_image])

        def taken(holder: Any) -> dict[str, Any]:
            columns = {column.name: getattr(holder, column.name) for column in fields(holder)}
            return {
                name: column[gt_rows if is_gt_column(name) else rows]
                for name, column in columns.items()
                if isinstance(column, np.ndarray)
            }

        columns = taken(self)
        columns["image"], columns["gt_image"] = number[columns["image"]], number[columns["gt_image"]]
        details = None if self.details is None else replace(self.details, **taken(self.details))
        image_columns = {name: column[chosen] for name, column in self.image_columns.items()}
        return replace(self, num_images=int(chosen.sum()), details=details, image_columns=image_columns, **columns)

    def confusion_matrix(self) -> np.ndarray:
        """(C + 1, C + 1) matrix of the ``coco`` rule at the score threshold; rows ground truth, background last."""
        details, size = self.details, self.num_classes + 1
        if details is None:
            raise ValueError("the confusion matrix needs a table with details")
        used = np.flatnonzero(details.outcome < Outcome.IGNORED)
        gt = np.where(details.outcome[used] <= Outcome.CONFUSION, self.gt_rows(details.gt_index)[used], -1)
        target = np.append(self.gt_label.astype(np.int64), self.num_classes)[gt]
        missed = self.gt_label[details.gt_outcome == Outcome.MISSED].astype(np.int64)
        cells = np.concatenate([target * size + self.label[used], missed * size + self.num_classes])
        return np.bincount(cells, minlength=size * size).reshape(size, size)


def is_gt_column(name: str) -> bool:
    """Whether a column of a :class:`MatchTable` has one row per ground truth."""
    return name.startswith("gt_") and name != "gt_index"


@dataclass(frozen=True, eq=False)
class MatchDetails:
    """Outcomes of detections and ground truths at the score and IoU thresholds, and TIDE's error types.

    Detections below the score threshold are matched within their class only.
    """

    det_index: np.ndarray  # (N,) int32, original position of the detection in its image
    gt_index: np.ndarray  # (N,) int32, position of the matched, else the most overlapping ground truth, or -1
    overlap: np.ndarray  # (N,) float32, overlap with that ground truth
    outcome: np.ndarray  # (N,) int8, an :class:`Outcome`
    error_type: np.ndarray  # (N,) int8, an :class:`ErrorType`
    error_ignored: np.ndarray  # (N,) bool, overlaps a crowd, so it is ignored for TIDE's AP
    error_fixed: np.ndarray  # (N,) bool, becomes a TP when errors of its type are fixed
    error_gt: np.ndarray  # (N,) int32, position of the ground truth that fixing the error would match, or -1
    gt_area: np.ndarray  # (M,) float64
    gt_outcome: np.ndarray  # (M,) int8: TP, CONFUSION, MISSED or IGNORED
    gt_tide_matched: np.ndarray  # (M,) bool, matched in TIDE
