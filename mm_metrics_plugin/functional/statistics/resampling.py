"""The metrics of a model for many sets of image weights, for intervals and tests."""

from __future__ import annotations

from typing import Callable, Dict, Iterator, List, NamedTuple, Optional

import numpy as np

from mm_metrics_plugin.functional._arrays import map_in_order, mean_of_defined
from mm_metrics_plugin.functional.detection.average_precision import RangeCurves
from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts, count_figures
from mm_metrics_plugin.functional.statistics.ratio_intervals import shrink
from mm_metrics_plugin.settings import COCO_IOU_THRS

_WEIGHTS_AT_ONCE = 1 << 20  # images x draws: 8 MB


class Figures(NamedTuple):
    """Metrics by name: (draws, classes) per class, (draws,) over all classes. Undefined ones are NaN."""

    per_class: Dict[str, np.ndarray]
    overall: Dict[str, np.ndarray]

    def minus(self, other: Figures) -> Figures:
        """These minus ``other``."""
        return Figures(*({name: part[name] - less[name] for name in part} for part, less in zip(self, other)))

    @classmethod
    def concatenate(cls, parts: List[Figures]) -> Figures:
        """The draws of all parts."""
        return cls(*({name: np.concatenate([part[name] for part in side]) for name in side[0]} for side in zip(*parts)))


class WeightedFigures:
    """Precision, recall, F1 and, of a detector, average precision, of weighted images.

    Keys are ``mAP`` if the curves have COCO's ten IoU thresholds, and ``mAP_50``, ``mAP_75`` (or those of their
    thresholds); per class without the m. A classifier has no curves.
    """

    def __init__(self, counts: PerImageCounts, curves: Optional[RangeCurves] = None) -> None:
        self.counts, self.curves = counts, curves
        self._matrix = counts.matrix()

    @property
    def num_images(self) -> int:
        """How many images there are."""
        return self.counts.num_images

    @property
    def draws_at_once(self) -> int:
        """How many sets of weights to compute at once."""
        most = max(1, _WEIGHTS_AT_ONCE // max(1, self.num_images, 3 * self.counts.num_classes))
        return min(256, most) if self.curves is None else min(most, self.curves.draws_at_once)

    def __call__(self, weights: np.ndarray) -> Figures:
        """The figures for weights (images, draws) that are whole numbers."""
        weights = np.ascontiguousarray(weights, dtype=np.float64)
        per_class, overall = count_figures(*np.split((self._matrix @ weights).T, 3, axis=1))
        for name, value in self.average_precisions(weights).items():
            per_class[name], overall[f"m{name}"] = value, mean_of_defined(value)
        return Figures(per_class, overall)

    def average_precisions(self, weights: np.ndarray) -> Dict[str, np.ndarray]:
        """(draws, classes) arrays of average precision by name; none for a classifier."""
        if self.curves is None:
            return {}
        return self._by_name(np.swapaxes(self.curves.average_precision(weights), 1, 2))

    def optimism(self) -> Dict[str, np.ndarray]:
        """(classes,) the optimistic bias of average precision, by name."""
        return {} if self.curves is None else self._by_name(optimism(self.curves))

    def _by_name(self, values: np.ndarray) -> Dict[str, np.ndarray]:
        """Values (thresholds, ...) by the name of the average precision: their mean, and those of single thresholds."""
        thresholds = () if self.curves is None else self.curves.iou_thrs
        complete = len(thresholds) == 10 and np.allclose(thresholds, COCO_IOU_THRS, rtol=0, atol=1e-9)
        named = {"AP": values.mean(axis=0)} if complete else {}
        for threshold, value in zip(thresholds, values):
            percent = round(100 * threshold)
            if not complete or percent in (50, 75):
                named[f"AP_{percent}"] = value
        return named

    def of_all(self) -> Figures:
        """The metrics of the data: one draw, every weight 1."""
        return self(np.ones((self.num_images, 1)))


def optimism(curves: RangeCurves) -> np.ndarray:
    """(thresholds, classes) the optimistic bias of average precision; 0 for classes without true positives.

    The precision at a true positive includes this true positive. So it exceeds the precision p among the detections of
    at least this score by (1 - p) / rank on average. The mean of this over the ground truths is the bias. p is
    estimated from the detections before it and, of the first ones, from the average precision.
    """
    num_gts = curves.num_gts()
    rows = []
    for value, hits in zip(curves.average_precision()[..., 0], curves.hit_counts()):
        prior = (1 + shrink(value, np.where(np.isnan(value), 0.0, num_gts))) / 2
        precision = (hits.tp - 1 + prior[hits.label]) / hits.seen
        excess = np.bincount(hits.label, weights=(1 - precision) / hits.seen, minlength=len(num_gts))
        rows.append(excess / np.maximum(num_gts, 1))
    return np.stack(rows)


def drawn_images(num_images: int, *, draws: int, seed: int, at_once: int) -> Iterator[np.ndarray]:
    """How often each image is in a bootstrap sample, (images, draws) at a time; the same for every ``at_once``."""
    random = np.random.default_rng(seed)
    for start in range(0, draws, at_once):
        number = min(at_once, draws - start)
        parts = [np.bincount(random.integers(0, num_images, num_images), minlength=num_images) for _ in range(number)]
        yield np.stack(parts, axis=1)


def drawn_swaps(num_images: int, *, draws: int, seed: int, at_once: int) -> Iterator[np.ndarray]:
    """Which images are swapped, (images, draws) of 0 and 1 at a time; the same for every ``at_once``."""
    random = np.random.default_rng(seed)
    for start in range(0, draws, at_once):
        number = min(at_once, draws - start)
        yield np.stack([random.random(num_images) < 0.5 for _ in range(number)], axis=1).astype(np.float64)


def over_draws(function: Callable[[np.ndarray], Figures], weights: Iterator[np.ndarray]) -> Figures:
    """The metrics of all draws, in order, computed on all cores."""
    return Figures.concatenate(list(map_in_order(function, weights)))
