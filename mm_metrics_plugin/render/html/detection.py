"""The page of a detection report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Sequence

import numpy as np

from mm_metrics_plugin.functional.detection.examples import RULE_NAMES, CellExamples, Examples
from mm_metrics_plugin.functional.detection.geometry import Outlines
from mm_metrics_plugin.functional.detection.pr_curves import ThresholdSweep, threshold_sweep
from mm_metrics_plugin.render.detection import (
    error_lines,
    error_types,
    frequency_lines,
    iou_thrs_text,
    max_dets_lines,
    olrp_and_froc_sections,
    optional_sections,
    own_areas,
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
from mm_metrics_plugin.settings import number_text

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.detection.rule_report import RuleReport
    from mm_metrics_plugin.render.outputs import PageOptions
    from mm_metrics_plugin.reports.detection import DetectionReport
    from mm_metrics_plugin.reports.detection_analysis import DetectionAnalysis

COUNTS = ("ground_truths", "tp", "fp", "fn")
RATES = ("precision", "recall", "f1")
SIZE_RATES = ("precision", "recall", "mAP", "mAP_50")
SHAPE_CLASSES = ("tp", "fp", "fn")  # CSS classes of the kinds of shapes


def detection_page(report: DetectionReport, options: PageOptions) -> str:
    """Render the page of a detection report."""
    examples, images = report.examples, report.provenance
    thresholds = None
    if report.analysis is not None:
        thresholds = threshold_sweep(report.analysis.curves, also=[report.settings.score_thr])
    paths = images.image_names
    names = [name or str(image_id) for name, image_id in zip(without_common_folder(paths), images.image_ids)]
    context = _context(report, thresholds)
    context["gallery"] = None if examples is None else _gallery(report, examples, paths, names, options)
    return render_page("detection.html", report, data=_data(report, examples, thresholds, names), **context)


def _data(
    report: DetectionReport, examples: Examples | None, thresholds: ThresholdSweep | None, names: Sequence[str]
) -> dict[str, Any]:
    """The data of the page's scripts. Only instances that are listed in a cell are in it, each once."""
    members = (
        examples.cells
        if examples is not None
        else CellExamples.from_arrays(
            {
                name: np.empty((0, 2)) if name.endswith("points") else np.empty(0, dtype=int)
                for name in CellExamples.array_names()
            }
        )
    )
    images = np.unique(members.image).astype(np.int64)
    instances: dict[str, Any] = {}
    indices: dict[str, np.ndarray] = {}
    for kind, index, label, outline in (
        ("detection", members.det_index, members.label, members.outline),
        ("ground_truth", members.gt_index, members.gt_label, members.gt_outline),
    ):
        listed = np.flatnonzero(index >= 0)
        key = np.stack([members.image[listed], index[listed]], axis=1).astype(np.int64).reshape(-1, 2)
        _, first, position = np.unique(key, axis=0, return_index=True, return_inverse=True)
        rows = listed[first]
        indices[kind] = np.full(len(index), -1)
        indices[kind][listed] = position.reshape(-1)
        instances[f"{kind}s"] = {
            "image": np.searchsorted(images, members.image[rows]),
            "label": label[rows],
            "path": svg_paths(outline.take(rows)),
        }
        if kind == "ground_truth":
            instances["ground_truths"]["area"] = np.round(members.gt_area[rows], 1)
        else:
            instances["detections"]["score"] = np.round(members.score[rows], 4)
    return {
        "labels": report.labels,
        "score_thr": report.settings.score_thr,
        "num_images": report.counts["images"]["used"],
        "matching_rules": [_rule_data(rule, members, indices) for rule in report.matching_rules],
        **instances,
        "image_names": [names[image] for image in images.tolist()],
        "images": images,
        "thresholds": None if thresholds is None else _threshold_data(thresholds),
    }


def _threshold_data(thresholds: ThresholdSweep) -> dict[str, Any]:
    best_texts = [threshold.text for threshold in thresholds.best_per_class]
    return {**thresholds.to_dict(), "best_text": thresholds.best.text, "best_texts": best_texts}


def _rule_data(report: RuleReport, members: CellExamples, indices: Mapping[str, np.ndarray]) -> dict[str, Any]:
    rows = np.flatnonzero(members.rule == RULE_NAMES.index(report.name))
    matrix = report.result.matrix
    row, column = np.nonzero(matrix)
    return {
        "name": report.name,
        "follows_threshold": report.rule.has_analyses,
        "cells": {"row": row, "column": column, "count": matrix[row, column]},
        "columns": {name: report.columns[name] for name in (*COUNTS, *RATES, *FALSE_POSITIVE_TYPES)},
        "cell": members.cell[rows],
        "detection": indices["detection"][rows],
        "ground_truth": indices["ground_truth"][rows],
        "overlap": np.round(members.overlap[rows].astype(np.float64), 3),
        "background_type": members.background_type[rows],
    }


def _context(report: DetectionReport, thresholds: ThresholdSweep | None) -> dict[str, Any]:
    """The variables of the template."""
    analysis = report.analysis
    main = next((rule for rule in report.matching_rules if rule.rule.has_analyses), report.matching_rules[0])
    class_columns = table_columns(counts=COUNTS, rates=RATES)
    values = dict(main.columns)
    if analysis is not None and thresholds is not None:
        average_precision = analysis.ap_columns()
        names = [name for name in ("AP", "AP_50") if name in average_precision]
        values.update({name: average_precision[name] for name in names}, best=thresholds.best_per_class)
        class_columns += table_columns(names=(), rates=names)
        class_columns += [column._replace(kind="number") for column in table_columns(names=(), counts=("best",))]
    return {
        "title": "Detection report",
        "rules": report.matching_rules,
        "main": main,
        "cards": _cards(report, main),
        "intervals": None if analysis is None else analysis.intervals,
        "matching_rules": {rule.name: rule.rule.description for rule in report.matching_rules},
        "thresholds": thresholds,
        "class_columns": class_columns,
        "class_rows": table_rows({**values, "name": report.classes}),
        "fp_columns": table_columns(counts=("fp", *FALSE_POSITIVE_TYPES)),
        "max_dets": [] if analysis is None else _limit_lines(analysis),
        "errors": _errors(report),
        "sizes": _sizes(report),
        "own_areas": own_areas(report.settings),
        "more": []
        if analysis is None
        else grouped_sections([*olrp_and_froc_sections(analysis), *optional_sections(analysis)]),
        **provenance(report, ("ground_truth", "results")),
    }


