"""Counts of a detector at its best score threshold, each image at a threshold that was selected on other images."""

from __future__ import annotations

from operator import matmul

import numpy as np

from mm_metrics_plugin.functional._arrays import stable_order
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.pr_curves import ranked_rows, rule_values
from mm_metrics_plugin.functional.thresholding import round_thresholds
from mm_metrics_plugin.settings import OperatingRule, require

_FOLDS = 5
_BATCH_CELLS = 1 << 22  # detections x draws: 32 MB


def num_folds(num_images: int) -> int:
    """The number of folds of reports: 5, or one per image if there are fewer."""
    require(
        num_images > 1,
        "operating_point=... needs at least 2 images, because a threshold is judged on images it was not chosen on "
        f"(found {num_images})",
    )
    return min(_FOLDS, num_images)


def image_folds(num_images: int, *, folds: int, seed: int) -> np.ndarray:
    """(images,) fold of each image; the folds are random and of the same size.

    Example:
        >>> image_folds(6, folds=2, seed=0).tolist()
        [0, 1, 1, 0, 1, 0]
    """
    require(2 <= folds <= num_images, f"folds must be between 2 and the number of images, {num_images} (found {folds})")
    fold = np.empty(num_images, dtype=np.int64)
    fold[np.random.default_rng(seed).permutation(num_images)] = np.arange(num_images) % folds
    return fold


class CrossFittedCounts:
    """TP, FP and FN of weighted images at the best score threshold of all classes together.

    The threshold of a fold is selected on the other folds, with the same weights. A permutation of two runs is a
    weighting of their images, so it selects its own thresholds. Swapping counts at the thresholds of the two runs
    instead would call equal runs different far too often: a slightly lower threshold gives more recall in every image.
    """

    def __init__(self, table: MatchTable, fold: np.ndarray, rule: OperatingRule, iou_thr: float | None = None) -> None:
        from scipy.sparse import csr_matrix  # slow to import

        settings = table.settings_with(iou_thr=iou_thr)
        rows, is_tp, _ = ranked_rows(table, settings.iou_thr)
        thresholds = np.unique(table.score[rows])[::-1]
        step = _highest_reached(table, rows, thresholds)
        in_order = stable_order(step)
        rows, is_tp, step = rows[in_order], is_tp[in_order], step[in_order]
        label, self.image = table.label[rows], table.image[rows]
        self.rule, self.num_folds, self._fold = rule, int(fold.max(initial=0)) + 1, fold[self.image]

        best = np.unique(step[is_tp])  # a threshold at which no TP is added is never the best
        self._thresholds = thresholds[best]
        self._ends = np.searchsorted(step, best, side="right")  # number of rows that reach each of them
        at = np.searchsorted(best, step)  # the highest of them that a row reaches
        reached = at < len(best)

        def counts(row: np.ndarray, column: np.ndarray, num_rows: int, num_columns: int) -> csr_matrix:
            return csr_matrix((np.ones(len(row)), (row, column)), shape=(num_rows, num_columns))

        gts = table.grid.at(table.gt_valid, "any", settings.iou_thr)
        self._gts = counts(table.gt_label[gts], table.gt_image[gts], table.num_classes, table.num_images)
        added = [
            counts(at[new], self.image[new], len(best), table.num_images) for new in (is_tp & reached, ~is_tp & reached)
        ]
        self._images = [np.flatnonzero(fold == number) for number in range(self.num_folds)]
        self._by_fold = [[part[:, images] for images in self._images] for part in (*added, self._gts)]
        kinds = np.where(is_tp, 0, table.num_classes) + label
        self._classes = counts(kinds, np.arange(len(rows)), 2 * table.num_classes, len(rows)).tocsc()

    @property
    def batch_size(self) -> int:
        """Recommended number of draws (columns of weights) per call."""
        return max(1, _BATCH_CELLS // max(1, len(self.image) // 4, self.num_folds * len(self._thresholds)))

    def _best(self, weights: np.ndarray) -> np.ndarray:
        """(folds, draws) index of the best score of the other folds; -1 if no score satisfies the rule."""
        if not len(self._thresholds):
            return np.full((self.num_folds, weights.shape[1]), -1)
        by_image = [weights[images] for images in self._images]
        tp, fp, gts = (np.cumsum(list(map(matmul, parts, by_image)), axis=1) for parts in self._by_fold)
        tp, fp, gts = (part.sum(axis=0) - part for part in (tp, fp, gts[:, -1:]))  # of the other folds
        value = rule_values(tp, fp, gts, self.rule)
        return np.where(value.max(axis=1) >= 0, value.argmax(axis=1), -1)

    def thresholds(self, weights: np.ndarray) -> np.ndarray:
        """(folds, draws) score thresholds; NaN where none satisfies the rule."""
        best = self._best(weights)
        return np.where(best >= 0, np.append(self._thresholds, np.nan)[best], np.nan)

    def __call__(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(draws, classes) TP, FP and FN for integer weights (images, draws)."""
        ends = np.append(self._ends, 0)[self._best(weights)]
        rows = np.arange(ends.max(initial=0))
        kept = weights[self.image[rows]] * (rows[:, None] < ends[self._fold[rows]])
        tp, fp = np.split((self._classes[:, : len(rows)] @ kept).T, 2, axis=1)
        return tp, fp, (self._gts @ weights).T - tp


def _highest_reached(table: MatchTable, rows: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The index of the highest threshold that each row reaches, in the precision of its score."""
    score, step = table.score[rows], np.zeros(len(rows), dtype=np.int64)
    rounded = round_thresholds(thresholds)
    codes = table.precision_codes[rows]
    for code in np.unique(codes).tolist():
        same = codes == code
        step[same] = np.searchsorted(-rounded[code], -score[same], side="left")
    return step


def reached_by_fold(table: MatchTable, fold: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """(N,) whether each score reaches the score threshold of the fold of its image."""
    own = fold[table.image]
    return np.asarray(np.logical_or.reduce([(own == k) & table.reach(value) for k, value in enumerate(thresholds)]))


def cross_fitted_thresholds(
    table: MatchTable, fold: np.ndarray, rule: OperatingRule, *, iou_thr: float | None = None
) -> np.ndarray:
    """(folds,) the score threshold of each fold, selected on the other folds; NaN if none satisfies the rule.

    Example:
        >>> from mm_metrics_plugin.functional import DetectionBatch, match_images
        >>> box = [[0, 0, 9, 9]]
        >>> boxes, labels, scores = [box] * 4, [[0]] * 4, [[0.9], [0.8], [0.7], [0.6]]
        >>> batch = DetectionBatch.from_images(
        ...     boxes=boxes, scores=scores, labels=labels, gt_boxes=boxes, gt_labels=labels)
        >>> table = match_images(batch, num_classes=1, keep="scores").table
        >>> cross_fitted_thresholds(table, np.array([0, 0, 1, 1]), OperatingRule("f", 1.0)).tolist()
        [0.6, 0.8]
    """
    return CrossFittedCounts(table, fold, rule, iou_thr).thresholds(np.ones((table.num_images, 1)))[:, 0]
