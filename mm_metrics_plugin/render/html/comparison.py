"""The page of a comparison of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.io.writing import to_json
from mm_metrics_plugin.render.comparison import (
    SIGNIFICANT,
    interval_text,
    overall_rows,
    p_text,
    run_letters,
    verdict_text,
)
from mm_metrics_plugin.render.html import provenance, render_page, without_common_folder
from mm_metrics_plugin.render.html.thumbnails import collect_thumbnails
from mm_metrics_plugin.render.tables import COLUMN_NAMES, OVERALL_NAMES, printable

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.comparison import ComparisonReport, DifferenceRow, PairwiseComparison
    from mm_metrics_plugin.evaluation.runs import Runs
    from mm_metrics_plugin.render.outputs import PageOptions

PER_CLASS = ("AP", "AP_50", "auc", "f1", "precision", "recall")
AGREEMENT = {
    "both": "both are correct",
    "first": "only {first} is correct",
    "second": "only {second} is correct",
    "neither": "neither is correct",
}


def comparison_page(report: ComparisonReport, options: PageOptions) -> str:
    """Render the page of a comparison."""
    runs: Any = report.runs
    thumbnails, remarks = _thumbnails(report, runs, options)
    names = _image_names(runs)
    run_names = [printable(report.comparisons[0].first), *(printable(pair.second) for pair in report.comparisons)]
    letters = run_letters(run_names)
    data: Dict[str, Any] = {
        "labels": report.classes,
        "thumbnails": thumbnails,
        "comparisons": [
            {
                "first": letters[printable(pair.first)],
                "second": letters[printable(pair.second)],
                "overall": _overall(pair, report, letters),
                "per_class": _per_class(pair, report, letters),
                "images": {**_images(pair, names), **_predictions(runs, number, pair.disagreements.image)},
            }
            for number, pair in enumerate(report.comparisons, start=1)
        ],
    }
    context: Dict[str, Any] = {
        "title": "Comparison of runs",
        "unit": "samples" if report.kind == "classification" else "images",
        "remarks": remarks,
        "runs": [(letters[name], name) for name in run_names],
        "comparisons": [_context(pair, report, letters) for pair in report.comparisons],
        **provenance(report, ("ground_truth", "runs")),
    }
    return render_page("comparison.html", report, data=to_json(data, compact=True), **context)


def _thumbnails(report: ComparisonReport, runs: Runs, options: PageOptions) -> Tuple[Dict[str, str], List[str]]:
    """``data:`` URIs of images on which the runs disagree, by index, and remarks on those that are not shown."""
    if not options.gallery or (options.images is None and not (runs.kind == "detection" and runs.image_folders)):
        return {}, []
    images: List[int] = []
    half = -(-options.gallery // (2 * len(report.comparisons)))
    for pair in report.comparisons:
        found = pair.disagreements
        for worse in (True, False):
            images += found.image[found.worse == worse][:half].tolist()
    thumbnails, remarks = collect_thumbnails(
        images[: options.gallery],
        [name if isinstance(name, str) else "" for name in runs.image_names],
        folder=options.images,
        dataset_folders=runs.image_folders,
        sizes=runs.image_sizes,
    )
    return {str(image): thumbnail.uri for image, thumbnail in thumbnails.items()}, remarks


def _image_names(runs: Runs) -> List[str]:
    """Names of the images: the file without the common folder, else the index."""
    unit = "sample" if runs.kind == "classification" else "image"
    files = iter(without_common_folder([name for name in runs.image_names if isinstance(name, str)]))
    return [next(files) if isinstance(name, str) else f"{unit} {name}" for name in runs.image_names]


def _images(pair: PairwiseComparison, names: Sequence[str]) -> Dict[str, Any]:
    found = pair.disagreements
    return {
        "name": [names[image] for image in found.image.tolist()],
        "image": found.image,
        "worse": found.worse,
        "first": found.first,
        "second": found.second,
        "counts": found.counts,
    }


def _predictions(runs: Any, run: int, images: np.ndarray) -> Dict[str, Any]:
    """Ground truth, and classes and confidences that the first run and another predict; None of detectors."""
    if runs.decisions(run) is None:
        return {"ground_truth": None, "predictions": None, "confidences": None}
    return {
        "ground_truth": runs.ground_truth[images],
        "predictions": [runs.decisions(one)[images] for one in (0, run)],
        "confidences": [np.round(runs.confidence(one)[images].astype(np.float64), 4) for one in (0, run)],
    }


def _overall(pair: PairwiseComparison, report: ComparisonReport, letters: Mapping[str, str]) -> List[Dict[str, Any]]:
    return [
        {"title": OVERALL_NAMES.get(row.metric, row.metric), **_difference(row, pair, letters)}
        for row in overall_rows(pair, report.classes)
    ]


def _per_class(pair: PairwiseComparison, report: ComparisonReport, letters: Mapping[str, str]) -> List[Dict[str, Any]]:
    """One entry per metric, with one row per class."""
    rows = [row for row in pair.rows(report.classes) if row.class_name is not None]
    entries = [
        {
            "metric": metric,
            "title": COLUMN_NAMES.get(metric, metric),
            "rows": [_difference(row, pair, letters) for row in rows if row.metric == metric],
        }
        for metric in PER_CLASS
    ]
    return [entry for entry in entries if entry["rows"]]


def _difference(row: DifferenceRow, pair: PairwiseComparison, letters: Mapping[str, str]) -> Dict[str, Any]:
    return {
        "metric": row.metric,
        "first": row.first,
        "second": row.second,
        "difference": row.difference,
        "low": row.low,
        "high": row.high,
        "interval": interval_text(row.low, row.high, joined="{} to {}", sign=True),
        "p": row.p_value,
        "p_text": p_text(row.p_value, ci=pair.comparison.ci),
        "verdict": row.verdict,
        "verdict_text": verdict_text(row, letters[printable(pair.second)]),
    }


def _context(pair: PairwiseComparison, report: ComparisonReport, letters: Mapping[str, str]) -> Dict[str, Any]:
    """The variables of the section of one comparison."""
    overall = _overall(pair, report, letters)
    names = {"first": letters[printable(pair.first)], "second": letters[printable(pair.second)]}
    found = pair.disagreements
    return {
        **names,
        "overall": overall,
        "significant": any(row["verdict"] in SIGNIFICANT for row in overall),
        "per_class": [(entry["metric"], entry["title"]) for entry in _per_class(pair, report, letters)],
        "agreement": [(key, words.format(**names), found.agreement[key]) for key, words in AGREEMENT.items()],
        "counts": found.counts,
    }
