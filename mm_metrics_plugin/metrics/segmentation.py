"""Metrics of regions in pictures."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
from mmengine.registry import METRICS
from scipy.special import expit, softmax

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import ABSENT_RULES, mean_over_classes
from mm_metrics_plugin.functional._score_precision import FLOAT64, round_thresholds
from mm_metrics_plugin.functional.classification.confusion_matrix import matrix_view
from mm_metrics_plugin.functional.segmentation import (
    dice_score,
    label_overlap,
    mean_iou_report,
    soft_label_overlap,
    soft_overlap,
)
from mm_metrics_plugin.metrics.base import Shown
from mm_metrics_plugin.metrics.keys import class_values
from mm_metrics_plugin.metrics.label_maps import LabelMapMetricBase, Name, Picture
from mm_metrics_plugin.metrics.options import check_choice
from mm_metrics_plugin.settings import require
from mm_metrics_plugin.states.base import State
from mm_metrics_plugin.states.batch import Batch
from mm_metrics_plugin.states.overlap import BatchOverlapState, PixelConfusionState
from mm_metrics_plugin.states.sums import ExactSumState


@METRICS.register_module()
class MeanIoU(LabelMapMetricBase):
    """Intersection over union of the classes of label maps, over all pixels of the data set.

    Keys: ``mIoU``, the mean over the classes that occur in truth or prediction; ``aAcc``, the share of pixels that
    are right; ``mAcc``, the mean of that share over the classes that occur in the truth; ``classes_averaged``, how
    many ``mIoU`` is of; ``IoU/<class>`` and ``Acc/<class>`` with ``classwise``. Values lie in 0 to 1: they
    are mmseg's IoUMetric without its factor of 100 and its rounding.

    Args:
        num_classes: How many classes; as many as ``dataset_meta['classes']`` by default.
        ignore_index: Pixels with this truth are left out; None for none.
        prediction_field: Where a sample has the predicted label map.
        target_field: Where it has the true one.
        absent: Classes in neither truth nor prediction: ``'skip'`` leaves them out of ``mIoU``, ``'nan'`` makes it
            NaN, ``'error'`` raises.
        classwise: Also two keys a class.
        collect_device: As in mmengine.
        prefix: As in mmengine; ``'sem-seg'`` by default.

    Example:
        >>> metric = MeanIoU(num_classes=2)
        >>> truth, prediction = np.array([[0, 0, 1, 1]]), np.array([[0, 1, 0, 1]])
        >>> metric.process(None, [dict(pred_sem_seg=dict(data=prediction), gt_sem_seg=dict(data=truth))])
        >>> metric.evaluate(size=1)
        {'sem-seg/mIoU': 0.3333333333333333, 'sem-seg/aAcc': 0.5, 'sem-seg/mAcc': 0.5, 'sem-seg/classes_averaged': 2.0}
    """

    def __init__(
        self,
        num_classes: Optional[int] = None,
        ignore_index: Optional[int] = 255,
        prediction_field: str = "pred_sem_seg.data",
        target_field: str = "gt_sem_seg.data",
        absent: str = "skip",
        classwise: bool = False,
        collect_device: str = "cpu",
        prefix: Optional[str] = None,
    ) -> None:
        super().__init__(
            prediction_field, target_field, num_classes, ignore_index, collect_device=collect_device, prefix=prefix
        )
        check_choice("absent", absent, ABSENT_RULES)
        self.absent = absent
        self.classwise = classwise

    def empty_state(self) -> PixelConfusionState:
        """A matrix of zeros."""
        return PixelConfusionState(self.known_classes or 0)

    def read(self, samples: Sequence[Mapping]) -> Batch:
        """Two confusion matrices: of all pictures but the last, and of the last."""
        num_classes = self.known_classes
        if num_classes is None:
            raise MetricInputError("MeanIoU needs num_classes=..., because the data set names no classes")
        rows = np.zeros((2, num_classes, num_classes), dtype=np.int64)
        for index, picture in enumerate(self.pictures(samples)):
            rows[int(index == len(samples) - 1)] += self.count_pixels(picture, num_classes)
        return Batch(rows)

    def compute(self, state: PixelConfusionState) -> Dict[str, float]:  # type: ignore[override]
        """The means, and with ``classwise`` the values they are of."""
        result = mean_iou_report(state.matrix[:, : state.num_classes], absent=self.absent)
        names = self.class_names(state.num_classes)
        metrics = {"mIoU": result.mean_iou, "aAcc": result.pixel_accuracy, "mAcc": result.mean_accuracy}
        metrics["classes_averaged"] = result.classes_averaged
        if self.classwise:
            metrics.update(class_values("IoU", names, result.iou))
            metrics.update(class_values("Acc", names, result.accuracy))
        absent = [names[index] for index in np.flatnonzero(np.isnan(result.iou))]
        reason = "no pixel of the class is in truth or prediction"
        mean_of = len(names) if self.absent == "skip" else 0
        self.warn_undefined("IoU", reason, absent or _nothing(names), mean_of=mean_of)
        return metrics

    def shown(self, state: Any) -> List[Shown]:
        """The confusion matrix of the pixels."""
        names = self.class_names(state.num_classes)
        return [Shown(("confusion_matrix",), names, lambda: matrix_view(state.matrix, names, title="pixels"))]


@METRICS.register_module()
class DiceScore(LabelMapMetricBase):
    """Dice = 2·Σxy / (Σx² + Σy² + smooth) of prediction x and truth y.

    Keys: ``mDice``, the mean over the classes; ``classes_in_dice``, how many those are; ``Dice/<class>`` with
    ``classwise``. Values lie in 0 to 1.

    By default every sample has one Dice a class, and a class's value is the mean over the samples.

    Args:
        mode: ``'hard'`` compares label maps; ``'soft'`` compares scores, one channel a class.
        over: ``'sample'`` for one Dice a sample and class, then the mean over the samples; ``'dataset'`` for one Dice
            a class, of all samples together.
        num_classes: How many classes; as many as ``dataset_meta['classes']`` by default. Where neither says, arrays
            are of one region: masks of 0 and 1, or with ``'soft'`` scores of any shape and targets of the same. With
            ``'soft'`` and two classes, scores of one channel are those of the second class (mmseg's
            ``out_channels=1``), and the first class has what is left to 1.
        smooth: Added to the denominator; 0 by default, 1e-5 in MindSpore's convention.
        empty: The value of a class that prediction and truth both lack: a number, or ``'skip'`` to leave it out of
            the mean.
        activation: With ``'soft'``: ``'softmax'`` (over the channels) or ``'sigmoid'`` to make scores of logits, as
            mmseg's ``seg_logits`` are. Nothing is applied unasked.
        threshold: With ``'soft'``: scores above it count as 1 and others as 0. It is rounded to the precision of the
            scores.
        ignore_index: Values whose true label, or target, is this are left out; None for none.
        prediction_field: Where a sample has the prediction; by default ``'pred_sem_seg.data'`` for ``'hard'`` and
            ``'seg_logits.data'`` for ``'soft'``.
        target_field: Where it has the truth: a label map, or with ``'soft'`` also an array of the scores' shape.
        convention: ``'mindspore'`` gives the number of MindSpore's Dice: the Dice of each batch as a whole, added up
            and divided by the number of samples, so that perfect batches of 3 score 1/3.
        classwise: Also one key a class.
        collect_device: As in mmengine.
        prefix: As in mmengine; ``'sem-seg'`` by default.

    Example:
        >>> x, y = np.array([[0.2, 0.5], [0.3, 0.1], [0.9, 0.6]]), np.array([[0, 1], [1, 0], [0, 1]])
        >>> options = dict(mode="soft", smooth=1e-5, prediction_field="x", target_field="y")
        >>> metric = DiceScore(**options)
        >>> metric.process(None, [dict(x=x, y=y)])
        >>> round(metric.evaluate(size=1)["sem-seg/mDice"], 7)
        0.6140337
        >>> metric = DiceScore(convention="mindspore", **options)
        >>> metric.process(None, [dict(x=row, y=target) for row, target in zip(x, y)])
        >>> round(metric.evaluate(size=3)["sem-seg/mDice"], 8)
        0.20467791
    """

    def __init__(
        self,
        mode: str = "hard",
        over: str = "sample",
        num_classes: Optional[int] = None,
        smooth: Optional[float] = None,
        empty: Union[float, str] = 1.0,
        activation: Optional[str] = None,
        threshold: Optional[float] = None,
        ignore_index: Optional[int] = 255,
        prediction_field: Optional[str] = None,
        target_field: str = "gt_sem_seg.data",
        convention: Optional[str] = None,
        classwise: bool = False,
        collect_device: str = "cpu",
        prefix: Optional[str] = None,
    ) -> None:
        default_field = "seg_logits.data" if mode == "soft" else "pred_sem_seg.data"
        super().__init__(
            prediction_field or default_field,
            target_field,
            num_classes,
            ignore_index,
            collect_device=collect_device,
            prefix=prefix,
        )
        check_choice("mode", mode, ("hard", "soft"))
        check_choice("over", over, ("sample", "dataset"))
        check_choice("activation", activation, (None, "softmax", "sigmoid"))
        check_choice("convention", convention, (None, "mindspore"))
        require(
            mode == "soft" or (activation is None and threshold is None),
            "activation and threshold go with mode='soft'",
        )
        require(
            isinstance(empty, (int, float)) or empty == "skip", f"empty must be a number or 'skip' (found {empty!r})"
        )
        require(convention is None or not classwise, "convention='mindspore' has no values per class")
        self.mode = mode
        self.over = over
        self.smooth = (0.0 if convention is None else 1e-5) if smooth is None else smooth
        self.empty = np.nan if empty == "skip" else float(empty)
        self.activation = activation
        self.threshold = threshold
        self.convention = convention
        self.classwise = classwise

    @property
    def in_one_state(self) -> bool:
        """Whether each batch has one Dice, of which samples of two data sets may be part."""
        return self.convention is not None

    def empty_state(self) -> State:
        """Sums of the samples' Dice or of their overlaps, or the overlaps of batches."""
        return ExactSumState() if self.convention is None else BatchOverlapState()

    def read(self, samples: Sequence[Mapping]) -> Batch:
        """One Dice a sample and class, or what it is made of: (samples, classes) or (samples, 2, classes)."""
        overlaps = np.array([self._overlap(picture) for picture in self.pictures(samples)], dtype=np.float64)
        if self.convention is not None or self.over == "dataset":
            return Batch(overlaps)
        return Batch(dice_score(overlaps[:, 0], overlaps[:, 1], smooth=self.smooth, zero_division=self.empty))

    def compute(self, state: State) -> Dict[str, float]:
        """The mean, and with ``classwise`` the values it is of."""
        if isinstance(state, BatchOverlapState):
            value = state.dice(smooth=self.smooth)
            self.warn_undefined("Dice", "there were no samples", ["the data set"] if np.isnan(value) else [])
            return {"mDice": value}
        values = self._per_class(state)  # type: ignore[arg-type]
        names = self.class_names(len(values))
        metrics: Dict[str, float] = {"mDice": mean_over_classes(values)}
        absent = [names[index] for index in np.flatnonzero(np.isnan(values))]
        metrics["classes_in_dice"] = len(names) - len(absent)  # not MeanIoU's key, which often stands beside it
        if self.classwise:
            metrics.update(class_values("Dice", names, values))
        reason = "prediction and truth both lack the class"
        self.warn_undefined("Dice", reason, absent or _nothing(names), mean_of=len(names))
        return metrics

    def _per_class(self, state: ExactSumState) -> np.ndarray:
        if state.count is None:
            return np.full(self.known_classes or 0, np.nan)
        if self.over == "sample":
            return state.means()
        intersection, sizes = state.sums().reshape(2, -1)
        values = dice_score(intersection, sizes, smooth=self.smooth, zero_division=self.empty)
        return values if state.count.any() else np.full(len(values), np.nan)

    def _overlap(self, picture: Picture) -> Tuple[np.ndarray, np.ndarray]:
        name, predicted, target, _ = picture
        num_classes = self.known_classes
        if self.mode == "hard":
            # Without classes, a mask: two labels, of which only the region of ones is of interest.
            intersection, sizes = label_overlap(self.count_pixels(picture, num_classes or 2))
            return (intersection, sizes) if num_classes else (intersection[1:], sizes[1:])
        one_channel = num_classes == 2 and predicted.ndim > 1 and len(predicted) == 1
        scores = self._scores(picture, None if one_channel else num_classes)
        if num_classes is None or one_channel:
            self.check_same_shape(picture)
        if num_classes is None or one_channel or predicted.shape == target.shape:
            target = target.reshape(scores.shape)
            ignored = np.zeros(target.shape, bool) if self.ignore_index is None else target == self.ignore_index
            _check_shares(target, self.target_field, name, ignored=ignored, ignore_index=self.ignore_index)
            if one_channel:  # the scores of the second class; those of the first are what is left to 1
                scores, target = (
                    np.concatenate([1 - values.astype(np.float64), values]) for values in (scores, target)
                )
                ignored = np.concatenate([ignored, ignored])
            return soft_overlap(scores, target, ignored=ignored)
        if target.size != scores.shape[1]:
            raise MetricInputError(
                f"'{self.target_field}' of {name()} must have the shape of '{self.prediction_field}' or of one of its "
                f"channels, {predicted.shape} (found {target.shape})"
            )
        target = self.whole_labels(target, self.target_field, name)
        self.check_target(target, name, num_classes)
        return soft_label_overlap(scores, target.reshape(-1), ignore_index=self.ignore_index)

    def _scores(self, picture: Picture, num_classes: Optional[int]) -> np.ndarray:
        """The scores of a sample, (classes, values)."""
        name, scores, _, precision = picture
        if scores.dtype.kind not in "biuf":
            raise MetricInputError(f"'{self.prediction_field}' of {name()} must hold numbers (found {scores.dtype})")
        if num_classes is not None and (not scores.ndim or len(scores) != num_classes):
            raise MetricInputError(
                f"'{self.prediction_field}' of {name()} must have {num_classes} channels, one a class "
                f"(found shape {scores.shape})"
            )
        scores = scores.reshape(num_classes or 1, -1)
        if self.activation == "softmax" and num_classes is None:
            if self.known_classes is not None:
                raise MetricInputError(
                    f"'{self.prediction_field}' of {name()} has one channel: use activation='sigmoid' for its logits"
                )
            raise MetricInputError("activation='softmax' needs num_classes=..., because the data set names no classes")
        if self.activation is not None:
            precision = FLOAT64
            scores = scores.astype(np.float64)
            scores = expit(scores) if self.activation == "sigmoid" else softmax(scores, axis=0)
        _check_shares(scores, self.prediction_field, name, "; for logits say activation=...")
        return scores if self.threshold is None else scores > round_thresholds(self.threshold)[precision]


def _check_shares(
    values: np.ndarray,
    field: str,
    name: Name,
    advice: str = "",
    *,
    ignored: Optional[np.ndarray] = None,
    ignore_index: Optional[int] = None,
) -> None:
    if values.dtype.kind not in "biuf":
        raise MetricInputError(f"'{field}' of {name()} must hold numbers (found {values.dtype})")
    good = (values >= 0) & (values <= 1)
    if ignored is not None:
        good |= ignored
    if not good.all():
        left_out = "" if ignore_index is None else f", or be {ignore_index} to be ignored"
        raise MetricInputError(f"'{field}' of {name()} must lie in 0 to 1{left_out}{advice} (found {values[~good][0]})")


def _nothing(names: List[str]) -> List[str]:
    return [] if names else ["the data set"]
