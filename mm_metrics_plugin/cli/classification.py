"""``mm-metrics classification``: metrics and confusions of a classifier."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Sequence, Tuple

from mm_metrics_plugin.cli.arguments import (
    MULTI_LABEL_SCORE_THR,
    add_input_arguments,
    add_interval_arguments,
    add_output_arguments,
    add_page_arguments,
    add_task_argument,
    class_names,
    fraction,
    number,
)

if TYPE_CHECKING:
    from mm_metrics_plugin.cli.output import Forms
    from mm_metrics_plugin.cli.progress import Steps
    from mm_metrics_plugin.evaluation.classification import Calibration, ClassificationReport
    from mm_metrics_plugin.functional.classification.roc_curves import ClassificationCurves
    from mm_metrics_plugin.functional.statistics.bootstrap import Interval
    from mm_metrics_plugin.io.classification_results import ClassificationResults

TOP_K = (1, 5)
MOST_DRAWN = 100  # classes whose curves can be told apart, more or less
MOST_SCORES_DRAWN = 10_000_000  # a curve has a point for every score
PARSER: Dict[str, Any] = dict(
    help="report on a classifier's results",
    usage="%(prog)s RESULTS [OUT_DIR] [options]",
    description="Reports on the results of a classifier: accuracy, top-5 accuracy, AUC, average precision, precision,\n"
    "recall and F1 per class, and the most frequent confusions. Reads RESULTS without running anything in it.",
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="""examples:
  mm-metrics classification results.pkl                                 print a report
  mm-metrics classification results.pkl report/ --classes classes.txt   and write JSON, Markdown, CSV and a figure
  mm-metrics classification results.pkl --config configs/my_resnet.py   class names from the config (needs mmpretrain)
  mm-metrics classification results.pkl report/ --html                  and a page to look at
  mm-metrics classification results.pkl --format json

