"""Precision, recall and F1 of detectors, from a confusion matrix with a background row and column."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

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
from mm_metrics_plugin.functional.detection.confusion_report import BACKGROUND_NAME, protocol_report
from mm_metrics_plugin.functional.detection.data import DetectionBatch
from mm_metrics_plugin.functional.detection.matching import MatchTable
from mm_metrics_plugin.functional.detection.operating_points import operating_points
from mm_metrics_plugin.functional.detection.pr_curves import precision_recall_curves
from mm_metrics_plugin.functional.detection.resize_check import overlaps_by_scale
from mm_metrics_plugin.functional.statistics.bootstrap import TOO_FEW, bootstrap_ci
from mm_metrics_plugin.io.class_order import describe_orders, read_categories, same_labels
from mm_metrics_plugin.io.writing import ready_to_write, to_csv, to_json
from mm_metrics_plugin.metrics.base import Shown, StreamingMetric
from mm_metrics_plugin.metrics.instances import original_shape, read_images, scale_factor
from mm_metrics_plugin.metrics.keys import class_key, class_values
from mm_metrics_plugin.metrics.messages import warn
from mm_metrics_plugin.metrics.options import check_choice, check_num_classes, zero_division_value
from mm_metrics_plugin.metrics.prf import REMEDY
from mm_metrics_plugin.render.tables import matrix_rows
from mm_metrics_plugin.settings import COCO_IOU_THRS, COCO_MAX_DETS, MATCHING_RULES, DetectionSettings, require
from mm_metrics_plugin.states.detection import NO_NUMBER, DetectionState, ImageBatch, RuleState, encode_texts

# So many resized images are looked at for objects in the wrong pixels; more would only cost time.
_SCALE_CHECKED = 64
_CURVES = ("pr_curves", "confidence_curves")
_POINTS = 201  # of the curves against confidence


@METRICS.register_module()
class DetectionPRF(StreamingMetric):
    """Precision, recall and F1 of a detector at a score threshold, and AP if wanted, from one pass.

    Detections are matched to objects under a named protocol; TP, FP and FN are read off the confusion matrix, in which
    background is a row and a column but no class of any mean.

    Keys: ``f1`` first, ``precision``, ``recall``, ``f1_of_means`` (of the mean precision and the mean recall),
    ``micro_f1``, ``micro_precision``, ``micro_recall``, ``tp``, ``fp``, ``fn``; ``mAP``, ``mAP_50``, ``mAP_75`` with
    ``ap``; ``classes_averaged``, how many classes have an F1; with ``classwise`` the same per class, as
    ``f1/<class>``. With ``ci`` every rate has its confidence interval beside it, as ``f1_low`` and ``f1_high``; NaN
    where there are too few images or objects.

    Args:
        score_thr: Detections below it are not used, except for AP. All others are used, however many an image has.
            It is rounded to the precision in which each image's scores are given.
        iou_thr: Least overlap for a match.
        matching: ``'coco'``, ``'mmdet'`` (what mmdet's confusion_matrix.py counts) or ``'agnostic'`` (one to one by
            descending overlap, whatever the class).
        nms_iou_thr: Non-maximum suppression within each class before anything else; None: none.
        average: ``'macro'``, ``'micro'`` or ``'weighted'`` (by objects), for ``f1``, ``precision`` and ``recall``.
        zero_division: The value of 0/0, such as the precision of a class without detections: ``'skip'`` leaves the
            class out of the means, 0 and 1 count it as that, so that the means are over all classes. A precision that
            ``save_best`` uses should count it as 0: else a model that detects one class only can have the best one.
            0 and 1 do not go with ``ci``.
        classwise: Also keys per class.
        num_classes: How many classes; by default as many as the data set names.
        confusion_matrix: Also print the matrix to the log.
        outfile_prefix: Write ``<prefix>.json``, ``<prefix>.per_class.csv`` and ``<prefix>.confusion_matrix.csv`` at
            each evaluation.
        ap: Also COCO's average precision.
        max_dets: Number of detections per class and image, those with the highest scores, that average precision uses.
            Nothing else is limited. pycocotools uses 100. mmdet's ``CocoMetric`` uses 100 for ``bbox_mAP`` and 1000 for
            ``bbox_mAP_50``, ``bbox_mAP_75`` and the values per class.
        ci: Also the ends of confidence intervals of this level, such as 0.95. Images are the sampling unit. Precision
            and recall of a class need 10 detections or objects in 5 images; F1, AP and means need 30 images. Some 30
            bytes per detection are then kept. Goes with ``matching='coco'``.
        operating_point: Also the one score threshold that is best by this rule (``'f1'``, ``'f2'``,
            ``'precision=0.9'``, ``'recall=0.95'``) and what it gives, from the same pass: ``operating_threshold``,
            ``operating_f_score``, ``operating_precision``, ``operating_recall``, and ``cross_fitted_f_score``, the
            F-score on images it was not chosen on. Goes with ``matching='coco'``.
        resamples: Bootstrap resamples over images, for the intervals of AP.
        seed: Of the resamples.
        ann_file: The COCO annotation file of the data set, as in ``CocoMetric``. mmdet's ``CocoDataset`` numbers labels
            in the order of its categories, whatever the order of ``metainfo['classes']``. With ``ann_file`` the two are
            compared: classes get the names that their labels have in ``CocoDataset``, with a warning if ``metainfo``
            lists the same classes in another order. Without it classes are named by ``metainfo['classes']``.
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
        nms_iou_thr: Optional[float] = None,
        average: str = "macro",
        zero_division: Union[str, float] = "skip",
        classwise: bool = False,
        num_classes: Optional[int] = None,
        confusion_matrix: bool = False,
        outfile_prefix: Optional[str] = None,
        ap: bool = False,
        max_dets: int = COCO_MAX_DETS,
        ci: Optional[float] = None,
        operating_point: Optional[str] = None,
        resamples: int = 1000,
        seed: int = 0,
        ann_file: Optional[str] = None,
        collect_device: str = "cpu",
        prefix: Optional[str] = None,
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        check_choice("matching", matching, MATCHING_RULES)
        check_choice("average", average, ("macro", "micro", "weighted"))
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
        require(
            ci is None or zero_division == "skip",
            f"ci goes with zero_division='skip' (found {zero_division!r})",
        )
        check_num_classes(num_classes)
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
        self._scale_seen = np.zeros(3, dtype=np.int64)  # images looked at, right as they are, right if scaled back

    @property
    def dataset_meta(self) -> Optional[Dict[str, Any]]:
        """Meta information of the data set; with ``ann_file``, ``classes`` are in the order of the labels."""
        return StreamingMetric.dataset_meta.fget(self)  # type: ignore[attr-defined]

    @dataset_meta.setter
    def dataset_meta(self, dataset_meta: Optional[Dict[str, Any]]) -> None:
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
        known = self.num_classes or len((self.dataset_meta or {}).get("classes") or ())
        if not known:
            raise MetricInputError(
                "DetectionPRF must know the classes: the data set names none, so give num_classes=..."
            )
        return known

    def empty_state(self) -> DetectionState:
        """The matrix; for average precision, intervals and curves also every detection, matched."""
        curves = self.matching == "coco" and any(map(self.wants, _CURVES))
        if self.settings.ci is not None or self.settings.operating_point is not None or curves:
            table = "scores"
        else:
            table = "ap" if self.ap else "none"
        return DetectionState(self._classes, self.settings, table=table)

    def read(self, samples: Sequence[Mapping]) -> ImageBatch:
        """The detections and ground truths of a batch of images."""

        def name(index: int) -> str:
            return self.sample_name(samples[index], index)

        batch = read_images(samples, name)
        images = [name(index) for index in range(len(samples))]
        batch.detections.check(num_classes=self._classes, names=images)
        batch.ground_truths.check(num_classes=self._classes, names=images)
        self._check_scale(samples, batch)
        return self._in_order(samples, batch, images)

    def _in_order(self, samples: Sequence[Mapping], batch: DetectionBatch, names: Sequence[str]) -> ImageBatch:
        """The images with what decides between equal scores, as in `mm-metrics detection`.

        Numbers come first, ascending as in pycocotools, then texts, then images without an id. Images of the same id
        stay apart by their positions in the dataset.
        """
        rank, world_size = get_dist_info()
        order = np.full((len(samples), 2), NO_NUMBER, dtype=np.int64)
        texts: List[Optional[str]] = [None] * len(samples)
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
                        f"'img_id' of {self.sample_name(sample, index)} must be a number of 64 bits, or text "
                        f"(found {image_id})"
                    )
                order[index, 0], texts[index] = image_id, ""  # before all texts, where it is the largest number
        return ImageBatch(batch, order, encode_texts(texts) if (order[:, 0] == NO_NUMBER).any() else None, names)

    def _check_scale(self, samples: Sequence[Mapping], batch: DetectionBatch) -> None:
        """Warns once if the objects seem to be in the coordinates of the resized images."""
        factors = np.array(
            [scale_factor(sample, self.sample_name(sample, index)) for index, sample in enumerate(samples)]
        )
        resized = int((factors != 1).any(axis=1).sum())
        what = "objects in resized pixels"
        if not resized or self._scale_seen[0] >= _SCALE_CHECKED or what in self._warned:
            return
        as_is, rescaled = overlaps_by_scale(batch, factors, num_classes=self._classes)
        self._scale_seen += (resized, as_is, rescaled)
        shapes = np.array(
            [original_shape(sample, self.sample_name(sample, index)) for index, sample in enumerate(samples)]
        )[batch.ground_truths.image]
        outside = int((batch.ground_truths.boxes.array[:, 2:] > shapes[:, ::-1] + 2).any(axis=1).sum())
        if outside or (self._scale_seen[2] >= 5 and self._scale_seen[2] > 3 * self._scale_seen[1]):
            self._warned.append(what)
            self.warn(
                "the boxes of 'gt_instances' seem to be in the coordinates of the resized images, while "
                f"'pred_instances' are in those of the original ones ({outside} objects lie outside their image; "
                f"{int(self._scale_seen[1])} detections match as it is, {int(self._scale_seen[2])} if the objects "
                "are scaled back): put LoadAnnotations after Resize in the test pipeline"
            )

    def compute(self, state: DetectionState) -> Dict[str, float]:  # type: ignore[override]
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
        """The value of 0/0. Without any ground truths and detections nothing has a value."""
        return self._zero_division if rule.matrix.any() else float("nan")

    @contextmanager
    def published(self, state: Any) -> Iterator[None]:
        """The matrix in the log and the files, as asked for."""
        names = self.class_names(state.num_classes)
        with ready_to_write({} if self.outfile_prefix is None else self._files(state, names)):
            yield
        if self.confusion_matrix:
            print_log(_matrix_text(state.rule(self.matching).matrix, names), logger="current", level=logging.INFO)

    def shown(self, state: Any) -> List[Shown]:
        """The confusion matrix; with COCO's matching also the curves of precision, recall and F1."""
        rule, settings = state.rule(self.matching), self.settings
        names = self.class_names(state.num_classes)

        def view() -> MatrixView:
            title = f"{self.matching}: score >= {settings.score_thr:g}, IoU >= {settings.iou_thr:g}"
            return matrix_view(rule.matrix, [*names, BACKGROUND_NAME], title=title)

        def curves() -> Any:
            return precision_recall_curves(
                state.table(), iou_thr=settings.iou_thr, num_points=_POINTS, max_dets=settings.max_dets
            )

        if rule.cells is None:
            return []
        found = [Shown(("confusion_matrix",), names, view)]
        return [*found, Shown(_CURVES, names, curves)] if state.table_kind == "scores" else found

    def _keys(self, result: ConfusionResult, names: List[str]) -> Dict[str, float]:
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
        rates = {
            "f1": result.per_class.f_score[:-1],
            "precision": result.per_class.precision[:-1],
            "recall": result.per_class.recall[:-1],
        }
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

    def _average_precision(self, table: Optional[MatchTable], names: List[str]) -> Dict[str, float]:
        if table is None:
            return {"mAP": np.nan, "mAP_50": np.nan, "mAP_75": np.nan}
        self._warn_truncated(table.most_detections)
        result = average_precision(table, max_dets=self.settings.max_dets)
        found = result.to_dict()
        metrics = {key: found[key] for key in ("mAP", "mAP_50", "mAP_75")}
        if self.classwise:
            metrics.update(class_values("mAP", names, result.per_class))
        undefined = [names[index] for index in np.flatnonzero(np.isnan(result.per_class))]
        self.warn_undefined("mAP", "there is no object of the class", undefined, mean_of=len(names))
        return metrics

    def _warn_truncated(self, most: int) -> None:
        """Warns once if AP leaves detections out."""
        message = self.settings.truncation_message(most, option="max_dets")
        if message and "max_dets" not in self._warned:
            self._warned.append("max_dets")
            self.warn(message)

    def _operating_point(self, table: Optional[MatchTable], names: List[str]) -> Dict[str, float]:
        """The best threshold, and what it gives on the same images and on others."""
        keys = ["threshold", "f_score", "precision", "recall"]
        if table is None or table.num_images < 2:
            found = dict.fromkeys([*(f"operating_{key}" for key in keys), "cross_fitted_f_score"], float("nan"))
            per_class = np.full(len(names), np.nan)
        else:
            points = operating_points(
                table,
                rule=self.settings.operating_point or "f1",
                iou_thr=self.settings.iou_thr,
                folds=min(5, table.num_images),
                seed=self.settings.seed,
            )
            found = {f"operating_{key}": getattr(points.overall, key) for key in keys}
            found["cross_fitted_f_score"] = points.overall_cross_fitted.f_score
            per_class = np.array([point.threshold for point in points.per_class])
            if np.isnan(points.overall.threshold):
                self.warn_undefined("operating_threshold", "no threshold keeps the floor", ["all classes"])
        if self.classwise:
            found.update(class_values("operating_threshold", names, per_class))
        return found

    def _intervals(self, table: Optional[MatchTable], names: List[str]) -> Dict[str, float]:
        """The ends of the confidence intervals of every rate that has a key of its own."""
        pooled = "micro_" if self.average == "micro" else ""
        overall = {
            "f1": "micro_f1" if pooled else "macro_f1",
            "precision": f"{pooled or 'mean_'}precision",
            "recall": f"{pooled or 'mean_'}recall",
            **{key: key for key in ("f1_of_means", "micro_f1", "micro_precision", "micro_recall")},
        }
        per_class = {"f1": "f1", "precision": "precision", "recall": "recall"}
        if self.ap:
            overall.update({key: key for key in ("mAP", "mAP_50", "mAP_75")})
            per_class["mAP"] = "AP"
        ends = [f"{key}_{end}" for key in overall for end in ("low", "high")]
        if self.classwise:
            ends += [class_key(f"{key}_{end}", name) for key in per_class for name in names for end in ("low", "high")]
        if table is None:
            return dict.fromkeys(ends, float("nan"))
        settings = self.settings
        found = bootstrap_ci(
            table,
            score_thr=settings.score_thr,
            iou_thr=settings.iou_thr,
            average_precision=self.ap,
            max_dets=settings.max_dets,
            ci=settings.ci or 0.95,
            resamples=settings.resamples,
            seed=settings.seed,
        )
        metrics: Dict[str, float] = {}
        few = []
        for key, figure in overall.items():
            interval = found.overall[figure]
            metrics[f"{key}_low"], metrics[f"{key}_high"] = interval.low, interval.high
            few += [key] if interval.reason in TOO_FEW else []
        if self.classwise:
            for key, figure in per_class.items():
                interval = found.per_class[figure]
                for name, low, high, reason in zip(names, interval.low, interval.high, interval.reason):
                    metrics[class_key(f"{key}_low", name)], metrics[class_key(f"{key}_high", name)] = low, high
                    few += [class_key(key, name)] if reason in TOO_FEW else []
        self.warn_undefined("the confidence interval", "there are too few images or objects", few)
        return metrics

    def _files(self, state: DetectionState, names: List[str]) -> Dict[str, str]:
        """The matrix and the table per class, as JSON and as CSV: what the report says, of this evaluation."""
        rule = state.rule(self.matching)
        empty = self._empty(rule)
        result = confusion_matrix_report(rule.matrix, background=True, zero_division=empty)
        report = protocol_report(
            self.matching,
            result.matrix,
            classes=names,
            objects=result.support[:-1],
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


def _matrix_text(matrix: np.ndarray, names: List[str]) -> str:
    labels = [*names, BACKGROUND_NAME]
    width = max(7, *(len(label) + 1 for label in labels), len(str(matrix.max())) + 1)
    lines = [
        "confusion matrix (rows ground truth, columns prediction)",
        " " * width + "".join(f"{n:>{width}}" for n in labels),
    ]
    lines += [f"{name:<{width}}" + "".join(f"{value:>{width}}" for value in row) for name, row in zip(labels, matrix)]
    return "\n".join(lines)
