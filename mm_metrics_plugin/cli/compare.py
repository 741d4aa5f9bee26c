"""``mm-metrics compare``: is one run significantly better than another?"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from mm_metrics_plugin.cli.parsing import (
    DETECTION_SCORE_THR,
    MULTI_LABEL_SCORE_THR,
    ResultsAndFolder,
    add_gallery_arguments,
    add_input_arguments,
    add_interval_arguments,
    add_output_arguments,
    add_page_arguments,
    add_task_argument,
    add_threshold_arguments,
    add_truth_arguments,
    class_names,
    detection_settings,
    setting,
    whole,
)
from mm_metrics_plugin.exceptions import MetricWarning
from mm_metrics_plugin.settings import PERMUTATIONS, ClassificationSettings, ComparisonSettings, DetectionSettings

if TYPE_CHECKING:
    from mm_metrics_plugin.cli.detection_page import PageOptions
    from mm_metrics_plugin.cli.output import Forms
    from mm_metrics_plugin.cli.progress import Steps
    from mm_metrics_plugin.functional.comparison_report import ChangedClass, ComparisonReport, Versus
    from mm_metrics_plugin.functional.detection.matching import MatchTable
    from mm_metrics_plugin.functional.statistics.paired_tests import ChangedImage, Comparison
    from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts
    from mm_metrics_plugin.io.classification import ClassificationResults
    from mm_metrics_plugin.io.joining import Joined
    from mm_metrics_plugin.io.results import DetectionResults

INSIDE = "-"
PICKLES = (".pkl", ".pickle")
PARSER: Dict[str, Any] = dict(
    help="say which differences between runs are significant",
    usage="%(prog)s [TRUTH] A B [C ...] [OUT_DIR] [options]",
    description="Compares the results of two or more runs on the same images, each with the first: differences with\n"
    "confidence intervals and p-values, over all classes and per class, and the images that changed most.",
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="""examples:
  mm-metrics compare annotations.json old.pkl new.pkl              detectors
  mm-metrics compare annotations.json a.pkl b.pkl c.pkl report/    b and c, each with a
  mm-metrics compare old.pkl new.pkl --classes classes.txt         classifiers: the ground truth is in the results
  mm-metrics compare annotations.json a.pkl b.pkl report/ --html --images val2017/    and a page to look at

