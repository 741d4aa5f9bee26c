"""What the page of a detector shows: the report, and what stands behind its cells and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.functional.classification.confusion_matrix import matrix_entries
from mm_metrics_plugin.functional.detection.examples import Examples, Members
from mm_metrics_plugin.render.analysis import KINDS, asked_sections, error_lines, size_range
from mm_metrics_plugin.render.html import file_entries, grouped_sections, input_settings
from mm_metrics_plugin.render.sentences import PROTOCOLS, max_dets_lines
from mm_metrics_plugin.render.tables import FALSE_POSITIVE_TITLES
from mm_metrics_plugin.settings import MATCHING_RULES
from mm_metrics_plugin.version import __version__

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.detection import DetectionReport
    from mm_metrics_plugin.functional.detection.pr_curves import ThresholdSweep

MOST_DRAWN = 200  # rows of a matrix that is drawn; a larger one has cells smaller than pixels
COLUMNS = ("ground_truths", "detections", "tp", "fp", "fn", "precision", "recall", "f1", *FALSE_POSITIVE_TITLES)


@dataclass(frozen=True, eq=False)
class Gallery:
    """Pictures of the worst images.

    Attributes:
        pictures: By number of the image, the small picture (``uri``) and the ``size`` of the real one.
        by_missed: Images with most missed objects, the worst first.
        by_confidence: Images with the most confident false detections, the worst first.
        remarks: What the reader should know about pictures that are not there.
    """

    pictures: Mapping[int, Any]
    by_missed: Sequence[int]
    by_confidence: Sequence[int]
    remarks: Sequence[str]


def page_data(
    report: DetectionReport,
    examples: Optional[Examples],
    *,
    thresholds: Optional[ThresholdSweep],
    image_names: Sequence[str],
) -> Dict[str, Any]:
    """What the scripts of the page read.

    Args:
        report: The numbers.
        examples: What is in the cells of every matrix; None without images.
        thresholds: What is counted where the slider can stand.
        image_names: What images are called.
    """
    members = Members(*([np.empty(0)] * len(Members._fields))) if examples is None else examples.members
    images = np.unique(members.image).astype(np.int64)
    tables: Dict[str, Any] = {}
    places: Dict[str, np.ndarray] = {}
    for what, index, label, box in (
        ("detection", members.det_index, members.label, members.box),
        ("object", members.gt_index, members.gt_label, members.gt_box),
    ):
        # Only the boxes that are listed somewhere, each once.
        listed = np.flatnonzero(index >= 0)
        key = np.stack([members.image[listed], index[listed]], axis=1).astype(np.int64).reshape(-1, 2)
        _, first, place = np.unique(key, axis=0, return_index=True, return_inverse=True)
        rows = listed[first]
        places[what] = np.full(len(index), -1)
        places[what][listed] = place.reshape(-1)
        tables[f"{what}s"] = {
            "image": np.searchsorted(images, members.image[rows]),
            "label": label[rows],
            "box": np.round(box[rows], 1),
        }
        if what == "detection":
            tables["detections"]["score"] = np.round(members.score[rows], 4)
    return {
        "labels": report.labels,
        "score": report.settings.score_thr,
        "protocols": [_protocol(one, members, places) for one in report.protocols],
        **tables,
        "images": [image_names[image] for image in images.tolist()],
        "image_numbers": images,
        "thresholds": None if thresholds is None else thresholds.to_dict(),
    }


def _protocol(one: Any, members: Members, places: Mapping[str, np.ndarray]) -> Dict[str, Any]:
    rows = np.flatnonzero(members.rule == MATCHING_RULES.index(one.protocol))
    entries = matrix_entries(one.result.matrix, most=MOST_DRAWN)
    return {
        "name": one.protocol,
        "matrix": entries["confusion_matrix"],
        "cells": entries["confusion_cells"],
        "columns": {name: one.columns[name] for name in COLUMNS},
        "cell": members.cell[rows],
        "detection": places["detection"][rows],
        "object": places["object"][rows],
        "overlap": np.round(members.overlap[rows].astype(np.float64), 3),
        "background_type": members.background_type[rows],
    }


def page_context(
    report: DetectionReport,
    examples: Optional[Examples],
    *,
    thresholds: Optional[ThresholdSweep],
    gallery: Optional[Gallery],
    image_names: Sequence[str],
) -> Dict[str, Any]:
    """What the template names."""
    analysis, first = report.analysis, report.protocols[0]
    for one in report.protocols:
        if one.protocol == "coco":
            first = one
    return {
        "title": "Detection report",
        "version": __version__,
        "report": report,
        "first": first,
        "cards": _cards(report, first),
        "level": None if analysis is None or analysis.intervals is None else analysis.intervals,
        "protocols": {one.protocol: PROTOCOLS[one.protocol] for one in report.protocols},
        "thresholds": thresholds,
        "rows": _class_rows(report, first, thresholds),
        "false_positives": FALSE_POSITIVE_TITLES,
        "max_dets": [] if analysis is None else max_dets_lines(analysis.max_dets, analysis.most_detections),
        "errors": _errors(report),
        "sizes": _sizes(report),
        "more": [] if analysis is None else grouped_sections(asked_sections(analysis)),
        "files": file_entries(report.inputs, ("ground_truth", "results")),
        "versions": report.inputs["versions"] if isinstance(report.inputs["versions"], dict) else {},
        "settings": {**_settings(report.settings.to_dict()), **input_settings(report.inputs, "results")},
        "gallery": None if gallery is None or examples is None else _gallery(report, examples, gallery, image_names),
        "remarks": report.remarks,
    }


def _cards(report: DetectionReport, first: Any) -> List[Dict[str, Any]]:
    """The headline numbers with their confidence intervals, and what each says in plain words."""
    analysis = report.analysis
    cards: List[Tuple[str, str, float, str]] = []
    if analysis is not None:
        overall = analysis.average_precision.to_dict()
        cards += [
            (
                "mAP",
                "mAP",
                overall["mAP"],
                "Average precision, mean over classes and the IoU thresholds 0.50 to 0.95.",
            ),
            (
                "mAP_50",
                "mAP at IoU 0.5",
                overall["mAP_50"],
                "Average precision at IoU 0.5, mean over classes.",
            ),
        ]
    score = f"{report.settings.score_thr:g}"
    means = first.means
    cards += [
        (
            "precision",
            "Macro precision",
            means["precision"],
            f"Share of the boxes with a score of {score} or more that are correct; mean over classes.",
        ),
        (
            "recall",
            "Macro recall",
            means["recall"],
            "Share of objects that are found; mean over classes.",
        ),
        (
            "f1",
            "Macro F1",
            means["f1"],
            "Harmonic mean of precision and recall, mean over classes.",
        ),
    ]
    found = {} if analysis is None or analysis.intervals is None else analysis.intervals.overall
    if first.protocol != "coco":
        found = {key: value for key, value in found.items() if key.startswith("mAP")}
    return [
        {
            "key": key,
            "title": title,
            "value": value,
            "words": words,
            "interval": found.get(key),
        }
        for key, title, value, words in cards
    ]


def _class_rows(report: DetectionReport, first: Any, thresholds: Optional[ThresholdSweep]) -> List[Dict[str, Any]]:
    """The table per class at the report's own threshold."""
    columns = {name: np.asarray(first.columns[name]).tolist() for name in COLUMNS}
    if report.analysis is not None and thresholds is not None:
        found = report.analysis.ap_columns()
        columns.update({name: found[name].tolist() for name in ("AP", "AP_50")})
        columns["best"] = thresholds.best_per_class.tolist()
    rows = zip(*columns.values())
    return [{"name": name, **dict(zip(columns, row))} for name, row in zip(report.classes, rows)]


