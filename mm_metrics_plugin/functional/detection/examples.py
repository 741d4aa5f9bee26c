"""Examples for a report: the worst members of each cell of a confusion matrix, and the worst images.

The worst FP are the most confident, the worst FN the largest, the worst TP the least confident. Ties are broken by
image, detection and ground truth, so the worst of several shards merge to the worst of all.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Mapping, NamedTuple, Sequence, TypeVar

import numpy as np

from mm_metrics_plugin.conventions import MATCHING_RULES
from mm_metrics_plugin.functional._arrays import group_starts, worst_first
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry import Outlines
from mm_metrics_plugin.functional.detection.grid import NO_GT
from mm_metrics_plugin.functional.detection.match_table import Outcome
from mm_metrics_plugin.functional.detection.pairs import OverlapPairs
from mm_metrics_plugin.functional.detection.rules import BACKGROUND_TYPES, RuleMatches

MAX_PER_CELL = 50
MAX_CELL_EXAMPLES = 48_000  # of all matching rules
DRAWN_KINDS = ("TP", "FP", "FN")
RULE_NAMES = tuple(MATCHING_RULES)

_C = TypeVar("_C", bound="Columns")


@dataclass(frozen=True, eq=False)
class Columns:
    """Base class of tables: arrays with one row per example, and :class:`Outlines`."""

    @classmethod
    def array_names(cls) -> list[str]:
        """Names of the arrays of :meth:`to_arrays`."""
        names = [
            [f"{column.name}_points", f"{column.name}_lengths"] if _is_outlines(column) else [column.name]
            for column in fields(cls)
        ]
        return [name for part in names for name in part]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All columns as arrays."""
        columns = [getattr(self, column.name) for column in fields(self)]
        arrays = [list(column) if isinstance(column, Outlines) else [column] for column in columns]
        return dict(zip(self.array_names(), (array for part in arrays for array in part)))

    @classmethod
    def from_arrays(cls: type[_C], arrays: Mapping[str, np.ndarray]) -> _C:
        """The inverse of :meth:`to_arrays`."""
        values = iter(arrays[name] for name in cls.array_names())
        return cls(
            *(Outlines(next(values), next(values)) if _is_outlines(column) else next(values) for column in fields(cls))
        )

    def take(self: _C, rows: np.ndarray) -> _C:
        """The chosen rows (indices or a mask)."""
        columns = {column.name: getattr(self, column.name) for column in fields(self)}
        return replace(
            self,
            **{
                name: column.take(rows) if isinstance(column, Outlines) else column[rows]
                for name, column in columns.items()
            },
        )

    @classmethod
    def concatenate(cls: type[_C], parts: Sequence[_C]) -> _C:
        """The rows of all parts."""
        arrays = [part.to_arrays() for part in parts]
        return cls.from_arrays({name: np.concatenate([part[name] for part in arrays]) for name in cls.array_names()})


def _is_outlines(column: Any) -> bool:
    return bool(column.type == "Outlines")


@dataclass(frozen=True, eq=False)
class CellExamples(Columns):
    """Members of the cells of confusion matrices."""

    rule: np.ndarray  # (K,) int8, index into ``RULE_NAMES``
    cell: np.ndarray  # (K,) int64, ``row * (num_classes + 1) + column`` of the confusion matrix
    severity: np.ndarray  # (K,) float64, sort key; the worst has the largest
    image: np.ndarray  # (K,) int32
    det_index: np.ndarray  # (K,) int32, position of the detection in its image; -1 for a missed ground truth
    gt_index: np.ndarray  # (K,) int32, position of the matched, else the most overlapping ground truth, or -1
    overlap: np.ndarray  # (K,) float32, overlap of the two; NaN for a missed ground truth
    background_type: np.ndarray  # (K,) int8, index into ``BACKGROUND_TYPES`` in the background row, else -1
    label: np.ndarray  # (K,) int32, label of the detection, or -1
    score: np.ndarray  # (K,) float64, score of the detection, or NaN
    outline: Outlines  # of the detection, empty without one
    gt_label: np.ndarray  # (K,) int32, label of the ground truth, or -1
    gt_area: np.ndarray  # (K,) float64, area of the ground truth, or NaN
    gt_outline: Outlines  # of the ground truth, empty without one

    def worst(self, num_rules: int) -> CellExamples:
        """The worst members of each cell, by rule and cell; ``num_rules`` rules share ``MAX_CELL_EXAMPLES``."""
        kept: list[np.ndarray] = [np.empty(0, dtype=np.intp)]
        for rule in np.unique(self.rule):
            rows = np.flatnonzero(self.rule == rule)
            columns = (self.cell, self.severity, self.image, self.det_index, self.gt_index)
            worst, _ = worst_first(
                *(column[rows] for column in columns), per_group=MAX_PER_CELL, most=MAX_CELL_EXAMPLES // num_rules
            )
            kept.append(rows[worst])
        return self.take(np.concatenate(kept))


