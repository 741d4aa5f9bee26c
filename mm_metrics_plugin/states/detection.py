"""States of a detector: confusion matrices, matched detections, examples.

Every image is matched once, when it is added. Only the results of matching are kept.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from mm_metrics_plugin.functional._arrays import map_in_order, stable_order
from mm_metrics_plugin.functional.detection.confusion_rules import BACKGROUND_TYPES, RuleCounts
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.functional.detection.examples import Examples, ImageBoxes, Members, WorstImages
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.matching import BatchCounts, ImageMatches, match_images
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.states.base import CONCAT, SUM, RowBuffer, State, StateGroup
from mm_metrics_plugin.states.counts import MatrixState
from mm_metrics_plugin.states.matches import MatchState

RULE_COUNTS = ("detections_ignored", "ground_truths_ignored", "duplicates")
EXAMPLE_GROUPS: dict[str, Any] = {"members": Members, "images": WorstImages, "boxes": ImageBoxes}
_DETECTIONS_AT_ONCE = 1 << 17  # matched at a time


class RuleState(MatrixState):
    """The confusion matrix and the counts of one matching rule.

    Example:
        >>> matrix, types = np.array([[1, 0], [2, 0]]), np.array([[0], [1], [1]])
        >>> state = RuleState(1).update(RuleCounts(matrix, types, np.array([3]), np.array([1]), 0, 0))
        >>> state.matrix.tolist(), state.counts_by_name["detections"], state.false_positives.tolist()
        ([[1, 0], [2, 0]], 3, [[0], [1], [1]])
    """

    reductions = {**MatrixState.reductions, "counts": SUM, "background_types": SUM, "used": SUM}
    counts: np.ndarray
    background_types: np.ndarray
    used: np.ndarray
    background_rows = 1

    def update(self, counts: RuleCounts) -> RuleState:
        """Add the counts of some images."""
        self.add_matrix(counts.matrix)
        self.add("background_types", counts.background_types)
        self.add("used", np.stack([counts.ground_truths, counts.detections]))
        self.add("counts", np.array([getattr(counts, name) for name in RULE_COUNTS], dtype=np.int64))
        return self

    @property
    def false_positives(self) -> np.ndarray:
        """(types, classes) the detections in the background row by ``BACKGROUND_TYPES``."""
        if self.background_types is None:
            return np.zeros((len(BACKGROUND_TYPES), self.num_classes), dtype=np.int64)
        return self.background_types

    @property
    def used_per_class(self) -> np.ndarray:
        """(2, classes) ground truths and detections used."""
        return np.zeros((2, self.num_classes), dtype=np.int64) if self.used is None else self.used

    @property
    def counts_by_name(self) -> dict[str, int]:
        """All counts by name, and by how much rows and columns sum to more than ground truths and detections."""
        ground_truths, detections = self.used_per_class.sum(axis=1).tolist()
        others = [0] * len(RULE_COUNTS) if self.counts is None else self.counts.tolist()
        matrix = self.matrix
        return {
            "detections": detections,
            "ground_truths": ground_truths,
            **dict(zip(RULE_COUNTS, others)),
            "ground_truths_counted_again": int(matrix[:-1].sum()) - ground_truths,
            "detections_counted_again": int(matrix[:, :-1].sum()) - detections,
        }


class CountState(State):
    """Counts that do not depend on the matching rule."""

    reductions = {"counts": SUM}
    counts: np.ndarray
    NAMES = (*BatchCounts._fields, "detections_suppressed")

    def update(self, counts: BatchCounts, suppressed: int) -> CountState:
        """Add the counts of some images."""
        self.add("counts", np.array([*counts, suppressed], dtype=np.int64))
        return self

    @property
    def counts_by_name(self) -> dict[str, int]:
        """The counts by name."""
        return dict(zip(self.NAMES, [0] * len(self.NAMES) if self.counts is None else self.counts.tolist()))


class ExampleState(State):
    """The worst members of every cell, and the worst images with their boxes.

    Args:
        num_rules: Number of matching rules that share the members.
        worst_images: Number of images to keep in each of two orders.
    """

    reductions = {f"{group}_{name}": CONCAT for group, kind in EXAMPLE_GROUPS.items() for name in kind._fields}

    def __init__(self, num_rules: int, worst_images: int) -> None:
        self.num_rules = num_rules
        self.worst_images = worst_images
        super().__init__()

    def update(self, examples: Examples, order: np.ndarray) -> ExampleState:
        """Add examples of some images whose positions are ``order[:, 1]``, and keeps the worst of all."""
        position = order[:, 1].astype(np.int32)
        for group, columns in examples._asdict().items():
            for name, column in columns._asdict().items():
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
        self._keep_worst()
        arrays = self.arrays()
        if arrays["members_cell"] is None:
            return None
        return Examples(
            *(kind(*(arrays[f"{group}_{name}"] for name in kind._fields)) for group, kind in EXAMPLE_GROUPS.items())
        )

    def _keep_worst(self) -> None:
        arrays: dict[str, Any] = self.arrays()
        if arrays["members_cell"] is None:
            return
        members = Members(*(arrays[f"members_{name}"] for name in Members._fields)).worst(self.num_rules)
        images = WorstImages(*(arrays[f"images_{name}"] for name in WorstImages._fields))
        kept = images.worst(self.worst_images)
        kept = kept[np.argsort(images.image[kept])]  # the order does not depend on that of the batches
        images = WorstImages(*(column[kept] for column in images))
        rows = np.flatnonzero(np.isin(arrays["boxes_image"], images.image))
        rows = rows[stable_order(arrays["boxes_image"][rows])]
        boxes = ImageBoxes(*(arrays[f"boxes_{name}"][rows] for name in ImageBoxes._fields))
        for group, columns in (("members", members), ("images", images), ("boxes", boxes)):
            for name, column in columns._asdict().items():
                setattr(self, f"{group}_{name}", RowBuffer.of(column))


class DetectionState(StateGroup):
    """Everything that is accumulated of a detector, from one matching pass.

    Args:
        num_classes: Number of classes without background.
        settings: Thresholds and matching rules.
        table: The ``kind`` of the :class:`MatchState`, or ``'none'``.
        worst_images: Number of worst images to keep in each order, with examples; None: no examples.

    Example:
        >>> from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
        >>> detections = Detections([0, 0], [[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [0, 0])
        >>> batch = DetectionBatch(detections, GroundTruths([0], [[0, 0, 10, 10]], [0]), 1)
        >>> state = DetectionState(1, DetectionSettings()).update(batch, np.array([0]))
        >>> state.rule("coco").matrix.tolist(), state.counts_by_name["images"], len(state.table().score)
        ([[1, 0], [1, 0]], 1, 2)
    """

    def __init__(
        self, num_classes: int, settings: DetectionSettings, *, table: str = "full", worst_images: int | None = None
    ) -> None:
        self.num_classes = num_classes
        self.settings = settings
        self.table_kind = table
        self.worst_images = worst_images
        members: dict[str, State] = {"counts": CountState()}
        members.update({rule: RuleState(num_classes) for rule in settings.matching})
        if table != "none":
            members["matches"] = MatchState(num_classes, settings, kind=table)
        if worst_images is not None:
            members["examples"] = ExampleState(len(settings.matching), worst_images)
        super().__init__(**members)

    def update(
        self, batch: DetectionBatch, order: Any, texts: np.ndarray | None = None, names: Sequence[Any] | None = None
    ) -> DetectionState:
        """Match the images, block by block; the arguments are those of :class:`ImageBatch`.

        Raises:
            MetricInputError: More pairs overlap in one image than memory allows.
        """
        names = range(batch.num_images) if names is None else names
        order = np.asarray(order, dtype=np.int64)
        if order.ndim == 1:
            order = np.stack([order, order], axis=1)
        several = len(batch.detections) > _DETECTIONS_AT_ONCE
        if several and "matches" in self.members:
            self["matches"].reserve(len(batch.detections), len(batch.ground_truths))

        def match(numbered: tuple[int, DetectionBatch]) -> tuple[slice, int, ImageMatches]:
            start, block = numbered
            rows = slice(start, start + block.num_images)
            return (rows, *self._match(block, names[rows]))

        blocks = batch.blocks(_DETECTIONS_AT_ONCE)
        for rows, suppressed, matches in map_in_order(match, blocks) if several else map(match, blocks):
            self._add(matches, suppressed, order[rows], None if texts is None else texts[rows])
        return self

    def _match(self, batch: DetectionBatch, names: Sequence[Any]) -> tuple[int, ImageMatches]:
        """The number of detections that NMS removes, and the matches of the others."""
        suppressed = 0
        if self.settings.nms_iou_thr is not None:
            kept = batch.suppressed(self.settings.nms_iou_thr)
            suppressed, batch = len(batch.detections) - len(kept.detections), kept
        return suppressed, match_images(
            batch,
            self.settings,
            num_classes=self.num_classes,
            table=self.table_kind,
            worst_images=self.worst_images,
            names=names,
        )

    def _add(self, matches: ImageMatches, suppressed: int, order: np.ndarray, texts: np.ndarray | None) -> None:
        self["counts"].update(matches.counts, suppressed)
        for rule, counts in matches.rules.items():
            self[rule].update(counts)
        if matches.table is not None:
            self["matches"].update(matches.table, order, texts)
        if matches.examples is not None:
            self["examples"].update(matches.examples, order)

    def rule(self, name: str) -> RuleState:
        """The state of one matching rule."""
        state: RuleState = self[name]
        return state

    @property
    def counts_by_name(self) -> dict[str, int]:
        """The counts that do not depend on the matching rule."""
        counts: CountState = self["counts"]
        return counts.counts_by_name

    def table(self) -> MatchTable | None:
        """The matched detections; None without images or with ``table='none'``."""
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
