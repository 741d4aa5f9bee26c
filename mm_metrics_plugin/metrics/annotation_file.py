"""Which classes are judged in the images of samples, from an LVIS annotation file or the metainfo of the dataset.

The samples of mmdet's LVISV1Dataset do not say it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError, shortened
from mm_metrics_plugin.functional._arrays import stable_order
from mm_metrics_plugin.functional.detection.data import GroundTruths
from mm_metrics_plugin.functional.detection.federated import COLUMNS
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
        ids = _image_ids(samples)
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


def _image_ids(samples: Samples) -> list[Any]:
    """The ids of the images of samples, plain values."""
    ids: list[Any] = [sample.get("img_id") for sample in samples]
    return [value.item() if getattr(value, "ndim", None) == 0 else value for value in ids]


def check_metainfo(dataset_meta: Mapping[str, Any], convention: str) -> None:
    """Raises MetricInputError unless the metainfo has the fields of a federated dataset."""
    for field in COLUMNS.values():
        if not isinstance(dataset_meta.get(field), Mapping):
            raise MetricInputError(
                f"convention={convention!r} needs ann_file=..., an LVIS annotation file, or '{field}' in the metainfo "
                f"of the dataset: the labels of the classes by image id (found {shortened(dataset_meta.get(field))})"
            )


def judged_by_metainfo(
    dataset_meta: Mapping[str, Any], samples: Samples, name: SampleName, num_classes: int
) -> dict[str, np.ndarray]:
    """The columns of the images of samples, (samples, classes) each, from the labels that the metainfo lists.

    Raises:
        MetricInputError: The labels of an image are no classes of the dataset.
    """
    columns = {}
    for column, field in COLUMNS.items():
        columns[column] = np.zeros((len(samples), num_classes), dtype=bool)
        for index, image_id in enumerate(_image_ids(samples)):
            labels = np.asarray(dataset_meta[field].get(image_id, ()))
            valid = not labels.size or (labels.dtype.kind in "iu" and 0 <= labels.min() <= labels.max() < num_classes)
            if labels.ndim != 1 or not valid:
                raise MetricInputError(
                    f"'{field}' of {name(index)} in the metainfo must be labels from 0 to {num_classes - 1} "
                    f"(found {shortened(labels.tolist())})"
                )
            columns[column][index, labels.astype(np.int64)] = True
    return columns
