"""What is accumulated of a detector between batches: confusion matrices, matched detections, examples.

Every image is matched once, when it is seen. Only what came of it is kept, never the input.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional._arrays import map_in_order, stable_order
from mm_metrics_plugin.functional._score_precision import PRECISIONS
from mm_metrics_plugin.functional.detection.confusion_rules import BACKGROUND_TYPES, MISSED, TP, RuleCounts
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.examples import BOX_KINDS, Examples, ImageBoxes, Members, WorstImages
from mm_metrics_plugin.functional.detection.matching import (
    BatchCounts,
    ImageMatches,
    MatchDetails,
    MatchTable,
    match_images,
    report_grid,
)
from mm_metrics_plugin.functional.detection.tide import FIXED, ON_CROWD, TRUE_POSITIVE
from mm_metrics_plugin.settings import MATCHING_RULES, DetectionSettings
from mm_metrics_plugin.states.base import CONCAT, SUM, RowBuffer, State, StateGroup
from mm_metrics_plugin.states.batch import Batch
from mm_metrics_plugin.states.confusion import ConfusionState

NO_NUMBER = np.iinfo(np.int64).max  # the key of images whose id is not a number: after all others
_DETECTIONS_AT_ONCE = 1 << 17  # matched at a time
_RULE_COUNTS = ("detections_ignored", "objects_ignored", "duplicates")
_IMAGES = ("images", "texts", "text_positions")
_AP_COLUMNS = ("image", "label", "score", "matched", "ignored", "gt_image", "gt_label", "gt_counts")
_DETAILS = tuple(one.name for one in fields(MatchDetails))


class ImageBatch(Batch):
    """The detections and ground truths of the images of a batch.

    Args:
        batch: Images numbered from 0.
        order: (images, 2) the key of each image, which decides between equal scores, and its position, which no other
            image has; or (images,) keys that no two images share.
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
        texts: Optional[np.ndarray] = None,
        names: Optional[Sequence[Any]] = None,
    ) -> None:
        super().__init__(batch, order, texts, names)  # type: ignore[arg-type]
        self.batch = batch
        self.order = order
        self.texts = texts
        self.names = names

    def __len__(self) -> int:
        return self.batch.num_images

    def without_last(self) -> ImageBatch:
        """The batch without its last image."""
        texts = None if self.texts is None else self.texts[:-1]
        return ImageBatch(self.batch.images(0, len(self) - 1), self.order[:-1], texts, self.names)


def encode_texts(texts: Sequence[Optional[str]]) -> np.ndarray:
    """Texts as bytes of one width, which sort as the texts do; None comes after all of them.

    Example:
        >>> np.argsort(encode_texts(["b", None, "a"])).tolist()
        [2, 0, 1]
    """
    encoded = np.array([b"\xff" if text is None else _without_nul(text) for text in texts])
    return encoded.astype(f"S{-(-max(1, encoded.itemsize) // 16) * 16}")  # few widths, so that batches share blocks


def _without_nul(text: str) -> bytes:
    """UTF-8, in which NUL and the character after it are written as two bytes: NumPy cuts NUL off the end."""
    return text.encode("utf-8", "surrogatepass").replace(b"\1", b"\1\2").replace(b"\0", b"\1\1")


def _check_whole_numbers(name: str, array: Optional[np.ndarray], shape: Tuple[int, ...]) -> None:
    """Raises a ValueError unless the array has the shape and holds counts."""
    if array is None or array.dtype != np.int64 or array.shape != shape or not _are_counts(array):
        raise ValueError(f"the {name} must be {' by '.join(map(str, shape))} whole numbers of at least 0")


def _are_counts(array: np.ndarray) -> bool:
    return int(array.min(initial=0)) >= 0 and int(array.max(initial=0)) < 1 << 48  # sums stay within int64


