"""On which images two runs disagree: where one makes errors that the other does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import worst_first
from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts


@dataclass(frozen=True, eq=False)
class Disagreements:
    """Images that one run does better on than another.

    Attributes:
        agreement: How many images both get right (no false positive, nothing missed), only the first, only the
            second, and neither.
        counts: How many images the second does better on, and worse.
        image: (K,) images, those the second does better on first, the greatest difference first.
        worse: (K,) whether the second does worse on it.
        first: (3, K) true positives, false positives and false negatives of the first run.
        second: (3, K) those of the second.
    """

    agreement: Dict[str, int]
    counts: Dict[str, int]
    image: np.ndarray
    worse: np.ndarray
    first: np.ndarray
    second: np.ndarray

    def __str__(self) -> str:
        return f"the second run is better on {self.counts['better']} images and worse on {self.counts['worse']}"


def disagreements(
    first: PerImageCounts, second: PerImageCounts, *, confidence: Optional[np.ndarray] = None, most: int = 500
) -> Disagreements:
    """Find the images on which one run makes fewer errors (false positives and false negatives) than the other.

    Args:
        first: Counts of the first run.
        second: Counts of the second run; the images in the same order.
        confidence: (2, images) how sure each run was. Of images with equal differences, the one on which the run with
            more errors was surer is worse; then the earlier one.
        most: List no more than so many images that the second does better on, and so many that it does worse on.

    Example:
        >>> truth = np.array([0, 1, 1, 0])
        >>> runs = (PerImageCounts.from_labels(truth, found, num_classes=2) for found in ([0, 0, 1, 0], [0, 1, 0, 1]))
        >>> found = disagreements(*runs, confidence=np.array([[0.9, 0.8, 0.7, 0.6], [0.5, 0.6, 0.7, 0.8]]))
        >>> found.image.tolist(), found.worse.tolist(), found.agreement
        ([1, 3, 2], [False, True, True], {'both': 1, 'first': 2, 'second': 1, 'neither': 0})
        >>> print(found)
        the second run is better on 1 images and worse on 2
    """
    if first.num_images != second.num_images:
        raise MetricInputError(
            f"'num_images' of both runs must be the same (found {first.num_images} and {second.num_images})"
        )
    totals = [_by_image(run) for run in (first, second)]
    errors = [found[1] + found[2] for found in totals]
    right = [found == 0 for found in errors]
    gain = errors[0] - errors[1]
    sure = np.zeros((2, len(gain))) if confidence is None else np.asarray(confidence)
    group = (gain < 0).astype(np.int64)
    differ = np.flatnonzero(gain)
    surer = -np.where(gain < 0, sure[1], sure[0])
    listed, _ = worst_first(group[differ], np.abs(gain)[differ], surer[differ], differ, per_group=most, most=2 * most)
    chosen = differ[listed]
    names = ("both", "first", "second", "neither")
    agreement = [right[0] & right[1], right[0] & ~right[1], ~right[0] & right[1], ~right[0] & ~right[1]]
    return Disagreements(
        agreement={name: int(np.count_nonzero(part)) for name, part in zip(names, agreement)},
        counts={"better": int(np.count_nonzero(gain > 0)), "worse": int(np.count_nonzero(gain < 0))},
        image=chosen,
        worse=gain[chosen] < 0,
        first=totals[0][:, chosen],
        second=totals[1][:, chosen],
    )


def _by_image(counts: PerImageCounts) -> np.ndarray:
    """(3, images) true positives, false positives and false negatives of every image."""
    sums = [np.bincount(counts.image, weights=part, minlength=counts.num_images) for part in counts.counts]
    return np.array(sums).reshape(3, counts.num_images).astype(np.int64)