OUT_DIR receives report.json, report.md, per_class.csv, curves.png (ROC and precision-recall, of up to 100 classes)
and, where every sample has one class, confusion_matrix.csv and confusion_matrix.png (of more than 100 classes the 40
most confused ones); with --html also report.html.""",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("results", metavar="RESULTS", help="results.pkl of mmpretrain's tools/test.py --out")
    parser.add_argument("out_dir", metavar="OUT_DIR", nargs="?", help="folder for the files of the report")
    group = add_input_arguments(parser, detectors=False)
    group.add_argument("--config", metavar="FILE", help="mmpretrain config whose test data set names the classes")
    group.add_argument(
        "--score-thr",
        type=number,
        default=MULTI_LABEL_SCORE_THR,
        metavar="X",
        help=f"score threshold of a multi-label task (default: {MULTI_LABEL_SCORE_THR})",
    )
    add_task_argument(group)
    group = parser.add_argument_group("thresholds")
    group.add_argument(
        "--at-specificity",
        type=fraction,
        default=0.95,
        metavar="X",
        help="report the sensitivity at a specificity of at least X (default: 0.95)",
    )
    group.add_argument(
        "--at-sensitivity",
        type=fraction,
        default=0.95,
        metavar="X",
        help="report the specificity at a sensitivity of at least X (default: 0.95)",
    )
    add_interval_arguments(parser, drawn="")
    add_page_arguments(add_output_arguments(parser))


def run(arguments: argparse.Namespace) -> None:
    """Read, count, write and print."""
    from mm_metrics_plugin.cli.output import deliver

    deliver(arguments, lambda steps: _make(arguments, steps))


def _make(arguments: argparse.Namespace, steps: Steps) -> Forms:
    from mm_metrics_plugin.cli.output import input_entry
    from mm_metrics_plugin.io.classification_results import read_classification

    inputs: Dict[str, Any] = {"results": input_entry(arguments.results)}
    steps.step("reading the results")
    results = read_classification(arguments.results, trust=arguments.trust, task=arguments.task)
    report = make_report(arguments, results, inputs, steps)
    return _forms(report, results if arguments.html else None, arguments.verbose)


def make_report(
    arguments: argparse.Namespace, results: ClassificationResults, inputs: Dict[str, Any], steps: Steps
) -> ClassificationReport:
    """Everything the report says."""
    from mm_metrics_plugin.cli.output import versions
    from mm_metrics_plugin.evaluation.classification import ClassificationReport, class_thresholds
    from mm_metrics_plugin.functional.classification.auc import roc_auc
    from mm_metrics_plugin.functional.classification.delong import delong_ci
    from mm_metrics_plugin.settings import ClassificationSettings

    ci = arguments.ci
    classes = _names(arguments, results, inputs)
    steps.step("counting")
    truth = results.labels if results.labels is not None else results.targets
    result, accuracy = _decide(results, arguments.score_thr)
    inputs["versions"] = versions("mmengine", "mmpretrain")
    return ClassificationReport(
        classes=classes,
        settings=ClassificationSettings(
            task=results.task,
            task_reason=results.task_reason,
            score_thr=None if results.labels is not None else arguments.score_thr,
            at_specificity=arguments.at_specificity,
            at_sensitivity=arguments.at_sensitivity,
            ci=ci,
        ),
        inputs=inputs,
        counts={"samples": results.tally.to_dict()},
        result=result,
        accuracy=accuracy,
        auc=roc_auc([results.scores], truth),  # type: ignore[arg-type]
        average_precision=roc_auc([results.scores], truth, curve="pr"),  # type: ignore[arg-type]
        top_k=_top_k(results),
        thresholds=class_thresholds(
            results.scores,
            truth,  # type: ignore[arg-type]
            at_specificity=arguments.at_specificity,
            at_sensitivity=arguments.at_sensitivity,
        ),
        curves=_curves(results, arguments),
        auc_intervals=None if ci is None else delong_ci([results.scores], truth, ci=ci),  # type: ignore[arg-type]
        intervals=None if ci is None else _intervals(results, arguments),
        calibration=_calibration(results),
    )


def _top_k(results: ClassificationResults) -> Dict[int, float]:
    """What RecallAtK says in training; nothing where samples have several classes."""
    from mm_metrics_plugin.functional.ranking import label_ranks

    if results.labels is None:
        return {}
    ranks = label_ranks(results.scores, results.labels)
    return {k: float((ranks < k).mean()) for k in TOP_K if k == 1 or k < results.scores.shape[1]}


def _calibration(results: ClassificationResults) -> Optional[Calibration]:
    """What CalibrationError says in training, from the same state; None where scores are no probabilities."""
    import numpy as np

    from mm_metrics_plugin.evaluation.classification import Calibration
    from mm_metrics_plugin.functional.classification.calibration_error import brier_terms, calibration_error, log_terms
    from mm_metrics_plugin.states.calibration import CalibrationState
    from mm_metrics_plugin.states.scores import ScoreState

    scores, labels = results.scores, results.labels
    if labels is None or scores.min() < 0 or scores.max() > 1:
        return None
    best = scores.argmax(axis=1)
    confidence, right = scores[np.arange(len(best)), best], best == labels
    terms = np.stack([brier_terms(scores, labels), log_terms(scores, labels)], axis=1)
    return Calibration(
        calibration_error(confidence, right), *CalibrationState(ScoreState()).update(confidence, right, terms).means()
    )


def _curves(results: ClassificationResults, arguments: argparse.Namespace) -> Optional[ClassificationCurves]:
    """What the figure shows, where there is one and it can be read."""
    from mm_metrics_plugin.functional.classification.roc_curves import roc_curves

    drawn = arguments.out_dir is not None or arguments.show
    if not drawn or results.scores.shape[1] > MOST_DRAWN or results.scores.size > MOST_SCORES_DRAWN:
        return None
    truth = results.labels if results.labels is not None else results.targets
    return roc_curves([results.scores], truth)  # type: ignore[arg-type]


def _intervals(results: ClassificationResults, arguments: argparse.Namespace) -> Any:
    """Confidence intervals of accuracy, precision, recall and F1."""
    from dataclasses import replace

    import numpy as np

    from mm_metrics_plugin.functional.classification.thresholding import hard_decisions
    from mm_metrics_plugin.functional.statistics.bootstrap import bootstrap_counts, proportion_interval
    from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts

    scores = results.scores
    if results.targets is not None:
        reached = results.reach(arguments.score_thr)
        counts = PerImageCounts.from_decisions(results.targets, reached)
        trials = np.count_nonzero(results.targets >= 0, axis=1)
        right = np.count_nonzero((results.targets >= 0) & ((results.targets == 1) == reached), axis=1)
    else:
        decided = hard_decisions(scores, thresholds=[-np.inf])[:, 0]
        counts = PerImageCounts.from_labels(results.labels, decided, num_classes=scores.shape[1])  # type: ignore[arg-type]
        right, trials = decided == results.labels, np.ones(len(decided))
    found = bootstrap_counts(counts, ci=arguments.ci)
    accuracy = proportion_interval(right, trials, ci=arguments.ci)
    overall = {"accuracy": accuracy, **found.overall}
    return replace(
        found,
        overall={name: _in_samples(one) for name, one in overall.items()},
        per_class={name: _in_samples(one) for name, one in found.per_class.items()},
    )


def _in_samples(one: Interval) -> Interval:
    """The interval of a classifier, which has samples in place of objects and images."""
    from dataclasses import replace

    import numpy as np

    from mm_metrics_plugin.functional.statistics.bootstrap import TOO_FEW

    reason = np.where(np.isin(one.reason, TOO_FEW), "too few samples", one.reason)
    return replace(one, reason=reason if reason.ndim else str(reason))


def _names(arguments: argparse.Namespace, results: ClassificationResults, inputs: Dict[str, Any]) -> Tuple[str, ...]:
    from pathlib import Path

    from mm_metrics_plugin.cli.output import input_entry
    from mm_metrics_plugin.exceptions import ResultFileError
    from mm_metrics_plugin.io.class_order import describe_orders
    from mm_metrics_plugin.io.dataset_config import read_class_names

    number = results.scores.shape[1]
    names: Optional[Sequence[str]] = class_names(arguments.classes)
    if arguments.config is not None:
        inputs["config"] = input_entry(arguments.config)
        own = read_class_names(arguments.config, options=arguments.cfg_options)
        if names is not None and sorted(names) == sorted(own) and list(names) != list(own):
            orders = describe_orders(own, Path(arguments.config).name, names, "--classes")
            raise ResultFileError(f"{orders}; labels follow the data set, so leave out --classes or --config")
        inputs["class_order"] = "metainfo" if names is None else "classes"
        names = own if names is None else names
    elif arguments.cfg_options:
        raise ResultFileError("--cfg-options: there is no --config whose settings could be overridden")
    inputs.setdefault("class_order", "labels" if names is None else "classes")
    if names is None:
        names = [str(index) for index in range(number)]
    if len(names) != number:
        raise ResultFileError(f"{results.source}: holds scores of {number} classes where {len(names)} are named")
    return tuple(names)


def _decide(results: ClassificationResults, score_thr: float) -> Tuple[Any, float]:
    """What the decisions say, counted by the states that SingleLabelPRF and MultiLabelPRF count with."""
    import numpy as np

    from mm_metrics_plugin.functional._arrays import divide
    from mm_metrics_plugin.functional.classification.confusion_matrix import confusion_matrix_report, stat_scores_report
    from mm_metrics_plugin.functional.classification.thresholding import hard_decisions
    from mm_metrics_plugin.states.confusion import ConfusionState
    from mm_metrics_plugin.states.counts import BinaryCountState

    scores = results.scores
    if results.targets is None:
        decided = hard_decisions(scores, thresholds=[-np.inf])
        state = ConfusionState(scores.shape[1]).update(results.labels, decided)  # type: ignore[arg-type]
        result = confusion_matrix_report(state.decisions)  # the best class always is a decision
        return result, result.accuracy
    counts = BinaryCountState().update(results.reach(score_thr), results.targets)
    tp, fp, fn, tn = counts.tp, counts.fp, counts.fn, counts.tn
    right, all_decisions = (tp + tn).sum(), (tp + fp + fn + tn).sum()
    return stat_scores_report(tp, fp, fn, tn), float(divide(right, all_decisions))


def _forms(report: ClassificationReport, page: Optional[ClassificationResults], verbose: bool) -> Forms:
    """The report in all its forms, with a page if it is given the results that the page looks into."""
    from mm_metrics_plugin.cli.output import Forms
    from mm_metrics_plugin.io.writing import to_csv, to_json
    from mm_metrics_plugin.render.markdown import classification_markdown
    from mm_metrics_plugin.render.tables import classification_class_rows, classification_matrix_rows

    formats = {
        "text": lambda: _text(report, verbose),
        "json": lambda: to_json(report.to_dict()),
        "md": lambda: classification_markdown(report),
        "csv": lambda: to_csv(*classification_class_rows(report)),
    }
    files = {"report.json": formats["json"], "report.md": formats["md"], "per_class.csv": formats["csv"]}
    if report.matrix is not None:
        files["confusion_matrix.csv"] = lambda: to_csv(*classification_matrix_rows(report))
    if page is not None:
        from mm_metrics_plugin.render.html.classification_lookup import classification_page

        files["report.html"] = lambda: classification_page(report, page)
    return Forms(
        formats=formats,
        files=files,
        figures=lambda color_theme: _figures(report, color_theme),
    )


def _figures(report: ClassificationReport, color_theme: str) -> Dict[str, Callable[[], Any]]:
    from mm_metrics_plugin.render.figures.confusion_matrix import confusion_figure
    from mm_metrics_plugin.render.figures.curves import classification_curve_figure

    figures: Dict[str, Callable[[], Any]] = {}
    matrix, curves = report.matrix, report.curves
    if matrix is not None:
        title = f"accuracy {report.accuracy:.4f}"
        figures["confusion_matrix.png"] = lambda: confusion_figure(
            matrix, None, report.classes, title=title, color_theme=color_theme
        )
    if curves is not None:
        figures["curves.png"] = lambda: classification_curve_figure(curves, report.classes, color_theme)
    return figures


def _text(report: ClassificationReport, verbose: bool) -> str:
    from mm_metrics_plugin.render.text import classification_text  # imports rich, which only this format needs

    return classification_text(report, verbose=verbose)
