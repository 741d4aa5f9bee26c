"""Some of the images: what one of several files or processes has to look at."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Sequence, TypeVar

import numpy as np

from mm_metrics_plugin.evaluation.joining import Joined
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.io.ground_truth import GroundTruth, ImageId
from mm_metrics_plugin.io.row_counts import Tally

_R = TypeVar("_R", Detections, GroundTruths)


def image_order(image_ids: Sequence[ImageId]) -> List[ImageId]:
    """Ids in the order that decides between equal scores: numbers ascending as in pycocotools, then text.

    Examples:
        >>> image_order([10, 9, "b", "a"])
        [9, 10, 'a', 'b']
    """
    return sorted(image_ids, key=lambda one: (isinstance(one, str), one))


def in_image_order(joined: Joined) -> Joined:
    """The same images in the order that decides between equal scores, whatever their order in the ground truth.

    Examples:
        >>> found, there = Detections([0, 1], np.zeros((2, 4)), [0.1, 0.2], [0, 0]), GroundTruths.empty()
        >>> joined = Joined(DetectionBatch(found, there, 2), ("cat",), (9, 7), ("b", "a"), Tally(2, 2), Tally(0, 0), 0)
        >>> ordered = in_image_order(joined)
        >>> ordered.image_ids, ordered.image_names, ordered.batch.detections.image.tolist()
        ((7, 9), ('a', 'b'), [1, 0])
    """
    ordered = image_order(joined.image_ids)
    place = {image_id: at for at, image_id in enumerate(ordered)}
    places = np.array([place[image_id] for image_id in joined.image_ids], dtype=np.int64)
    names = dict(zip(joined.image_ids, joined.image_names))
    detections, objects = joined.batch.detections, joined.batch.ground_truths
    return replace(
        joined,
        batch=DetectionBatch(
            replace(detections, image=places[detections.image]),
            replace(objects, image=places[objects.image]),
            joined.batch.num_images,
        ),
        image_ids=tuple(ordered),
        image_names=tuple(names[image_id] for image_id in ordered),
        image_sizes=None if joined.image_sizes is None else joined.image_sizes[np.argsort(places)],
    )


def share_of_truth(truth: GroundTruth, image_ids: Sequence[ImageId]) -> GroundTruth:
    """The ground truth of some images only, in the order of the file. The tally stays that of the whole file.

    Examples:
        >>> there = GroundTruths([0, 1, 2], np.zeros((3, 4)), [5, 6, 7])
        >>> truth = GroundTruth("a.json", (7, 8, 9), ("", "", ""), np.zeros((3, 2), int), there, Tally(3, 3))
        >>> share = share_of_truth(truth, [9, 8])
        >>> share.image_ids, share.objects.image.tolist(), share.objects.labels.tolist()
        ((8, 9), [0, 1], [6, 7])
    """
    wanted = set(image_ids)
    chosen = np.array([one in wanted for one in truth.image_ids], dtype=bool)
    rows = np.flatnonzero(chosen)
    return replace(
        truth,
        image_ids=tuple(truth.image_ids[at] for at in rows),
        image_names=tuple(truth.image_names[at] for at in rows),
        image_sizes=truth.image_sizes[rows],
        objects=_renumbered(truth.objects, chosen),
    )


def share_of_joined(joined: Joined, rank: int, world_size: int) -> Joined:
    """Every ``world_size``-th image. What was counted while reading is left to the first share.

    Examples:
        >>> found, there = Detections([0, 1, 2], np.zeros((3, 4)), [0.1, 0.2, 0.3], [0, 0, 0]), GroundTruths.empty()
        >>> batch, tallies = DetectionBatch(found, there, 3), (Tally(3, 3), Tally(0, 0))
        >>> whole = Joined(batch, ("cat",), (7, 8, 9), ("", "", ""), *tallies, 0)
        >>> share = share_of_joined(whole, 1, 2)
        >>> share.image_ids, share.batch.detections.scores.tolist(), share.detections.read
        ((8,), [0.2], 0)
    """
    if world_size == 1:
        return joined
    chosen = np.arange(len(joined.image_ids)) % world_size == rank
    batch = DetectionBatch(
        _renumbered(joined.batch.detections, chosen),
        _renumbered(joined.batch.ground_truths, chosen),
        int(np.count_nonzero(chosen)),
    )
    nothing = Tally(0, 0)
    return replace(
        joined,
        batch=batch,
        image_ids=joined.image_ids[rank::world_size],
        image_names=joined.image_names[rank::world_size],
        image_sizes=None if joined.image_sizes is None else joined.image_sizes[rank::world_size],
        detections=joined.detections if rank == 0 else nothing,
        missing_images=joined.missing_images if rank == 0 else 0,
    )


def _renumbered(rows: _R, chosen: np.ndarray) -> _R:
    """The rows of the chosen images, which are counted anew."""
    places = np.cumsum(chosen) - 1
    rows = rows.take(chosen[rows.image])
    return replace(rows, image=places[rows.image])
