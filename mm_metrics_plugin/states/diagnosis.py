"""The state from which the cause of an impossible result is named: a few counts, and boxes of some images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mm_metrics_plugin.functional._arrays import stable_order
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.diagnosis import bounding_box_sample
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.states.base import CONCAT, MAX, SUM, RowBuffer, State

SAMPLE_IMAGES = 64
_DETS = ("image", "box", "label")
_GTS = ("gt_image", "gt_box", "gt_label")


class DiagnosisState(State):
    """Counts of all images, and the bounding boxes of the first images with ground truths.

    The sample is the same for any number of processes and any size of the batches. It has at most 350 rows of 24 bytes
    for each of 64 images.
    """

    NAMES = ("images_with_detections", "images_with_ground_truths", "images_with_both", "found", "scores_outside")
    reductions = {"counts": SUM, "scores": MAX, **dict.fromkeys(("position", *_DETS, *_GTS), CONCAT)}
    counts: np.ndarray  # by ``NAMES``
    scores: np.ndarray | None  # the negative of the lowest score, and the highest score
    position: RowBuffer  # of the images of the sample

    def _clear(self) -> None:
        super()._clear()
        self.counts = np.zeros(len(self.NAMES), dtype=np.int64)
        self._end: int | None = None  # images at later positions cannot be in the sample

    def update(self, batch: DetectionBatch, found: int, position: np.ndarray) -> DiagnosisState:
        """Add images at these positions; ``found`` as in :class:`~functional.detection.matching.ImageMatches`."""
        detections, gts = batch.detections, batch.ground_truths
        with_dets, with_gts = np.zeros((2, batch.num_images), dtype=bool)
        with_dets[detections.image] = True
        with_gts[gts.image[~gts.ignored]] = True
        outside = 0
        if len(detections):
            low, high = float(detections.scores.min()), float(detections.scores.max())
            self.add("scores", np.array([-low, high]))
            if low < 0 or high > 1:
                outside = int(np.count_nonzero((detections.scores < 0) | (detections.scores > 1)))
        counts = [np.count_nonzero(images) for images in (with_dets, with_gts, with_dets & with_gts)]
        self.add("counts", np.array([*counts, found, outside], dtype=np.int64))
        if self._end is not None:
            with_gts &= position < self._end
        chosen = np.flatnonzero(with_gts)
        if len(chosen):
            self._add_boxes(batch, position, chosen[np.argsort(position[chosen])[:SAMPLE_IMAGES]])
        return self

    def _add_boxes(self, batch: DetectionBatch, position: np.ndarray, chosen: np.ndarray) -> None:
        number = np.full(batch.num_images, -1)
        number[chosen] = np.arange(len(chosen))

        def chosen_rows(rows: Any) -> Any:
            kept = np.flatnonzero(number[rows.image] >= 0)
            return replace(rows.take(kept), image=number[rows.image[kept]])

        sample = bounding_box_sample(
            DetectionBatch(chosen_rows(batch.detections), chosen_rows(batch.ground_truths), len(chosen))
        )
        places = position[chosen]
        self.add("position", places)
        for names, rows in ((_DETS, sample.detections), (_GTS, sample.ground_truths)):
            boxes = rows.boxes.array.astype(np.float32)
            for name, column in zip(names, (places[rows.image].astype(np.int32), boxes, rows.labels.astype(np.int32))):
                self.add(name, column)
        if len(self.position) >= SAMPLE_IMAGES:
            arrays = self._first_images()
            self._end = int(arrays["position"][-1])
            for name, column in arrays.items():
                setattr(self, name, RowBuffer.of(column))

    def _first_images(self) -> dict[str, np.ndarray]:
        """The columns of the first images of the sample, sorted by image."""
        arrays: dict[str, Any] = self.arrays()
        position = np.sort(arrays["position"])[:SAMPLE_IMAGES]
        columns = {"position": position}
        for names in (_DETS, _GTS):
            image = arrays[names[0]]
            order = stable_order(image)
            order = order[image[order] <= position[-1]]
            columns.update({name: arrays[name][order] for name in names})
        return columns

    def renumbered(self, numbers: np.ndarray) -> DiagnosisState:
        """The same sample with ``numbers[position]`` for every image; the order of the images must stay."""
        arrays = self.arrays()
        for name in ("position", "image", "gt_image"):
            value = arrays[name]
            arrays[name] = None if value is None else numbers[value].astype(value.dtype)
        return self.with_arrays(arrays)

    @property
    def counts_by_name(self) -> dict[str, int]:
        """The counts of all images."""
        return dict(zip(self.NAMES, self.counts.tolist()))

    def sample(self) -> DetectionBatch | None:
        """The boxes of the first images with ground truths; None without any."""
        if not len(self.position):
            return None
        columns = self._first_images()
        position = columns["position"]
        (image, box, label), (gt_image, gt_box, gt_label) = ([columns[name] for name in part] for part in (_DETS, _GTS))
        detections = Detections(np.searchsorted(position, image), Boxes(box), np.zeros(len(image)), label)
        ground_truths = GroundTruths(np.searchsorted(position, gt_image), Boxes(gt_box), gt_label)
        return DetectionBatch(detections, ground_truths, len(position))
