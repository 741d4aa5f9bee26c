"""What a classifier said, and what was right: mmpretrain's result pickles."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Optional, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.reading import PathLike
from mm_metrics_plugin.io.results import text_or_nothing
from mm_metrics_plugin.io.safe_pickle import read_pickle
from mm_metrics_plugin.io.tally import Tally


@dataclass(frozen=True, eq=False)
class ClassificationResults:
    """Scores and truth of many samples.

    Args:
        source (str): Name of the file.
        scores (np.ndarray): (samples, classes).
        predictions (np.ndarray): (samples,) the predicted label; the best score where the file has none, and -1
            where several labels or none were predicted.
        labels (np.ndarray, optional): (samples,) the true label; None for multi-label results.
        targets (np.ndarray, optional): (samples, classes) int8, 1 where a class is true, 0 where not, -1 where it
            is to be left out; None for single-label results.
        names (Tuple[str, ...]): Path of each sample, "" where unknown.
        sample_idx (np.ndarray): (samples,) number in the data set, -1 where unknown.
        tally (Tally): Samples read, used and dropped.
    """

    source: str
    scores: np.ndarray
    predictions: np.ndarray
    labels: Optional[np.ndarray]
    targets: Optional[np.ndarray]
    names: Tuple[str, ...]
    sample_idx: np.ndarray
    tally: Tally


def read_classification(path: PathLike, *, trust: bool = False) -> ClassificationResults:
    """Read what mmpretrain's ``tools/test.py --out`` wrote.

    Args:
        path (str or PathLike): The ``.pkl`` file.
        trust (bool): Read it with plain pickle, which runs whatever is in it. Default False.

    Raises:
        UnsafePickleError: The pickle asks for something that data never needs.
        ResultFileError: The file is damaged, or holds no classification results.

    Examples:
        >>> import pickle, tempfile
        >>> samples = [{"pred_score": np.array([0.2, 0.8]), "pred_label": np.array([1]), "gt_label": np.array([1])},
        ...            {"pred_score": np.array([0.7, 0.3]), "pred_label": np.array([0]), "gt_label": np.array([1])}]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "results.pkl")
        ...     _ = path.write_bytes(pickle.dumps(samples))
        ...     results = read_classification(path)
        >>> results.scores.shape, results.predictions, results.labels
        ((2, 2), array([1, 0]), array([1, 1]))
    """
    path = Path(path)
    content = read_pickle(path, trust=trust)
    return classification_from_samples(content, path.name, most_bytes=path.stat().st_size)


def classification_from_samples(
    content: Any, source: str, *, most_bytes: Optional[int] = None
) -> ClassificationResults:
    """Stack what a result pickle holds.

    Args:
        content (list): One dict a sample.
        source (str): How messages name it.
        most_bytes (int, optional): Refuse scores that take more than this, before they are copied.

    Examples:
        >>> sample = {"pred_score": np.array([0.2, 0.8]), "gt_label": np.array([1])}
        >>> classification_from_samples([sample], "results.pkl").predictions
        array([1])
    """
    if not isinstance(content, list) or not content:
        what = "an empty list" if isinstance(content, list) else f"a {type(content).__name__}"
        raise ResultFileError(f"{source}: must be a list with one dict a sample (found {what})")
    for number, sample in enumerate(content):
        if type(sample) is not dict:
            raise ResultFileError(f"{source}: sample number {number} must be a dict (found {type(sample).__name__})")
    if "pred_score" not in content[0]:
        hint = "; these are detection results" if "pred_instances" in content[0] else ""
        raise ResultFileError(f"{source}: sample number 0 has no 'pred_score'{hint}")

    rows = [_array(sample.get("pred_score"), number, "pred_score", source) for number, sample in enumerate(content)]
    classes = len(rows[0])
    for number, row in enumerate(rows):
        if row.shape != (classes,) or row.dtype.kind != "f":
            raise _error(source, number, "pred_score", f"must be {classes} scores", f"{row.dtype} {row.shape}")
    if most_bytes is not None and sum(row.nbytes for row in rows) > most_bytes:
        raise ResultFileError(f"{source}: holds more scores than a file of this size can")
    scores = np.stack(rows)
    finite = np.isfinite(scores).all(axis=1)
    if not finite.all():
        number = int(np.argmin(finite))
        bad = int(np.argmin(np.isfinite(scores[number])))
        raise _error(source, number, "pred_score", "must be finite", f"{scores[number, bad]} at index {bad}")

    labels, targets = _truth(content, classes, source)
    return ClassificationResults(
        source=source,
        scores=scores,
        predictions=_predictions(content, scores, source),
        labels=labels,
        targets=targets,
        names=tuple(text_or_nothing(sample.get("img_path")) for sample in content),
        sample_idx=np.array([_whole(sample.get("sample_idx")) for sample in content], dtype=np.int64),
        tally=Tally(len(content), len(content)),
    )


def _predictions(content: List[Any], scores: np.ndarray, source: str) -> np.ndarray:
    if all(sample.get("pred_label") is None for sample in content):
        return np.argmax(scores, axis=1)
    lists = [
        _labels(sample.get("pred_label"), n, "pred_label", scores.shape[1], source) for n, sample in enumerate(content)
    ]
    return np.array([int(found[0]) if len(found) == 1 else -1 for found in lists], dtype=np.int64)


def _truth(content: List[Any], classes: int, source: str) -> Tuple[Optional[np.ndarray], Optional[np.ndarray]]:
    if all(sample.get("gt_score") is not None for sample in content):
        rows = [_array(sample["gt_score"], number, "gt_score", source) for number, sample in enumerate(content)]
        for number, row in enumerate(rows):
            if row.shape != (classes,) or not np.isin(row, (-1, 0, 1)).all():
                raise _error(
                    source, number, "gt_score", f"must be {classes} of -1, 0 and 1", f"{row.dtype} {row.shape}"
                )
        return None, np.stack(rows).astype(np.int8)
    lists = [_labels(sample.get("gt_label"), n, "gt_label", classes, source) for n, sample in enumerate(content)]
    if all(len(found) == 1 for found in lists):
        return np.concatenate(lists), None
    targets = np.zeros((len(lists), classes), dtype=np.int8)
    targets[np.repeat(np.arange(len(lists)), [len(found) for found in lists]), np.concatenate(lists)] = 1
    return None, targets


def _labels(value: Any, number: int, field: str, classes: int, source: str) -> np.ndarray:
    array = _array(value, number, field, source)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise _error(source, number, field, "must be whole numbers", f"{array.dtype} {array.shape}")
    if array.min() < 0 or array.max() >= classes:
        wrong = int(array[(array < 0) | (array >= classes)][0])
        raise _error(source, number, field, f"must be between 0 and {classes - 1}", wrong)
    return array.astype(np.int64)


def _array(value: Any, number: int, field: str, source: str) -> np.ndarray:
    if value is None:
        raise _error(source, number, field, "must be an array", "nothing")
    array: Optional[np.ndarray] = None
    with suppress(TypeError, ValueError, RuntimeError):
        array = np.atleast_1d(np.asarray(value.detach().cpu() if hasattr(value, "detach") else value))
    if array is None or (array.size and array.dtype.kind not in "fiu"):
        raise _error(source, number, field, "must be an array of numbers", type(value).__name__)
    return array


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, (int, np.integer)) and 0 <= int(value) < 1 << 62 else -1


def _error(source: str, number: int, field: str, expected: str, found: Any) -> ResultFileError:
    return ResultFileError(f"{source}: '{field}' of sample number {number} {expected} (found {found})")
