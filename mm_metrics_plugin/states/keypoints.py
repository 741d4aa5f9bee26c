"""The state of key points. The objects of an image may come in several samples, so they are matched at the end."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np

from mm_metrics_plugin.functional._arrays import stable_order
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry.keypoints import KeyPoints, sigmas_of
from mm_metrics_plugin.functional.detection.keypoint_scores import oks_nms
from mm_metrics_plugin.states.base import CONCAT, Batch, State
from mm_metrics_plugin.states.detection import DetectionState

_SAMPLES = ("dets", "gts", "key", "text", "id", "position")
_DETS = ("keypoints", "score", "precision", "label", "nms_area")
_GTS = ("gt_keypoints", "gt_boxes", "gt_label", "gt_crowd", "gt_area", "gt_id")


class KeyPointBatch(Batch):
    """The key points of the samples of a batch, as arrays by name.

    - Of each sample: ``dets`` and ``gts``, the numbers of its detections and ground truths; ``key`` and ``text``, which
      are those of its image, as in :class:`~mm_metrics_plugin.states.detection.ImageBatch`; ``id``, by which samples of
      an image differ unless they are repeated; ``position`` in the dataset.
    - Of each detection, samples in order: ``keypoints`` (N, K, 2), ``score``, ``precision``, ``label`` and
      ``nms_area``.
    - Of each ground truth: ``gt_keypoints`` (M, K, 3), ``gt_boxes`` (M, 4), ``gt_label``, ``gt_crowd``, ``gt_area`` and
      ``gt_id``, by which those of an image differ unless they are repeated.
    """

    def __len__(self) -> int:
        return len(self.columns[0]["key"])

    def without_last(self) -> KeyPointBatch:
        """The batch without its last sample."""
        columns = self.columns[0]
        dropped = {**dict.fromkeys(_DETS, columns["dets"][-1]), **dict.fromkeys(_GTS, columns["gts"][-1])}
        return KeyPointBatch({name: column[: len(column) - dropped.get(name, 1)] for name, column in columns.items()})


class KeyPointState(State):
    """The key points of all samples.

    Args:
        empty: The state that matches them.
        nms_iou_thr: OKS threshold of non-maximum suppression within each image, as in mmpose.
    """

    reductions = dict.fromkeys((*_SAMPLES, *_DETS, *_GTS), CONCAT)

    def __init__(self, empty: DetectionState, nms_iou_thr: float) -> None:
        self.empty_matches = empty
        self.nms_iou_thr = nms_iou_thr
        super().__init__()

    def _clear(self) -> None:
        super()._clear()
        self._matched: DetectionState | None = None

    def update(self, columns: Mapping[str, np.ndarray]) -> KeyPointState:
        """Add the columns of a :class:`KeyPointBatch`."""
        self._matched = None
        for name, column in columns.items():
            self.add(name, column)
        return self

    def matched(self, annotations: KeyPointState | None = None) -> DetectionState:
        """The matches of all images, also of those of ``annotations``; the order of the samples has no influence."""
        if self._matched is None:
            everything = self if annotations is None else self.merge(annotations)
            self._matched = self.empty_matches.empty()
            batch = everything._images()
            if batch is not None:
                self._matched.update(batch, np.arange(batch.num_images))
        return self._matched

    def _images(self) -> DetectionBatch | None:
        """All images, by their keys; None without samples."""
        arrays: dict[str, Any] = self.arrays()
        if arrays["key"] is None:
            return None
        sigmas = sigmas_of(arrays["gt_keypoints"].shape[1], self.empty_matches.settings.sigmas)
        image = _numbered(arrays["text"], arrays["key"])
        samples = _distinct(image, arrays["id"], arrays["position"])
        rank = np.full(len(image), -1)
        rank[samples] = np.arange(len(samples))

        def rows_of(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            """The rows of the samples, the place of their sample in the order, and their image."""
            place = np.repeat(rank, counts)
            rows = np.flatnonzero(place >= 0)
            return rows, place[rows], np.repeat(image, counts)[rows]

        rows, place, det_image = rows_of(arrays["dets"])
        order = stable_order(place)
        dets = [arrays[name][rows[order]] for name in _DETS]
        points = KeyPoints(dets[0], sigmas)
        detections = Detections(det_image[order], points, dets[1], dets[3], dets[2])
        detections = detections.take(oks_nms(points, dets[1], det_image[order], self.nms_iou_thr, dets[4]))
        rows, place, gt_image = rows_of(arrays["gts"])
        order = _distinct(gt_image, arrays["gt_id"][rows], place)
        array, boxes, labels, crowd, area = (arrays[name][rows[order]] for name in _GTS[:-1])
        ground_truths = GroundTruths(gt_image[order], KeyPoints(array, sigmas, boxes), labels, crowd, area)
        return DetectionBatch(detections, ground_truths, int(image.max()) + 1)


def _numbered(*keys: np.ndarray) -> np.ndarray:
    """The rank of each row among the distinct rows, sorted by the last key first."""
    order = np.lexsort(keys)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(np.append(False, _differs(*(key[order] for key in keys))))
    return number


def _distinct(image: np.ndarray, ids: np.ndarray, position: np.ndarray) -> np.ndarray:
    """The first row of each image and id by position, in the order of images and ids."""
    order = stable_order(image, ids, position)
    return np.asarray(order[np.append(True, _differs(image[order], ids[order]))[: len(order)]])


def _differs(*keys: np.ndarray) -> np.ndarray:
    """Whether a row differs from the one before, from the second row on."""
    return np.asarray(np.logical_or.reduce([key[1:] != key[:-1] for key in keys]))