@dataclass(frozen=True, eq=False)
class WorstImages(Columns):
    """FN and FP of images."""

    image: np.ndarray  # (I,) int32
    missed: np.ndarray  # (I,) int64, number of FN
    confidence: np.ndarray  # (I,) float64, highest score of an FP; NaN without FP

    def most_missed(self) -> np.ndarray:
        """Rows of images with FN, by their number, then by the confidence of FP."""
        highest = np.where(np.isnan(self.confidence), -np.inf, self.confidence)
        order: np.ndarray = np.lexsort((self.image, -highest, -self.missed))
        return np.asarray(order[self.missed[order] > 0])

    def most_confident(self) -> np.ndarray:
        """Rows of images with FP, by the highest score."""
        order: np.ndarray = np.lexsort((self.image, -self.missed, -np.nan_to_num(self.confidence, nan=-np.inf)))
        return np.asarray(order[~np.isnan(self.confidence[order])])

    def worst(self, most: int) -> np.ndarray:
        """Rows of the ``most`` worst images by either order."""
        return np.unique(np.concatenate([self.most_missed()[:most], self.most_confident()[:most]]))


@dataclass(frozen=True, eq=False)
class DrawnShapes(Columns):
    """Shapes of the worst images, for drawing."""

    image: np.ndarray  # (K,) int32
    kind: np.ndarray  # (K,) int8, index into ``DRAWN_KINDS``
    label: np.ndarray  # (K,) int32
    score: np.ndarray  # (K,) float64, NaN for ground truths
    outline: Outlines


class Examples(NamedTuple):
    """The result of :func:`collect_examples`."""

    cells: CellExamples
    images: WorstImages
    shapes: DrawnShapes


class SortedImages(NamedTuple):
    """Sorted detections and ground truths with their overlapping pairs."""

    pairs: OverlapPairs  # all pairs with an overlap above 0
    detections: Detections  # sorted by image and descending score
    ground_truths: GroundTruths  # sorted by image
    det_index: np.ndarray  # (N,) position of each detection in its image
    gt_index: np.ndarray  # (M,) position of each ground truth in its image
    num_images: int


def collect_examples(
    images: SortedImages, matches: RuleMatches, rules: dict[str, RuleMatches], *, num_classes: int, worst_images: int
) -> Examples:
    """The worst members of the cells under every rule, and the worst images by ``matches`` with their shapes."""
    parts = [_cell_examples(images, rule, counted, num_classes, len(rules)) for rule, counted in rules.items()]
    worst = _worst_images(images, matches)
    worst = worst.take(worst.worst(worst_images))
    return Examples(CellExamples.concatenate(parts), worst, _shapes_of(images, matches, worst.image))


def _cell_examples(
    images: SortedImages, rule: str, matches: RuleMatches, num_classes: int, num_rules: int
) -> CellExamples:
    """The worst members of all cells of the matrix of a rule.

    An unmatched detection is shown with the ground truth of the highest overlap, of ties the same class first.
    """
    dets, gts = images.detections, images.ground_truths
    counted, fn = np.flatnonzero(matches.outcome < Outcome.IGNORED), np.flatnonzero(matches.missed)
    det, gt, outcome = matches.det[counted], matches.gt[counted], matches.outcome[counted]
    background_type = np.full(len(det) + len(fn), -1, dtype=np.int8)
    for index, kind in enumerate(BACKGROUND_TYPES.values()):
        background_type[: len(det)][outcome == kind] = index
    closest, closest_overlap = _closest_gts(images, rule, det, gt)
    det_row = np.concatenate([det, np.full(len(fn), NO_GT)])
    gt_row = np.concatenate([closest, fn])
    label = np.append(dets.labels, -1)[det_row]
    # Index -1 is the background, the last label.
    target = np.concatenate([np.append(gts.labels, num_classes)[gt], gts.labels[fn]])
    predicted = np.where(label < 0, num_classes, label)
    score = np.append(dets.scores.astype(np.float64), np.nan)[det_row]
    areas = np.append(gts.areas(), np.nan)[gt_row]
    severity = np.where(target == predicted, -score, score)
    severity[len(det) :] = areas[len(det) :]
    nothing = Outlines(np.empty((0, 2)), np.zeros(len(det_row), dtype=np.int32))
    examples = CellExamples(
        rule=np.full(len(det_row), RULE_NAMES.index(rule), dtype=np.int8),
        cell=target * (num_classes + 1) + predicted,
        severity=severity,
        image=np.concatenate([dets.image[det], gts.image[fn]]).astype(np.int32),
        det_index=np.append(images.det_index, NO_GT)[det_row].astype(np.int32),
        gt_index=np.append(images.gt_index, NO_GT)[gt_row].astype(np.int32),
        overlap=np.concatenate([closest_overlap, np.full(len(fn), np.nan)]).astype(np.float32),
        background_type=background_type,
        label=det_row,
        score=score,
        outline=nothing,
        gt_label=gt_row,
        gt_area=areas,
        gt_outline=nothing,
    )
    # ``label`` and ``gt_label`` are row numbers until the worst are chosen: only their shapes are drawn.
    worst = examples.worst(num_rules)
    det_row, gt_row = worst.label, worst.gt_label
    return replace(
        worst,
        label=np.append(dets.labels, -1)[det_row].astype(np.int32),
        gt_label=np.append(gts.labels, -1)[gt_row].astype(np.int32),
        outline=_outlines(dets, det_row),
        gt_outline=_outlines(gts, gt_row),
    )


