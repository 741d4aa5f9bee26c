"""Precision, recall, F1 and average precision of detectors."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Iterator, Mapping, Sequence

import numpy as np
from mmengine.logging import print_log
from mmengine.registry import METRICS

from mm_metrics_plugin.conventions import (
    ANALYSIS_RULE,
    CONVENTIONS,
    DEFAULT_CONVENTION,
    DEFAULT_IOU_TYPE,
    IOU_TYPES,
    MATCHING_RULES,
)
from mm_metrics_plugin.exceptions import MetricInputError, shortened
from mm_metrics_plugin.functional.classification.confusion_matrix import MatrixView, matrix_view
from mm_metrics_plugin.functional.detection.matching import FULL, MATRIX, SCORES
from mm_metrics_plugin.functional.statistics.bootstrap import TOO_FEW
from mm_metrics_plugin.io.writing import ready_to_write, to_csv, to_json
from mm_metrics_plugin.metrics.base import FigureSpec, StreamingMetric
from mm_metrics_plugin.metrics.detection_samples import ImageReader
from mm_metrics_plugin.metrics.keypoint_samples import KeyPointReader
from mm_metrics_plugin.metrics.prf import REMEDY, zero_division_value
from mm_metrics_plugin.metrics.runner_log import text_table
from mm_metrics_plugin.metrics.sample_fields import Samples
from mm_metrics_plugin.render.tables import matrix_rows
from mm_metrics_plugin.reports.base import class_key
from mm_metrics_plugin.reports.detection import RATES, DetectionReport
from mm_metrics_plugin.settings import (
    DetectionSettings,
    number_text,
    require,
    require_choice,
    require_int,
    require_recall_limits,
)
from mm_metrics_plugin.states.base import Batch, State

_CURVES, _FROC_CURVES = ("pr_curves", "confidence_curves"), ("froc_curves",)
_READERS: dict[str, type[ImageReader]] = {"keypoints": KeyPointReader}  # of other types, ImageReader


@METRICS.register_module()
class DetectionPRF(StreamingMetric):
    """Precision, recall and F1 of a detector at a score threshold, and average precision, from one matching pass.

    TP, FP and FN are read off the confusion matrix, in which background is a row and a column but in no mean.

    Keys, with the prefix ``det``, or that of another ``iou_type``, such as ``det-segm``:

    - ``f1``, ``precision``, ``recall``: the mean over the classes, or the ``average`` given.
    - ``f1_of_means``: F1 of the macro precision and the macro recall.
    - ``f1_micro``, ``precision_micro``, ``recall_micro``: of the pooled counts.
    - ``tp``, ``fp``, ``fn``: counts.
    - ``classes_averaged``: number of classes with an F1.
    - ``mAP``, ``mAP_50``, ``mAP_75``: average precision, with ``ap``; the last two if ``iou_thrs`` has 0.5 and 0.75.
    - ``mAP_s``, ``mAP_m``, ``mAP_l``: the same of small, medium and large objects, with ``convention='mmdet'`` or
      ``'lvis'``; of ``area_ranges``, ``mAP_<name>``.
    - ``mAP_r``, ``mAP_c``, ``mAP_f``: the same of rare, common and frequent classes, with ``convention='lvis'``.
    - ``AR@100``, ``AR_s@100``: average recall of at most so many detections per class and image, with
      ``recall_max_dets``.
    - ``f1/<class>``, ``precision/<class>``, ``recall/<class>``, ``tp/<class>``, ``fp/<class>``, ``fn/<class>``,
      ``AP/<class>``: the same per class, with ``classwise``.
    - ``oLRP``, ``oLRP_Loc``, ``oLRP_FP``, ``oLRP_FN``: the LRP error at the best score threshold of each class and its
      components, means over the classes, with ``olrp``; lower is better. With ``classwise`` also ``oLRP/<class>``, and
      ``oLRP_threshold/<class>``, the best score threshold.
    - ``FROC``, ``sensitivity@0.125``, ``sensitivity@0.25``, ``sensitivity@0.5``, ``sensitivity@1``, ``sensitivity@2``,
      ``sensitivity@4``, ``sensitivity@8``: sensitivity of all classes pooled by false positives per image, and its
      mean, with ``froc``. With ``classwise`` also ``FROC/<class>``, with the false positives of the class.
    - ``operating_threshold``, ``operating_f_score``, ``operating_precision``, ``operating_recall``: the best score
      threshold and its results, with ``operating_point``; ``cross_fitted_f_score``: the F-score on images that the
      threshold was not chosen on.
    - ``<key>_low``, ``<key>_high``: ends of the confidence interval of every rate and AP, with ``ci``.

    Args:
        score_thr: Score threshold: detections with a lower score are not used, except for AP. It is rounded to the
            precision of each image's scores.
        iou_thr: IoU threshold of a match; of key points, OKS.
        matching: ``'coco'``, ``'mmdet'`` (what mmdet's confusion_matrix.py counts) or ``'agnostic'`` (one-to-one by
            descending IoU, regardless of the class).
        nms_iou_thr: IoU threshold of non-maximum suppression within each class, before matching; None: no NMS. Of key
            points, OKS within each image; None: 0.9, as in mmpose.
        average: ``'macro'``, ``'micro'`` or ``'weighted'`` (by ground truths), for ``f1``, ``precision``, ``recall``.
        zero_division: The value of 0/0, such as the precision of a class without detections: ``'skip'`` leaves the
            class out of the means, 0 and 1 count. Use 0 if ``save_best`` uses a precision: otherwise a model that
            detects only one class can be the best. 0 and 1 do not go with ``ci``.
        classwise: Also keys per class.
        num_classes: Number of classes; that of the dataset by default.
        confusion_matrix: Also print the confusion matrix to the log.
        outfile_prefix: Write ``<prefix>.json``, ``<prefix>.per_class.csv`` and ``<prefix>.confusion_matrix.csv`` at
            each evaluation.
        ap: Also average precision.
        olrp: Also oLRP, of all detections. About 50 bytes per detection are kept.
        froc: Also the sensitivities of the FROC curve, of all detections.
        max_dets: AP uses this many detections per class and image, those with the highest scores; by default as many as
            the convention: 100 of ``'coco'``, and 20 of key points.
        ci: Confidence level, such as 0.95, of confidence intervals over images. The ends are NaN if there are too few
            images: precision and recall of a class need 10 detections or ground truths in 5 images; F1, AP and means
            need 30 images. About 30 bytes per detection are kept. Requires ``matching='coco'``.
        operating_point: Rule of the best score threshold: ``'f1'``, ``'f2'``, ``'precision=0.9'`` or
            ``'recall=0.95'``. Requires ``matching='coco'``.
        resamples: Number of bootstrap resamples over images, for the intervals of AP.
        seed: Seed of the resamples.
        ann_file: The COCO annotation file of the dataset, as in ``CocoMetric``. mmdet's ``CocoDataset`` numbers labels
            in the order of its categories, regardless of the order of ``metainfo['classes']``. With ``ann_file``
            classes are named in this order, with a warning if ``metainfo`` has another one. Key points: the ground
            truth is that of this file, all of its images, as in mmpose's ``CocoMetric``. The samples have only objects
            with key points, and none with a ``bbox_file``. ``convention='lvis'``: the ground truth is that of this
            file, in the images of the samples.
        iou_type: ``'bbox'``, ``'segm'`` (masks), ``'boundary'`` (masks by boundary IoU), ``'rbox'`` (rotated boxes of
            mmrotate) or ``'keypoints'`` (of mmpose; OKS).
        sigmas: Standard deviation of each key point relative to the size of the object; by default those of the
            dataset, else of COCO's 17 key points.
        score_mode: Score of key points, as in mmpose's ``CocoMetric``: ``'bbox'``, ``'keypoint'``, ``'bbox_keypoint'``
            (the default) or ``'bbox_rle'``.
        convention: How AP is computed: ``'coco'`` (pycocotools), ``'mmdet'`` (the numbers of mmdet's ``CocoMetric``,
            which uses 100 detections for ``bbox_mAP`` and 1000 for everything else; its values per class are
            ``AP@1000/<class>``), ``'voc07'`` or ``'voc12'`` (mmdet's ``VOCMetric`` with 11 points or the area under the
            curve), ``'dota'`` (mmrotate's ``DOTAMetric``), ``'lvis'`` (lvis-api, 300 detections per image) or
            ``'lvis-fixed'`` (its Fixed AP, 10,000 detections per class), which need ``ann_file``, or in the metainfo of
            the dataset ``neg_category_ids`` and ``not_exhaustive_category_ids`` (dicts of labels by image id) and
            ``frequency`` (``'r'``, ``'c'`` or ``'f'`` of each class). Precision,
            recall and F1 do not depend on it.
        iou_thrs: IoU thresholds of AP; by default those of the convention.
        area_ranges: Named areas in square pixels, such as ``dict(tiny=(0, 400))``, whose AP is a key of its own; by
            default those of the convention.
        recall_max_dets: Numbers of detections per class and image, such as ``(1, 10, 100)``: also average recall.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

    Example:
        >>> import torch
        >>> boxes = torch.tensor([[0.0, 0, 10, 10], [20, 20, 30, 30]])
        >>> predictions = dict(bboxes=boxes, scores=torch.tensor([0.9, 0.8]), labels=torch.tensor([0, 0]))
        >>> ground_truths = dict(bboxes=boxes[:1], labels=torch.tensor([0]))
        >>> metric = DetectionPRF(num_classes=1)
        >>> metric.process(None, [dict(pred_instances=predictions, gt_instances=ground_truths)])
        >>> result = metric.evaluate(size=1)
        >>> result["det/precision"], result["det/recall"]
        (0.5, 1.0)
    """

    default_prefix = "det"

    def __init__(
        self,
        score_thr: float = 0.3,
        iou_thr: float = 0.5,
        matching: str = ANALYSIS_RULE,
        nms_iou_thr: float | None = None,
        average: str = "macro",
        zero_division: str | float = "skip",
        classwise: bool = False,
        num_classes: int | None = None,
        confusion_matrix: bool = False,
        outfile_prefix: str | None = None,
        ap: bool = False,
        olrp: bool = False,
        froc: bool = False,
        max_dets: int | None = None,
        ci: float | None = None,
        operating_point: str | None = None,
        resamples: int = 1000,
        seed: int = 0,
        ann_file: str | None = None,
        iou_type: str = DEFAULT_IOU_TYPE,
        sigmas: Sequence[float] | None = None,
        score_mode: str | None = None,
        convention: str = DEFAULT_CONVENTION,
        iou_thrs: Sequence[float] | None = None,
        area_ranges: Mapping[str, Sequence[float]] | None = None,
        recall_max_dets: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        require_choice("iou_type", iou_type, list(IOU_TYPES))
        if self.default_prefix == DetectionPRF.default_prefix:  # not that of a subclass
            self.default_prefix = IOU_TYPES[iou_type].prefix
        super().__init__(**kwargs)
        require_choice("matching", matching, list(MATCHING_RULES))
        analyses = MATCHING_RULES[matching].has_analyses
        require_choice("average", average, ("macro", "micro", "weighted"))
        self._zero_division = zero_division_value(zero_division)
        require_choice("convention", convention, list(CONVENTIONS))
        for name, value in {
            "iou_thrs": iou_thrs,
            "area_ranges": area_ranges,
            "recall_max_dets": recall_max_dets,
        }.items():
            require(ap or value is None, f"{name} requires ap=True (found {shortened(value)})")
        require(ap or convention == DEFAULT_CONVENTION, f"convention={convention!r} requires ap=True")
        logs_areas = CONVENTIONS[convention].logs_areas
        self.settings = DetectionSettings(
            iou_type=iou_type,
            sigmas=sigmas,  # type: ignore[arg-type]
            score_thr=score_thr,
            iou_thr=iou_thr,
            nms_iou_thr=nms_iou_thr,
            matching=(matching,),
            convention=convention,
            iou_thrs=iou_thrs if ap else (iou_thr,),  # type: ignore[arg-type]
            area_edges=None if ap and logs_areas else (),  # type: ignore[arg-type]
            area_ranges=area_ranges or (),  # type: ignore[arg-type]
            max_dets=max_dets,  # type: ignore[arg-type]
            recall_max_dets=recall_max_dets,  # type: ignore[arg-type]
            operating_point=operating_point,
            olrp=olrp,
            froc=froc,
            ci=ci,
            resamples=resamples,
            seed=seed,
        )
        if recall_max_dets is not None:
            require_recall_limits(recall_max_dets, self.settings.max_dets)
        if num_classes is not None:
            require_int("num_classes", num_classes, low=1)
        require(ci is None or zero_division == "skip", f"ci requires zero_division='skip' (found {zero_division!r})")
        require(
            ci is None or (analyses and average != "weighted"),
            f"ci requires matching={ANALYSIS_RULE!r} and average='macro' or 'micro' (found {matching!r}, {average!r})",
        )
        require(
            operating_point is None or analyses,
            f"operating_point requires matching={ANALYSIS_RULE!r} (found {matching!r})",
        )
        self.matching = matching
        self.average = average
        self.zero_division = zero_division
        self.classwise = classwise
        self.num_classes = num_classes
        self.confusion_matrix = confusion_matrix
        self.outfile_prefix = outfile_prefix
        self.ap = ap
        self.ar = recall_max_dets is not None
        self.ann_file = ann_file
        self._reader = _READERS.get(iou_type, ImageReader)(self.settings, ann_file, score_mode)
        require(
            hasattr(self._reader.geometry, MATCHING_RULES[matching].overlap),
            f"matching={matching!r} is not defined for iou_type={iou_type!r}",
        )

    @property
    def target_fields(self) -> Sequence[str]:  # type: ignore[override]
        """The ground-truth fields that every sample must have."""
        return self._reader.target_fields

    def check_targets(self, samples: Samples) -> None:
        """Raises MetricInputError unless the samples have the ground truth."""
        super().check_targets(samples)
        self._reader.check_targets(samples, self.sample_names(samples))

    def read_metainfo(self, dataset_meta: Any) -> Any:
        """The metainfo of the dataset with ``classes`` in the order of the labels."""
        return self._reader.metainfo(dataset_meta) if isinstance(dataset_meta, Mapping) else dataset_meta

    @property
    def _num_classes(self) -> int:
        num_classes = self.num_classes or len(self.dataset_classes) or self._reader.num_classes
        if not num_classes:
            raise MetricInputError("DetectionPRF needs num_classes=..., because the dataset has no class names")
        return num_classes

    def empty_state(self) -> State:
        """The confusion matrix; for AP, confidence intervals and curves also the matched detections."""
        curves = MATCHING_RULES[self.matching].has_analyses and any(map(self.wants, _CURVES))
        settings = self.settings
        needs_scores = (
            self.ap or settings.froc or settings.ci is not None or settings.operating_point is not None or curves
        )
        keep = FULL if settings.olrp else SCORES if needs_scores else MATRIX
        return self._reader.state(self._num_classes, self.dataset_meta, keep)

    def read(self, samples: Samples) -> Batch:
        """The detections and ground truths of a batch of samples."""
        name, indices = self.sample_names(samples), self.dataset_indices(len(samples))
        return self._reader.read(samples, name, indices, self._num_classes, self.dataset_meta, self.warn_once)

    def report(self, state: State) -> DetectionReport:
        """The report that the values, files and figures are read off."""
        matches = self._reader.matched(state)
        names = tuple(self.class_names(matches.num_classes))
        return DetectionReport(names, matches, zero_division=self._zero_division, with_ap=self.ap, with_ar=self.ar)

    def compute(self, state: State) -> dict[str, float]:
        """The values by key."""
        report = self.report(state)
        self._warn_undefined(report)
        for finding in report.diagnosis:
            self.warn_once(finding.cause, str(finding), finding.category)
        return report.log_values(average=self.average, classwise=self.classwise)

    def _warn_undefined(self, report: DetectionReport) -> None:
        """Warn of what limits the values, and of those that are undefined."""
        columns, names = report.matching_rules[0].columns, report.classes
        reasons = ("neither ground truths nor detections", "no detections", "no ground truths")
        for key, reason in zip(RATES, reasons):
            skip, remedy = self.average != "micro", "" if key == "recall" else REMEDY
            self.warn_undefined_classes(key, f"the class has {reason}", names, columns[key], skip=skip, remedy=remedy)
        analysis = report.analysis
        if analysis is None:
            return
        if self.ap:
            for number, message in enumerate(analysis.limit_messages):
                self.warn_once(f"max_dets {number}", message)
            per_class = analysis.average_precision.per_class
            self.warn_undefined_classes("AP", "the class has no ground truths", names, per_class, skip=True)
        if analysis.olrp is not None:
            result = analysis.olrp
            self.warn_undefined_classes("oLRP", "the class has no ground truths", names, result.olrp, skip=True)
            for key in ("oLRP_Loc", "oLRP_FP"):
                per_class = result.per_class[key]
                self.warn_undefined_classes(key, "the class has no true positives", names, per_class, skip=True)
        if analysis.froc is not None:
            per_class = analysis.froc.class_values()["FROC"]
            self.warn_undefined_classes("FROC", "the class has no ground truths", names, per_class, skip=False)
        points = analysis.points if analysis.table.num_images > 1 else None
        if points is not None and np.isnan(points.overall.threshold):
            self.warn_undefined("operating_threshold", "no threshold satisfies the rule", ["all classes"])
        if self.settings.ci is not None:
            intervals = report.log_intervals(average=self.average, classwise=self.classwise)
            too_few = [
                key if name is None else class_key(key, name)
                for (key, name), interval in intervals.items()
                if interval.reason in TOO_FEW
            ]
            self.warn_undefined("the confidence interval", "there are too few images or ground truths", too_few)

    @contextmanager
    def outputs_written(self, state: State) -> Iterator[None]:
        """Write the confusion matrix to the log and to files."""
        report = self.report(state)
        with ready_to_write({} if self.outfile_prefix is None else self._files(report)):
            yield
        if self.confusion_matrix:
            text = _matrix_text(report.matching_rules[0].result.matrix, report.labels)
            print_log(text, logger="current", level=logging.INFO)

    def figures(self, state: State) -> list[FigureSpec]:
        """The confusion matrix; with ``matching='coco'`` also the curves; with ``froc`` also the FROC curves."""
        report, settings = self.report(state), self.settings

        def view() -> MatrixView:
            score_thr, iou_thr = number_text(settings.score_thr), number_text(settings.iou_thr)
            title = f"{self.matching}: score >= {score_thr}, {self._reader.geometry.overlap_name} >= {iou_thr}"
            return matrix_view(report.matching_rules[0].result.matrix, report.labels, title=title)

        if report.state.rule(self.matching).cells is None:
            return []
        figures = [FigureSpec(("confusion_matrix",), report.classes, view)]
        analysis = report.analysis
        if analysis is None:
            return figures
        if MATCHING_RULES[self.matching].has_analyses:
            figures.append(FigureSpec(_CURVES, report.classes, lambda: analysis.curves))
        if settings.froc:
            figures.append(FigureSpec(_FROC_CURVES, report.classes, lambda: analysis.froc))
        return figures

    def _files(self, report: DetectionReport) -> dict[str, str]:
        """The confusion matrix and the table per class, as JSON and CSV."""
        rule = report.matching_rules[0]
        rule = replace(rule, counts={**report.state.counts_by_name, **rule.counts})
        content = {"matching": self.matching, "classes": list(report.classes), **rule.to_dict()}
        rows = [list(row.values()) for row in content["per_class"]]
        files = {
            "json": to_json(content),
            "per_class.csv": to_csv(list(rule.columns), rows),
            "confusion_matrix.csv": to_csv(*matrix_rows(content, report.labels)),
        }
        return {f"{self.outfile_prefix}.{ending}": text for ending, text in files.items()}


def _matrix_text(matrix: np.ndarray, labels: Sequence[str]) -> str:
    rows = [[name, *map(str, row)] for name, row in zip(labels, matrix.tolist())]
    return "confusion matrix (rows ground truth, columns prediction)\n" + text_table([["", *labels], *rows])
