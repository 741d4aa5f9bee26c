"""Evaluation of a detector: from files or arrays to a :class:`DetectionReport`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.evaluation.report import (
    GALLERY,
    SCHEMA_VERSION,
    Progress,
    Report,
    check_classes,
    is_path,
    keyword_names,
    records,
    warn_unreached,
)
from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError, pluralize
from mm_metrics_plugin.functional._arrays import unique_names
from mm_metrics_plugin.functional.detection.average_precision import AveragePrecision, average_precision
from mm_metrics_plugin.functional.detection.confusion_rules import ProtocolReport, background_name, protocol_report
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.operating_points import OperatingPoint, OperatingPoints, operating_points
from mm_metrics_plugin.functional.detection.pr_curves import DetectionCurves, precision_recall_curves
from mm_metrics_plugin.functional.detection.results_by_size import SizeReport, results_by_size
from mm_metrics_plugin.functional.detection.tide import TideErrors, errors_at_threshold, tide_errors
from mm_metrics_plugin.settings import DetectionSettings, require, require_int, with_options

if TYPE_CHECKING:
    from mm_metrics_plugin.evaluation.shards import Shard
    from mm_metrics_plugin.functional.statistics.bootstrap import Intervals
    from mm_metrics_plugin.io.files import PathLike

DEFAULT_MATCHING = ("coco", "mmdet")  # coco is printed and drawn, files contain both
FOLDS = 5
POINTS = 201


@dataclass(frozen=True, eq=False)
class DetectionAnalysis:
    """What a report contains beyond the confusion matrices."""

    classes: Sequence[str]
    average_precision: AveragePrecision  # COCO's, of at most ``max_dets`` detections per class and image
    max_dets: int  # limit of every average precision except in ``errors``
    most_detections: int  # maximum number of detections of one class in one image
    score_thr: float  # score threshold of precision and recall
    curves: DetectionCurves
    sizes: SizeReport  # results by object size
    errors: Optional[TideErrors]  # of detections of all scores; None if the IoU threshold leaves no room for them
    errors_at_threshold: Optional[Dict[str, np.ndarray]]  # (classes,) errors by type; they add up to FP and FN
    points: Optional[OperatingPoints]  # best score thresholds, if ``operating_point`` is given
    intervals: Optional[Intervals]  # confidence intervals, if ``ci`` is given

    @property
    def error_totals(self) -> Dict[str, int]:
        """Number of errors of all classes at the score threshold, by type."""
        return {name: int(count.sum()) for name, count in (self.errors_at_threshold or {}).items()}

    def ap_columns(self) -> Dict[str, Any]:
        """AP of each class, by the name of the column."""
        ap = self.average_precision
        return {"name": list(self.classes), "AP": ap.per_class, "AP_50": ap.at_iou(0.5), "AP_75": ap.at_iou(0.75)}

    def thresholds(self) -> Dict[str, Any]:
        """The best score thresholds, as in ``thresholds.json``."""
        points = self.points
        if points is None:
            return {}
        return {
            "rule": str(points.rule),
            "threshold": points.overall.threshold,
            "per_class": dict(zip(unique_names(self.classes), (point.threshold for point in points.per_class))),
            "in_sample": {"overall": points.overall.to_dict(), "per_class": self._by_class(points.per_class)},
            "cross_fitted": {
                "folds": points.folds,
                "overall": points.overall_cross_fitted.to_dict(),
                "per_class": self._by_class(points.per_class_cross_fitted),
            },
        }

    def _by_class(self, points: Sequence[OperatingPoint]) -> List[Dict[str, Any]]:
        return [{"name": name, **point.to_dict()} for name, point in zip(self.classes, points)]

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values."""
        errors = None
        if self.errors is not None:
            counts = {name: count.tolist() for name, count in (self.errors_at_threshold or {}).items()}
            at_score_thr = {"score_thr": self.score_thr, "totals": self.error_totals, "counts": counts}
            errors = {**self.errors.to_dict(), "at_score_thr": at_score_thr}
        return {
            "average_precision": {
                **self.average_precision.to_dict(),
                "max_dets": self.max_dets,
                "most_detections_per_class_and_image": self.most_detections,
                "per_class": records(self.ap_columns()),
            },
            "sizes": self.sizes.to_dict(),
            "errors": errors,
            "operating_points": self.thresholds() or None,
            "intervals": None if self.intervals is None else self.intervals.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class DetectionReport(Report):
    """Report on a detector.

    Attributes:
        inputs: Provenance: the files that were read, and versions.
        counts: Images, detections and objects read, used and dropped by reason.
        protocols: Confusion matrix and rates by each matching protocol.
        analysis: Average precision, curves, sizes, error types, operating points and intervals.
        shard: The matched detections that the report was made from.
    """

    classes: Tuple[str, ...]
    settings: DetectionSettings
    inputs: Mapping[str, Any]
    counts: Mapping[str, Any]
    protocols: Tuple[ProtocolReport, ...]
    analysis: Optional[DetectionAnalysis] = None
    shard: Optional[Shard] = field(default=None, repr=False)

    @property
    def labels(self) -> List[str]:
        """Names of the rows and columns of the matrices."""
        return [*self.classes, background_name(self.classes)]

    @property
    def differences(self) -> List[str]:
        """Why the protocols differ, in numbers, one line each."""
        names = [report.protocol for report in self.protocols]
        return [line for report in self.protocols for line in _differences(report, names)]

    @property
    def missing_results(self) -> List[str]:
        """The number of images without results, if any."""
        missing = self.counts.get("images", {}).get("without_results", 0)
        line = f"{pluralize(missing, 'image')} without results, evaluated as having no detections"
        return [line] if missing else []

    @property
    def remarks(self) -> List[str]:
        """Why the protocols differ, and how many images have no results."""
        return [*self.differences, *self.missing_results]

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values, in the order of the JSON report."""
        return {
            "schema_version": SCHEMA_VERSION,
            "classes": list(self.classes),
            "settings": self.settings.to_dict(),
            "inputs": dict(self.inputs),
            "counts": dict(self.counts),
            "protocols": {report.protocol: report.to_dict() for report in self.protocols},
            "remarks": self.remarks,
            **({} if self.analysis is None else self.analysis.to_dict()),
        }


def _differences(report: ProtocolReport, protocols: Sequence[str]) -> List[str]:
    counts, lines = report.counts, []
    if report.protocol == "mmdet":
        lines += [
            f"mmdet counts {pluralize(counts['duplicates'], 'duplicate')} as TP: further detections of the right class "
            "that overlap a matched ground truth",
            f"mmdet counts {pluralize(counts['ground_truths_counted_again'], 'ground truth')} too many: a ground truth "
            "counts once per overlapping detection, and once more as FN if none of these has its class",
            f"mmdet counts {pluralize(counts['detections_counted_again'], 'detection')} too many: a detection "
            "counts once per ground truth that it overlaps",
        ]
        if counts.get("crowds") and "coco" not in protocols:  # coco has a line about crowd regions
            regions = pluralize(counts["crowds"], "crowd region")
            lines.append(f"mmdet counts {regions} as ordinary ground truths; coco ignores them")
    elif counts.get("ground_truths_ignored"):
        lines.append(
            f"{report.protocol} ignores {pluralize(counts['ground_truths_ignored'], 'crowd region')} and "
            f"detections that match only crowd regions ({counts['detections_ignored']:,}); mmdet counts them"
        )
    if report.protocol == "agnostic":
        classes = report.result.matrix[:-1, :-1]
        between = int(classes.sum() - classes.trace())
        lines.append(f"agnostic matches by IoU alone: {pluralize(between, 'match')} between two classes")
    return lines


def evaluate_detection(
    ground_truth: Any,
    results: Any = None,
    *,
    classes: Optional[Sequence[str]] = None,
    settings: Optional[DetectionSettings] = None,
    class_order: Optional[str] = None,
    image_set: Optional[PathLike] = None,
    cfg_options: Optional[Sequence[str]] = None,
    trust: bool = False,
    allow_missing: bool = False,
    gallery: Optional[int] = GALLERY,
    save_state: Optional[PathLike] = None,
    distributed: bool = False,
    progress: Optional[Progress] = None,
    **options: Any,
) -> DetectionReport:
    """Evaluate a detector, as ``mm-metrics detection`` does.

    Args:
        ground_truth: The path of COCO annotations (``.json``), a folder of VOC files or an mmdet config (``.py``); a
            dict of COCO annotations; a :class:`~mm_metrics_plugin.functional.DetectionBatch`, which holds detections
            as well; or None if the ground truth is inside the results.
        results: The path of ``results.pkl`` or COCO results (``.json``), several paths that are shards of one test
            set, or a list of results in memory: one dict per image as mmdet writes them, or COCO results.
        classes: Class names in the order of the labels.
        settings: All options at once; by default those of ``options`` with ``matching=('coco', 'mmdet')``.
        class_order: ``'annotations'`` or ``'classes'``: which order labels follow, where the two differ.
        image_set: List of the test images of a folder of VOC files.
        cfg_options: ``KEY=VALUE`` overrides of the config.
        trust: Read pickles with plain pickle, which runs whatever is in them.
        allow_missing: Evaluate images without results as images without detections.
        gallery: Keep examples for the HTML page, and this many of the worst images; None keeps none.
        save_state: Save the state of this shard to an ``.npz`` file for :func:`merge_states`. The results may then
            cover only some of the images.
        distributed: Divide the work among the processes that torchrun started. Only the first gets a report.
        progress: Receives the steps.
        **options: Fields of :class:`~mm_metrics_plugin.settings.DetectionSettings`, such as ``score_thr=0.5``.

    Raises:
        ResultFileError: An input is damaged, or does not fit the others.

    Example:
        >>> annotations = {
        ...     "images": [{"id": 7, "file_name": "a.jpg", "height": 48, "width": 64}],
        ...     "categories": [{"id": 3, "name": "cat"}],
        ...     "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [0, 0, 10, 10]}]}
        >>> results = [{"image_id": 7, "category_id": 3, "bbox": [0, 0, 10, 10], "score": 0.9}]
        >>> report = evaluate_detection(annotations, results, score_thr=0.5)
        >>> report.protocols[0].columns["tp"].tolist(), report.analysis.average_precision.to_dict()["mAP"]
        ([1], 1.0)
    """
    from mm_metrics_plugin.evaluation.loading import DetectionInput, load_shard, shard_of_batch
    from mm_metrics_plugin.evaluation.shards import ProcessGroup, save_shard
    from mm_metrics_plugin.io.files import trim_memory

    settings = settings or DetectionSettings(matching=DEFAULT_MATCHING)
    settings = with_options(settings, options, keyword_names(evaluate_detection))
    check_classes(classes)
    if save_state is not None and not str(save_state).endswith(".npz"):
        raise ResultFileError(f"--save-state: save_state must end in .npz (found {str(save_state)!r})")
    if gallery is not None:
        require_int("gallery", gallery, low=0)
    progress = progress or Progress()
    group = ProcessGroup(distributed=distributed)
    if isinstance(ground_truth, DetectionBatch):
        shard = shard_of_batch(ground_truth, settings, classes, gallery)
    else:
        if not is_path(results) and not isinstance(results, (list, tuple)):
            raise ResultFileError(
                "results must be a path, several paths, or a list of results in memory "
                f"(found {type(results).__name__})"
            )
        several = not is_path(results) and len(results) > 0 and all(is_path(one) for one in results)
        source = DetectionInput(
            ground_truth=ground_truth,
            results=tuple(results) if several else (results,),
            classes=classes,
            class_order=class_order,
            image_set=None if image_set is None else str(image_set),
            cfg_options=cfg_options,
            trust=trust,
            allow_missing=allow_missing,
        )
        partial = save_state is not None and not allow_missing
        shard = load_shard(source, settings, group=group, progress=progress, worst_images=gallery, partial=partial)
    trim_memory()  # of the input
    group.close()
    if group.rank > 0:
        return None  # type: ignore[return-value]
    if save_state is not None:
        save_shard(str(save_state), shard)
    progress.step("computing metrics")
    return report_of(shard, progress)


def merge_states(files: Sequence[PathLike], *, progress: Optional[Progress] = None) -> DetectionReport:
    """One report from states that ``save_state`` wrote, with the numbers of one run on all images.

    Args:
        files: The ``.npz`` files. They must have the same classes and settings, share no image, and together hold
            every image of the ground truth.
        progress: Receives the steps.

    Raises:
        ResultFileError: A file is damaged, or the files do not fit together.
    """
    from mm_metrics_plugin.evaluation.shards import merge_shards, read_shard

    if not isinstance(files, (list, tuple)) or not files:
        raise ResultFileError(f"files must be a list of .npz files (found {files!r})")
    progress = progress or Progress()
    progress.step("reading")
    shard = merge_shards([read_shard(str(file)) for file in progress.track(files)])
    if shard.images_elsewhere:
        names = ", ".join(entry["file"] for entry in shard.ground_truths)
        raise ResultFileError(f"{names}: shards with {pluralize(shard.images_elsewhere, 'image')} are missing")
    progress.step("computing metrics")
    return report_of(shard, progress)


def report_of(shard: Shard, progress: Progress) -> DetectionReport:
    """The report on the images of a shard."""
    settings, state = shard.settings, shard.state
    counted, protocols = state.counts_by_name, []
    for name in settings.matching:
        rule = state.rule(name)
        ground_truths, detections = rule.used
        names = ("detections_without_area", "ground_truths_without_area", *(("crowds",) if name == "mmdet" else ()))
        protocols.append(
            protocol_report(
                name,
                rule.matrix,
                classes=shard.classes,
                ground_truths=ground_truths,
                detections=detections,
                counts={**rule.counts_by_name, **{key: counted[key] for key in names}},
                background_types=rule.background_types,
            )
        )
    analysis, table = None, state.table()
    if table is not None:
        analysis = analyze_detections(table, settings, classes=shard.classes, progress=progress)
        message = settings.truncation_message(analysis.most_detections)
        if message:
            warnings.warn(message, MetricWarning)
    if 0 < counted["detections"] == counted["detections_below_threshold"]:
        warn_unreached("detection", settings.score_thr, None if table is None else table.score)
    return DetectionReport(
        classes=shard.classes,
        settings=settings,
        inputs=shard.inputs(),
        counts=shard.counts(),
        protocols=tuple(protocols),
        analysis=analysis,
        shard=shard,
    )


def analyze_detections(
    table: MatchTable, settings: DetectionSettings, *, classes: Sequence[str], progress: Optional[Progress] = None
) -> DetectionAnalysis:
    """Compute everything that follows from matched detections."""
    iou_thr, score_thr, max_dets = settings.iou_thr, settings.score_thr, settings.max_dets
    intervals, points, errors, counted = None, None, None, None
    if settings.ci is not None and table.num_images:
        from mm_metrics_plugin.functional.statistics.bootstrap import bootstrap_ci  # imports SciPy

        intervals = bootstrap_ci(
            table,
            score_thr=score_thr,
            iou_thr=iou_thr,
            max_dets=max_dets,
            ci=settings.ci,
            resamples=settings.resamples,
            seed=settings.seed,
            track=(progress or Progress()).track,
        )
    if settings.operating_point is not None:
        require(
            table.num_images > 1,
            "operating_point needs at least 2 images, because a threshold is judged on images it was not chosen on "
            f"(found {table.num_images})",
        )
        folds = min(FOLDS, table.num_images)
        points = operating_points(
            table, rule=settings.operating_point, iou_thr=iou_thr, folds=folds, seed=settings.seed
        )
    if iou_thr > settings.background_iou_thr:
        errors, counted = tide_errors(table), errors_at_threshold(table)
    return DetectionAnalysis(
        classes=tuple(classes),
        average_precision=average_precision(table, max_dets=max_dets),
        max_dets=max_dets,
        most_detections=table.most_detections,
        score_thr=score_thr,
        curves=precision_recall_curves(table, iou_thr=iou_thr, num_points=POINTS, max_dets=max_dets),
        sizes=results_by_size(
            table, area_edges=settings.area_edges, iou_thr=iou_thr, score_thr=score_thr, max_dets=max_dets
        ),
        errors=errors,
        errors_at_threshold=counted,
        points=points,
        intervals=intervals,
    )