def _outlines(instances: Any, rows: np.ndarray) -> Outlines:
    """The outlines of instances, empty for the row -1."""
    chosen = np.flatnonzero(rows >= 0)
    position = np.full(len(rows), -1)
    position[chosen] = np.arange(len(chosen))
    outlines: Outlines = instances.geometry.take(rows[chosen]).outlines()
    return outlines.take(position)


def _closest_gts(images: SortedImages, rule: str, det: np.ndarray, gt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ground truth of each row, else the one with the highest overlap; and that overlap, or 0."""
    pairs, labels, gts = images.pairs, images.detections.labels, images.ground_truths
    if MATCHING_RULES[rule].ignores_crowds:
        pairs = pairs.select(np.flatnonzero(~gts.ignored[pairs.gt]))
    overlap = pairs.overlaps[MATCHING_RULES[rule].overlap]
    other_class = labels[pairs.det] != gts.labels[pairs.gt]
    order = np.lexsort((pairs.gt, other_class, -overlap, pairs.det))
    first = order[group_starts(pairs.det[order])]
    best_gt = np.full(int(max(det.max(initial=-1), pairs.det.max(initial=-1))) + 1, NO_GT, dtype=np.int64)
    best_overlap = np.zeros(len(best_gt))
    best_gt[pairs.det[first]], best_overlap[pairs.det[first]] = pairs.gt[first], overlap[first]
    closest, closest_overlap = np.where(gt < 0, best_gt[det], gt), best_overlap[det]
    # The overlap of a matched pair is looked up by its unique key.
    size = int(pairs.gt.max(initial=0)) + 1
    keys = pairs.det.astype(np.int64) * size + pairs.gt
    by_key = np.argsort(keys, kind="stable")
    matched = np.flatnonzero(gt >= 0)
    rows = by_key[np.searchsorted(keys[by_key], det[matched].astype(np.int64) * size + gt[matched])]
    closest_overlap[matched] = overlap[rows]
    return closest, closest_overlap


def _worst_images(images: SortedImages, matches: RuleMatches) -> WorstImages:
    detections, num_images = images.detections, images.num_images
    is_fp = _is_fp(matches)
    missed = np.bincount(images.ground_truths.image[_is_fn(images, matches)], minlength=num_images)
    highest = np.full(num_images, -np.inf)
    np.maximum.at(highest, detections.image[is_fp], detections.scores[is_fp].astype(np.float64))
    confidence = np.where(np.isinf(highest), np.nan, highest)
    return WorstImages(np.arange(num_images, dtype=np.int32), missed, confidence)


def _is_fp(matches: RuleMatches) -> np.ndarray:
    return np.asarray((matches.outcome != Outcome.TP) & (matches.outcome < Outcome.IGNORED))


def _is_fn(images: SortedImages, matches: RuleMatches) -> np.ndarray:
    fn = ~images.ground_truths.ignored
    fn[matches.gt[matches.outcome == Outcome.TP]] = False
    return fn


def _shapes_of(images: SortedImages, matches: RuleMatches, chosen: np.ndarray) -> DrawnShapes:
    dets, gts = images.detections, images.ground_truths
    is_chosen = np.zeros(images.num_images, dtype=bool)
    is_chosen[chosen] = True
    masks = ((dets, matches.outcome == Outcome.TP), (dets, _is_fp(matches)), (gts, _is_fn(images, matches)))
    parts = []
    for kind, (instances, mask) in enumerate(masks):
        rows: Any = instances.take(np.flatnonzero(mask & is_chosen[instances.image]))
        scores: np.ndarray | None = getattr(rows, "scores", None)
        parts.append(
            DrawnShapes(
                image=rows.image.astype(np.int32),
                kind=np.full(len(rows), kind, dtype=np.int8),
                label=rows.labels.astype(np.int32),
                score=np.full(len(rows), np.nan) if scores is None else scores.astype(np.float64),
                outline=rows.geometry.outlines(),
            )
        )
    return DrawnShapes.concatenate(parts)
