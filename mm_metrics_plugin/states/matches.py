"""The matched detections and ground truths of all images, and the order of the images."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Sequence

import numpy as np

from mm_metrics_plugin.functional._arrays import stable_order
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.functional.detection.match_table import MatchDetails, MatchTable, report_grid
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.states.base import CONCAT, Batch, State

NO_NUMBER = np.iinfo(np.int64).max  # the key of images whose id is not a number: after all others
IMAGE_COLUMNS = ("images", "texts", "text_positions")
_AP_COLUMNS = ("image", "label", "score", "matched", "ignored", "gt_image", "gt_label", "gt_counts")
_DETAILS = tuple(column.name for column in fields(MatchDetails))


def is_gt_column(name: str) -> bool:
    """Whether a column of a :class:`MatchTable` has one row per ground truth."""
    return name.startswith("gt_") and name != "gt_index"


class ImageBatch(Batch):
    """The detections and ground truths of the images of a batch.

    Args:
        batch: Images numbered from 0.
        order: (images, 2) the key of each image, which decides between equal scores, and its unique position; or
            (images,) unique keys.
        texts: (images,) of :func:`encode_texts`, the ids of the images whose key is ``NO_NUMBER``; None if none has it.
        names: Names of the images for messages; their numbers by default.

    Example:
        >>> from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
        >>> detections = Detections([0, 1], np.zeros((2, 4)), [0.9, 0.8], [0, 0])
        >>> batch = ImageBatch(DetectionBatch(detections, GroundTruths.empty(), 2), np.array([7, 9]))
        >>> len(batch), len(batch.without_last().batch.detections)
        (2, 1)
    """

    def __init__(
        self,
        batch: DetectionBatch,
        order: np.ndarray,
        texts: np.ndarray | None = None,
        names: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(batch, order, texts, names)
        self.batch = batch

    def __len__(self) -> int:
        return self.batch.num_images

    def without_last(self) -> ImageBatch:
        """The batch without its last image."""
        batch, order, texts, names = self.columns
        return ImageBatch(batch.images(0, len(self) - 1), order[:-1], None if texts is None else texts[:-1], names)


def encode_texts(texts: Sequence[str | None]) -> np.ndarray:
    """Texts as bytes of one width, in the order of the texts; None comes last.

    Example:
        >>> np.argsort(encode_texts(["b", None, "a"])).tolist()
        [2, 0, 1]
    """
    encoded = np.array([b"\xff" if text is None else _without_nul(text) for text in texts])
    return encoded.astype(f"S{-(-max(1, encoded.itemsize) // 16) * 16}")  # few widths, so that batches share blocks


def _without_nul(text: str) -> bytes:
    """UTF-8, in which NUL and the character after it are written as two bytes: NumPy cuts NUL off the end."""
    return text.encode("utf-8", "surrogatepass").replace(b"\1", b"\1\2").replace(b"\0", b"\1\1")


class MatchState(State):
    """Every detection and ground truth, matched: the columns of a :class:`MatchTable`.

    Args:
        num_classes: Number of classes without background.
        settings: The settings of the matching.
        kind: ``'ap'`` keeps what average precision needs (26 bytes per detection with float32 scores), ``'scores'``
            what curves and intervals need too (27), ``'full'`` what error types need too (45).

    Example:
        >>> from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
        >>> from mm_metrics_plugin.functional.detection.matching import match_images
        >>> box = [[0, 0, 10, 10]]
        >>> batch = DetectionBatch(Detections([0], box, [0.9], [0]), GroundTruths([0], box, [0]), 1)
        >>> settings = DetectionSettings()
        >>> table = match_images(batch, settings, num_classes=1).table
        >>> left, right = (MatchState(1, settings).update(table, np.array([[key, key]])) for key in (7, 3))
        >>> left.merge(right).table().image
        array([0, 1], dtype=int32)
    """

    def __init__(self, num_classes: int, settings: DetectionSettings, *, kind: str = "full") -> None:
        self.num_classes = num_classes
        self.settings = settings
        self.kind = kind
        more = {"ap": (), "scores": ("precision",), "full": ("precision", *_DETAILS)}[kind]
        self.table_columns = (*_AP_COLUMNS, *more)
        self.reductions = dict.fromkeys((*IMAGE_COLUMNS, *self.table_columns), CONCAT)
        super().__init__()

    def update(self, table: MatchTable, order: np.ndarray, texts: np.ndarray | None = None) -> MatchState:
        """Add the rows of some images; ``order`` (images, 2) and ``texts`` are those of :class:`ImageBatch`."""
        self.add("images", order)
        if texts is not None:
            without_number = order[:, 0] == NO_NUMBER
            self.add("texts", texts[without_number])
            self.add("text_positions", order[without_number, 1])
        position = order[:, 1].astype(np.int32)
        for name in self.table_columns:
            column = getattr(table if hasattr(table, name) else table.details, name)
            self.add(name, position[column] if name in ("image", "gt_image") else column)
        return self

    def merge(self, other: MatchState) -> MatchState:
        """A new state of all images of both. Positions of the other change if both have the same ones."""
        images = [state.arrays()["images"] for state in (self, other)]
        mine, theirs = (np.empty(0, dtype=np.int64) if order is None else order[:, 1] for order in images)
        if len(np.intersect1d(mine, theirs)):
            offset = mine.max() + 1
            arrays: dict[str, Any] = other.arrays()
            for name in ("image", "gt_image", "text_positions"):
                if arrays[name] is not None:
                    arrays[name] = arrays[name] + arrays[name].dtype.type(offset)
            arrays["images"] = arrays["images"] + np.array([0, offset])
            other = other.with_arrays(arrays)
        return super().merge(other)

    def reserve(self, num_dets: int, num_gts: int) -> None:
        """Reserve memory for this number of detections and ground truths."""
        for name in self.table_columns:
            getattr(self, name).reserve(num_gts if is_gt_column(name) else num_dets)

    def renumbered(self, numbers: np.ndarray) -> MatchState:
        """The same rows with ``numbers[position]`` as the key and the position of every image."""
        arrays: dict[str, Any] = self.arrays()
        for name in ("image", "gt_image", "images"):
            if arrays[name] is not None:
                arrays[name] = numbers[arrays[name]].astype(arrays[name].dtype)
        return self.with_arrays(arrays)

    def table(self) -> MatchTable | None:
        """All rows, images in the order of their keys; None without images."""
        arrays: dict[str, Any] = self.arrays()
        if arrays["images"] is None:
            return None
        number = _image_numbers(*(arrays[name] for name in IMAGE_COLUMNS))
        columns = {name: arrays[name] for name in self.table_columns}
        for image_column in ("image", "gt_image"):
            columns[image_column] = image = number[columns[image_column]]
            if (image[1:] < image[:-1]).any():
                order = stable_order(image)
                for name in columns:
                    if is_gt_column(name) == is_gt_column(image_column):
                        columns[name] = columns[name][order]
        details = None
        if self.kind == "full":
            details = MatchDetails(**{name: columns.pop(name) for name in _DETAILS})
        return MatchTable(
            grid=report_grid(self.settings),
            num_classes=self.num_classes,
            num_images=len(arrays["images"]),
            details=details,
            settings=self.settings,
            **columns,
        )


def _image_numbers(images: np.ndarray, texts: np.ndarray | None, text_positions: np.ndarray | None) -> np.ndarray:
    """The number of the image at each position: by key, then by text, then by position."""
    tie = images[:, 1]
    if texts is not None and text_positions is not None:
        rank = np.empty(len(texts), dtype=np.int64)
        rank[np.lexsort((text_positions, texts))] = np.arange(len(texts))
        by_position = np.argsort(text_positions)
        rows = np.flatnonzero(images[:, 0] == NO_NUMBER)
        tie = tie.copy()
        tie[rows] = rank[by_position[np.searchsorted(text_positions[by_position], images[rows, 1])]]
    order = stable_order(images[:, 0], tie)
    number = np.zeros(int(images[:, 1].max(initial=-1)) + 1, dtype=np.int32)
    number[images[order, 1]] = np.arange(len(order), dtype=np.int32)
    return number
