"""The page of a comparison of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Sequence

import numpy as np

from mm_metrics_plugin.render.comparison import (
    SIGNIFICANT,
    classes_lines,
    interval_text,
    overall_rows,
    p_text,
    run_letters,
    run_lines,
    verdict_text,
    warning_lines,
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
    run_names = [printable(summary.name) for summary in report.summaries]
    letters = run_letters(run_names)
    comparisons = [
        {
            **_differences(report, pair, letters),
            "images": {**_images(pair, names), **_predictions(runs, number, pair.disagreements.image)},
        }
        for number, pair in enumerate(report.comparisons, start=1)
    ]
    context: dict[str, Any] = {
        "title": "Comparison of runs",
        "unit": "sample" if report.kind == "classification" else "image",
        "remarks": remarks,
        "runs": [(letters[name], name) for name in run_names],
        "run_lines": run_lines(report, letters),
        "counts": {
            f"{letters[printable(summary.name)]}: {unit}": counts
            for summary in report.summaries
            for unit, counts in summary.counts.items()
        },
        "comparisons": comparisons,
        **provenance(report, ("ground_truth", "runs")),
    }
    data = {"labels": report.classes, "thumbnails": thumbnails, "comparisons": comparisons}
    return render_page("comparison.html", report, data=data, **context)


def _thumbnails(report: ComparisonReport, runs: Runs, options: PageOptions) -> tuple[dict[str, str], list[str]]:
    """``data:`` URIs of images on which the runs disagree, by index, and remarks on those that are not shown."""
    if not options.gallery or (options.images is None and not (runs.kind == "detection" and runs.image_folders)):
        return {}, []
    images: list[int] = []
    half = -(-options.gallery // (2 * len(report.comparisons)))
    for pair in report.comparisons:
        differing = pair.disagreements
        for worse in (True, False):
            images += differing.image[differing.worse == worse][:half].tolist()
    thumbnails, remarks = collect_thumbnails(
        images[: options.gallery],
        [name if isinstance(name, str) else "" for name in runs.image_names],
        folder=options.images,
        dataset_folders=runs.image_folders,
        sizes=runs.image_sizes,
    )
    return {str(image): thumbnail.uri for image, thumbnail in thumbnails.items()}, remarks


def _image_names(runs: Runs) -> list[str]:
    """Names of the images: the file without the common folder, else the index."""
    unit = "sample" if runs.kind == "classification" else "image"
    files = iter(without_common_folder([name for name in runs.image_names if isinstance(name, str)]))
    return [next(files) if isinstance(name, str) else f"{unit} {name}" for name in runs.image_names]


def _images(pair: PairwiseComparison, names: Sequence[str]) -> dict[str, Any]:
    images = pair.disagreements
    columns = {key: getattr(images, key) for key in ("image", "worse", "first", "second", "counts")}
    return {"name": [names[image] for image in images.image.tolist()], **columns}


def _predictions(runs: Any, run: int, images: np.ndarray) -> dict[str, Any]:
    """Ground truth, and classes and confidences that the first run and another predict; None of detectors."""
    if runs.decisions(run) is None:
        return {"ground_truth": None, "predictions": None, "confidences": None}
    return {
        "ground_truth": runs.ground_truth[images],
        "predictions": [runs.decisions(number)[images] for number in (0, run)],
        "confidences": [np.round(runs.confidence(number)[images].astype(float), 4) for number in (0, run)],
    }


def _differences(report: ComparisonReport, pair: PairwiseComparison, letters: Mapping[str, str]) -> dict[str, Any]:
    """The differences of two runs over all classes and per class, and on how many images they agree."""
    first, second = letters[printable(pair.first)], letters[printable(pair.second)]
    overall = [_difference(row, second, report.settings.ci) for row in overall_rows(pair, report.classes)]
    rows: dict[str, list[Any]] = {metric: [] for metric in PER_CLASS}
    for row in pair.rows(report.classes):
        if row.class_name is not None and row.metric in rows:
            rows[row.metric].append(_difference(row, second, report.settings.ci))
    return {
        "first": first,
        "second": second,
        "overall": overall,
        "warnings": warning_lines(pair, letters),
        "classes": classes_lines(overall_rows(pair, report.classes), len(report.classes)),
        "significant": any(row["verdict"] in SIGNIFICANT for row in overall),
        "per_class": [
            {"metric": metric, "title": COLUMN_NAMES.get(metric, metric), "rows": differences}
            for metric, differences in rows.items()
            if differences
        ],
        "agreement": [
            (key, words.format(first=first, second=second), pair.disagreements.agreement[key])
            for key, words in AGREEMENT.items()
        ],
    }


def _difference(row: DifferenceRow, second: str, ci: float) -> dict[str, Any]:
    return {
        "metric": row.metric,
        "title": OVERALL_NAMES.get(row.metric, row.metric),
        "first": row.first,
        "second": row.second,
        "difference": row.difference,
        "low": row.low,
        "high": row.high,
        "interval": interval_text(row.low, row.high, joined="{} to {}", sign=True),
        "p": row.p_value,
        "p_text": p_text(row.p_value, ci=ci),
        "verdict": row.verdict,
        "verdict_text": verdict_text(row, second),
    }
