"""Checks of the arrays of a detection state that were read from a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from mm_metrics_plugin.functional.detection.confusion_rules import BACKGROUND_TYPES, MISSED, TP
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.examples import BOX_KINDS, Examples
from mm_metrics_plugin.functional.detection.match_table import MatchTable, report_grid
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.detection.tide import FIXED, ON_CROWD, TRUE_POSITIVE
from mm_metrics_plugin.functional.thresholding import PRECISIONS
from mm_metrics_plugin.settings import MATCHING_RULES, require
from mm_metrics_plugin.states.detection import RULE_COUNTS, CountState, DetectionState, RuleState
from mm_metrics_plugin.states.matches import IMAGE_COLUMNS, is_gt_column


def check_detection_state(state: DetectionState, num_images: int) -> None:
    """Raises a ValueError unless the arrays fit the settings, the number of images and each other."""
    _check_counts("counts", state["counts"].counts, (len(CountState.NAMES),))
    for name in state.settings.matching:
        _check_rule(name, state.rule(name))
    expected = match_images(  # of no images: its arrays have the dtypes and shapes
        DetectionBatch(Detections.empty(), GroundTruths.empty(), 0),
        state.settings,
        num_classes=state.num_classes,
        table=state.table_kind,
        worst_images=None if state.worst_images is None else 1,
    )
    if expected.table is not None:
        _check_columns(state, expected.table, num_images)
    if expected.examples is not None:
        _check_examples(state, expected.examples, num_images)
    require(state.counts_by_name["images"] == num_images, f"the counts must be of {num_images} images")
    table = state.table()
    if table is not None:
        _check_sums(state, table)


def _check_counts(name: str, array: np.ndarray | None, shape: tuple[int, ...]) -> None:
    require(
        array is not None
        and array.dtype == np.int64
        and array.shape == shape
        and _in_range(array, 0, 1 << 48),  # sums stay within int64
        f"the {name} must be {' by '.join(map(str, shape))} whole numbers of at least 0",
    )


def _in_range(array: np.ndarray, low: float, high: float) -> bool:
    """Whether all values are at least ``low`` and below ``high``; true without values."""
    return not array.size or bool(low <= array.min() and array.max() < high)


def _check_rule(name: str, rule: RuleState) -> None:
    size = rule.num_classes
    _check_counts(f"matrix of {name}", rule.cells, (1, size + 1, size + 1))
    _check_counts(f"counts of {name}", rule.counts, (len(RULE_COUNTS),))
    _check_counts(f"ground truths and detections of {name}", rule.used, (2, size))
    _check_counts(f"types of false positives of {name}", rule.background_types, (len(BACKGROUND_TYPES), size))
    matrix = rule.matrix
    require(
        np.array_equal(rule.background_types.sum(axis=0), matrix[-1, :-1]),
        f"the types of false positives of {name!a} must add up to the background row",
    )
    sums = [matrix[:-1].sum(axis=1), matrix[:, :-1].sum(axis=0)]
    require(
        name == "mmdet" or np.array_equal(rule.used, sums),  # mmdet counts some detections twice
        f"the matrix of {name!a} must add up to its ground truths and detections",
    )


def _check_columns(state: DetectionState, expected: MatchTable, num_images: int) -> None:
    arrays: dict[str, Any] = state["matches"].arrays()
    for name, array in arrays.items():
        if name not in IMAGE_COLUMNS:
            like: Any = getattr(expected if hasattr(expected, name) else expected.details, name)
            shape = (len(arrays["gt_image" if is_gt_column(name) else "image"]), *like.shape[1:])
            same_dtype = array.dtype == like.dtype or (name == "score" and array.dtype in (np.float32, np.float64))
            require(same_dtype and array.shape == shape, f"{name!a} must be {like.dtype} of shape {shape}")
    require(arrays["texts"] is None and arrays["text_positions"] is None, "images must be numbered")
    images = arrays["images"]
    numbers = np.repeat(np.arange(num_images)[:, None], 2, axis=1)
    require(
        images.dtype == np.int64 and np.array_equal(images[np.argsort(images[:, 0])], numbers),
        f"'images' must be the numbers from 0 to {num_images - 1}",
    )
    limits = dict.fromkeys(("image", "gt_image"), num_images)
    limits.update({"label": state.num_classes, "gt_label": state.num_classes, "precision": len(PRECISIONS)})
    for name, limit in limits.items():
        require(name not in arrays or _in_range(arrays[name], 0, limit), f"{name!a} must be from 0 to {limit - 1}")
    require(np.isfinite(arrays["score"]).all(), "'score' must be finite")
    unused = ~report_grid(state.settings).word_masks()
    for name in ("matched", "ignored", "gt_counts"):
        require(not (arrays[name] & unused).any(), f"{name!a} must have no bits of other settings")
    if expected.details is not None:
        _check_details(arrays, num_images)


def _check_details(arrays: dict[str, Any], num_images: int) -> None:
    for name, image_column, low in (
        ("det_index", "image", 0),
        ("gt_index", "gt_image", -1),
        ("error_gt", "gt_image", -1),
    ):
        limit = np.bincount(arrays[image_column], minlength=num_images)[arrays["image"]]
        require(
            ((arrays[name] >= low) & (arrays[name] < limit)).all(),
            f"{name!a} must be a position in the image{', or -1' * (low < 0)}",
        )
    for name, high in (
        ("outcome", MISSED),
        ("gt_outcome", MISSED + 1),
        ("error_type", 2 * FIXED),
        ("overlap", 1 + 1e-6),
    ):
        require(_in_range(arrays[name], 0, high), f"{name!a} must be from 0 to below {high:g}")
    error_type = arrays["error_type"]
    require(((error_type & (ON_CROWD - 1)) <= TRUE_POSITIVE).all(), "'error_type' must be a known type")
    require(
        (((error_type & FIXED) == 0) | (arrays["error_gt"] >= 0)).all(),
        "'error_gt' must be known of every error that can be fixed",
    )
    require(np.isfinite(arrays["gt_area"]).all(), "'gt_area' must be finite")


def _check_examples(state: DetectionState, expected: Examples, num_images: int) -> None:
    arrays: dict[str, Any] = state["examples"].arrays()
    limits = {
        "image": (0, num_images),
        "rule": (0, len(MATCHING_RULES)),
        "cell": (0, (state.num_classes + 1) ** 2),
        "background_type": (-1, len(BACKGROUND_TYPES)),
        "kind": (0, len(BOX_KINDS)),
        "label": (-1, state.num_classes),
        "gt_label": (-1, state.num_classes),
        "missed": (0, np.iinfo(np.int64).max),
    }
    for group, columns in expected._asdict().items():
        for name, like in columns._asdict().items():
            array = arrays[f"{group}_{name}"]
            shape = (len(arrays[f"{group}_image"]), *like.shape[1:])
            require(
                array is not None and array.dtype == like.dtype and array.shape == shape,
                f"'{group}_{name}' must be {like.dtype} of shape {shape}",
            )
            if name in limits:
                low, high = limits[name]
                require(_in_range(array, low, high), f"'{group}_{name}' must be from {low} to {high - 1}")
    require(not np.isnan(arrays["members_badness"]).any(), "'members_badness' must be numbers")


def _check_sums(state: DetectionState, table: MatchTable) -> None:
    """Raises a ValueError unless the counts agree with the table."""
    require(
        not ((np.diff(table.image) == 0) & (np.diff(table.score) > 0)).any(),
        "'score' must be descending in every image",
    )
    reached = table.reach(state.settings.score_thr)
    counts = {
        "detections": len(table.score),
        "detections_below_threshold": int(len(reached) - reached.sum()),
        "ground_truths": len(table.gt_label),
        "crowds": int((~table.gt_counts.any(axis=1)).sum()),
    }
    for name, count in counts.items():
        require(state.counts_by_name[name] == count, f"the number of {name!a} must be {count}")
    label, gt_label, details = table.label, table.gt_label, table.details
    is_tp, is_tp_or_fp = table.flags(state.settings.iou_thr)
    # By name: rows of detections or ground truths, their labels, and how many there must be of each class.
    sums: list[tuple[str, Any, np.ndarray, np.ndarray]] = []
    if "coco" in state.settings.matching:
        rule = state.rule("coco")
        sums += [
            ("true positives of 'coco'", is_tp & reached, label, rule.matrix.diagonal()[:-1]),
            ("detections of 'coco'", is_tp_or_fp & reached, label, rule.used_per_class[1]),
            ("ground truths of 'coco'", table.gt_counts.any(axis=1), gt_label, rule.used_per_class[0]),
        ]
        if details is not None:
            sums.append(
                ("missed ground truths of 'coco'", details.gt_outcome == MISSED, gt_label, rule.matrix[:-1, -1])
            )
            for outcome, number in zip(BACKGROUND_TYPES.values(), rule.false_positives):
                sums.append(("false positives of 'coco'", details.outcome == outcome, label, number))
    if "mmdet" in state.settings.matching:
        ground_truths, detections = state.rule("mmdet").used_per_class
        sums.append(("detections of 'mmdet'", reached, label, detections))
        sums.append(("ground truths of 'mmdet'", np.ones(len(gt_label), dtype=bool), gt_label, ground_truths))
    if details is not None:
        is_tide_tp = (details.error_type & (ON_CROWD - 1)) == TRUE_POSITIVE
        matched = np.bincount(gt_label[details.gt_tide_matched], minlength=state.num_classes)
        sums.append(("true positives of TIDE", is_tide_tp, label, matched))
        require(
            np.array_equal(details.outcome == TP, is_tp & reached),
            "'outcome' must be TP where a detection is matched",
        )
    for name, rows, labels, count_per_class in sums:
        require(
            np.array_equal(np.bincount(labels[rows], minlength=state.num_classes), count_per_class),
            f"the {name} must be as many in the matrix as in the table",
        )
