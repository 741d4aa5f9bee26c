"""What the page of a comparison shows: the runs side by side, and the images on which they disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

import numpy as np

from mm_metrics_plugin.render.comparison import NAMES, SIGNIFICANT, WORDS, interval_text, p_text
from mm_metrics_plugin.render.html import file_entries, input_settings
from mm_metrics_plugin.render.tables import printable
from mm_metrics_plugin.version import __version__

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.comparison import ComparisonReport, DifferenceRow, Versus

PER_CLASS = {"AP": "AP", "AP_50": "AP_50", "auc": "AUC", "f1": "F1", "precision": "precision", "recall": "recall"}
AGREEMENT = {
    "both": "both are correct",
    "first": "only {first} is correct",
    "second": "only {second} is correct",
    "neither": "neither is correct",
}


def page_data(
    report: ComparisonReport,
    *,
    image_names: Sequence[str],
    said: Sequence[Mapping[str, Any]],
    pictures: Optional[Mapping[int, str]] = None,
) -> Dict[str, Any]:
    """What the scripts of the page read.

    Args:
        report: The numbers.
        image_names: What images are called.
        said: Of each comparison, what both runs decided for on the images of its disagreements (``truth``, ``said``,
            ``sure``), where every image has one class; else nothing.
        pictures: ``data:`` addresses of images by number.
    """
    return {
        "labels": report.classes,
        "pictures": {str(image): uri for image, uri in (pictures or {}).items()},
        "versus": [
            {
                "first": versus.first,
                "second": versus.second,
                "overall": _overall(versus, report),
                "per_class": _per_class(versus, report),
                "images": _images(versus, image_names, more),
            }
            for versus, more in zip(report.versus, said)
        ],
    }


def _images(versus: Versus, names: Sequence[str], said: Mapping[str, Any]) -> Dict[str, Any]:
    found = versus.disagreements
    sure = [np.round(part.astype(np.float64), 4) for part in said.get("sure", ())]
    return {
        "name": [names[image] for image in found.image.tolist()],
        "image": found.image,
        "worse": found.worse,
        "first": found.first,
        "second": found.second,
        "counts": found.counts,
        "truth": said.get("truth"),
        "said": said.get("said"),
        "sure": sure or None,
    }


def _overall(versus: Versus, report: ComparisonReport) -> List[Dict[str, Any]]:
    """Every figure over all classes, in the order it is read in."""
    rows = [row for row in versus.rows(report.classes) if row.class_name is None]
    rows.sort(key=lambda row: list(NAMES).index(row.metric) if row.metric in NAMES else len(NAMES))
    return [{"title": NAMES.get(row.metric, row.metric), **_figures(row, versus)} for row in rows]


def _per_class(versus: Versus, report: ComparisonReport) -> List[Dict[str, Any]]:
    """The figures of each class: one entry a metric, with one row a class."""
    rows = versus.rows(report.classes)
    found = []
    for metric, title in PER_CLASS.items():
        mine = [row for row in rows if row.class_name is not None and row.metric == metric]
        if mine:
            each = [_figures(row, versus) for row in mine]
            found.append({"metric": metric, "title": title, "rows": each})
    return found


def _figures(row: DifferenceRow, versus: Versus) -> Dict[str, Any]:
    return {
        "metric": row.metric,
        "first": row.first,
        "second": row.second,
        "difference": row.difference,
        "low": row.low,
        "high": row.high,
        "interval": interval_text(row.low, row.high, joined="{} to {}", sign=True),
        "p": row.p_value,
        "p_said": p_text(row.p_value, ci=versus.comparison.ci),
        "verdict": row.verdict,
        "words": WORDS[row.verdict].format(second=printable(versus.second)),
    }


def page_context(report: ComparisonReport, remarks: Sequence[str] = ()) -> Dict[str, Any]:
    """What the template names."""
    return {
        "title": "Comparison of runs",
        "version": __version__,
        "report": report,
        "what": "samples" if report.kind == "classification" else "images",
        "remarks": list(remarks),
        "runs": [report.versus[0].first, *(versus.second for versus in report.versus)],
        "versus": [_versus(versus, report) for versus in report.versus],
        "files": file_entries(report.inputs, ("ground_truth", "runs")),
        "versions": report.inputs["versions"],
        "settings": {**_settings(report.settings.to_dict()), **input_settings(report.inputs, "runs")},
    }


def _versus(versus: Versus, report: ComparisonReport) -> Dict[str, Any]:
    overall = _overall(versus, report)
    names = {"first": printable(versus.first), "second": printable(versus.second)}
    found = versus.disagreements
    return {
        **names,
        "overall": overall,
        "significant": any(row["verdict"] in SIGNIFICANT for row in overall),
        "per_class": [(one["metric"], one["title"]) for one in _per_class(versus, report)],
        "agreement": [(key, words.format(**names), found.agreement[key]) for key, words in AGREEMENT.items()],
        "counts": found.counts,
    }


def _settings(settings: Mapping[str, Any]) -> Dict[str, Any]:
    names = {
        "task": "task",
        "task_reason": "reason for the task",
        "score_thr": "score threshold",
        "iou_thr": "least overlap (IoU)",
        "nms_iou_thr": "duplicates removed above IoU",
        "max_dets": "detections per class and image in AP (max_dets)",
        "ci": "confidence level",
        "permutations": "permutations",
        "seed": "seed",
    }
    return {words: settings[key] for key, words in names.items() if settings.get(key) is not None}