OUT_DIR receives comparison.json, comparison.md, differences.csv, changed_images.csv and, with --html, report.html.""",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "truth",
        metavar="TRUTH",
        help="the ground truth of detectors, as in `mm-metrics detection`; left out, or -, if it is inside the "
        "results, as it is for classifiers",
    )
    parser.add_argument(
        "results",
        metavar="RUN",
        nargs="+",
        action=ResultsAndFolder,
        help="results of each run, the baseline first. Optionally followed by OUT_DIR",
    )
    parser.set_defaults(out_dir=None)
    group = add_interval_arguments(parser, level=0.95, drawn="permutations")
    group.add_argument(
        "--permutations",
        type=setting("permutations", whole, partial(ComparisonSettings, DetectionSettings())),
        default=PERMUTATIONS,
        metavar="N",
        help=f"permutations of the paired permutation test (default: {PERMUTATIONS})",
    )
    add_threshold_arguments(parser, classifiers=True)
    add_task_argument(add_truth_arguments(add_input_arguments(parser)))
    add_gallery_arguments(add_page_arguments(add_output_arguments(parser, verbose=False)))


def run(arguments: argparse.Namespace) -> None:
    """Read, compare, write and print."""
    from mm_metrics_plugin.cli.detection import page_options
    from mm_metrics_plugin.cli.output import deliver

    _take_truth_as_run(arguments)
    page = page_options(arguments)
    deliver(arguments, lambda steps: _forms(*make_report(arguments, steps), page=page))


def _take_truth_as_run(arguments: argparse.Namespace) -> None:
    """Without TRUTH the first run stands in its place. A pickle holds results and is never TRUTH alone.

    Example:
        >>> words = argparse.Namespace(truth="a.pkl", results=["b.pkl"])
        >>> _take_truth_as_run(words)
        >>> words.truth, words.results
        ('-', ['a.pkl', 'b.pkl'])
    """
    if arguments.truth.lower().endswith(PICKLES):
        arguments.results = [arguments.truth, *arguments.results]
        arguments.truth = INSIDE


def _forms(report: ComparisonReport, side: Side, *, page: Optional[PageOptions]) -> Forms:
    from mm_metrics_plugin.cli.output import Forms
    from mm_metrics_plugin.io.writing import to_csv, to_json
    from mm_metrics_plugin.report.comparison import changed_rows, comparison_markdown, difference_rows

    formats = {
        "text": lambda: _text(report),
        "json": lambda: to_json(report.to_dict()),
        "md": lambda: comparison_markdown(report),
        "csv": lambda: to_csv(*difference_rows(report)),
    }
    files = {
        "comparison.json": formats["json"],
        "comparison.md": formats["md"],
        "differences.csv": formats["csv"],
        "changed_images.csv": lambda: to_csv(*changed_rows(report)),
    }
    if page is not None:
        from mm_metrics_plugin.cli.comparison_page import comparison_page

        files["report.html"] = lambda: comparison_page(report, side, page)
    return Forms(formats, files, lambda color_theme: {})


def _text(report: ComparisonReport) -> str:
    from mm_metrics_plugin.report.comparison import comparison_sections
    from mm_metrics_plugin.report.text import sections_text

    return sections_text(comparison_sections(report))


def make_report(arguments: argparse.Namespace, steps: Steps) -> Tuple[ComparisonReport, Side]:
    """Everything the comparison says, from the files named on the command line, and the runs it speaks of."""
    from mm_metrics_plugin.cli.output import input_entry, versions
    from mm_metrics_plugin.cli.sources import truth_entry
    from mm_metrics_plugin.exceptions import ResultFileError
    from mm_metrics_plugin.functional.comparison_report import ComparisonReport
    from mm_metrics_plugin.io.classification import ClassificationResults

    if len(arguments.results) < 2:
        raise ResultFileError(
            f"a comparison needs the results of at least two runs (found {arguments.results[0]} alone)"
        )
    inputs: Dict[str, Any] = {"runs": [input_entry(path) for path in arguments.results]}
    if arguments.truth != INSIDE:
        inputs["truth"] = truth_entry(arguments)
    steps.step("reading")
    results = [_read(path, arguments.trust, arguments.task) for path in arguments.results]
    kinds = {isinstance(one, ClassificationResults) for one in results}
    if len(kinds) > 1:
        raise ResultFileError(f"{results[0].source} and the others: detectors cannot be compared with classifiers")
    names = _run_names(arguments.results)
    side: Side = _Classifiers(arguments, results, steps) if kinds.pop() else _Detectors(arguments, results, steps)
    del results  # the runs keep what they need of them
    inputs["versions"] = versions(*(("mmengine", "mmdet") if arguments.truth.endswith(".py") else ()))
    for entry, joined_by in zip(inputs["runs"], side.joined_by):
        entry["joined_by"] = joined_by
    inputs["class_order"] = side.class_order
    steps.step("comparing")
    report = ComparisonReport(
        kind=side.kind,
        classes=side.classes,
        settings=side.settings,
        inputs=inputs,
        images=len(side.image_names),
        versus=tuple(side.versus(0, other, names) for other in range(1, len(names))),
    )
    return report, side


def _read(path: str, trust: bool, task: Optional[str]) -> Any:
    """Results of either kind."""
    from pathlib import Path

    from mm_metrics_plugin.io.classification import classification_from_samples
    from mm_metrics_plugin.io.reading import trim_memory
    from mm_metrics_plugin.io.results import read_results, results_from_images
    from mm_metrics_plugin.io.safe_pickle import read_pickle

    place = Path(path)
    if place.suffix.lower() not in PICKLES:
        return read_results(place, trust=trust)
    content = read_pickle(place, trust=trust)
    size = place.stat().st_size
    if isinstance(content, list) and content and isinstance(content[0], dict) and "pred_score" in content[0]:
        results = classification_from_samples(content, place.name, most_bytes=size, task=task)
        del content
        trim_memory()
        return results
    return results_from_images(content, place.name, file_size=size)


def _run_names(paths: Sequence[str]) -> List[str]:
    """File names; whole paths where two are alike."""
    from pathlib import Path

    names = [Path(path).name for path in paths]
    return names if len(set(names)) == len(names) else list(paths)


class Side:
    """Runs of one kind, ready to be compared."""

    kind = ""
    default_score_thr: float
    classes: Tuple[str, ...]
    settings: ComparisonSettings
    image_names: Tuple[Any, ...]
    image_folders: Sequence[str] = ()  # below which names are whole paths
    image_sizes: Any = ()  # (images, 2) height and width, where known
    truth: Any = None
    class_order = ""
    joined_by: Tuple[str, ...] = ()

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        if arguments.score_thr is None:
            arguments.score_thr = self.default_score_thr

    def _settings(self, **task: Any) -> ComparisonSettings:
        arguments = self.arguments
        return ComparisonSettings(**task, ci=arguments.ci, permutations=arguments.permutations, seed=arguments.seed)

    def counts(self, run: int) -> PerImageCounts:
        """What was right and wrong, image by image."""
        raise NotImplementedError

    def compared(self, first: int, second: int, counts: Tuple[PerImageCounts, PerImageCounts]) -> Comparison:
        """The comparison of what was counted, of average precision and of AUC."""
        raise NotImplementedError

    def confidence(self, run: int) -> Any:
        """(images,) how sure a run was, where it is one number an image."""
        return None

    def decisions(self, run: int) -> Any:
        """(images,) the class decided for, where it is one an image."""
        return None

    def versus(self, first: int, second: int, names: Sequence[str]) -> Versus:
        """One run against another."""
        import numpy as np

        from mm_metrics_plugin.functional.comparison_report import Versus
        from mm_metrics_plugin.functional.disagreements import disagreements
        from mm_metrics_plugin.functional.statistics.paired_tests import changed_images

        counts = self.counts(first), self.counts(second)
        sure = self.confidence(first), self.confidence(second)
        changed = changed_images(*counts)
        return Versus(
            names[first],
            names[second],
            self.compared(first, second, counts),
            changed,
            tuple(self.image_names[one.image] for one in changed),
            disagreements(*counts, confidence=None if sure[0] is None else np.stack(sure)),
            self.changed_classes(first, second, changed),
        )

    def changed_classes(self, first: int, second: int, changed: Sequence[ChangedImage]) -> Tuple[ChangedClass, ...]:
        """The true class of samples, and those that the runs decided for, where every sample has one."""
        from mm_metrics_plugin.functional.comparison_report import ChangedClass

        decided = self.decisions(first), self.decisions(second)
        if decided[0] is None:
            return ()
        rows = [(self.truth[one.image], *(each[one.image] for each in decided)) for one in changed]
        return tuple(ChangedClass(*(self.classes[label] for label in labels)) for labels in rows)


class _Detectors(Side):
    """Detections of the same images."""

    kind = "detection"
    default_score_thr = DETECTION_SCORE_THR

    def __init__(self, arguments: argparse.Namespace, results: Sequence[DetectionResults], steps: Steps) -> None:
        from mm_metrics_plugin.cli.sources import class_order
        from mm_metrics_plugin.exceptions import ResultFileError
        from mm_metrics_plugin.report.sentences import truncation_message

        super().__init__(arguments)
        if arguments.task is not None:
            raise ResultFileError(f"--task: is for classifiers ({results[0].source} holds detections)")
        joined = self._joined(results, steps)
        self.classes = joined[0].classes
        self.class_order = class_order(arguments, joined[0])
        self.joined_by = tuple(one.joined_by for one in joined)
        self.image_names = tuple(name or image_id for name, image_id in zip(joined[0].image_names, joined[0].image_ids))
        self.image_sizes = joined[0].image_sizes if joined[0].image_sizes is not None else ()
        steps.step("matching")
        # The details of a table are not needed here: sizes and error types are those of one run.
        self.detection = replace(detection_settings(arguments, matching=("coco",)), area_edges=())
        self.settings = self._settings(detection=self.detection)
        self.tables = [self._matched(one) for one in joined]
        message = truncation_message(arguments.max_dets, max(one.most_detections for one in self.tables))
        if message:
            warnings.warn(message, MetricWarning)

    def _joined(self, results: Sequence[DetectionResults], steps: Steps) -> List[Joined]:
        from mm_metrics_plugin.cli.sources import check_inside, read_truth, truth_inside
        from mm_metrics_plugin.exceptions import ResultFileError
        from mm_metrics_plugin.io.joining import classes_from_labels, join
        from mm_metrics_plugin.io.same_truth import check_same_truth
        from mm_metrics_plugin.io.shares import in_image_order

        arguments = self.arguments
        classes = class_names(arguments.classes)
        if arguments.truth == INSIDE:
            check_inside(arguments)
            truths = [truth_inside(one) for one in results]
            truth = truths[0]
            for other in truths[1:]:
                check_same_truth(truth, other)
            if classes is None:  # as many as any of the runs knows
                classes = [str(label) for label in range(max(classes_from_labels(one, truth) for one in results))]
        else:
            truth = read_truth(arguments, classes, steps)
        self.image_folders = truth.image_folders
        joined = [join(truth, one, classes=classes, allow_missing=arguments.allow_missing) for one in results]
        if not joined[0].image_ids:
            raise ResultFileError(f"{truth.source}: holds no images")
        return [in_image_order(one) for one in joined]  # as `mm-metrics detection`: it decides between equal scores

    def _matched(self, joined: Joined) -> MatchTable:
        from mm_metrics_plugin.states.detection import DetectionState

        state = DetectionState(len(joined.classes), self.detection, table="scores")
        order = range(joined.batch.num_images)
        return state.update(joined.batch, order, names=joined.image_ids).table()  # type: ignore[return-value]

    def counts(self, run: int) -> PerImageCounts:
        """TP, FP and FN, image by image."""
        from mm_metrics_plugin.functional.statistics.per_image_counts import per_image_counts

        return per_image_counts(self.tables[run], score_thr=self.detection.score_thr, iou_thr=self.detection.iou_thr)

    def compared(self, first: int, second: int, counts: Tuple[PerImageCounts, PerImageCounts]) -> Comparison:
        """Rates at the thresholds, and average precision."""
        from mm_metrics_plugin.functional.statistics.paired_tests import paired_permutation_test

        return paired_permutation_test(
            self.tables[first],
            self.tables[second],
            score_thr=self.detection.score_thr,
            iou_thr=self.detection.iou_thr,
            max_dets=self.detection.max_dets,
            ci=self.settings.ci,
            permutations=self.settings.permutations,
            seed=self.settings.seed,
        )


class _Classifiers(Side):
    """Scores of the same samples."""

    kind = "classification"
    default_score_thr = MULTI_LABEL_SCORE_THR

    def __init__(self, arguments: argparse.Namespace, results: Sequence[ClassificationResults], steps: Steps) -> None:
        from mm_metrics_plugin.cli.names import common_folder
        from mm_metrics_plugin.cli.sources import check_inside
        from mm_metrics_plugin.exceptions import ResultFileError

        super().__init__(arguments)
        if arguments.truth != INSIDE:
            raise ResultFileError(f"{results[0].source}: holds its ground truth; TRUTH must be -")
        if arguments.cfg_options:
            raise ResultFileError("--cfg-options: there is no config whose settings could be overridden")
        check_inside(arguments)
        results = _of_one_task(results)
        first = results[0]
        number = first.scores.shape[1]
        names = class_names(arguments.classes) or [str(label) for label in range(number)]
        if len(names) != number:
            raise ResultFileError(f"{first.source}: holds scores of {number} classes where {len(names)} are named")
        self.classes = tuple(names)
        steps.step("joining")
        self.truth = first.labels if first.labels is not None else first.targets
        aligned = [self._aligned(first, other) for other in results[1:]]
        self.scores = [first.scores, *(scores for scores, _, _ in aligned)]
        self.precision = [first.precision, *(precision for _, precision, _ in aligned)]
        ways = [way for _, _, way in aligned]
        self.joined_by = (ways[0], *ways)
        self.class_order = "classes" if arguments.classes else "labels"
        self.image_names = tuple(
            name or (int(index) if index >= 0 else at)
            for at, (name, index) in enumerate(zip(first.names, first.sample_idx))
        )
        folder = common_folder(first.names)
        self.image_folders = (folder,) if folder else ()
        score_thr = None if first.labels is not None else arguments.score_thr
        self.settings = self._settings(classification=ClassificationSettings(first.task, first.task_reason, score_thr))

    @staticmethod
    def _aligned(first: ClassificationResults, other: ClassificationResults) -> Tuple[Any, Any, str]:
        """The other's scores and their precision in the order of the first's samples, and what joined the samples."""
        import numpy as np

        from mm_metrics_plugin.exceptions import ResultFileError
        from mm_metrics_plugin.io.ground_truth import listing

        both = f"{first.source} and {other.source}"
        if first.scores.shape[1] != other.scores.shape[1]:
            raise ResultFileError(
                f"{both}: hold scores of {first.scores.shape[1]} and of {other.scores.shape[1]} classes"
            )
        keys, joined_by = _sample_keys(first, other)
        if not keys:
            if len(first.scores) != len(other.scores):
                raise ResultFileError(
                    f"{both}: name no samples, so they must have equally many (found {len(first.scores)} and "
                    f"{len(other.scores)})"
                )
            order = np.arange(len(first.scores))
        else:
            place = {key: at for at, key in enumerate(keys[1])}
            for left, right, source in ((keys[0], place, other.source), (keys[1], set(keys[0]), first.source)):
                missing = [key for key in left if key not in right]
                if missing:
                    raise ResultFileError(f"{source}: holds no {listing('sample', missing)}, unlike the other run")
            order = np.array([place[key] for key in keys[0]])
        for name in ("labels", "targets"):
            mine, theirs = getattr(first, name), getattr(other, name)
            if (mine is None) != (theirs is None) or (mine is not None and (mine != theirs[order]).any()):
                raise ResultFileError(f"{both}: differ in the ground truth of some samples")
        if np.array_equal(order, np.arange(len(order))):  # spares a copy of all scores
            return other.scores, other.precision, joined_by
        return other.scores[order], other.precision[order], joined_by

    def counts(self, run: int) -> PerImageCounts:
        """What was right and wrong, sample by sample."""
        from mm_metrics_plugin.functional.score_precision import reach
        from mm_metrics_plugin.functional.statistics.per_image_counts import PerImageCounts

        if self.truth.ndim == 2:
            decided = reach(self.scores[run], self.arguments.score_thr, self.precision[run])
            return PerImageCounts.from_decisions(self.truth, decided)
        return PerImageCounts.from_labels(self.truth, self.decisions(run), num_classes=len(self.classes))

    def confidence(self, run: int) -> Any:
        """The scores of the classes decided for, where every sample has one."""
        return self.scores[run].max(axis=1) if self.truth.ndim == 1 else None

    def decisions(self, run: int) -> Any:
        """The classes decided for, where every sample has one."""
        import numpy as np

        from mm_metrics_plugin.functional.decisions import hard_decisions

        return hard_decisions(self.scores[run], thresholds=[-np.inf])[:, 0] if self.truth.ndim == 1 else None

    def compared(self, first: int, second: int, counts: Tuple[PerImageCounts, PerImageCounts]) -> Comparison:
        """Rates of the decisions, and AUC."""
        from mm_metrics_plugin.functional.delong import auc_swaps
        from mm_metrics_plugin.functional.statistics.paired_tests import compare_counts

        swaps = auc_swaps([self.scores[first]], [self.scores[second]], self.truth)
        settings = self.settings
        found = compare_counts(
            *counts, auc=swaps, ci=settings.ci, permutations=settings.permutations, seed=settings.seed
        )
        if self.truth.ndim == 1:  # every sample decided once: the three are one number
            pooled = {name: value for name, value in found.overall.items() if not name.startswith("micro_")}
            found = replace(found, overall={"accuracy": found.overall["micro_recall"], **pooled})
        return found


def _of_one_task(results: Sequence[ClassificationResults]) -> List[ClassificationResults]:
    """All runs as multi-label if one is: the runs are of one task, and a run may show it less clearly than another."""
    first = next((one for one in results if one.targets is not None), None)
    if first is None:
        return list(results)
    reason = first.task_reason if first.task_reason == "--task" else f"{first.source}: {first.task_reason}"
    return [replace(one.as_multi_label(reason), task_reason=reason) for one in results]


def _sample_keys(*runs: ClassificationResults) -> Tuple[List[List[Any]], str]:
    """What identifies the samples of all runs, and its field; nothing and 'position' where no field does."""
    fields = {"img_path": [list(one.names) for one in runs], "sample_idx": [one.sample_idx.tolist() for one in runs]}
    for field, found in fields.items():
        if all("" not in keys and -1 not in keys and len(set(keys)) == len(keys) for keys in found):
            return found, field
    return [], "position"
