"""The evaluator of detectors: matches images as they come, merges, and makes the report."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence, TypeVar

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError, ResultFileError, listing
from mm_metrics_plugin.functional.detection.data import DetectionBatch, ImageId
from mm_metrics_plugin.functional.detection.matching import FULL, MATRIX
from mm_metrics_plugin.reports.base import Progress
from mm_metrics_plugin.reports.detection import DetectionReport
from mm_metrics_plugin.reports.provenance import Provenance
from mm_metrics_plugin.settings import DetectionSettings, with_options
from mm_metrics_plugin.states.base import merge_all
from mm_metrics_plugin.states.detection import DetectionState

_E = TypeVar("_E", bound="DetectionEvaluator")


class DetectionEvaluator:
    """Evaluates a detector on images that come one batch after the other.

    Every image is matched once, when it is added; only the matches are kept. Evaluators of other images, made by other
    processes or from files, are merged exactly.

    Args:
        classes: Class names in the order of the labels.
        settings: All options at once; by default those of ``options``.
        worst_images: Keep examples for a page, and this many of the worst images by FN and by FP; None keeps none.
        **options: Fields of :class:`~mm_metrics_plugin.settings.DetectionSettings`, such as ``score_thr=0.5``.

    Attributes:
        state: The accumulated matches: arrays that can be saved and merged.
        provenance: The images added, and where they come from.

    Example:
        >>> evaluator = DetectionEvaluator(["cat", "dog"], score_thr=0.5)
        >>> predictions = [dict(boxes=[[0, 0, 10, 10]], scores=[0.9], labels=[1]), dict(boxes=[], scores=[], labels=[])]
        >>> targets = [dict(boxes=[[0, 0, 10, 9]], labels=[1]), dict(boxes=[[2, 2, 4, 4]], labels=[0])]
        >>> evaluator.update(predictions, targets)
        >>> values = evaluator.compute().log_values()
        >>> values["precision"], values["recall_micro"], values["mAP_50"]
        (1.0, 0.5, 0.5)
    """

    def __init__(
        self,
        classes: Sequence[str],
        settings: DetectionSettings | None = None,
        *,
        worst_images: int | None = None,
        **options: Any,
    ) -> None:
        self.classes = tuple(classes)
        self.settings = with_options(settings or DetectionSettings(), options, ("classes", "settings", "worst_images"))
        self.worst_images = worst_images
        self.reset()

    def reset(self) -> None:
        """Remove all images."""
        keep = MATRIX if self.settings.matrix_only else FULL
        self.state = DetectionState(len(self.classes), self.settings, keep=keep, worst_images=self.worst_images)
        self.provenance = Provenance()

    def update(
        self,
        predictions: DetectionBatch | Sequence[Mapping[str, Any]],
        targets: Sequence[Mapping[str, Any]] | None = None,
        *,
        image_ids: Sequence[ImageId] | None = None,
        image_names: Sequence[str] | None = None,
        image_sizes: np.ndarray | None = None,
    ) -> None:
        """Add images.

        Args:
            predictions: One dict per image with ``boxes`` (xyxy), ``scores`` and ``labels``; or a checked
                :class:`~mm_metrics_plugin.functional.DetectionBatch`, which holds the ground truths as well. With
                ``iou_type='segm'`` or ``'boundary'``, ``masks`` instead of boxes: COCO's RLE dicts or an array (N,
                height, width); with ``'rbox'``, ``boxes`` (N, 5) or (N, 8); with ``'keypoints'``, ``keypoints``
                (N, K, 3).
            targets: One dict per image with ``boxes`` and ``labels``, and possibly ``crowd``, ``ignore`` and ``area``.
            image_ids: Numbers or texts that no other image has; they order images with equal scores. By default the
                images are numbered.
            image_names: File names, for messages and pages.
            image_sizes: (images, 2) height and width.

        Raises:
            MetricInputError: A field of an image is missing or invalid, or an image is repeated.
        """
        if isinstance(predictions, DetectionBatch):
            batch = predictions
        else:
            batch = DetectionBatch.from_dicts(predictions, targets, settings=self.settings, names=image_ids)
            batch.check(num_classes=len(self.classes), names=image_ids)
        self.add(batch, image_ids, image_names, image_sizes)
        counts = batch.num_images, len(batch.detections), len(batch.ground_truths)
        self.provenance = self.provenance.with_added(*counts)

    def add(
        self,
        batch: DetectionBatch,
        image_ids: Sequence[ImageId] | None = None,
        image_names: Sequence[str] | None = None,
        image_sizes: np.ndarray | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> None:
        """Add images that ``provenance`` counts already; ``on_progress`` receives the fraction that is done."""
        first = len(self.provenance.image_ids)
        ids = range(first, first + batch.num_images) if image_ids is None else image_ids
        if len(ids) != batch.num_images:
            raise MetricInputError(f"'image_ids' must be given for {batch.num_images} images (found {len(ids)})")
        names = [""] * len(ids) if image_names is None else image_names
        self.state.update(batch, np.arange(first, first + len(ids)), names=ids, on_progress=on_progress)
        self.provenance = self.provenance.with_images(ids, names, image_sizes)

    def merge(self: _E, *others: _E) -> _E:
        """A new evaluator with the images of all; the evaluators are not changed.

        Raises:
            ResultFileError: They share an image, or differ in classes or settings.
        """
        merged, numbered = self.merged_images(*others)
        states = [part.state.renumbered(numbers) for part, numbers in zip((self, *others), numbered)]
        merged.state = merge_all(states)
        return merged

    def merged_images(self: _E, *others: _E) -> tuple[_E, list[np.ndarray]]:
        """An evaluator with the images of all and an empty state, and the new positions of the images of each."""
        for other in others:
            self._check_alike(other)
        parts = [part.provenance for part in (self, *others)]
        merged = type(self)(self.classes, self.settings, worst_images=self.worst_images)
        merged.provenance, moved = Provenance.merged(parts).in_order()
        positions = np.arange(len(merged.provenance.image_ids)) if moved is None else moved
        return merged, np.split(positions, np.cumsum([len(part.image_ids) for part in parts])[:-1])

    @classmethod
    def of_report(cls: type[_E], report: DetectionReport) -> _E:
        """The evaluator that a report was computed from."""
        result = cls(report.classes, report.settings, worst_images=report.state.worst_images)
        result.state, result.provenance = report.state, report.provenance
        return result

    def compute(self, progress: Progress | None = None) -> DetectionReport:
        """The report on all images added."""
        provenance, moved = self.provenance.in_order()
        state = self.state if moved is None else self.state.renumbered(moved)
        report = DetectionReport(classes=self.classes, state=state, provenance=provenance)
        report.compute(progress or Progress())
        return report

    def header(self) -> dict[str, Any]:
        """Everything but the arrays of the state, as JSON values."""
        return {
            "classes": list(self.classes),
            "settings": self.settings.to_dict(),
            "worst_images": self.worst_images,
            **self.provenance.header(),
        }

    @classmethod
    def from_header(cls: type[_E], header: Mapping[str, Any]) -> _E:
        """An evaluator with the images of :meth:`header` and an empty state."""
        settings = DetectionSettings.from_dict(header["settings"])
        result = cls(header["classes"], settings, worst_images=header["worst_images"])
        result.provenance = Provenance.from_header(header)
        return result

    def _check_alike(self, other: DetectionEvaluator) -> None:
        both = f"{self.provenance.name} and {other.provenance.name}"
        if self.classes != other.classes:
            raise ResultFileError(
                f"{both}: are of different classes ({listing('class', self.classes)}; "
                f"{listing('class', other.classes)})"
            )
        settings, others = (
            {**one.settings.to_dict(), "allow_missing": one.provenance.allow_missing} for one in (self, other)
        )
        for key, value in settings.items():
            if value != others[key]:
                raise ResultFileError(
                    f"{both}: were made with different settings ('{key}' is {value!a} and {others[key]!a})"
                )
