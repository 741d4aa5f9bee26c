"""Precision, recall, F1 and average precision of detectors."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import Any, Iterator, Mapping, Sequence

import numpy as np
from mmengine.dist import get_dist_info
from mmengine.logging import print_log
from mmengine.registry import METRICS

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.classification.confusion_matrix import (
    ConfusionResult,
    MatrixView,
    confusion_matrix_report,
    matrix_view,
)
from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.functional.detection.confusion_rules import BACKGROUND_NAME, protocol_report
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.functional.detection.match_table import MatchTable
from mm_metrics_plugin.functional.detection.matching import overlaps_by_scale
from mm_metrics_plugin.functional.detection.operating_points import operating_points
from mm_metrics_plugin.functional.detection.pr_curves import precision_recall_curves
from mm_metrics_plugin.functional.statistics.bootstrap import TOO_FEW, bootstrap_ci
from mm_metrics_plugin.io.class_order import describe_orders, read_categories, same_labels
from mm_metrics_plugin.io.writing import ready_to_write, to_csv, to_json
from mm_metrics_plugin.metrics.base import FigureSpec, StreamingMetric, check_num_classes
from mm_metrics_plugin.metrics.log import class_key, class_values, warn
from mm_metrics_plugin.metrics.prf import REMEDY, zero_division_value
from mm_metrics_plugin.metrics.sample_fields import original_shape, read_images, scale_factor
from mm_metrics_plugin.render.tables import matrix_rows
from mm_metrics_plugin.settings import (
    COCO_IOU_THRS,
    COCO_MAX_DETS,
    MATCHING_RULES,
    DetectionSettings,
    require,
    require_choice,
)
from mm_metrics_plugin.states.detection import NO_NUMBER, DetectionState, ImageBatch, RuleState, encode_texts

_RESIZED_IMAGES_CHECKED = 64  # for ground truths in the wrong coordinates
_CURVES = ("pr_curves", "confidence_curves")
_CURVE_POINTS = 201  # of the curves against confidence
_RATES = ("f1", "precision", "recall")
_MICRO_RATES = ("f1_of_means", "micro_f1", "micro_precision", "micro_recall")
_MEAN_AP = ("mAP", "mAP_50", "mAP_75")


@METRICS.register_module()
class DetectionPRF(StreamingMetric):
    """Precision, recall and F1 of a detector at a score threshold, and AP, from one pass.

    TP, FP and FN are read off the confusion matrix, in which background is a row and a column but in no mean.

    Keys: ``f1`` first, ``precision``, ``recall``, ``f1_of_means`` (of the mean precision and the mean recall),
    ``micro_f1``, ``micro_precision``, ``micro_recall``, ``tp``, ``fp``, ``fn``; ``mAP``, ``mAP_50``, ``mAP_75`` with
    ``ap``; ``classes_averaged``, the number of classes with an F1; with ``classwise`` the same per class, as
    ``f1/<class>``; with ``ci`` the confidence interval of every rate, as ``f1_low`` and ``f1_high``.

    Args:
        score_thr: Least score of the detections that are used, except for AP. It is rounded to the precision of each
            image's scores.
        iou_thr: Least overlap for a match.
        matching: ``'coco'``, ``'mmdet'`` (what mmdet's confusion_matrix.py counts) or ``'agnostic'`` (one to one by
            descending overlap, whatever the class).
        nms_iou_thr: Non-maximum suppression within each class before anything else; None: none.
        average: ``'macro'``, ``'micro'`` or ``'weighted'`` (by objects), for ``f1``, ``precision`` and ``recall``.
        zero_division: The value of 0/0, such as the precision of a class without detections: ``'skip'`` leaves the
            class out of the means, 0 and 1 count. Use 0 for a precision in ``save_best``: else a model that detects one
            class only can have the best one. 0 and 1 do not go with ``ci``.
        classwise: Also keys per class.
        num_classes: Number of classes; that of the data set by default.
        confusion_matrix: Also print the matrix to the log.
        outfile_prefix: Write ``<prefix>.json``, ``<prefix>.per_class.csv`` and ``<prefix>.confusion_matrix.csv`` at
            each evaluation.
        ap: Also COCO's average precision.
        max_dets: Number of detections per class and image, those with the highest scores, that average precision uses,
            100 in pycocotools. mmdet's ``CocoMetric`` uses 100 for ``bbox_mAP`` and 1000 for ``bbox_mAP_50``,
            ``bbox_mAP_75`` and the values per class.
        ci: Also the ends of confidence intervals of this level, such as 0.95, over images; NaN where there are too few:
            precision and recall of a class need 10 detections or objects in 5 images; F1, AP and means need 30 images.
            About 30 bytes per detection are kept. Goes with ``matching='coco'``.
        operating_point: Also the best score threshold by this rule (``'f1'``, ``'f2'``, ``'precision=0.9'``,
            ``'recall=0.95'``) and its results: ``operating_threshold``, ``operating_f_score``,
            ``operating_precision``, ``operating_recall``, and ``cross_fitted_f_score``, the F-score on images on which
            it was not chosen. Goes with ``matching='coco'``.
        resamples: Bootstrap resamples over images, for the intervals of AP.
        seed: Of the resamples.
        ann_file: The COCO annotation file of the data set, as in ``CocoMetric``. mmdet's ``CocoDataset`` numbers labels
            in the order of its categories, whatever the order of ``metainfo['classes']``. With ``ann_file`` classes are
            named in this order, with a warning if ``metainfo`` has another one.
        collect_device: As in mmengine.
        prefix: As in mmengine; ``'det'`` by default.

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

    target_fields = ("gt_instances.bboxes", "gt_instances.labels")

    def __init__(
        self,
        score_thr: float = 0.3,
        iou_thr: float = 0.5,
        matching: str = "coco",
        nms_iou_thr: float | None = None,
        average: str = "macro",
        zero_division: str | float = "skip",
        classwise: bool = False,
        num_classes: int | None = None,
        confusion_matrix: bool = False,
        outfile_prefix: str | None = None,
        ap: bool = False,
        max_dets: int = COCO_MAX_DETS,
        ci: float | None = None,
        operating_point: str | None = None,
        resamples: int = 1000,
        seed: int = 0,
        ann_file: str | None = None,
        collect_device: str = "cpu",
        prefix: str | None = None,
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        require_choice("matching", matching, MATCHING_RULES)
        require_choice("average", average, ("macro", "micro", "weighted"))
        self._zero_division = zero_division_value(zero_division)
        self.settings = DetectionSettings(
            score_thr=score_thr,
            iou_thr=iou_thr,
            nms_iou_thr=nms_iou_thr,
            matching=(matching,),
            iou_thrs=COCO_IOU_THRS if ap else (iou_thr,),
            area_edges=(),
            max_dets=max_dets,
            operating_point=operating_point,
            ci=ci,
            resamples=resamples,
            seed=seed,
        )
        check_num_classes(num_classes)
        require(ci is None or zero_division == "skip", f"ci goes with zero_division='skip' (found {zero_division!r})")
        require(
            ci is None or (matching == "coco" and average != "weighted"),
            f"ci goes with matching='coco' and average='macro' or 'micro' (found {matching!r} and {average!r})",
        )
        require(
            operating_point is None or matching == "coco",
            f"operating_point goes with matching='coco' (found {matching!r})",
        )
        self.matching = matching
        self.average = average
        self.zero_division = zero_division
        self.classwise = classwise
        self.num_classes = num_classes
        self.confusion_matrix = confusion_matrix
        self.outfile_prefix = outfile_prefix
        self.ap = ap
        self.ann_file = ann_file
        self._resize_counts = np.zeros(3, dtype=np.int64)  # resized images, matches as is, matches if scaled back

    @property
    def dataset_meta(self) -> dict[str, Any] | None:
        """The metainfo of the data set; with ``ann_file``, ``classes`` are in the order of the labels."""
        return StreamingMetric.dataset_meta.fget(self)  # type: ignore[attr-defined]

    @dataset_meta.setter
    def dataset_meta(self, dataset_meta: dict[str, Any] | None) -> None:
        if self.ann_file is not None and isinstance(dataset_meta, Mapping):
            names = tuple(map(str, dataset_meta.get("classes") or ()))
            dataset_meta = {**dataset_meta, "classes": self._label_names(self.ann_file, names)}
        StreamingMetric.dataset_meta.fset(self, dataset_meta)  # type: ignore[attr-defined]

    @staticmethod
    def _label_names(ann_file: str, names: Sequence[str]) -> Sequence[str]:
        """The class of each label of mmdet's ``CocoDataset`` with these ``metainfo['classes']``."""
        categories, source = read_categories(ann_file), os.path.basename(ann_file)
        listed = categories.numbered(names or categories.names)
        if not names or same_labels(listed, names):
            return names or listed
        orders = describe_orders(listed, source, names, "metainfo['classes']")
        if sorted(listed) != sorted(names):
            raise MetricInputError(
                f"{orders}: mmdet's CocoDataset numbers labels in the order of {source}, so the labels of a model that "
                "knows all of these classes do not fit; list every class in the annotation file, in the model's order"
            )
        warn(
            f"DetectionPRF: {orders}: mmdet's CocoDataset numbers labels in the order of {source}, so classes are "
            "named in that order; list metainfo['classes'] in the same order to make them agree"
        )
        return listed

    @property
    def _classes(self) -> int:
        num_classes = self.num_classes or len((self.dataset_meta or {}).get("classes") or ())
        if not num_classes:
            raise MetricInputError(
                "DetectionPRF must know the classes: the data set names none, so give num_classes=..."
            )
        return num_classes

    def empty_state(self) -> DetectionState:
        """The confusion matrix; for average precision, intervals and curves also the matched detections."""
        curves = self.matching == "coco" and any(map(self.wants, _CURVES))
        if self.settings.ci is not None or self.settings.operating_point is not None or curves:
            table = "scores"
        else:
            table = "ap" if self.ap else "none"
        return DetectionState(self._classes, self.settings, table=table)

    def read(self, samples: Sequence[Mapping]) -> ImageBatch:
        """The detections and ground truths of a batch of images."""
        name = self.namer(samples)
        batch = read_images(samples, name)
        names = [name(index) for index in range(len(samples))]
        batch.detections.check(num_classes=self._classes, names=names)
        batch.ground_truths.check(num_classes=self._classes, names=names)
        self._check_resizing(samples, batch, names)
        return self._in_order(samples, batch, names)

    def _in_order(self, samples: Sequence[Mapping], batch: DetectionBatch, names: Sequence[str]) -> ImageBatch:
        """The images with the keys that decide between equal scores.

        Image ids that are numbers come first, as in pycocotools, then texts, then images without an id. Images of the
        same id differ by their positions in the data set.
        """
        rank, world_size = get_dist_info()
        order = np.full((len(samples), 2), NO_NUMBER, dtype=np.int64)
        texts: list[str | None] = [None] * len(samples)
        order[:, 1] = (self._seen + np.arange(len(samples), dtype=np.int64)) * world_size + rank
        for index, sample in enumerate(samples):
            image_id: Any = sample.get("img_id")
            if getattr(image_id, "ndim", None) == 0:  # a number or text of NumPy or torch
                image_id = image_id.item()
            if isinstance(image_id, str):
                texts[index] = image_id
            elif isinstance(image_id, int):
                if not -(1 << 63) <= image_id < 1 << 63:
                    raise MetricInputError(
                        f"'img_id' of {names[index]} must be a number of 64 bits, or text (found {image_id})"
                    )
                order[index, 0], texts[index] = image_id, ""  # before all texts, where it is the largest number
        return ImageBatch(batch, order, encode_texts(texts) if (order[:, 0] == NO_NUMBER).any() else None, names)

    def _check_resizing(self, samples: Sequence[Mapping], batch: DetectionBatch, names: Sequence[str]) -> None:
        """Warns once if the ground truths seem to be in the coordinates of the resized images."""
        factors = np.array([scale_factor(sample, name) for sample, name in zip(samples, names)])
        resized = int((factors != 1).any(axis=1).sum())
        what = "ground truths in resized pixels"
        if not resized or self._resize_counts[0] >= _RESIZED_IMAGES_CHECKED or what in self._warned:
            return
        self._resize_counts += (resized, *overlaps_by_scale(batch, factors, num_classes=self._classes))
        _, as_is, rescaled = self._resize_counts.tolist()
        shapes = np.array([original_shape(sample, name) for sample, name in zip(samples, names)])
        limits = shapes[batch.ground_truths.image, ::-1] + 2
        outside = int((batch.ground_truths.boxes.array[:, 2:] > limits).any(axis=1).sum())
        if outside or (rescaled >= 5 and rescaled > 3 * as_is):
            self._warned.append(what)
            self.warn(
                "the boxes of 'gt_instances' seem to be in the coordinates of the resized images, while "
                f"'pred_instances' are in those of the original ones ({outside} objects lie outside their image; "
                f"{as_is} detections match as it is, {rescaled} if the objects are scaled back): put LoadAnnotations "
                "after Resize in the test pipeline"
            )

    def compute(self, state: DetectionState) -> dict[str, float]:  # type: ignore[override]
        """The numbers by key."""
        names = self.class_names(state.num_classes)
        rule = state.rule(self.matching)
        metrics = self._keys(
            confusion_matrix_report(rule.matrix, background=True, zero_division=self._empty(rule)), names
        )
        table = state.table()
        if self.ap:
            metrics.update(self._average_precision(table, names))
        if self.settings.operating_point is not None:
            metrics.update(self._operating_point(table, names))
        if self.settings.ci is not None:
            metrics.update(self._intervals(table, names))
        return metrics

    def _empty(self, rule: RuleState) -> float:
        """The value of 0/0; without ground truths and detections NaN."""
        return self._zero_division if rule.matrix.any() else float("nan")

    @contextmanager
    def outputs_written(self, state: Any) -> Iterator[None]:
        """Writes the confusion matrix to the log and to files."""
        names = self.class_names(state.num_classes)
        with ready_to_write({} if self.outfile_prefix is None else self._files(state, names)):
            yield
        if self.confusion_matrix:
            print_log(_matrix_text(state.rule(self.matching).matrix, names), logger="current", level=logging.INFO)

    def figures(self, state: Any) -> list[FigureSpec]:
        """The confusion matrix; with ``matching='coco'`` also the curves of precision, recall and F1."""
        rule, settings = state.rule(self.matching), self.settings
        names = self.class_names(state.num_classes)

        def view() -> MatrixView:
            title = f"{self.matching}: score >= {settings.score_thr:g}, IoU >= {settings.iou_thr:g}"
            return matrix_view(rule.matrix, [*names, BACKGROUND_NAME], title=title)

        def curves() -> Any:
            return precision_recall_curves(
                state.table(), iou_thr=settings.iou_thr, num_points=_CURVE_POINTS, max_dets=settings.max_dets
            )

        if rule.cells is None:
            return []
        matrix = [FigureSpec(("confusion_matrix",), names, view)]
        return [*matrix, FigureSpec(_CURVES, names, curves)] if state.table_kind == "scores" else matrix

    def _keys(self, result: ConfusionResult, names: list[str]) -> dict[str, float]:
        chosen = getattr(result, self.average)
        counts = {"tp": result.tp, "fp": result.fp, "fn": result.fn}
        metrics = {
            "f1": chosen.f_score,
            "precision": chosen.precision,
            "recall": chosen.recall,
            "f1_of_means": result.f_of_means,
            "micro_f1": result.micro.f_score,
            "micro_precision": result.micro.precision,
            "micro_recall": result.micro.recall,
            **{key: value[:-1].sum() for key, value in counts.items()},
        }
        per_class = result.per_class
        rates = dict(zip(_RATES, (rate[:-1] for rate in (per_class.f_score, per_class.precision, per_class.recall))))
        defined = int((~np.isnan(rates["f1"])).sum())
        if self.average != "micro":
            metrics["classes_averaged"] = defined
        if self.classwise:
            for key, values in {**rates, **counts}.items():
                metrics.update(class_values(key, names, values))
        reasons = {"f1": "no object and no detection", "precision": "no detection", "recall": "no object"}
        for key, values in rates.items():
            undefined = [names[index] for index in np.flatnonzero(np.isnan(values))]
            self.warn_undefined(
                key,
                f"there is {reasons[key]} of the class",
                undefined,
                mean_of=len(names) if self.average != "micro" else 0,
                remedy="" if key == "recall" else REMEDY,
            )
        return metrics

    def _average_precision(self, table: MatchTable | None, names: list[str]) -> dict[str, float]:
        if table is None:
            return dict.fromkeys(_MEAN_AP, np.nan)
        message = self.settings.truncation_message(table.most_detections, option="max_dets")
        if message and "max_dets" not in self._warned:
            self._warned.append("max_dets")
            self.warn(message)
        result = average_precision(table, max_dets=self.settings.max_dets)
        values = result.to_dict()
        metrics = {key: values[key] for key in _MEAN_AP}
        if self.classwise:
            metrics.update(class_values("mAP", names, result.per_class))
        undefined = [names[index] for index in np.flatnonzero(np.isnan(result.per_class))]
        self.warn_undefined("mAP", "there is no object of the class", undefined, mean_of=len(names))
        return metrics

    def _operating_point(self, table: MatchTable | None, names: list[str]) -> dict[str, float]:
        """The best threshold, and its results on the same images and on others."""
        keys = ["threshold", "f_score", "precision", "recall"]
        if table is None or table.num_images < 2:
            metrics = dict.fromkeys([*(f"operating_{key}" for key in keys), "cross_fitted_f_score"], float("nan"))
            per_class = np.full(len(names), np.nan)
        else:
            points = operating_points(
                table,
                rule=self.settings.operating_point or "f1",
                iou_thr=self.settings.iou_thr,
                folds=min(5, table.num_images),
                seed=self.settings.seed,
            )
            metrics = {f"operating_{key}": getattr(points.overall, key) for key in keys}
            metrics["cross_fitted_f_score"] = points.overall_cross_fitted.f_score
            per_class = np.array([point.threshold for point in points.per_class])
            if np.isnan(points.overall.threshold):
                self.warn_undefined("operating_threshold", "no threshold keeps the floor", ["all classes"])
        if self.classwise:
            metrics.update(class_values("operating_threshold", names, per_class))
        return metrics

    def _intervals(self, table: MatchTable | None, names: list[str]) -> dict[str, float]:
        """The ends of the confidence intervals of every rate."""
        pooled = "_micro" if self.average == "micro" else ""
        overall = {key: f"{key}{pooled}" for key in ("f1", "precision", "recall")}
        overall.update(f1_of_means="f1_of_means", micro_f1="f1_micro")
        overall.update(micro_precision="precision_micro", micro_recall="recall_micro")
        per_class = {key: key for key in _RATES}
        if self.ap:
            overall.update({key: key for key in _MEAN_AP})
            per_class["mAP"] = "AP"
        ends = [f"{key}_{end}" for key in overall for end in ("low", "high")]
        if self.classwise:
            ends += [class_key(f"{key}_{end}", name) for key in per_class for name in names for end in ("low", "high")]
        if table is None:
            return dict.fromkeys(ends, float("nan"))
        settings = self.settings
        intervals = bootstrap_ci(
            table,
            score_thr=settings.score_thr,
            iou_thr=settings.iou_thr,
            average_precision=self.ap,
            max_dets=settings.max_dets,
            ci=settings.ci or 0.95,
            resamples=settings.resamples,
            seed=settings.seed,
        )
        metrics: dict[str, float] = {}
        few = []
        for key, name in overall.items():
            interval = intervals.overall[name]
            metrics[f"{key}_low"], metrics[f"{key}_high"] = interval.low, interval.high
            few += [key] if interval.reason in TOO_FEW else []
        if self.classwise:
            for key, name in per_class.items():
                ends_of = intervals.per_class[name]
                for label, low, high, reason in zip(names, ends_of.low, ends_of.high, ends_of.reason):
                    metrics[class_key(f"{key}_low", label)], metrics[class_key(f"{key}_high", label)] = low, high
                    few += [class_key(key, label)] if reason in TOO_FEW else []
        self.warn_undefined("the confidence interval", "there are too few images or objects", few)
        return metrics

    def _files(self, state: DetectionState, names: list[str]) -> dict[str, str]:
        """The confusion matrix and the table per class, as JSON and CSV."""
        rule = state.rule(self.matching)
        empty = self._empty(rule)
        result = confusion_matrix_report(rule.matrix, background=True, zero_division=empty)
        report = protocol_report(
            self.matching,
            result.matrix,
            classes=names,
            ground_truths=result.support[:-1],
            detections=result.predicted[:-1],
            counts={**state.tally, **rule.tally},
            background_types=rule.false_positives,
            zero_division=empty,
        )
        content = {"protocol": self.matching, "classes": names, **report.to_dict()}
        rows = [list(row.values()) for row in content["per_class"]]
        labels = [*names, BACKGROUND_NAME]
        files = {
            "json": to_json(content),
            "per_class.csv": to_csv(list(report.columns), rows),
            "confusion_matrix.csv": to_csv(*matrix_rows(content, labels)),
        }
        return {f"{self.outfile_prefix}.{ending}": text for ending, text in files.items()}


def _matrix_text(matrix: np.ndarray, names: list[str]) -> str:
    labels = [*names, BACKGROUND_NAME]
    width = max(7, *(len(label) + 1 for label in labels), len(str(matrix.max())) + 1)
    lines = [
        "confusion matrix (rows ground truth, columns prediction)",
        " " * width + "".join(f"{n:>{width}}" for n in labels),
    ]
    lines += [f"{name:<{width}}" + "".join(f"{value:>{width}}" for value in row) for name, row in zip(labels, matrix)]
    return "\n".join(lines)
