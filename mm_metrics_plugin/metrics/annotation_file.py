"""The ground truth of samples in an LVIS annotation file, which says more than the samples of mmdet's LVISV1Dataset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import stable_order
from mm_metrics_plugin.functional.detection.data import GroundTruths
from mm_metrics_plugin.io.class_order import ANNOTATIONS
from mm_metrics_plugin.io.readers import read_ground_truth
from mm_metrics_plugin.metrics.sample_fields import SampleName, Samples


class AnnotationFile:
    """The ground truth in an annotation file, by image id.

    Args:
        path: An annotation file of LVIS.
        iou_type: What is matched.
        classes: The class names of the dataset, some of those in the file.
    """

    def __init__(self, path: str, iou_type: str, classes: Sequence[str]) -> None:
        file = read_ground_truth(path, iou_type=iou_type, classes=classes or None, class_order=ANNOTATIONS)
        self.name, self.frequency, self._columns = Path(path).name, file.frequency, file.image_columns
        order = stable_order(file.objects.image)
        self._objects = file.objects.take(order)
        self._starts = np.searchsorted(self._objects.image, np.arange(len(file.image_ids) + 1))
        self._number = {image_id: number for number, image_id in enumerate(file.image_ids)}

    def of_samples(self, samples: Samples, name: SampleName) -> tuple[GroundTruths, dict[str, np.ndarray]]:
        """The ground truths of some samples, and the columns of their images.

        Raises:
            MetricInputError: The file lacks the image of a sample.
        """
        ids: list[Any] = [sample.get("img_id") for sample in samples]
        ids = [value.item() if getattr(value, "ndim", None) == 0 else value for value in ids]
        for index, image_id in enumerate(ids):
            if not isinstance(image_id, (int, str)) or image_id not in self._number:
                raise MetricInputError(
                    f"'img_id' of {name(index)} must be the id of an image in {self.name} (found {image_id!r})"
                )
        number = np.array([self._number[image_id] for image_id in ids], dtype=np.int64)
        lengths = (self._starts[1:] - self._starts[:-1])[number]
        image = np.repeat(np.arange(len(number)), lengths)
        first = np.cumsum(lengths) - lengths
        rows = np.arange(len(image)) - np.repeat(first - self._starts[:-1][number], lengths)
        columns = {key: column[number] for key, column in self._columns.items()}
        return replace(self._objects.take(rows), image=image), columns
