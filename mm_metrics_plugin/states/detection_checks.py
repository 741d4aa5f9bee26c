"""Checks of the arrays of a detection state that were read from a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from mm_metrics_plugin.conventions import MATCHING_RULES
from mm_metrics_plugin.functional.detection.data import IMAGE_COLUMNS, DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.examples import DRAWN_KINDS, RULE_NAMES
from mm_metrics_plugin.functional.detection.grid import report_grid
from mm_metrics_plugin.functional.detection.match_table import ErrorType, MatchTable, Outcome, is_gt_column
from mm_metrics_plugin.functional.detection.matching import FULL
from mm_metrics_plugin.functional.detection.rules import BACKGROUND_TYPES
from mm_metrics_plugin.functional.thresholding import PRECISIONS
from mm_metrics_plugin.settings import require
from mm_metrics_plugin.states.base import SUM
from mm_metrics_plugin.states.detection import EXAMPLE_TABLES, DetectionState, RuleState

_MAX_COUNT = 1 << 48  # sums stay within int64


def check_detection_state(state: DetectionState, num_images: int) -> None:
    """Raises a ValueError unless the arrays fit the settings, the number of images and each other."""
    arrays: dict[str, Any] = state.arrays()
    _check_layout(state, arrays, num_images)
    _check_ranges(state, arrays, num_images)
    require(state.counts_by_name["images"] == num_images, f"the counts must be of {num_images} images")
    for name in state.settings.matching:
        _check_rule(name, state.rule(name))
    if "matches" in state.members:
        columns = {name: array for name, array in state["matches"].arrays().items() if array is not None}
        _check_matches(state, columns, num_images)
        table: Any = state.table()
        _check_sums(state, table)


def _check_layout(state: DetectionState, arrays: dict[str, Any], num_images: int) -> None:
    """Compares dtypes and shapes with those of a state of one image without instances."""
    one_image = DetectionBatch(Detections.empty(), GroundTruths.empty(), 1)
    for name, expected in state.empty().update(one_image, [0]).arrays().items():
        array, (member, _, column) = arrays[name], name.partition(".")
        if column in IMAGE_COLUMNS:
            require(array is None or len(array) == num_images, f"{name!a} must have {num_images} rows")
            continue
        if expected is None:
            require(array is None, f"{name!a} must be absent: images must be numbered")
            continue
        shape = expected.shape
        if state.reductions[name] != SUM:
            length = column
            if member == "matches" and column != "images":
                length = "gt_image" if is_gt_column(column) else "image"
            elif member == "examples":
                length = f"{column.split('_')[0]}_image"
            rows = arrays[f"{member}.{length}"]
            number = -1 if rows is None else len(rows)
            if column.endswith("outline_points"):  # as many as the lengths say
                lengths = arrays[f"{member}.{column[: -len('points')]}lengths"]
                number = -1 if lengths is None or lengths.min(initial=0) < 0 else int(lengths.sum())
            shape = (number, *shape[1:])
        is_score = name == "matches.score" and array is not None and array.dtype in (np.float32, np.float64)
        require(
            array is not None and (array.dtype == expected.dtype or is_score) and array.shape == shape,
            f"{name!a} must be {expected.dtype} of shape {shape}",
        )


def _check_ranges(state: DetectionState, arrays: dict[str, Any], num_images: int) -> None:
    classes = state.num_classes
    limits: dict[str, tuple[float, float]] = {  # minimum, and the end of the range
        **{name: (0, _MAX_COUNT) for name, reduction in state.reductions.items() if reduction == SUM},
        "matches.label": (0, classes),
        "matches.gt_label": (0, classes),
        "matches.image": (0, num_images),
        "matches.gt_image": (0, num_images),
        "matches.precision": (0, len(PRECISIONS)),
        "matches.outcome": (0, Outcome.MISSED),
        "matches.gt_outcome": (0, Outcome.MISSED + 1),
        "matches.error_type": (0, len(ErrorType)),
        "matches.overlap": (0, 1 + 1e-6),
        **{f"examples.{group}_image": (0, num_images) for group in EXAMPLE_TABLES},
        "examples.cells_rule": (0, len(RULE_NAMES)),
        "examples.cells_cell": (0, (classes + 1) ** 2),
        "examples.cells_background_type": (-1, len(BACKGROUND_TYPES)),
        "examples.cells_label": (-1, classes),
        "examples.cells_gt_label": (-1, classes),
        "examples.images_missed": (0, _MAX_COUNT),
        "examples.shapes_label": (-1, classes),
        "examples.shapes_kind": (0, len(DRAWN_KINDS)),
    }
    for name, (low, high) in limits.items():
        array = arrays.get(name)
        inside = array is None or not array.size or (low <= array.min() and array.max() < high)
        require(inside, f"{name!a} must be from {low} to below {high:g}")
    for name in ("matches.score", "matches.gt_area"):
        require(arrays.get(name) is None or np.isfinite(arrays[name]).all(), f"{name!a} must be finite")
    severity = arrays.get("examples.cells_severity")
    require(severity is None or not np.isnan(severity).any(), "'examples.cells_severity' must be numbers")


def _check_rule(name: str, rule: RuleState) -> None:
    matrix = rule.matrix
    require(
        np.array_equal(rule.background_types.sum(axis=0), matrix[-1, :-1]),
        f"the types of false positives of {name!a} must add up to the background row",
    )
    sums = [matrix[:-1].sum(axis=1), matrix[:, :-1].sum(axis=0)]
    require(
        not MATCHING_RULES[name].one_to_one or np.array_equal(rule.used, sums),
        f"the matrix of {name!a} must add up to its ground truths and detections",
    )


def _check_matches(state: DetectionState, columns: dict[str, Any], num_images: int) -> None:
    images = columns["images"]
    numbers = np.repeat(np.arange(num_images)[:, None], 2, axis=1)
    require(
        np.array_equal(images[np.argsort(images[:, 0])], numbers),
        f"'images' must be the numbers from 0 to {num_images - 1}",
    )
    unused = ~report_grid(state.settings).word_masks()
    for name in ("matched", "ignored", "gt_valid"):
        require(not (columns[name] & unused).any(), f"{name!a} must have no bits of other settings")
    if state.keep != FULL:
        return
    for name, image_column, low in (
        ("det_index", "image", 0),
        ("gt_index", "gt_image", -1),
        ("error_gt", "gt_image", -1),
    ):
        limit = np.bincount(columns[image_column], minlength=num_images)[columns["image"]]
        require(
            ((columns[name] >= low) & (columns[name] < limit)).all(),
            f"{name!a} must be a position in the image{', or -1' * (low < 0)}",
        )
    require(
        (~columns["error_fixed"] | (columns["error_gt"] >= 0)).all(),
        "'error_gt' must be the ground truth of every error that can be fixed",
    )


def _check_sums(state: DetectionState, table: MatchTable) -> None:
    """Raises a ValueError unless the counts agree with the table."""
    require(
        not ((np.diff(table.image) == 0) & (np.diff(table.score) > 0)).any(),
        "'score' must be descending in every image",
    )
    reached, valid = table.reach(state.settings.score_thr), table.gt_valid.any(axis=1)
    counts = {
        "detections": len(table.score),
        "detections_below_threshold": int(len(reached) - reached.sum()),
        "ground_truths": len(table.gt_label),
        "crowds": int((~valid).sum()),
    }
    for name, count in counts.items():
        require(state.counts_by_name[name] == count, f"the number of {name!a} must be {count}")
    label, gt_label, details = table.label, table.gt_label, table.details
    is_tp, is_tp_or_fp = table.tp_fp_masks(state.settings.iou_thr)
    # Name, rows of detections or ground truths, their labels, and the expected number per class.
    sums: list[tuple[str, Any, np.ndarray, np.ndarray]] = []
    for name in state.settings.matching:
        rule, (ground_truths, detections) = state.rule(name), state.rule(name).used
        if MATCHING_RULES[name].has_analyses:
            sums += [
                (f"true positives of {name!a}", is_tp & reached, label, rule.matrix.diagonal()[:-1]),
                (f"detections of {name!a}", is_tp_or_fp & reached, label, detections),
                (f"ground truths of {name!a}", valid, gt_label, ground_truths),
            ]
            if details is not None:
                missed = details.gt_outcome == Outcome.MISSED
                sums.append((f"missed ground truths of {name!a}", missed, gt_label, rule.matrix[:-1, -1]))
                for outcome, number in zip(BACKGROUND_TYPES.values(), rule.background_types):
                    sums.append((f"false positives of {name!a}", details.outcome == outcome, label, number))
        elif not MATCHING_RULES[name].ignores_crowds:
            sums.append((f"detections of {name!a}", reached, label, detections))
            every = np.ones(len(gt_label), dtype=bool)
            sums.append((f"ground truths of {name!a}", every, gt_label, ground_truths))
    if details is not None:
        is_tide_tp = details.error_type == ErrorType.TRUE_POSITIVE
        matched = np.bincount(gt_label[details.gt_tide_matched], minlength=state.num_classes)
        sums.append(("true positives of TIDE", is_tide_tp, label, matched))
        require(
            np.array_equal(details.outcome == Outcome.TP, is_tp & reached),
            "'outcome' must be TP where a detection is matched",
        )
    for name, rows, labels, count_per_class in sums:
        require(
            np.array_equal(np.bincount(labels[rows], minlength=state.num_classes), count_per_class),
            f"the matrix and the table must have the same number of {name}",
        )
