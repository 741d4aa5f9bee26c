"""Whether two result files hold the same ground truth."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.ground_truth import GroundTruth, ImageId


def check_same_truth(first: GroundTruth, second: GroundTruth) -> None:
    """Refuse ground truths that differ in an image that both hold.

    The order of images, and of the objects of an image, does not matter. Images that only one of them holds are left to
    the join.

    Args:
        first (GroundTruth): Inside the results of the first run.
        second (GroundTruth): Inside those of another.

    Raises:
        ResultFileError: They differ; the message names the first image that does, in the order of ``first``.

    Examples:
        >>> from mm_metrics_plugin.functional.detection.data import GroundTruths
        >>> from mm_metrics_plugin.io.row_counts import Tally
        >>> def truth(source, ids, labels):
        ...     there = GroundTruths([0, 1], [[0, 0, 9, 9], [0, 0, 5, 5]], labels)
        ...     return GroundTruth(source, ids, ("", ""), np.zeros((2, 2), int), there, Tally(2, 2))
        >>> check_same_truth(truth("a.pkl", (7, 8), [3, 3]), truth("b.pkl", (7, 8), [3, 4]))
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.ResultFileError: a.pkl and b.pkl: differ in the ground truth of image 8 (class, \
box or crowd flag of object number 0); give the annotations as GROUND_TRUTH instead of -
    """
    number = {image_id: at for at, image_id in enumerate(first.image_ids)}
    mine, theirs = (_rows(truth, number) for truth in (first, second))
    shared = np.zeros(len(number) + 1, dtype=bool)
    shared[[number.get(image_id, -1) for image_id in second.image_ids]] = True
    shared[-1] = False
    mine, theirs = (rows[shared[rows[:, 0].astype(np.int64)]] for rows in (mine, theirs))
    counts = [np.bincount(rows[:, 0].astype(np.int64), minlength=len(number)) for rows in (mine, theirs)]
    other = np.flatnonzero(counts[0] != counts[1])
    length = min(len(mine), len(theirs))
    rows = np.flatnonzero((mine[:length] != theirs[:length]).any(axis=1))
    image = min([*other[:1].tolist(), *mine[rows[:1], 0].astype(int).tolist()], default=None)
    if image is None:
        return
    if counts[0][image] != counts[1][image]:
        what = f"{counts[0][image]} and {counts[1][image]} objects"
    else:
        what = f"class, box or crowd flag of object number {rows[0] - int(counts[0][:image].sum())}"
    raise ResultFileError(
        f"{first.source} and {second.source}: differ in the ground truth of image {first.image_ids[image]!a} ({what}); "
        "give the annotations as GROUND_TRUTH instead of -"
    )


def _rows(truth: GroundTruth, number: Dict[ImageId, int]) -> np.ndarray:
    """Image, class, crowd flag and box of every object, sorted; images are numbered by ``number``, others are last."""
    there = truth.objects
    place = np.array([number.get(image_id, len(number)) for image_id in truth.image_ids], dtype=np.int64)
    columns: Any = [place[there.image], there.labels, there.crowd, *there.boxes.array.T.astype(np.float64)]
    rows = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    return rows[np.lexsort(rows.T[::-1])]
