"""States of a detector: confusion matrices, matched detections, examples.

Every image is matched once, when it is added. Only the results of matching are kept.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Callable, Sequence

import numpy as np
import numpy.typing as npt

from mm_metrics_plugin.exceptions import MetricInputError, pluralize
from mm_metrics_plugin.functional._arrays import index_array, map_in_order, stable_order
from mm_metrics_plugin.functional.detection.data import IMAGE_COLUMNS, DetectionBatch
from mm_metrics_plugin.functional.detection.examples import CellExamples, Columns, DrawnShapes, Examples, WorstImages
from mm_metrics_plugin.functional.detection.grid import ASSIGNMENTS, APMatches, report_grid
from mm_metrics_plugin.functional.detection.match_table import MatchDetails, MatchTable, is_gt_column
from mm_metrics_plugin.functional.detection.matching import FULL, KEEP, MATRIX, BatchCounts, ImageMatches, match_images
from mm_metrics_plugin.functional.detection.rules import BACKGROUND_TYPES, RuleCounts
from mm_metrics_plugin.settings import DetectionSettings, require_choice, require_int
from mm_metrics_plugin.states.base import CONCAT, SUM, Batch, RowBuffer, State, StateGroup
from mm_metrics_plugin.states.counts import MatrixState

RULE_COUNTS = ("detections_ignored", "ground_truths_ignored", "duplicates")
EXAMPLE_TABLES: dict[str, type[Columns]] = {"cells": CellExamples, "images": WorstImages, "shapes": DrawnShapes}
NO_NUMBER = np.iinfo(np.int64).max  # key of images whose id is not a number, which come last
ORDER_COLUMNS = ("images", "texts", "text_positions")
_COLUMNS = ("image", "label", "score", "precision", "matched", "ignored", "gt_image", "gt_label", "gt_valid")
_DETAILS = tuple(column.name for column in fields(MatchDetails))
_DETECTIONS_AT_ONCE = 1 << 17  # matched at a time


class ImageBatch(Batch):
    """The detections and ground truths of the images of a batch.

    Args:
        batch: Images numbered from 0.
        order: (images, 2) the key of each image, which decides between equal scores, and its unique position; or
            (images,) unique keys.
        texts: (images,) of :func:`encode_texts`, the ids of the images whose key is ``NO_NUMBER``; None without any.
        names: Image names for error messages; indices by default.
    """

    def __init__(
        self,
        batch: DetectionBatch,
        order: np.ndarray,
        texts: np.ndarray | None = None,
        names: Sequence[object] | None = None,
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
    """Texts as bytes of one width that sort like the texts; None is last."""
    encoded = np.array([b"\xff" if text is None else _without_nul(text) for text in texts])
    return encoded.astype(f"S{-(-max(1, encoded.itemsize) // 16) * 16}")  # few widths, so that batches share blocks


def _without_nul(text: str) -> bytes:
    """UTF-8 with NUL and the character 1 written as two bytes, because NumPy strips NUL from the end."""
    return text.encode("utf-8", "surrogatepass").replace(b"\1", b"\1\2").replace(b"\0", b"\1\1")


class RuleState(MatrixState):
    """The confusion matrix and the counts of one matching rule."""

    reductions = {**MatrixState.reductions, "counts": SUM, "background_types": SUM, "used": SUM}
    counts: np.ndarray  # by ``RULE_COUNTS``
    background_types: np.ndarray  # (types, classes) the background row by ``BACKGROUND_TYPES``
    used: np.ndarray  # (2, classes) ground truths and detections
    background_rows = 1

    def _clear(self) -> None:
        super()._clear()
        self.counts = np.zeros(len(RULE_COUNTS), dtype=np.int64)
        self.background_types = np.zeros((len(BACKGROUND_TYPES), self.num_classes), dtype=np.int64)
        self.used = np.zeros((2, self.num_classes), dtype=np.int64)

    def update(self, counts: RuleCounts) -> RuleState:
        """Add the counts of some images."""
        self.add_cells(counts.cells)
        self.add("background_types", counts.background_types)
        self.add("used", np.stack([counts.ground_truths, counts.detections]))
        self.add("counts", np.array([getattr(counts, name) for name in RULE_COUNTS], dtype=np.int64))
        return self

    @property
    def counts_by_name(self) -> dict[str, int]:
        """All counts, and by how much rows and columns sum to more than ground truths and detections."""
        ground_truths, detections = self.used.sum(axis=1).tolist()
        matrix = self.matrix
        return {
            "detections": detections,
            "ground_truths": ground_truths,
            **dict(zip(RULE_COUNTS, self.counts.tolist())),
            "ground_truths_counted_again": int(matrix[:-1].sum()) - ground_truths,
            "detections_counted_again": int(matrix[:, :-1].sum()) - detections,
        }


class CountState(State):
    """Counts that do not depend on the matching rule."""

    reductions = {"counts": SUM}
    counts: np.ndarray
    NAMES = (*BatchCounts._fields, "detections_suppressed")

    def _clear(self) -> None:
        self.counts = np.zeros(len(self.NAMES), dtype=np.int64)

    def update(self, counts: BatchCounts, suppressed: int) -> CountState:
        """Add the counts of some images."""
        self.add("counts", np.array([*counts, suppressed], dtype=np.int64))
        return self


class MatchState(State):
    """The columns of a :class:`MatchTable`.

    ``keep='scores'`` keeps the columns of average precision, curves and intervals (27 bytes per detection with float32
    scores), ``'full'`` also those of error types (47).
    """

    def __init__(self, num_classes: int, settings: DetectionSettings, *, keep: str = FULL) -> None:
        self.num_classes = num_classes
        self.settings = settings
        self.keep = keep
        own_ap = APMatches._fields if settings.ap_convention.assignment in ASSIGNMENTS else ()
        self.table_columns = (*_COLUMNS, *own_ap, *(_DETAILS if keep == FULL else ()))
        self.reductions = dict.fromkeys((*ORDER_COLUMNS, *IMAGE_COLUMNS, *self.table_columns), CONCAT)
        super().__init__()

    def update(self, table: MatchTable, order: np.ndarray, texts: np.ndarray | None = None) -> MatchState:
        """Add the rows of some images; ``order`` (images, 2) and ``texts`` are those of :class:`ImageBatch`."""
        self.add("images", order)
        if texts is not None:
            without_number = order[:, 0] == NO_NUMBER
            self.add("texts", texts[without_number])
            self.add("text_positions", order[without_number, 1])
        for name, column in table.image_columns.items():
            self.add(name, column)
        position = order[:, 1].astype(np.int32)
        for name in self.table_columns:
            column = getattr(table if hasattr(table, name) else table.details, name)
            self.add(name, position[column] if name in ("image", "gt_image") else column)
        return self

    def merge(self, other: MatchState) -> MatchState:
        """A new state of all images of both. Positions of the other are shifted if both states share some."""
        images = [state.arrays()["images"] for state in (self, other)]
        positions, other_positions = (np.empty(0, dtype=np.int64) if order is None else order[:, 1] for order in images)
        if len(np.intersect1d(positions, other_positions)):
            offset = positions.max() + 1
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
        number = _image_numbers(*(arrays[name] for name in ORDER_COLUMNS))
        rows = np.argsort(number[arrays["images"][:, 1]])
        image_columns = {name: arrays[name] for name in IMAGE_COLUMNS if arrays[name] is not None}
        for name, column in image_columns.items():
            if len(column) != len(rows):
                raise MetricInputError(
                    f"'{name}' must be given for all images or for none (found {len(column)} of {len(rows)})"
                )
        columns = {name: arrays[name] for name in self.table_columns}
        for image_column in ("image", "gt_image"):
            columns[image_column] = image = number[columns[image_column]]
            if (image[1:] < image[:-1]).any():
                order = stable_order(image)
                for name in columns:
                    if is_gt_column(name) == is_gt_column(image_column):
                        columns[name] = columns[name][order]
        details = None
        if self.keep == FULL:
            details = MatchDetails(**{name: columns.pop(name) for name in _DETAILS})
        return MatchTable(
            grid=report_grid(self.settings),
            num_classes=self.num_classes,
            num_images=len(arrays["images"]),
            details=details,
            settings=self.settings,
            image_columns={name: column[rows] for name, column in image_columns.items()},
            **columns,
        )


def _keys_and_positions(order: npt.ArrayLike, num_images: int) -> np.ndarray:
    """(images, 2) of the ``order`` of an :class:`ImageBatch`."""
    keys = np.asarray(order)
    if keys.shape not in ((num_images,), (num_images, 2)):
        raise MetricInputError(f"'order' must have {pluralize(num_images, 'row')}, one per image (found {keys.shape})")
    if keys.size and keys.dtype.kind not in "iu":
        raise MetricInputError(f"'order' must be integers (found {keys.dtype})")
    keys = np.stack([keys, keys], axis=1) if keys.ndim == 1 else keys
    index_array("order", keys[:, 1])
    return keys.astype(np.int64, copy=False)


def _image_numbers(images: np.ndarray, texts: np.ndarray | None, text_positions: np.ndarray | None) -> np.ndarray:
    """The number of the image at each position: by key, then by text, then by position."""
    tie = images[:, 1]
    if (np.diff(np.sort(tie)) == 0).any():
        raise MetricInputError("two images have the same position in 'order'; give every image another one")
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


class ExampleState(State):
    """The worst members of every cell, and the worst images (by FN and by FP) with their shapes."""

    reductions = {f"{group}_{name}": CONCAT for group, kind in EXAMPLE_TABLES.items() for name in kind.array_names()}

    def __init__(self, num_rules: int, worst_images: int) -> None:
        self.num_rules = num_rules
        self.worst_images = worst_images
        super().__init__()

    def update(self, examples: Examples, order: np.ndarray) -> ExampleState:
        """Add examples of some images whose positions are ``order[:, 1]``, and keep the worst of all."""
        position = order[:, 1].astype(np.int32)
        for group, table in examples._asdict().items():
            for name, column in table.to_arrays().items():
                self.add(f"{group}_{name}", position[column] if name == "image" else column)
        self._keep_worst()
        return self

    def merge(self, other: ExampleState) -> ExampleState:
        """The worst of both."""
        result = super().merge(other)
        result._keep_worst()
        return result

    def renumbered(self, numbers: np.ndarray) -> ExampleState:
        """The same examples with ``numbers[position]`` for every image; the order of the images must stay."""
        arrays = self.arrays()
        for name, value in arrays.items():
            if name.endswith("_image") and value is not None:
                arrays[name] = numbers[value].astype(np.int32)
        return self.with_arrays(arrays)

    def examples(self) -> Examples | None:
        """The worst examples; None without images."""
        arrays = self.arrays()
        if arrays["cells_cell"] is None:
            return None
        tables: list[Any] = [
            kind.from_arrays({name: arrays[f"{group}_{name}"] for name in kind.array_names()})  # type: ignore[misc]
            for group, kind in EXAMPLE_TABLES.items()
        ]
        cells, images, shapes = tables
        kept = images.worst(self.worst_images)
        images = images.take(kept[np.argsort(images.image[kept])])  # independent of the order of the batches
        rows = np.flatnonzero(np.isin(shapes.image, images.image))
        return Examples(cells.worst(self.num_rules), images, shapes.take(rows[stable_order(shapes.image[rows])]))

    def _keep_worst(self) -> None:
        examples = self.examples()
        for group, table in examples._asdict().items() if examples else ():
            for name, column in table.to_arrays().items():
                setattr(self, f"{group}_{name}", RowBuffer.of(column))


class DetectionState(StateGroup):
    """The states of a detector, updated by one matching pass; ``keep`` and ``worst_images`` as in `match_images`."""

    def __init__(
        self, num_classes: int, settings: DetectionSettings, *, keep: str = FULL, worst_images: int | None = None
    ) -> None:
        self.num_classes = num_classes
        self.settings = settings
        self.keep = keep
        self.worst_images = None if worst_images is None else require_int("worst_images", worst_images, low=0)
        require_choice("keep", keep, KEEP)
        members: dict[str, State] = {"counts": CountState()}
        members.update({rule: RuleState(num_classes) for rule in settings.matching})
        if keep != MATRIX:
            members["matches"] = MatchState(num_classes, settings, keep=keep)
        if worst_images is not None:
            members["examples"] = ExampleState(len(settings.matching), worst_images)
        super().__init__(**members)

    def update(
        self,
        batch: DetectionBatch,
        order: npt.ArrayLike,
        texts: np.ndarray | None = None,
        names: Sequence[object] | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> DetectionState:
        """Match the images, block by block; arguments as in :class:`ImageBatch`.

        ``on_progress`` receives the fraction that is done.
        """
        names = range(batch.num_images) if names is None else names
        order = _keys_and_positions(order, batch.num_images)
        several = len(batch.detections) > _DETECTIONS_AT_ONCE
        if several and "matches" in self.members:
            self["matches"].reserve(len(batch.detections), len(batch.ground_truths))

        def match(numbered: tuple[int, DetectionBatch]) -> tuple[slice, int, ImageMatches]:
            """The images of a block, the number of detections that NMS removes, and the matches of the others."""
            start, block = numbered
            rows, num_dets = slice(start, start + block.num_images), len(block.detections)
            if self.settings.nms_iou_thr is not None:
                block = block.suppressed(self.settings.nms_iou_thr)
            matches = match_images(
                block,
                self.settings,
                num_classes=self.num_classes,
                keep=self.keep,
                worst_images=self.worst_images,
                names=names[rows],
            )
            return rows, num_dets - len(block.detections), matches

        blocks = batch.blocks(_DETECTIONS_AT_ONCE)
        for rows, suppressed, matches in map_in_order(match, blocks) if several else map(match, blocks):
            self["counts"].update(matches.counts, suppressed)
            for rule, counts in matches.rules.items():
                self[rule].update(counts)
            if matches.table is not None:
                self["matches"].update(matches.table, order[rows], None if texts is None else texts[rows])
            if matches.examples is not None:
                self["examples"].update(matches.examples, order[rows])
            if on_progress is not None:
                on_progress(rows.stop / batch.num_images)
        return self

    def rule(self, name: str) -> RuleState:
        """The state of one matching rule."""
        state: RuleState = self[name]
        return state

    @property
    def counts_by_name(self) -> dict[str, int]:
        """The counts that do not depend on the matching rule."""
        return dict(zip(CountState.NAMES, self["counts"].counts.tolist()))

    def table(self) -> MatchTable | None:
        """The matched detections; None without images or with ``keep='matrix'``."""
        return self["matches"].table() if "matches" in self.members else None

    def examples(self) -> Examples | None:
        """The worst examples; None without images or without ``worst_images``."""
        return self["examples"].examples() if "examples" in self.members else None

    def renumbered(self, numbers: np.ndarray) -> DetectionState:
        """The same with ``numbers[position]`` for every image; the order of the images must stay."""
        result = self.empty()
        for name, member in self.members.items():
            has_images = isinstance(member, (MatchState, ExampleState))
            result.members[name] = member.renumbered(numbers) if has_images else member  # type: ignore[attr-defined]
        return result