class RuleState(ConfusionState):
    """The confusion matrix of a detector under one matching rule, and what was counted.

    Example:
        >>> matrix, types = np.array([[1, 0], [2, 0]]), np.array([[0], [1], [1]])
        >>> state = RuleState(1).update(RuleCounts(matrix, types, np.array([3]), np.array([1]), 0, 0))
        >>> state.matrix.tolist(), state.tally["detections"], state.false_positives.tolist()
        ([[1, 0], [2, 0]], 3, [[0], [1], [1]])
    """

    reductions = {**ConfusionState.reductions, "counts": SUM, "background_types": SUM, "used": SUM}
    counts: np.ndarray
    background_types: np.ndarray
    used: np.ndarray
    background_rows = 1

    def update(self, counts: RuleCounts) -> RuleState:  # type: ignore[override]
        """Adds what some images gave."""
        self.add_matrix(counts.matrix)
        self.add("background_types", counts.background_types)
        self.add("used", np.stack([counts.objects, counts.detections]))
        self.add("counts", np.array([getattr(counts, name) for name in _RULE_COUNTS], dtype=np.int64))
        return self

    def check(self, name: str, *, sums: bool) -> None:
        """Raises a ValueError if the arrays, read from a file, cannot be those of a rule.

        Args:
            name: Of the rule.
            sums: Whether rows and columns of the matrix add up to ground truths and detections.
        """
        size = self.num_classes
        _check_whole_numbers(f"matrix of {name}", self.cells, (1, size + 1, size + 1))
        _check_whole_numbers(f"counts of {name}", self.counts, (len(_RULE_COUNTS),))
        _check_whole_numbers(f"objects and detections of {name}", self.used, (2, size))
        _check_whole_numbers(
            f"types of false positives of {name}", self.background_types, (len(BACKGROUND_TYPES), size)
        )
        matrix = self.matrix
        if not np.array_equal(self.background_types.sum(axis=0), matrix[-1, :-1]):
            raise ValueError(f"the types of false positives of {name!a} must add up to the background row")
        if sums and not np.array_equal(self.used, [matrix[:-1].sum(axis=1), matrix[:, :-1].sum(axis=0)]):
            raise ValueError(f"the matrix of {name!a} must add up to its objects and detections")

    @property
    def false_positives(self) -> np.ndarray:
        """(types, classes) how many detections in the background row are of each of ``BACKGROUND_TYPES``."""
        if self.background_types is None:
            return np.zeros((len(BACKGROUND_TYPES), self.num_classes), dtype=np.int64)
        return self.background_types

    @property
    def used_per_class(self) -> np.ndarray:
        """(2, classes) ground truths and detections used."""
        return np.zeros((2, self.num_classes), dtype=np.int64) if self.used is None else self.used

    @property
    def tally(self) -> Dict[str, int]:
        """Everything counted, by name; and how much more than objects and detections rows and columns sum to."""
        objects, detections = self.used_per_class.sum(axis=1).tolist()
        others = [0] * len(_RULE_COUNTS) if self.counts is None else self.counts.tolist()
        matrix = self.matrix
        return {
            "detections": detections,
            "objects": objects,
            **dict(zip(_RULE_COUNTS, others)),
            "objects_counted_again": int(matrix[:-1].sum()) - objects,
            "detections_counted_again": int(matrix[:, :-1].sum()) - detections,
        }


class CountState(State):
    """What is counted whatever the matching rule."""

    reductions = {"counts": SUM}
    counts: np.ndarray
    NAMES = (*BatchCounts._fields, "detections_suppressed")

    def update(self, counts: BatchCounts, suppressed: int) -> CountState:
        """Adds the counts of some images."""
        self.add("counts", np.array([*counts, suppressed], dtype=np.int64))
        return self

    @property
    def tally(self) -> Dict[str, int]:
        """By name."""
        return dict(zip(self.NAMES, [0] * len(self.NAMES) if self.counts is None else self.counts.tolist()))