def _limit_lines(analysis: DetectionAnalysis) -> list[str]:
    return [*max_dets_lines(analysis.settings, analysis.most_detections), *frequency_lines(analysis)]


def _cards(report: DetectionReport, main: RuleReport) -> list[Any]:
    """The overall metrics. Only mAP has intervals by another matching rule than ``coco``."""
    analysis = report.analysis
    values: dict[str, float] = dict(main.means)
    words: dict[str, str] = {}
    intervals: Mapping[str, Any] = {}
    if analysis is not None:
        values.update(analysis.average_precision.to_dict())
        thresholds = iou_thrs_text(report.settings.iou_thrs, report.overlap_name)
        words["mAP"] = f"Average precision, mean over classes and {thresholds}."
        if "mAP_50" in values:
            words["mAP_50"] = f"Average precision at {report.overlap_name} 0.5, mean over classes."
        intervals = {} if analysis.intervals is None else analysis.intervals.overall
    if not main.rule.has_analyses:
        intervals = {key: value for key, value in intervals.items() if key.startswith("mAP")}
    words["precision"] = (
        f"Share of the detections with a score of at least {number_text(report.settings.score_thr)} that are correct; "
        "mean over classes."
    )
    words["recall"] = "Share of the ground-truth objects that are detected; mean over classes."
    words["f1"] = "Harmonic mean of precision and recall; mean over classes."
    comparable_with = {**report.comparable_with, **dict.fromkeys(main.means, main.rule.comparable_with)}
    return summary_cards(values, words, intervals, comparable_with)


def _errors(report: DetectionReport) -> dict[str, Any] | None:
    analysis = report.analysis
    if analysis is None or analysis.errors is None:
        return None
    errors, counts = analysis.errors, analysis.error_totals
    return {
        "lines": error_lines(analysis),
        "columns": [
            Column("type", "error type", kind="name"),
            Column("at_score_thr", f"score >= {number_text(report.settings.score_thr)}"),
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
            for error_type, words in error_types(analysis).items()
        ],
        "max_dap": max([*errors.dap.values(), 1e-12]),
    }


def _sizes(report: DetectionReport) -> dict[str, Any] | None:
    if report.analysis is None:
        return None
    sizes = report.analysis.sizes
    rows = sizes.metrics()
    return {
        "columns": [
            Column("area", "area", kind="name"),
            *table_columns(names=(), counts=COUNTS[:-1]),
            *(Column(key, OVERALL_NAMES[key], kind="rate") for key in SIZE_RATES if key in rows["all"]),
        ],
        "rows": [{"area": size_range(name, *sizes.ranges[name]), **row} for name, row in rows.items()],
    }


def _gallery(
    report: DetectionReport, examples: Examples, paths: Sequence[str], names: Sequence[str], options: PageOptions
) -> dict[str, Any] | None:
    """The worst images with their instances; None without a folder to look in, or if no image is wanted."""
    folders, sizes = report.provenance.image_folders, report.provenance.image_sizes.tolist()
    if not options.gallery or (options.images is None and not folders):
        return None
    worst, drawn = examples.images, examples.shapes
    half = options.gallery // 2
    orders = {
        "by_missed": worst.image[worst.most_missed()[: options.gallery - half]].tolist(),
        "by_score": worst.image[worst.most_confident()[:half]].tolist(),
    }
    thumbnails, remarks = collect_thumbnails(
        [*orders["by_missed"], *orders["by_score"]], paths, folder=options.images, dataset_folders=folders, sizes=sizes
    )
    images = []
    for image, thumbnail in thumbnails.items():
        at, rows = np.argmax(worst.image == image), drawn.image == image
        shapes = drawn.take(rows)
        columns = (shapes.kind.tolist(), svg_paths(shapes.outline), shapes.label.tolist(), shapes.score.tolist())
        images.append(
            {
                "image": image,
                "name": names[image],
                "uri": thumbnail.uri,
                "size": thumbnail.size,
                "shapes": [
                    {
                        "kind": SHAPE_CLASSES[kind],
                        "path": path,
                        "text": report.classes[label] + ("" if score != score else f" {score:.2f}"),
                    }
                    for kind, path, label, score in zip(*columns)
                ],
                "missed": int(worst.missed[at]),
                "score": float(worst.confidence[at]),
                **{key: order.index(image) if image in order else "" for key, order in orders.items()},
            }
        )
    return {"images": images, "remarks": remarks}


def svg_paths(outlines: Outlines) -> list[str]:
    """The ``d`` attribute of an SVG path for each shape, with coordinates of one decimal."""
    return [_svg_path(np.round(points, 1).tolist()) for points in outlines.lines()]


def _svg_path(points: Sequence[Sequence[float]]) -> str:
    path, command = "", "M"
    for x, y in points:
        if x != x:  # NaN: a new line starts
            command = "M"
            continue
        path += f"{command}{x:g} {y:g}"
        command = "L"
    return path
