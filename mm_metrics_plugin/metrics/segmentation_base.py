"""Read the label maps and scores of mmseg's data samples."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.segmentation import count_label_pairs
from mm_metrics_plugin.metrics.base import StreamingMetric, check_num_classes
from mm_metrics_plugin.metrics.sample_fields import (
    Samples,
    field_values,
    plain_value,
    score_precision,
    squeezed_shape,
    to_host,
)


class SegmentedImage(NamedTuple):
    """Prediction (labels or scores, and the code of their precision) and ground truth of one sample."""

    name: Callable[[], str]
    predicted: np.ndarray
    target: np.ndarray
    precision: int


class LabelMapMetricBase(StreamingMetric):
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
        check_num_classes(num_classes)
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

    def images(self, samples: Samples) -> Iterator[SegmentedImage]:
        """The images of a batch."""
        name = self.sample_names(samples)
        predictions, targets = (
            [plain_value(value, field, name, index) for index, value in enumerate(field_values(samples, field, name))]
            for field in (self.prediction_field, self.target_field)
        )
        arrays = to_host([*predictions, *targets])
        for index, (predicted, target) in enumerate(zip(arrays, arrays[len(samples) :])):
            yield SegmentedImage(partial(name, index), predicted, target, score_precision(predictions[index]))

    def count_pixels(self, image: SegmentedImage, num_classes: int) -> np.ndarray:
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
            outside = (predicted < 0) | (predicted >= num_classes)
            outside &= (target != self.ignore_index).reshape(predicted.shape)
            raise MetricInputError(
                f"'{self.prediction_field}' of {name()} must hold class indices from 0 to {num_classes - 1} "
                f"(found {predicted[outside][0]})"
            )
        return counts[:-1, :-1]

    def check_target(self, target: np.ndarray, name: Callable[[], str], num_classes: int) -> None:
        """Raises MetricInputError unless all true labels are classes or ``ignore_index``."""
        good = ((target >= 0) & (target < num_classes)) | (target == self.ignore_index)
        if not good.all():
            ignored = "" if self.ignore_index is None else f", or {self.ignore_index} to be ignored"
            raise MetricInputError(
                f"'{self.target_field}' of {name()} must hold class indices from 0 to {num_classes - 1}{ignored} "
                f"(found {target[~good][0]})"
            )

    def whole_labels(self, labels: np.ndarray, field: str, name: Callable[[], str]) -> np.ndarray:
        """Labels as integers; whole floats are converted, as mmseg writes them for one output channel."""
        if labels.dtype.kind in "iub":
            return labels
        if labels.dtype.kind != "f":
            raise MetricInputError(f"'{field}' of {name()} must hold whole numbers (found {labels.dtype})")
        good = (labels == np.floor(labels)) & (np.abs(labels) < 2.0**53)
        if not good.all():
            raise MetricInputError(
                f"'{field}' of {name()} must hold whole numbers (found {labels[~good][0]}, {labels.dtype})"
            )
        return labels.astype(np.int64)

    def check_same_shape(self, image: SegmentedImage) -> None:
        """Raises MetricInputError unless prediction and ground truth have the same shape, axes of length one aside."""
        name, predicted, target, _ = image
        if squeezed_shape(predicted) != squeezed_shape(target):
            raise MetricInputError(
                f"'{self.prediction_field}' of {name()} must have the shape of '{self.target_field}', {target.shape} "
                f"(found {predicted.shape})"
            )

    def warn_absent(self, what: str, reason: str, values: np.ndarray, names: Sequence[str], *, skip: bool) -> None:
        """Warns of the classes without a value, or that there are no classes."""
        absent = [name for name, value in zip(names, values) if np.isnan(value)]
        self.warn_undefined(what, reason, absent if names else ["the dataset"], mean_of=len(names) if skip else 0)
