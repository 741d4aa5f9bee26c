"""Results of classification, as readers return them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mm_metrics_plugin.functional.thresholding import reach
from mm_metrics_plugin.row_counts import RowCounts

SINGLE_LABEL, MULTI_LABEL = TASKS = ("single-label", "multi-label")
TASK_GIVEN = "given"  # the reason for a task that is not inferred


@dataclass(frozen=True, eq=False)
class ClassificationResults:
    """Scores and ground truth of many samples.

    Args:
        source: Name of the file.
        scores: (samples, classes).
        predictions: (samples,) the predicted label; the label of the best score if the file has none, and -1
            if several labels or none were predicted.
        labels: (samples,) the true label; None for multi-label results.
        targets: (samples, classes) int8, 1 if a class is true, 0 if not, -1 if it is ignored; None for single-label
            results.
        names: Path of each sample, "" if unknown.
        sample_idx: (samples,) index in the dataset, -1 if unknown.
        row_counts: Samples read, used and dropped.
        task_reason: The reason for the inferred task.
        precision: (samples,) code of the precision in which the scores of each sample were written (see
            ``functional.thresholding``).
        classes: Names of the classes, if the results name them.
    """

    source: str
    scores: np.ndarray
    predictions: np.ndarray
    labels: np.ndarray | None
    targets: np.ndarray | None
    names: tuple[str, ...]
    sample_idx: np.ndarray
    row_counts: RowCounts
    precision: np.ndarray
    task_reason: str = ""
    sha256: str | None = None
    classes: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        """``'single-label'`` or ``'multi-label'``."""
        return SINGLE_LABEL if self.targets is None else MULTI_LABEL

    @property
    def ground_truth(self) -> np.ndarray:
        """``labels`` of a single-label task, ``targets`` of a multi-label task."""
        return self.labels if self.labels is not None else self.targets  # type: ignore[return-value]

    def as_multi_label(self, reason: str) -> ClassificationResults:
        """The results as a multi-label task in which every sample has one true class."""
        if self.labels is None:
            return self
        targets = np.zeros(self.scores.shape, dtype=np.int8)
        targets[np.arange(len(targets)), self.labels] = 1
        return replace(self, labels=None, targets=targets, task_reason=reason)

    def reach(self, threshold: float) -> np.ndarray:
        """(samples, classes) whether each score is at least the threshold, in the precision of the sample's scores."""
        return reach(self.scores, threshold, self.precision)
