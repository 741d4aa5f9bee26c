"""The page of ``mm-metrics classification``: what is behind the numbers is looked up, and all goes into one file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.classification import ClassificationReport
    from mm_metrics_plugin.io.classification_results import ClassificationResults

MOST_LISTED = 20_000  # members of cells: some 2 MB of the page
MOST_POINTS = 40_000  # of all classes' curves together


def classification_page(report: ClassificationReport) -> str:
    """The page as text."""
    import numpy as np

    from mm_metrics_plugin.evaluation.samples import confusion_cells, decision_cells
    from mm_metrics_plugin.functional.classification.roc_curves import thinned_curves
    from mm_metrics_plugin.functional.thresholding import hard_decisions
    from mm_metrics_plugin.io.writing import to_json
    from mm_metrics_plugin.render.html import render_page
    from mm_metrics_plugin.render.html.classification import page_context, page_data

    results: Any = report.results
    scores, labels, targets = results.scores, results.labels, results.targets
    if labels is not None:
        truth, decided = labels, hard_decisions(scores, thresholds=[-np.inf])[:, 0]
        cells = confusion_cells(scores, labels, decided, most=MOST_LISTED)
        true_score = scores[cells.sample, labels[cells.sample]]
    else:
        truth = np.asarray(targets)
        decisions = results.reach(report.settings.score_thr)
        cells = decision_cells(scores, truth, decisions, most=MOST_LISTED)
        true_score = None
    points = max(40, min(200, MOST_POINTS // len(report.classes)))
    curves = thinned_curves(scores, truth, max_points=points)
    data = page_data(report, cells=cells, true_score=true_score, curves=curves, sample_names=sample_names(results))
    return render_page("classification.html", data=to_json(data, compact=True), **page_context(report))


def sample_names(results: ClassificationResults) -> List[str]:
    """What samples are called: their file, else their number in the data set, else their place in the results."""
    from mm_metrics_plugin.render.html.names import without_common_folder

    names = without_common_folder(results.names)
    return [
        name or (f"sample {number}" if number >= 0 else f"sample {place} of the file")
        for place, (name, number) in enumerate(zip(names, results.sample_idx.tolist()))
    ]
