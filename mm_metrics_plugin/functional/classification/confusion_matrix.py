"""Precision, recall, F-score, MCC and kappa from a confusion matrix, and its most frequent confusions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import Result, divide, fbeta_of_rates, fbeta_score, mean_over_classes

MAX_CONFUSIONS = 10
NO_DECISION = "no decision"
MAX_DENSE_CLASSES = 2000  # larger matrices are written as a list of the cells that are not 0


@dataclass(frozen=True)
class Rates(Result):
    """Precision, recall, F-score and specificity: arrays with one value per class, or averages."""

    precision: Any
    recall: Any
    f_score: Any
    specificity: Any


@dataclass(frozen=True)
class CountsResult(Result):
    """TP, FP, FN and TN of each class, and the rates that follow."""

    tp: np.ndarray  # (classes,) true positives
    fp: np.ndarray  # (classes,) false positives
    fn: np.ndarray  # (classes,) false negatives
    tn: np.ndarray  # (classes,) true negatives
    per_class: Rates  # rates of each class
    macro: Rates  # means over the classes with a defined value
    micro: Rates  # rates of the pooled counts
    weighted: Rates  # means weighted by support
    f_of_means: float  # F-score of macro precision and macro recall, which is not the mean of the F-scores
    background: bool  # whether the last class is the background, which is excluded from all averages

    @property
    def support(self) -> np.ndarray:
        """(classes,) number of samples of each class."""
        return np.asarray(self.tp + self.fn)

    @property
    def predicted(self) -> np.ndarray:
        """(classes,) number of samples predicted as each class."""
        return np.asarray(self.tp + self.fp)

    def __str__(self) -> str:
        lines = [f"{'':<10}{'precision':>10}{'recall':>10}{'F':>10}{'specificity':>13}"]
        for name in ("macro", "micro", "weighted"):
            rates = getattr(self, name)
            lines.append(
                f"{name:<10}{rates.precision:>10.4f}{rates.recall:>10.4f}{rates.f_score:>10.4f}{rates.specificity:>13.4f}"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class ConfusionResult(CountsResult):
    """Rates and agreement coefficients of a confusion matrix."""

    matrix: np.ndarray  # rows ground truth, columns prediction
    accuracy: float
    balanced_accuracy: float  # mean recall of the classes with samples, for any ``zero_division``
    mcc: float  # Matthews correlation coefficient
    kappa: float  # Cohen's kappa
    kappa_linear: float  # Cohen's kappa with linear weights
    kappa_quadratic: float  # Cohen's kappa with quadratic weights

    def __str__(self) -> str:
        return (
            f"{super().__str__()}\naccuracy {self.accuracy:.4f}, balanced {self.balanced_accuracy:.4f}, "
            f"MCC {self.mcc:.4f}, kappa {self.kappa:.4f}"
        )


def _rates(counts: Sequence[np.ndarray], beta: float, zero_division: float) -> Rates:
    tp, fp, fn, tn = counts

    def filled(value: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(value), zero_division, value)

    return Rates(
        precision=filled(divide(tp, tp + fp)),
        recall=filled(divide(tp, tp + fn)),
        f_score=filled(fbeta_score(tp, fp, fn, beta)),
        specificity=filled(divide(tn, tn + fp)),
    )


def _average(rates: Rates, weights: np.ndarray | None, classes: slice) -> Rates:
    return Rates(*(mean_over_classes(values[classes], weights=weights) for values in vars(rates).values()))


def stat_scores_report(
    tp: np.ndarray,
    fp: np.ndarray,
    fn: np.ndarray,
    tn: np.ndarray,
    *,
    beta: float = 1.0,
    zero_division: float = float("nan"),
    background: bool = False,
) -> CountsResult:
    """Precision, recall, F-score and specificity from counts per class.

    Args:
        tp: True positives.
        fp: False positives.
        fn: False negatives.
        tn: True negatives.
        beta: Weight of recall relative to precision in the F-score.
        zero_division: Value of a rate whose denominator is 0. NaN excludes the class from the averages; mmpretrain uses
            0, PaddleRec 1.
        background: Whether the last class is the background, which is excluded from all averages.

    Example:
        >>> counts = np.array([1, 1, 0, 1]), np.array([0, 1, 0, 0]), np.array([0, 0, 1, 0]), np.array([3, 2, 3, 3])
        >>> [stat_scores_report(*counts, zero_division=value).macro.precision for value in (0, 1)]
        [0.625, 0.875]
    """
    tp, fp, fn, tn = counts = [np.asarray(count, dtype=np.int64) for count in (tp, fp, fn, tn)]
    classes = slice(None, -1) if background else slice(None)
    per_class = _rates(counts, beta, zero_division)
    pooled = _rates([count[classes].sum() for count in counts], beta, zero_division)
    macro = _average(per_class, None, classes)
    return CountsResult(
        tp,
        fp,
        fn,
        tn,
        per_class=per_class,
        macro=macro,
        micro=Rates(*(float(value) for value in vars(pooled).values())),
        weighted=_average(per_class, (tp + fn)[classes], classes),
        f_of_means=float(fbeta_of_rates(macro.precision, macro.recall, beta)),
        background=background,
    )


def class_counts(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """TP, FP, FN and TN of each class."""
    matrix = np.asarray(matrix)
    if matrix.ndim != 2 or matrix.shape[1] - matrix.shape[0] not in (0, 1) or matrix.dtype.kind not in "iu":
        raise MetricInputError(
            "a confusion matrix must hold whole numbers and be square, or have one column more for samples without a "
            f"decision (found shape {matrix.shape}, {matrix.dtype})"
        )
    matrix = matrix.astype(np.int64, copy=False)
    tp = matrix.diagonal().copy()
    fp = matrix.sum(axis=0)[: len(tp)] - tp
    fn = matrix.sum(axis=1) - tp
    return tp, fp, fn, matrix.sum() - tp - fp - fn


def confusion_matrix_report(
    matrix: np.ndarray, *, beta: float = 1.0, zero_division: float = float("nan"), background: bool = False
) -> ConfusionResult:
    """Rates and agreement coefficients of a confusion matrix.

    Args:
        matrix: Integers (classes, classes): rows ground truth, columns prediction. An additional last column counts
            samples without a decision, which are FN but not FP. The weighted kappas are then undefined.
        beta: As in :func:`stat_scores_report`.
        zero_division: As in :func:`stat_scores_report`.
        background: As in :func:`stat_scores_report`. Accuracy, MCC and kappa use the whole matrix.

    Raises:
        MetricInputError: The matrix has another shape or dtype.

    Example:
        >>> result = confusion_matrix_report(np.array([[2, 1], [0, 3]]))
        >>> result.accuracy == 5 / 6, result.macro.precision, result.per_class.recall.round(3).tolist()
        (True, 0.875, [0.667, 1.0])
        >>> print(result)
                   precision    recall         F  specificity
        macro         0.8750    0.8333    0.8286       0.8333
        micro         0.8333    0.8333    0.8333       0.8333
        weighted      0.8750    0.8333    0.8286       0.8333
        accuracy 0.8333, balanced 0.8333, MCC 0.7071, kappa 0.6667
    """
    counts = class_counts(matrix)
    matrix = np.asarray(matrix).astype(np.int64, copy=False)
    tp, _, fn, _ = counts
    classes = slice(None, -1) if background else slice(None)
    return ConfusionResult(
        **vars(stat_scores_report(*counts, beta=beta, zero_division=zero_division, background=background)),
        matrix=matrix,
        accuracy=float(divide(tp.sum(), matrix.sum())),
        balanced_accuracy=mean_over_classes(divide(tp, tp + fn)[classes]),
        **_agreement(matrix),
    )


def _agreement(matrix: np.ndarray) -> dict[str, Any]:
    """MCC and the kappas; NaN where all ground truths or all predictions are of one class."""
    # Python integers do not overflow; products of pixel counts exceed int64.
    target, predicted = matrix.sum(axis=1).astype(object), matrix.sum(axis=0).astype(object)
    total = target.sum()
    decided, undecided = predicted[: len(target)], predicted[len(target) :]
    chance = (target * decided).sum()
    covariance = int(matrix.trace()) * total - chance
    spread = (total**2 - (target**2).sum()) * (total**2 - (predicted**2).sum())
    linear = quadratic = float("nan")
    if not undecided.any():
        rows, columns = np.nonzero(matrix)
        distance, cells, index = np.abs(rows - columns), matrix[rows, columns], np.arange(len(target)).astype(object)
        left, right = np.cumsum(target), np.cumsum(decided)
        # The sums of |i - j| and of (i - j)^2, times target[i] and predicted[j], over all i and j.
        expected = (left * (total - right) + right * (total - left)).sum()
        squares = (index**2 * (target + decided)).sum()
        expected_square = total * squares - 2 * (index * target).sum() * (index * decided).sum()
        linear = _weighted_kappa(int((distance * cells).sum()) * total, expected)
        quadratic = _weighted_kappa(int((distance**2 * cells).sum()) * total, expected_square)
    return dict(
        mcc=covariance / spread**0.5 if spread > 0 else float("nan"),
        kappa=covariance / (total**2 - chance) if total**2 > chance else float("nan"),
        kappa_linear=linear,
        kappa_quadratic=quadratic,
    )


def _weighted_kappa(observed: int, expected: int) -> float:
    return (expected - observed) / expected if expected else float("nan")


@dataclass(frozen=True)
class Confusion(Result):
    """Number of ground truths of one class that were predicted as another."""

    ground_truth: str
    prediction: str
    count: int


def row_shares(matrix: np.ndarray) -> np.ndarray:
    """The matrix normalized by row; a row of zeros stays 0."""
    shares: np.ndarray = np.nan_to_num(divide(matrix, matrix.sum(axis=1, keepdims=True)))
    return shares


def most_confused_classes(matrix: np.ndarray, *, most: int) -> np.ndarray:
    """Indices of the classes with the most confusions, as row or as column; ties go to the earlier class."""
    confusions = matrix.sum(axis=0) + matrix.sum(axis=1) - 2 * matrix.diagonal()
    return np.sort(np.argsort(-confusions, kind="stable")[:most])


def top_confusions(matrix: np.ndarray, classes: Sequence[str], *, most: int = MAX_CONFUSIONS) -> tuple[Confusion, ...]:
    """The largest cells off the diagonal; ties in the order of rows and columns."""
    rows, columns = np.nonzero(matrix)
    off_diagonal = rows != columns
    rows, columns = rows[off_diagonal], columns[off_diagonal]
    counts = np.asarray(matrix)[rows, columns]
    order = np.argsort(-counts, kind="stable")[:most]
    cells = zip(rows[order].tolist(), columns[order].tolist(), counts[order].tolist())
    return tuple(Confusion(classes[row], classes[column], int(count)) for row, column, count in cells)


def matrix_entries(matrix: np.ndarray, *, most: int = MAX_DENSE_CLASSES) -> dict[str, Any]:
    """A confusion matrix for JSON: dense, or with more than ``most`` rows a list of the cells that are not 0."""
    if len(matrix) <= most:
        return {"confusion_matrix": matrix.tolist(), "confusion_cells": None}
    rows, columns = np.nonzero(matrix)
    cells = {"row": rows.tolist(), "column": columns.tolist(), "count": matrix[rows, columns].tolist()}
    return {"confusion_matrix": None, "confusion_cells": cells}


@dataclass(frozen=True, eq=False)
class MatrixView(Result):
    """A square confusion matrix with class names."""

    labels: tuple[str, ...]  # names of the rows and columns
    matrix: np.ndarray  # counts; rows ground truth, columns prediction
    shares: np.ndarray  # normalized by row
    title: str


def matrix_view(matrix: np.ndarray, labels: Sequence[str], *, title: str = "") -> MatrixView:
    """A square view: samples without a decision (an additional column) become a class if there are any."""
    matrix = np.asarray(matrix)
    size = len(matrix)
    if not matrix[:, size:].any():
        matrix = matrix[:, :size]
    elif size < matrix.shape[1]:
        matrix, labels = np.pad(matrix, ((0, 1), (0, 0))), [*labels, NO_DECISION]
    return MatrixView(tuple(labels), matrix, row_shares(matrix), title)