def _errors(report: DetectionReport) -> Optional[Dict[str, Any]]:
    analysis = report.analysis
    errors = None if analysis is None else analysis.errors
    if analysis is None or errors is None:
        return None
    most = max([*errors.dap.values(), 1e-12])
    counted = analysis.error_totals
    return {
        "lines": error_lines(analysis),
        "rows": [
            {
                "kind": kind,
                "words": words,
                "at_score_thr": counted[kind],
                "count": errors.totals[kind],
                "gain": errors.dap[kind],
                "of_most": most,
            }
            for kind, words in KINDS.items()
        ],
    }


def _sizes(report: DetectionReport) -> Optional[List[Dict[str, Any]]]:
    if report.analysis is None:
        return None
    sizes = report.analysis.sizes
    return [{"title": size_range(name, *sizes.ranges[name]), **row} for name, row in sizes.metrics().items()]


def _settings(settings: Mapping[str, Any]) -> Dict[str, Any]:
    names = {
        "score_thr": "score threshold",
        "iou_thr": "IoU threshold",
        "nms_iou_thr": "NMS above IoU",
        "max_dets": "detections per class and image in AP (max_dets)",
        "operating_point": "operating point",
        "ci": "confidence level",
        "area_edges": "area edges",
    }
    shown = {words: settings[key] for key, words in names.items() if settings.get(key) is not None}
    return {**shown, "matching": ", ".join(settings["matching"])}


def _gallery(
    report: DetectionReport, examples: Examples, gallery: Gallery, image_names: Sequence[str]
) -> Dict[str, Any]:
    pictures = []
    place = {image: at for at, image in enumerate(examples.images.image.tolist())}
    kinds = ("right", "wrong", "lost")
    for image, picture in gallery.pictures.items():
        boxes: List[Dict[str, Any]] = []
        rows = np.flatnonzero(examples.boxes.image == image)
        columns = (examples.boxes.kind, np.round(examples.boxes.box, 1), examples.boxes.label, examples.boxes.score)
        for kind, box, label, score in zip(*(column[rows].tolist() for column in columns)):
            text = report.classes[label] + ("" if score != score else f" {score:.2f}")
            boxes.append({"kind": kinds[kind], "box": box, "text": text})
        pictures.append(
            {
                "image": image,
                "name": image_names[image],
                "uri": picture.uri,
                "size": picture.size,
                "boxes": boxes,
                "missed": int(examples.images.missed[place[image]]),
                "confidence": float(examples.images.confidence[place[image]]),
                "by_missed": _place(gallery.by_missed, image),
                "by_confidence": _place(gallery.by_confidence, image),
            }
        )
    return {"pictures": pictures, "remarks": gallery.remarks}


def _place(order: Sequence[int], image: int) -> str:
    places = list(order)
    return str(places.index(image)) if image in places else ""
