"""Rates, agreement coefficients and views of a confusion matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional._arrays import Result, divide, fbeta_of_rates, fbeta_score, mean_over_classes

MOST_CONFUSIONS = 10
NO_DECISION = "no decision"
MOST_DENSE = 2000  # classes of a matrix that is written cell by cell; of a larger one, only cells that are not 0


@dataclass(frozen=True)
class Rates(Result):
    """Precision, recall, F-score and specificity: one value per class, or one average each."""

    precision: Any
    recall: Any
    f_score: Any
    specificity: Any


@dataclass(frozen=True)
class CountsResult(Result):
    """Rates from the true and false positives and negatives of each class."""

    tp: np.ndarray  # true positives; int64 per class, as the next three
    fp: np.ndarray  # false positives
    fn: np.ndarray  # false negatives
    tn: np.ndarray  # true negatives
    per_class: Rates  # the rates of each class, the background's last where there is one
    macro: Rates  # means over the classes that have a value
    micro: Rates  # rates of the pooled counts
    weighted: Rates  # means over the classes that have a value, weighted by support
    f_of_means: float  # the F-score of macro precision and macro recall, which is not the mean of the F-scores
    background: bool  # whether the last class is the background, which no mean includes

    @property
    def support(self) -> np.ndarray:
        """How many samples of each class there are."""
        return self.tp + self.fn

    @property
    def predicted(self) -> np.ndarray:
        """How many samples were given to each class."""
        return self.tp + self.fp

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
    """Rates and agreement coefficients from a confusion matrix."""

    matrix: np.ndarray  # the matrix itself: rows truth, columns prediction
    accuracy: float  # the share of the diagonal
    balanced_accuracy: float  # the mean recall of the classes that have samples, whatever ``zero_division`` is
    mcc: float  # Matthews' correlation coefficient for any number of classes
    kappa: float  # Cohen's kappa
    kappa_linear: float  # Cohen's kappa with disagreement weighted by the distance of the classes
    kappa_quadratic: float  # the same with the squared distance

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


def _each(rates: Rates, weights: Any, used: slice) -> Rates:
    return Rates(*(mean_over_classes(values[used], weights=weights) for values in vars(rates).values()))


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
    """Rates from counts, one per class.

    Args:
        tp: True positives.
        fp: False positives.
        fn: False negatives.
        tn: True negatives.
        beta: How many times as much recall weighs as precision in the F-score.
        zero_division: The value of a rate whose denominator is 0. NaN leaves the class out of the means; mmpretrain
            takes 0, PaddleRec 1.
        background: Whether the last class is the background, which no mean includes.

    Example:
        >>> counts = np.array([1, 1, 0, 1]), np.array([0, 1, 0, 0]), np.array([0, 0, 1, 0]), np.array([3, 2, 3, 3])
        >>> [stat_scores_report(*counts, zero_division=value).macro.precision for value in (0, 1)]
        [0.625, 0.875]
    """
    tp, fp, fn, tn = counts = [np.asarray(count, dtype=np.int64) for count in (tp, fp, fn, tn)]
    used = slice(None, -1) if background else slice(None)
    per_class = _rates(counts, beta, zero_division)
    pooled = _rates([count[used].sum() for count in counts], beta, zero_division)
    macro = _each(per_class, None, used)
    return CountsResult(
        tp,
        fp,
        fn,
        tn,
        per_class=per_class,
        macro=macro,
        micro=Rates(*(float(value) for value in vars(pooled).values())),
        weighted=_each(per_class, (tp + fn)[used], used),
        f_of_means=float(fbeta_of_rates(macro.precision, macro.recall, beta)),
        background=background,
    )


def class_counts(matrix: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """True positives, false positives, false negatives and true negatives of each class."""
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

    Cells of the background count as false positives and false negatives of the other classes, but its own rates are in
    no mean. Accuracy, MCC and kappa use the whole matrix. Samples without a decision are one more predicted class; the
    weighted kappas are then undefined.

    Args:
        matrix: Integers (classes, classes): rows ground truth, columns prediction. One more column, at the end, counts
            samples without a decision: false negatives that are nobody's false positive.
        beta: As in :func:`stat_scores_report`, as are the next two.
        zero_division: The value of a rate whose denominator is 0.
        background: Whether the last class is the background.

    Raises:
        MetricInputError: The matrix has another shape, or no integers.

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
    used = slice(None, -1) if background else slice(None)
    return ConfusionResult(
        **vars(stat_scores_report(*counts, beta=beta, zero_division=zero_division, background=background)),
        matrix=matrix,
        accuracy=float(divide(tp.sum(), matrix.sum())),
        balanced_accuracy=mean_over_classes(divide(tp, tp + fn)[used]),
        **_agreement(matrix),
    )


def _agreement(matrix: np.ndarray) -> Dict[str, Any]:
    """MCC and the kappas; NaN where all of the ground truth or all predictions are of one class."""
    # Python's integers have no largest one (products of pixel counts pass 2^63), and make every value exact but for
    # its last rounding.
    truth, predicted = [int(n) for n in matrix.sum(axis=1)], [int(n) for n in matrix.sum(axis=0)]
    total = sum(truth)
    chance = sum(a * b for a, b in zip(truth, predicted))
    covariance = int(matrix.trace()) * total - chance
    spread = (total**2 - sum(n * n for n in truth)) * (total**2 - sum(n * n for n in predicted))
    linear = quadratic = float("nan")
    if sum(predicted[len(truth) :]) == 0:
        rows, columns = np.nonzero(matrix)
        distance, cells = np.abs(rows - columns), matrix[rows, columns]
        linear = _weighted_kappa(int((distance * cells).sum()) * total, _expected_distance(truth, predicted))
        quadratic = _weighted_kappa(int((distance**2 * cells).sum()) * total, _expected_square(truth, predicted))
    return dict(
        mcc=covariance / spread**0.5 if spread > 0 else float("nan"),
        kappa=covariance / (total**2 - chance) if total**2 > chance else float("nan"),
        kappa_linear=linear,
        kappa_quadratic=quadratic,
    )


def _weighted_kappa(found: int, expected: int) -> float:
    return (expected - found) / expected if expected else float("nan")


def _expected_distance(truth: Sequence[int], predicted: Sequence[int]) -> int:
    """The sum of ``|i - j| * truth[i] * predicted[j]``: how many pairs each step from a class to the next separates."""
    total, left, right, result = sum(truth), 0, 0, 0
    for a, b in zip(truth, predicted):
        left, right = left + a, right + b
        result += left * (total - right) + right * (total - left)
    return result


def _expected_square(truth: Sequence[int], predicted: Sequence[int]) -> int:
    """The sum of ``(i - j)**2 * truth[i] * predicted[j]``."""
    total = sum(truth)
    squares = sum(i * i * (a + b) for i, (a, b) in enumerate(zip(truth, predicted)))
    means = sum(i * a for i, a in enumerate(truth)) * sum(i * b for i, b in enumerate(predicted))
    return total * squares - 2 * means


@dataclass(frozen=True)
class Confusion(Result):
    """How often ground truths of one class were predicted as another."""

    ground_truth: str
    prediction: str
    count: int


def row_shares(matrix: np.ndarray) -> np.ndarray:
    """Every row divided by its sum; a row of zeros stays 0."""
    return np.nan_to_num(divide(matrix, matrix.sum(axis=1, keepdims=True)))


def top_confusions(matrix: np.ndarray, classes: Sequence[str], *, most: int = MOST_CONFUSIONS) -> Tuple[Confusion, ...]:
    """The greatest cells off the diagonal; equal ones in the order of rows and columns."""
    rows, columns = np.nonzero(matrix)
    off = rows != columns
    rows, columns = rows[off], columns[off]
    found = np.asarray(matrix)[rows, columns]
    order = np.argsort(-found, kind="stable")[:most]
    cells = zip(rows[order].tolist(), columns[order].tolist(), found[order].tolist())
    return tuple(Confusion(classes[row], classes[column], int(count)) for row, column, count in cells)


def matrix_entries(matrix: np.ndarray, *, most: int = MOST_DENSE) -> Dict[str, Any]:
    """A confusion matrix for JSON: all cells, or with more than ``most`` rows the cells that are not 0."""
    if len(matrix) <= most:
        return {"confusion_matrix": matrix.tolist(), "confusion_cells": None}
    rows, columns = np.nonzero(matrix)
    cells = {"row": rows.tolist(), "column": columns.tolist(), "count": matrix[rows, columns].tolist()}
    return {"confusion_matrix": None, "confusion_cells": cells}


@dataclass(frozen=True, eq=False)
class MatrixView(Result):
    """A square confusion matrix with names, as counts and as shares."""

    labels: Tuple[str, ...]  # names of the rows and columns
    matrix: np.ndarray  # counts; rows truth, columns prediction
    shares: np.ndarray  # the same with every row divided by its sum
    title: str  # what was counted


def matrix_view(matrix: np.ndarray, labels: Sequence[str], *, title: str = "") -> MatrixView:
    """Makes a confusion matrix square: samples without a decision (one more column) become a class if there are any."""
    matrix = np.asarray(matrix)
    size = len(matrix)
    if not matrix[:, size:].any():
        matrix = matrix[:, :size]
    elif size < matrix.shape[1]:
        matrix, labels = np.pad(matrix, ((0, 1), (0, 0))), [*labels, NO_DECISION]
    return MatrixView(tuple(labels), matrix, row_shares(matrix), title)
