"""The page of a detection report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

import numpy as np

from mm_metrics_plugin.functional.detection.examples import Examples, Members
from mm_metrics_plugin.functional.detection.pr_curves import ThresholdSweep, threshold_sweep
from mm_metrics_plugin.render.detection import (
    ERROR_TYPES,
    PROTOCOLS,
    error_lines,
    max_dets_lines,
    optional_sections,
    size_range,
)
from mm_metrics_plugin.render.html import (
    Column,
    grouped_sections,
    provenance,
    render_page,
    summary_cards,
    table_columns,
    table_rows,
    without_common_folder,
)
from mm_metrics_plugin.render.html.thumbnails import collect_thumbnails
from mm_metrics_plugin.render.tables import FALSE_POSITIVE_TYPES, OVERALL_NAMES
from mm_metrics_plugin.settings import MATCHING_RULES

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.detection import DetectionReport
    from mm_metrics_plugin.functional.detection.confusion_rules import ProtocolReport
    from mm_metrics_plugin.render.outputs import PageOptions

COUNTS = ("ground_truths", "tp", "fp", "fn")
RATES = ("precision", "recall", "f1")
SIZE_RATES = ("precision", "recall", "mAP", "mAP_50")
BOX_CLASSES = ("tp", "fp", "fn")  # CSS classes of the kinds of boxes


def detection_page(report: DetectionReport, options: PageOptions) -> str:
    """Render the page of a detection report."""
    shard: Any = report.shard
    examples = shard.state.examples()
    thresholds = None
    if report.analysis is not None:
        thresholds = threshold_sweep(report.analysis.curves, also=[report.settings.score_thr])
    paths = [shard.image_names[image_id] for image_id in shard.image_ids]
    names = [name or str(image_id) for name, image_id in zip(without_common_folder(paths), shard.image_ids)]
    context = _context(report, thresholds)
    context["gallery"] = None if examples is None else _gallery(report, examples, paths, names, options)
    return render_page("detection.html", report, data=_data(report, examples, thresholds, names), **context)


def _data(
    report: DetectionReport, examples: Optional[Examples], thresholds: Optional[ThresholdSweep], names: Sequence[str]
) -> Dict[str, Any]:
    """The data of the page's scripts. Only boxes that are listed in a cell are in it, each once."""
    members = Members(*([np.empty(0)] * len(Members._fields))) if examples is None else examples.members
    images = np.unique(members.image).astype(np.int64)
    boxes: Dict[str, Any] = {}
    indices: Dict[str, np.ndarray] = {}
    for kind, index, label, box in (
        ("detection", members.det_index, members.label, members.box),
        ("ground_truth", members.gt_index, members.gt_label, members.gt_box),
    ):
        listed = np.flatnonzero(index >= 0)
        key = np.stack([members.image[listed], index[listed]], axis=1).astype(np.int64).reshape(-1, 2)
        _, first, position = np.unique(key, axis=0, return_index=True, return_inverse=True)
        rows = listed[first]
        indices[kind] = np.full(len(index), -1)
        indices[kind][listed] = position.reshape(-1)
        boxes[f"{kind}s"] = {
            "image": np.searchsorted(images, members.image[rows]),
            "label": label[rows],
            "box": np.round(box[rows], 1),
        }
        if kind == "detection":
            boxes["detections"]["score"] = np.round(members.score[rows], 4)
    return {
        "labels": report.labels,
        "score_thr": report.settings.score_thr,
        "protocols": [_protocol_data(protocol, members, indices) for protocol in report.protocols],
        **boxes,
        "image_names": [names[image] for image in images.tolist()],
        "images": images,
        "thresholds": None if thresholds is None else thresholds.to_dict(),
    }


def _protocol_data(report: ProtocolReport, members: Members, indices: Mapping[str, np.ndarray]) -> Dict[str, Any]:
    rows = np.flatnonzero(members.rule == MATCHING_RULES.index(report.protocol))
    matrix = report.result.matrix
    row, column = np.nonzero(matrix)
    return {
        "name": report.protocol,
        "cells": {"row": row, "column": column, "count": matrix[row, column]},
        "columns": {name: report.columns[name] for name in (*COUNTS, *RATES, *FALSE_POSITIVE_TYPES)},
        "cell": members.cell[rows],
        "detection": indices["detection"][rows],
        "ground_truth": indices["ground_truth"][rows],
        "overlap": np.round(members.overlap[rows].astype(np.float64), 3),
        "background_type": members.background_type[rows],
    }