class MatchState(State):
    """Every detection and ground truth, matched: the columns of a :class:`MatchTable`.

    Args:
        num_classes: Number of classes without background.
        settings: What was matched.
        kind: What is kept: ``'ap'`` for average precision (26 bytes per detection with float32 scores), ``'scores'``
            for curves and intervals as well (27), ``'full'`` for error types as well (45).

    Example:
        >>> from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
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
        self.reductions = dict.fromkeys((*_IMAGES, *_AP_COLUMNS, *more), CONCAT)
        super().__init__()

    def update(self, table: MatchTable, order: np.ndarray, texts: Optional[np.ndarray] = None) -> MatchState:
        """Adds the rows of some images.

        Args:
            table: Of the images.
            order: (images, 2) key and position of each image.
            texts: As in :class:`ImageBatch`.
        """
        self.add("images", order)
        if texts is not None:
            without_number = order[:, 0] == NO_NUMBER
            self.add("texts", texts[without_number])
            self.add("text_positions", order[without_number, 1])
        position = order[:, 1].astype(np.int32)
        for name in self.reductions:
            if name in ("image", "gt_image"):
                self.add(name, position[getattr(table, name)])
            elif name not in _IMAGES:
                self.add(name, getattr(table if hasattr(table, name) else table.details, name))
        return self

    def merge(self, other: MatchState) -> MatchState:
        """A new state of all images of both. Positions of the other move if both have the same ones."""
        positions = [state.arrays()["images"] for state in (self, other)]
        mine, theirs = (np.empty(0, dtype=np.int64) if one is None else one[:, 1] for one in positions)
        if len(np.intersect1d(mine, theirs)):
            arrays: Dict[str, Any] = other.arrays()
            for name in ("image", "gt_image", "text_positions"):
                if arrays[name] is not None:
                    arrays[name] = arrays[name] + arrays[name].dtype.type(mine.max() + 1)
            arrays["images"] = arrays["images"] + np.array([0, mine.max() + 1])
            other = other.with_arrays(arrays)
        return super().merge(other)

    def reserve(self, num_dets: int, num_gts: int) -> None:
        """Makes room for so many detections and ground truths at once."""
        for name in self.reductions:
            if name not in _IMAGES:
                of_gts = name.startswith("gt_") and name != "gt_index"
                getattr(self, name).reserve(num_gts if of_gts else num_dets)

    def renumbered(self, places: np.ndarray) -> MatchState:
        """The same rows with ``places[position]`` for the key and the position of every image."""
        arrays: Dict[str, Any] = self.arrays()
        for name in ("image", "gt_image", "images"):
            if arrays[name] is not None:
                arrays[name] = places[arrays[name]].astype(arrays[name].dtype)
        return self.with_arrays(arrays)

    def check(self, num_images: int) -> None:
        """Raises a ValueError if the arrays, read from a file, cannot be those of so many images."""
        arrays: Dict[str, Any] = self.arrays()
        labels = self.num_classes
        expected = match_images(
            DetectionBatch(Detections.empty(), GroundTruths.empty(), 0),
            self.settings,
            num_classes=labels,
            table=self.kind,
        ).table
        rows, gt_rows = (len(arrays[name]) for name in ("image", "gt_image"))
        for name, array in arrays.items():
            if name in _IMAGES:
                continue
            like: Any = getattr(expected if hasattr(expected, name) else expected.details, name)  # type: ignore[union-attr]
            length = gt_rows if name.startswith("gt_") and name != "gt_index" else rows
            if (name != "score" and array.dtype != like.dtype) or array.shape != (length, *like.shape[1:]):
                raise ValueError(f"{name!a} must be {like.dtype} of shape {(length, *like.shape[1:])}")
        if arrays["texts"] is not None or arrays["text_positions"] is not None:
            raise ValueError("images must be numbered")
        places = np.repeat(np.arange(num_images)[:, None], 2, axis=1)
        if arrays["images"].dtype != np.int64 or not np.array_equal(
            arrays["images"][np.argsort(arrays["images"][:, 0])], places
        ):
            raise ValueError(f"'images' must be the numbers from 0 to {num_images - 1}")
        limits = {
            "image": num_images,
            "gt_image": num_images,
            "label": labels,
            "gt_label": labels,
            "precision": len(PRECISIONS),
        }
        for name, limit in limits.items():
            if (
                name in arrays
                and len(arrays[name])
                and not 0 <= int(arrays[name].min()) <= int(arrays[name].max()) < limit
            ):
                raise ValueError(f"{name!a} must be from 0 to {limit - 1}")
        if arrays["score"].dtype not in (np.float32, np.float64) or not np.isfinite(arrays["score"]).all():
            raise ValueError("'score' must be finite")
        unused = ~report_grid(self.settings).word_masks()
        for name in ("matched", "ignored", "gt_counts"):
            if (arrays[name] & unused).any():
                raise ValueError(f"{name!a} must have no bits of other settings")
        if self.kind == "full":
            self._check_details(arrays, num_images)

    @staticmethod
    def _check_details(arrays: Dict[str, Any], num_images: int) -> None:
        for name, of_image, least in (
            ("det_index", "image", 0),
            ("gt_index", "gt_image", -1),
            ("error_gt", "gt_image", -1),
        ):
            most = np.bincount(arrays[of_image], minlength=num_images)[arrays["image"]]
            if not ((arrays[name] >= least) & (arrays[name] < most)).all():
                raise ValueError(f"{name!a} must be a position in the image{', or -1' * (least < 0)}")
        limits = {"outcome": MISSED, "gt_outcome": MISSED + 1, "error_type": 2 * FIXED, "overlap": 1 + 1e-6}
        for name, limit in limits.items():
            if not ((arrays[name] >= 0) & (arrays[name] < limit)).all():
                raise ValueError(f"{name!a} must be from 0 to below {limit:g}")
        if ((arrays["error_type"] & (ON_CROWD - 1)) > TRUE_POSITIVE).any():
            raise ValueError("'error_type' must be a known type")
        if (((arrays["error_type"] & FIXED) != 0) & (arrays["error_gt"] < 0)).any():
            raise ValueError("'error_gt' must be known of every error that can be fixed")
        if not np.isfinite(arrays["gt_area"]).all():
            raise ValueError("'gt_area' must be finite")

    def table(self) -> Optional[MatchTable]:
        """Everything seen, images in the order of their keys; None if nothing was."""
        arrays: Dict[str, Any] = self.arrays()
        if arrays["images"] is None:
            return None
        number = _image_numbers(*(arrays[name] for name in _IMAGES))
        columns = {name: arrays[name] for name in self.reductions if name not in _IMAGES}
        of_gts = [name for name in columns if name.startswith("gt_") and name != "gt_index"]
        of_dets = [name for name in columns if name not in of_gts]
        for image_name, names in (("image", of_dets), ("gt_image", of_gts)):
            columns[image_name] = image = number[columns[image_name]]
            if (image[1:] < image[:-1]).any():
                order = stable_order(image)
                columns.update({name: columns[name][order] for name in names})
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


def _image_numbers(images: np.ndarray, texts: Optional[np.ndarray], text_positions: Optional[np.ndarray]) -> np.ndarray:
    """The number of the image at each position: by key, then by text, then by position."""
    tie = images[:, 1]
    if texts is not None and text_positions is not None:
        place = np.empty(len(texts), dtype=np.int64)
        place[np.lexsort((text_positions, texts))] = np.arange(len(texts))
        by_position = np.argsort(text_positions)
        rows = np.flatnonzero(images[:, 0] == NO_NUMBER)
        tie = tie.copy()
        tie[rows] = place[by_position[np.searchsorted(text_positions[by_position], images[rows, 1])]]
    order = stable_order(images[:, 0], tie)
    number = np.zeros(int(images[:, 1].max(initial=-1)) + 1, dtype=np.int32)
    number[images[order, 1]] = np.arange(len(order), dtype=np.int32)
    return number


class ExampleState(State):
    """The worst members of every cell and the worst images with their boxes: never more than a page can show.

    Args:
        num_rules: How many matching rules share the members.
        worst_images: How many images are kept in each of two orders.
    """

    reductions = {
        **{f"members_{name}": CONCAT for name in Members._fields},
        **{f"images_{name}": CONCAT for name in WorstImages._fields},
        **{f"boxes_{name}": CONCAT for name in ImageBoxes._fields},
    }

    def __init__(self, num_rules: int, worst_images: int) -> None:
        self.num_rules = num_rules
        self.worst_images = worst_images
        super().__init__()

    def update(self, examples: Examples, order: np.ndarray) -> ExampleState:
        """Adds examples of some images whose places are ``order[:, 1]``, and keeps the worst of all."""
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

    def renumbered(self, places: np.ndarray) -> ExampleState:
        """The same examples with ``places[position]`` for every image; the order of the images must stay."""
        arrays = self.arrays()
        for name, value in arrays.items():
            if name.endswith("_image") and value is not None:
                arrays[name] = places[value].astype(np.int32)
        return self.with_arrays(arrays)

    def check(self, num_images: int, num_classes: int) -> None:
        """Raises a ValueError if the arrays, read from a file, cannot be those of so many images and classes."""
        arrays: Dict[str, Any] = self.arrays()
        expected = match_images(
            DetectionBatch(Detections.empty(), GroundTruths.empty(), 0),
            DetectionSettings(),
            num_classes=1,
            table="none",
            worst_images=1,
        ).examples
        limits = {
            "image": (0, num_images),
            "rule": (0, len(MATCHING_RULES)),
            "cell": (0, (num_classes + 1) ** 2),
            "background_type": (-1, len(BACKGROUND_TYPES)),
            "kind": (0, len(BOX_KINDS)),
            "label": (-1, num_classes),
            "gt_label": (-1, num_classes),
            "missed": (0, np.iinfo(np.int64).max),
        }
        for group, columns in expected._asdict().items():  # type: ignore[union-attr]
            for name, like in columns._asdict().items():
                array = arrays[f"{group}_{name}"]
                shape = (len(arrays[f"{group}_image"]), *like.shape[1:])
                if array is None or array.dtype != like.dtype or array.shape != shape:
                    raise ValueError(f"'{group}_{name}' must be {like.dtype} of shape {shape}")
                low, high = limits.get(name, (-np.inf, np.inf))
                if name in limits and len(array) and not low <= int(array.min()) <= int(array.max()) < high:
                    raise ValueError(f"'{group}_{name}' must be from {low} to {high - 1}")
        if np.isnan(arrays["members_badness"]).any():
            raise ValueError("'members_badness' must be numbers")

    def examples(self) -> Optional[Examples]:
        """The worst of everything seen; None if nothing was."""
        self._keep_worst()
        arrays: Dict[str, Any] = self.arrays()
        if arrays["members_cell"] is None:
            return None
        parts: List[Tuple[str, Any]] = [("members", Members), ("images", WorstImages), ("boxes", ImageBoxes)]
        return Examples(*(kind(*(arrays[f"{group}_{name}"] for name in kind._fields)) for group, kind in parts))

    def _keep_worst(self) -> None:
        arrays: Dict[str, Any] = self.arrays()
        if arrays["members_cell"] is None:
            return
        members = Members(*(arrays[f"members_{name}"] for name in Members._fields)).worst(self.num_rules)
        images = WorstImages(*(arrays[f"images_{name}"] for name in WorstImages._fields))
        kept = images.worst(self.worst_images)
        kept = kept[np.argsort(images.image[kept])]  # in one order, whatever order the images came in
        images = WorstImages(*(column[kept] for column in images))
        shown = np.flatnonzero(np.isin(arrays["boxes_image"], images.image))
        shown = shown[stable_order(arrays["boxes_image"][shown])]
        boxes = ImageBoxes(*(arrays[f"boxes_{name}"][shown] for name in ImageBoxes._fields))
        for group, columns in (("members", members), ("images", images), ("boxes", boxes)):
            for name, column in columns._asdict().items():
                setattr(self, f"{group}_{name}", RowBuffer.of(column))


class DetectionState(StateGroup):
    """All that is kept of a detector, from one matching pass.

    Args:
        num_classes: Number of classes without background.
        settings: Thresholds and matching rules.
        table: What to keep of every detection: as in
            :func:`~mm_metrics_plugin.functional.detection.matching.match_images`.
        worst_images: Also keep examples, and of the worst images so many in each order; None: no examples.

    Example:
        >>> from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
        >>> detections = Detections([0, 0], [[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [0, 0])
        >>> batch = DetectionBatch(detections, GroundTruths([0], [[0, 0, 10, 10]], [0]), 1)
        >>> state = DetectionState(1, DetectionSettings()).update(batch, np.array([0]))
        >>> state.rule("coco").matrix.tolist(), state.tally["images"], len(state.table().score)
        ([[1, 0], [1, 0]], 1, 2)
    """

    def __init__(
        self,
        num_classes: int,
        settings: DetectionSettings,
        *,
        table: str = "full",
        worst_images: Optional[int] = None,
    ) -> None:
        self.num_classes = num_classes
        self.settings = settings
        self.table_kind = table
        self.worst_images = worst_images
        members: Dict[str, State] = {"counts": CountState()}
        members.update({rule: RuleState(num_classes) for rule in settings.matching})
        if table != "none":
            members["matches"] = MatchState(num_classes, settings, kind=table)
        if worst_images is not None:
            members["examples"] = ExampleState(len(settings.matching), worst_images)
        super().__init__(**members)

    def update(
        self,
        batch: DetectionBatch,
        order: Any,
        texts: Optional[np.ndarray] = None,
        names: Optional[Sequence[Any]] = None,
    ) -> DetectionState:
        """Matches the images, block by block, and adds what came of it.

        Args:
            batch: Checked detections and ground truths.
            order: As in :class:`ImageBatch`.
            texts: As in :class:`ImageBatch`.
            names: As in :class:`ImageBatch`.

        Raises:
            MetricInputError: More pairs overlap in one image than memory allows.
        """
        names = range(batch.num_images) if names is None else names
        order = np.asarray(order, dtype=np.int64)
        if order.ndim == 1:
            order = np.stack([order, order], axis=1)
        several = len(batch.detections) > _DETECTIONS_AT_ONCE
        if several and "matches" in self.members:
            self.members["matches"].reserve(len(batch.detections), len(batch.ground_truths))  # type: ignore[attr-defined]

        def match(numbered: Tuple[int, DetectionBatch]) -> Tuple[slice, int, ImageMatches]:
            start, block = numbered
            rows = slice(start, start + block.num_images)
            return (rows, *self._match(block, names[rows]))

        blocks = batch.blocks(_DETECTIONS_AT_ONCE)
        for rows, suppressed, found in map_in_order(match, blocks) if several else map(match, blocks):
            self._add(found, suppressed, order[rows], None if texts is None else texts[rows])
        return self

    def _match(self, batch: DetectionBatch, names: Sequence[Any]) -> Tuple[int, ImageMatches]:
        """How many detections NMS removes, and the matches of the others."""
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

    def _add(self, found: ImageMatches, suppressed: int, order: np.ndarray, texts: Optional[np.ndarray]) -> None:
        members: Dict[str, Any] = self.members
        members["counts"].update(found.counts, suppressed)
        for rule, counts in found.rules.items():
            members[rule].update(counts)
        if found.table is not None:
            members["matches"].update(found.table, order, texts)
        if found.examples is not None:
            members["examples"].update(found.examples, order)

    def rule(self, name: str) -> RuleState:
        """What one matching rule counted."""
        return self.members[name]  # type: ignore[return-value]

    @property
    def tally(self) -> Dict[str, int]:
        """What was counted whatever the rule."""
        return self.members["counts"].tally  # type: ignore[attr-defined]

    def table(self) -> Optional[MatchTable]:
        """Every detection, matched; None if nothing was seen or kept."""
        matches: Any = self.members.get("matches")
        return None if matches is None else matches.table()

    def examples(self) -> Optional[Examples]:
        """The worst of everything; None if nothing was seen or kept."""
        examples: Any = self.members.get("examples")
        return None if examples is None else examples.examples()

    def check(self, num_images: int) -> None:
        """Raises a ValueError if the arrays, read from a file, cannot be those of so many images."""
        _check_whole_numbers("counts", self.members["counts"].counts, (len(CountState.NAMES),))  # type: ignore[attr-defined]
        for name in self.settings.matching:
            self.rule(name).check(name, sums=name != "mmdet")
        for member in self.members.values():
            if isinstance(member, MatchState):
                member.check(num_images)
            elif isinstance(member, ExampleState):
                member.check(num_images, self.num_classes)
        if self.tally["images"] != num_images:
            raise ValueError(f"the counts must be of {num_images} images")
        table = self.table()
        if table is not None:
            self._check_table(table)

    def _check_table(self, table: MatchTable) -> None:
        """Raises a ValueError unless the counts are those of the table."""
        if ((np.diff(table.image) == 0) & (np.diff(table.score) > 0)).any():
            raise ValueError("'score' must be descending in every image")
        reached = table.reach(self.settings.score_thr)
        counts = {
            "detections": len(table.score),
            "detections_below_threshold": int(len(reached) - reached.sum()),
            "objects": len(table.gt_label),
            "crowds": int((~table.gt_counts.any(axis=1)).sum()),
        }
        wrong = [name for name, value in counts.items() if self.tally[name] != value]
        if wrong:
            raise ValueError(f"the number of {wrong[0]!a} must be {counts[wrong[0]]}")
        label, gt_label, details = table.label, table.gt_label, table.details
        is_tp, is_tp_or_fp = table.flags(self.settings.iou_thr)
        # By name: rows of detections or ground truths, their labels, and how many there must be of each class.
        sums: List[Tuple[str, Any, np.ndarray, np.ndarray]] = []
        if "coco" in self.settings.matching:
            rule = self.rule("coco")
            sums += [
                ("true positives of 'coco'", is_tp & reached, label, rule.matrix.diagonal()[:-1]),
                ("detections of 'coco'", is_tp_or_fp & reached, label, rule.used_per_class[1]),
                ("objects of 'coco'", table.gt_counts.any(axis=1), gt_label, rule.used_per_class[0]),
            ]
            if details is not None:
                missed = rule.matrix[:-1, -1]
                sums.append(("missed objects of 'coco'", details.gt_outcome == MISSED, gt_label, missed))
                for outcome, number in zip(BACKGROUND_TYPES.values(), rule.false_positives):
                    sums.append(("false positives of 'coco'", details.outcome == outcome, label, number))
        if "mmdet" in self.settings.matching:
            used = self.rule("mmdet").used_per_class
            sums.append(("detections of 'mmdet'", reached, label, used[1]))
            sums.append(("objects of 'mmdet'", np.ones(len(gt_label), dtype=bool), gt_label, used[0]))
        if details is not None:
            is_tide_tp = (details.error_type & (ON_CROWD - 1)) == TRUE_POSITIVE
            matched = np.bincount(gt_label[details.gt_tide_matched], minlength=self.num_classes)
            sums.append(("true positives of TIDE", is_tide_tp, label, matched))
            if not np.array_equal(details.outcome == TP, is_tp & reached):
                raise ValueError("'outcome' must be TP where a detection is matched")
        for name, rows, labels, expected in sums:
            if not np.array_equal(np.bincount(labels[rows], minlength=self.num_classes), expected):
                raise ValueError(f"the {name} must be as many in the matrix as in the table")

    def renumbered(self, places: np.ndarray) -> DetectionState:
        """The same with ``places[position]`` for every image; the order of the images must stay."""
        result = self.empty()
        for name, member in self.members.items():
            kept: Any = member
            result.members[name] = kept.renumbered(places) if hasattr(kept, "renumbered") else kept
        return result
