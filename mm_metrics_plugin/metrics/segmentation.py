"""IoU and Dice of label maps and masks, as in mmseg."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np
from mmengine.registry import METRICS
from scipy.special import expit, softmax

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import ABSENT_RULES, mean_over_classes
from mm_metrics_plugin.functional.classification.confusion_matrix import matrix_view
from mm_metrics_plugin.functional.segmentation import (
    count_label_pairs,
    dice_score,
    label_overlap,
    mean_iou_report,
    soft_label_overlap,
    soft_overlap,
)
from mm_metrics_plugin.functional.thresholding import FLOAT64, round_thresholds
from mm_metrics_plugin.metrics.base import FigureSpec, StreamingMetric
from mm_metrics_plugin.metrics.sample_fields import (
    Samples,
    check_values,
    field_values,
    plain_value,
    score_precision,
    squeezed_shape,
    to_host,
)
from mm_metrics_plugin.reports.base import class_values
from mm_metrics_plugin.settings import require, require_choice, require_int
from mm_metrics_plugin.states.base import Batch, State
from mm_metrics_plugin.states.counts import PixelConfusionState
from mm_metrics_plugin.states.sums import BatchDiceState, ExactSumState

_ABSENT = "neither prediction nor ground truth has the class"


class _Image(NamedTuple):
    """Prediction (labels or scores, and the code of their precision) and ground truth of one sample."""

    name: str
    predicted: np.ndarray
    target: np.ndarray
    precision: int


class _SegmentationMetric(StreamingMetric):
    """Reads prediction and ground truth of images whose sizes may differ."""

    default_prefix = "sem-seg"

    def __init__(
        self,
        prediction_field: str,
        target_field: str,
        num_classes: int | None,
        ignore_index: int | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if num_classes is not None:
            require_int("num_classes", num_classes, low=1)
        self.prediction_field = prediction_field
        self.target_field = target_field
        self.num_classes = num_classes
        self.ignore_index = ignore_index

    @property
    def target_fields(self) -> Sequence[str]:  # type: ignore[override]
        """The ground truth, if it comes from the dataset: a model may set other fields."""
        return [self.target_field] if self.target_field.startswith("gt_") else []

    @property
    def known_classes(self) -> int | None:
        """The number of classes, from the option or the dataset; None if unknown."""
        return self.num_classes or len(self.dataset_classes) or None

    def images(self, samples: Samples) -> Iterator[_Image]:
        """The images of a batch."""
        name = self.sample_names(samples)
        predictions, targets = (
            [plain_value(value, field, name, index) for index, value in enumerate(field_values(samples, field, name))]
            for field in (self.prediction_field, self.target_field)
        )
        arrays = to_host([*predictions, *targets])
        for index, (predicted, target) in enumerate(zip(arrays, arrays[len(samples) :])):
            yield _Image(name(index), predicted, target, score_precision(predictions[index]))

    def count_pixels(self, image: _Image, num_classes: int) -> np.ndarray:
        """The confusion matrix of label maps, without ignored pixels."""
        name = image.name
        self.check_same_shape(image)
        predicted = self.whole_labels(image.predicted, self.prediction_field, name)
        target = self.whole_labels(image.target, self.target_field, name)
        counts = count_label_pairs(target, predicted, num_classes=num_classes)
        if self.ignore_index is not None and 0 <= self.ignore_index < num_classes:
            counts[self.ignore_index] = 0
        if counts[-1].any():
            self.check_target(target, name, num_classes)
        if counts[:-1, -1].any():
            ignored = (target == self.ignore_index).reshape(predicted.shape)
            valid = ignored | ((predicted >= 0) & (predicted < num_classes))
            _check_values(
                predicted, valid, self.prediction_field, name, f"hold class indices from 0 to {num_classes - 1}"
            )
        return counts[:-1, :-1]

    def check_target(self, target: np.ndarray, name: str, num_classes: int) -> None:
        """Raises MetricInputError unless all true labels are classes or ``ignore_index``."""
        valid = ((target >= 0) & (target < num_classes)) | (target == self.ignore_index)
        ignored = "" if self.ignore_index is None else f", or {self.ignore_index} to be ignored"
        expected = f"hold class indices from 0 to {num_classes - 1}{ignored}"
        _check_values(target, valid, self.target_field, name, expected)

    def whole_labels(self, labels: np.ndarray, field: str, name: str) -> np.ndarray:
        """Labels as integers; whole floats are converted, as mmseg writes them for one output channel."""
        if labels.dtype.kind in "iub":
            return labels
        if labels.dtype.kind != "f":
            raise MetricInputError(f"'{field}' of {name} must hold whole numbers (found {labels.dtype})")
        good = (labels == np.floor(labels)) & (np.abs(labels) < 2.0**53)
        if not good.all():
            raise MetricInputError(
                f"'{field}' of {name} must hold whole numbers (found {labels[~good][0]}, {labels.dtype})"
            )
        return labels.astype(np.int64)

    def check_same_shape(self, image: _Image) -> None:
        """Raises MetricInputError unless prediction and ground truth have the same shape, axes of length one aside."""
        name, predicted, target, _ = image
        if squeezed_shape(predicted) != squeezed_shape(target):
            raise MetricInputError(
                f"'{self.prediction_field}' of {name} must have the shape of '{self.target_field}', {target.shape} "
                f"(found {predicted.shape})"
            )


@METRICS.register_module()
class MeanIoU(_SegmentationMetric):
    """Intersection over union of the classes of label maps, over all pixels of the dataset.

    Keys, with the prefix ``sem-seg``; values lie in 0 to 1, those of mmseg's IoUMetric divided by 100 and not rounded:

    - ``mIoU``: the mean over the classes in ground truth or prediction.
    - ``aAcc``: pixel accuracy.
    - ``mAcc``: the mean of the pixel accuracy over the classes in the ground truth.
    - ``classes_averaged``: number of classes in ``mIoU``.
    - ``IoU/<class>``, ``Acc/<class>``: the same per class, with ``classwise``.

    Args:
        num_classes: Number of classes; that of ``dataset_meta['classes']`` by default.
        ignore_index: Pixels with this true label are left out; None for none.
        prediction_field: Field of the predicted label map.
        target_field: Field of the true label map.
        absent: Classes in neither ground truth nor prediction: ``'skip'`` leaves them out of ``mIoU``, ``'nan'`` makes
            it NaN, ``'error'`` raises.
        classwise: Also two keys per class.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

    Example:
        >>> metric = MeanIoU(num_classes=2)
        >>> target, prediction = np.array([[0, 0, 1, 1]]), np.array([[0, 1, 0, 1]])
        >>> metric.process(None, [dict(pred_sem_seg=dict(data=prediction), gt_sem_seg=dict(data=target))])
        >>> metric.evaluate(size=1)
        {'sem-seg/mIoU': 0.3333333333333333, 'sem-seg/aAcc': 0.5, 'sem-seg/mAcc': 0.5, 'sem-seg/classes_averaged': 2.0}
    """

    def __init__(
        self,
        num_classes: int | None = None,
        ignore_index: int | None = 255,
        prediction_field: str = "pred_sem_seg.data",
        target_field: str = "gt_sem_seg.data",
        absent: str = "skip",
        classwise: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(prediction_field, target_field, num_classes, ignore_index, **kwargs)
        require_choice("absent", absent, ABSENT_RULES)
        self.absent = absent
        self.classwise = classwise

    def empty_state(self) -> PixelConfusionState:
        """A matrix of zeros."""
        return PixelConfusionState(self.known_classes or 0)

    def read(self, samples: Samples) -> Batch:
        """Two confusion matrices: of all images but the last, and of the last."""
        num_classes = self.known_classes
        if num_classes is None:
            raise MetricInputError("MeanIoU needs num_classes=..., because the dataset has no class names")
        matrices = np.zeros((2, num_classes, num_classes), dtype=np.int64)
        for index, image in enumerate(self.images(samples)):
            matrices[int(index == len(samples) - 1)] += self.count_pixels(image, num_classes)
        return Batch(matrices)

    def compute(self, state: PixelConfusionState) -> dict[str, float]:
        """The means, and with ``classwise`` the values per class."""
        result = mean_iou_report(state.matrix[:, : state.num_classes], absent=self.absent)
        names = self.class_names(state.num_classes)
        metrics = {"mIoU": result.mean_iou, "aAcc": result.pixel_accuracy, "mAcc": result.mean_accuracy}
        metrics["classes_averaged"] = result.classes_averaged
        if self.classwise:
            metrics.update(class_values("IoU", names, result.iou))
            metrics.update(class_values("Acc", names, result.accuracy))
        self.warn_undefined_classes("IoU", _ABSENT, names, result.iou, skip=self.absent == "skip")
        return metrics

    def figures(self, state: Any) -> list[FigureSpec]:
        """The confusion matrix of the pixels."""
        names = self.class_names(state.num_classes)
        return [FigureSpec(("confusion_matrix",), names, lambda: matrix_view(state.matrix, names, title="pixels"))]


@METRICS.register_module()
class DiceScore(_SegmentationMetric):
    """Dice = 2·Σxy / (Σx² + Σy² + smooth) of prediction x and ground truth y.

    Keys, with the prefix ``sem-seg``; values lie in 0 to 1:

    - ``mDice``: the mean over the classes.
    - ``classes_in_dice``: number of classes in ``mDice``.
    - ``Dice/<class>``: Dice per class, with ``classwise``.

    Args:
        mode: ``'hard'`` compares label maps; ``'soft'`` compares scores, one channel per class.
        over: ``'sample'`` for the mean over samples of the Dice per class; ``'dataset'`` for the Dice per class of all
            samples pooled.
        num_classes: Number of classes; that of the dataset by default. Without either, arrays are binary masks, or
            with ``'soft'`` scores of any shape and targets of the same shape. With ``'soft'`` and two classes, scores
            of one channel are those of the second class (mmseg's ``out_channels=1``).
        smooth: Added to the denominator; 0 by default, 1e-5 in MindSpore's convention.
        empty: The value of a class that is in neither prediction nor ground truth: a number, or ``'skip'`` to leave it
            out of the mean.
        activation: With ``'soft'``: ``'softmax'`` (over the channels) or ``'sigmoid'`` for logits, such as mmseg's
            ``seg_logits``; none by default.
        threshold: With ``'soft'``: scores above it count as 1 and others as 0. It is rounded to the precision of the
            scores.
        ignore_index: Values whose true label, or target, is this are left out; None for none.
        prediction_field: Field of the prediction; by default ``'pred_sem_seg.data'`` for ``'hard'`` and
            ``'seg_logits.data'`` for ``'soft'``.
        target_field: Field of the ground truth: a label map, or with ``'soft'`` also an array of the scores' shape.
        convention: ``'mindspore'`` gives the value of MindSpore's Dice: the sum of the Dice of each batch, divided by
            the number of samples, so that perfect batches of 3 score 1/3.
        classwise: Also one key per class.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

    Example:
        >>> x, y = np.array([[0.2, 0.5], [0.3, 0.1], [0.9, 0.6]]), np.array([[0, 1], [1, 0], [0, 1]])
        >>> metric = DiceScore(mode="soft", smooth=1e-5, prediction_field="x", target_field="y")
        >>> metric.process(None, [dict(x=x, y=y)])
        >>> round(metric.evaluate(size=1)["sem-seg/mDice"], 7)
        0.6140337
    """

    def __init__(
        self,
        mode: str = "hard",
        over: str = "sample",
        num_classes: int | None = None,
        smooth: float | None = None,
        empty: float | str = 1.0,
        activation: str | None = None,
        threshold: float | None = None,
        ignore_index: int | None = 255,
        prediction_field: str | None = None,
        target_field: str = "gt_sem_seg.data",
        convention: str | None = None,
        classwise: bool = False,
        **kwargs: Any,
    ) -> None:
        field = prediction_field or ("seg_logits.data" if mode == "soft" else "pred_sem_seg.data")
        super().__init__(field, target_field, num_classes, ignore_index, **kwargs)
        require_choice("mode", mode, ("hard", "soft"))
        require_choice("over", over, ("sample", "dataset"))
        require_choice("activation", activation, (None, "softmax", "sigmoid"))
        require_choice("convention", convention, (None, "mindspore"))
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
        """Whether each batch has one Dice, also with samples of two datasets."""
        return self.convention is not None

    def empty_state(self) -> State:
        """Sums of the samples' Dice or of their overlaps, or the overlaps of batches."""
        return ExactSumState() if self.convention is None else BatchDiceState()

    def read(self, samples: Samples) -> Batch:
        """The Dice (samples, classes), or intersections and sizes (samples, 2, classes)."""
        overlaps = np.array([self._overlap(image) for image in self.images(samples)], dtype=np.float64)
        if self.convention is not None or self.over == "dataset":
            return Batch(overlaps)
        return Batch(dice_score(overlaps[:, 0], overlaps[:, 1], smooth=self.smooth, zero_division=self.empty))

    def compute(self, state: Any) -> dict[str, float]:
        """The mean, and with ``classwise`` the values per class."""
        if isinstance(state, BatchDiceState):
            value = state.dice(smooth=self.smooth)
            if np.isnan(value):
                self.warn_no_samples("Dice")
            return {"mDice": value}
        values = self._per_class(state)
        names = self.class_names(len(values))
        metrics: dict[str, float] = {"mDice": mean_over_classes(values)}
        metrics["classes_in_dice"] = int((~np.isnan(values)).sum())  # not MeanIoU's key, which has the same prefix
        if self.classwise:
            metrics.update(class_values("Dice", names, values))
        self.warn_undefined_classes("Dice", _ABSENT, names, values, skip=True)
        return metrics

    def _per_class(self, state: ExactSumState) -> np.ndarray:
        if state.count is None:
            return np.full(self.known_classes or 0, np.nan)
        if self.over == "sample":
            return state.means()
        intersection, sizes = state.sums().reshape(2, -1)
        values = dice_score(intersection, sizes, smooth=self.smooth, zero_division=self.empty)
        return values if state.count.any() else np.full(len(values), np.nan)

    def _overlap(self, image: _Image) -> tuple[np.ndarray, np.ndarray]:
        name, predicted, target, _ = image
        num_classes = self.known_classes
        if self.mode == "hard":
            # Without classes, a mask: two labels, of which only the region of ones counts.
            intersection, sizes = label_overlap(self.count_pixels(image, num_classes or 2))
            return (intersection, sizes) if num_classes else (intersection[1:], sizes[1:])
        one_channel = num_classes == 2 and predicted.ndim > 1 and len(predicted) == 1
        scores = self._scores(image, None if one_channel else num_classes)
        if num_classes is None or one_channel:
            self.check_same_shape(image)
        if num_classes is None or one_channel or predicted.shape == target.shape:
            target = target.reshape(scores.shape)
            ignored = np.zeros(target.shape, bool) if self.ignore_index is None else target == self.ignore_index
            advice = "" if self.ignore_index is None else f", or be {self.ignore_index} to be ignored"
            _check_unit(target, self.target_field, name, advice, ignored=ignored)
            if one_channel:  # the scores of the second class; the first has 1 minus these scores
                scores, target = (
                    np.concatenate([1 - values.astype(np.float64), values]) for values in (scores, target)
                )
                ignored = np.concatenate([ignored, ignored])
            return soft_overlap(scores, target, ignored=ignored)
        if target.size != scores.shape[1]:
            raise MetricInputError(
                f"'{self.target_field}' of {name} must have the shape of '{self.prediction_field}' or of one of its "
                f"channels, {predicted.shape} (found {target.shape})"
            )
        target = self.whole_labels(target, self.target_field, name)
        self.check_target(target, name, num_classes)
        return soft_label_overlap(scores, target.reshape(-1), ignore_index=self.ignore_index)

    def _scores(self, image: _Image, num_classes: int | None) -> np.ndarray:
        """The scores of a sample, (classes, values)."""
        name, scores, _, precision = image
        if scores.dtype.kind not in "biuf":
            raise MetricInputError(f"'{self.prediction_field}' of {name} must hold numbers (found {scores.dtype})")
        if num_classes is not None and (not scores.ndim or len(scores) != num_classes):
            raise MetricInputError(
                f"'{self.prediction_field}' of {name} must have {num_classes} channels, one per class "
                f"(found shape {scores.shape})"
            )
        scores = scores.reshape(num_classes or 1, -1)
        if self.activation == "softmax" and num_classes is None:
            if self.known_classes is not None:
                raise MetricInputError(
                    f"'{self.prediction_field}' of {name} has one channel: use activation='sigmoid' for its logits"
                )
            raise MetricInputError("activation='softmax' needs num_classes=..., because the dataset has no class names")
        if self.activation is not None:
            precision = FLOAT64
            scores = scores.astype(np.float64)
            scores = expit(scores) if self.activation == "sigmoid" else softmax(scores, axis=0)
        _check_unit(scores, self.prediction_field, name, "; for logits use activation=...")
        return scores if self.threshold is None else scores > round_thresholds(self.threshold)[precision]


def _check_unit(values: np.ndarray, field: str, name: str, advice: str, *, ignored: Any = False) -> None:
    if values.dtype.kind not in "biuf":
        raise MetricInputError(f"'{field}' of {name} must hold numbers (found {values.dtype})")
    _check_values(values, ((values >= 0) & (values <= 1)) | ignored, field, name, f"lie in 0 to 1{advice}")


def _check_values(values: np.ndarray, valid: np.ndarray, field: str, name: str, expected: str) -> None:
    check_values(values[None], valid[None], field, lambda _: name, expected)