def _context(report: DetectionReport, thresholds: Optional[ThresholdSweep]) -> Dict[str, Any]:
    """The variables of the template."""
    analysis = report.analysis
    main = next((rule for rule in report.protocols if rule.protocol == "coco"), report.protocols[0])
    class_columns = table_columns(counts=COUNTS, rates=RATES)
    values = dict(main.columns)
    if analysis is not None and thresholds is not None:
        average_precision = analysis.ap_columns()
        values.update({name: average_precision[name] for name in ("AP", "AP_50")}, best=thresholds.best_per_class)
        class_columns += table_columns(names=(), rates=("AP", "AP_50"))
        class_columns += [column._replace(kind="number") for column in table_columns(names=(), counts=("best",))]
    return {
        "title": "Detection report",
        "main": main,
        "cards": _cards(report, main),
        "intervals": None if analysis is None else analysis.intervals,
        "protocols": {rule.protocol: PROTOCOLS[rule.protocol] for rule in report.protocols},
        "thresholds": thresholds,
        "class_columns": class_columns,
        "class_rows": table_rows({**values, "name": report.classes}),
        "fp_columns": table_columns(counts=("fp", *FALSE_POSITIVE_TYPES)),
        "max_dets": [] if analysis is None else max_dets_lines(analysis.max_dets, analysis.most_detections),
        "errors": _errors(report),
        "sizes": _sizes(report),
        "more": [] if analysis is None else grouped_sections(optional_sections(analysis)),
        **provenance(report, ("ground_truth", "results")),
    }


def _cards(report: DetectionReport, main: ProtocolReport) -> List[Any]:
    """The overall metrics. Only mAP has intervals by another protocol than ``coco``."""
    analysis = report.analysis
    values: Dict[str, float] = dict(main.means)
    words: Dict[str, str] = {}
    intervals: Mapping[str, Any] = {}
    if analysis is not None:
        values.update(analysis.average_precision.to_dict())
        words["mAP"] = "Average precision, mean over classes and the IoU thresholds 0.50 to 0.95."
        words["mAP_50"] = "Average precision at IoU 0.5, mean over classes."
        intervals = {} if analysis.intervals is None else analysis.intervals.overall
    if main.protocol != "coco":
        intervals = {key: value for key, value in intervals.items() if key.startswith("mAP")}
    words["precision"] = (
        f"Share of the detections with a score of at least {report.settings.score_thr:g} that are correct; "
        "mean over classes."
    )
    words["recall"] = "Share of the ground-truth objects that are detected; mean over classes."
    words["f1"] = "Harmonic mean of precision and recall; mean over classes."
    return summary_cards(values, words, intervals)


def _errors(report: DetectionReport) -> Optional[Dict[str, Any]]:
    analysis = report.analysis
    if analysis is None or analysis.errors is None:
        return None
    errors, counts = analysis.errors, analysis.error_totals
    return {
        "lines": error_lines(analysis),
        "columns": [
            Column("type", "error type", kind="name"),
            Column("at_score_thr", f"score >= {report.settings.score_thr:g}"),
            Column("count", "all detections"),
            Column("dap", "dAP (pp)", "AP gained by fixing all errors of this type, in percentage points", "points"),
        ],
        "rows": [
            {
                "type": error_type,
                "words": words,
                "at_score_thr": counts[error_type],
                "count": errors.totals[error_type],
                "dap": errors.dap[error_type],
            }
            for error_type, words in ERROR_TYPES.items()
        ],
        "max_dap": max([*errors.dap.values(), 1e-12]),
    }


def _sizes(report: DetectionReport) -> Optional[Dict[str, Any]]:
    if report.analysis is None:
        return None
    sizes = report.analysis.sizes
    return {
        "columns": [
            Column("area", "area", kind="name"),
            *table_columns(names=(), counts=COUNTS[:-1]),
            *(Column(key, OVERALL_NAMES[key], kind="rate") for key in SIZE_RATES),
        ],
        "rows": [{"area": size_range(name, *sizes.ranges[name]), **row} for name, row in sizes.metrics().items()],
    }


def _gallery(
    report: DetectionReport, examples: Examples, paths: Sequence[str], names: Sequence[str], options: PageOptions
) -> Optional[Dict[str, Any]]:
    """The worst images with their boxes; None without a folder to look in, or if no image is wanted."""
    shard: Any = report.shard
    folders = [folder for truth in shard.ground_truths for folder in truth.get("image_folders", ())]
    if not options.gallery or (options.images is None and not folders):
        return None
    worst, drawn = examples.images, examples.boxes
    half = options.gallery // 2
    orders = {
        "by_missed": worst.image[worst.most_missed()[: options.gallery - half]].tolist(),
        "by_score": worst.image[worst.most_confident()[:half]].tolist(),
    }
    sizes = [shard.image_sizes.get(image_id, (0, 0)) for image_id in shard.image_ids]
    thumbnails, remarks = collect_thumbnails(
        [*orders["by_missed"], *orders["by_score"]], paths, folder=options.images, dataset_folders=folders, sizes=sizes
    )
    images = []
    for image, thumbnail in thumbnails.items():
        at, rows = np.argmax(worst.image == image), drawn.image == image
        columns = (drawn.kind, np.round(drawn.box, 1), drawn.label, drawn.score)
        images.append(
            {
                "image": image,
                "name": names[image],
                "uri": thumbnail.uri,
                "size": thumbnail.size,
                "boxes": [
                    {
                        "kind": BOX_CLASSES[kind],
                        "box": box,
                        "text": report.classes[label] + ("" if score != score else f" {score:.2f}"),
                    }
                    for kind, box, label, score in zip(*(column[rows].tolist() for column in columns))
                ],
                "missed": int(worst.missed[at]),
                "score": float(worst.confidence[at]),
                **{key: order.index(image) if image in order else "" for key, order in orders.items()},
            }
        )
    return {"images": images, "remarks": remarks}
