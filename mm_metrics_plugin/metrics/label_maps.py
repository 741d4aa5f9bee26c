"""Reads pictures with a prediction and a truth, as mmseg's data samples have them."""

from __future__ import annotations

from functools import partial
from typing import Callable, Iterator, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._score_precision import FLOAT64
from mm_metrics_plugin.functional.segmentation import count_label_pairs
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.flat import lean_shape
from mm_metrics_plugin.metrics.options import check_num_classes
from mm_metrics_plugin.metrics.sample_fields import field_values, plain_value, score_precision, to_host

Name = Callable[[], str]


class Picture(NamedTuple):
    """Prediction and ground truth of one sample.

    Attributes:
        name: Tells how to speak of the sample.
        predicted: Labels or scores.
        target: The ground truth.
        precision: Code of the precision in which ``predicted`` was given.
    """

    name: Name
    predicted: np.ndarray
    target: np.ndarray
    precision: int = FLOAT64


class LabelMapMetricBase(StreamingMetric):
    """Reads two fields of pictures whose sizes may differ from sample to sample.

    Args:
        prediction_field: Where a sample has the prediction; a dotted path looks inside.
        target_field: Where it has the truth.
        num_classes: How many classes there are; the data set's number by default.
        ignore_index: Pixels with this truth are left out; None for none.
        **kwargs: As in :class:`StreamingMetric`.
    """

    default_prefix = "sem-seg"

    def __init__(
        self,
        prediction_field: str,
        target_field: str,
        num_classes: Optional[int],
        ignore_index: Optional[int],
        **kwargs: Optional[str],
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        check_num_classes(num_classes)
        self.prediction_field = prediction_field
        self.target_field = target_field
        self.num_classes = num_classes
        self.ignore_index = ignore_index

    @property
    def target_fields(self) -> Sequence[str]:  # type: ignore[override]
        """The ground truth, if it comes from the data set: other fields a model may set."""
        return [self.target_field] if self.target_field.startswith("gt_") else []

    @property
    def known_classes(self) -> Optional[int]:
        """How many classes there are, if the option or the data set says so."""
        return self.num_classes or len((self.dataset_meta or {}).get("classes") or ()) or None

    def pictures(self, samples: Sequence[Mapping]) -> Iterator[Picture]:
        """How to speak of every sample of a batch, its prediction and its truth."""

        def name(index: int) -> str:
            return self.sample_name(samples[index], index)

        fields = (self.prediction_field, self.target_field)
        predictions, targets = (
            [plain_value(value, field, name, index) for index, value in enumerate(field_values(samples, field, name))]
            for field in fields
        )
        arrays = to_host([*predictions, *targets])
        for index, (predicted, target) in enumerate(zip(arrays, arrays[len(samples) :])):
            yield Picture(partial(name, index), predicted, target, score_precision(predictions[index]))

    def count_pixels(self, picture: Picture, num_classes: int) -> np.ndarray:
        """The confusion matrix of a picture of labels, ignored pixels left out."""
        name = picture.name
        self.check_same_shape(picture)
        predicted = self.whole_labels(picture.predicted, self.prediction_field, name)
        target = self.whole_labels(picture.target, self.target_field, name)
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

    def check_target(self, target: np.ndarray, name: Name, num_classes: int) -> None:
        """Raises MetricInputError unless all true labels are classes or to be ignored."""
        good = ((target >= 0) & (target < num_classes)) | (target == self.ignore_index)
        if not good.all():
            ignored = "" if self.ignore_index is None else f", or {self.ignore_index} to be ignored"
            raise MetricInputError(
                f"'{self.target_field}' of {name()} must hold class indices from 0 to {num_classes - 1}{ignored} "
                f"(found {target[~good][0]})"
            )

    def whole_labels(self, labels: np.ndarray, field: str, name: Name) -> np.ndarray:
        """Labels as integers. Floats are taken if they are whole, as mmseg writes those of one output channel.

        Raises:
            MetricInputError: There are other values than whole numbers.
        """
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

    def check_same_shape(self, picture: Picture) -> None:
        """Raises MetricInputError unless prediction and truth have the same shape, axes of length one aside."""
        name, predicted, target, _ = picture
        if lean_shape(predicted) != lean_shape(target):
            raise MetricInputError(
                f"'{self.prediction_field}' of {name()} must have the shape of '{self.target_field}', {target.shape} "
                f"(found {predicted.shape})"
            )
