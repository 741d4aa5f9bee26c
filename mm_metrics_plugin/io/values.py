"""Arrays out of what a result file holds: NumPy arrays, lists, and tensors where plain pickle made some."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from mm_metrics_plugin.functional.thresholding import BFLOAT16, precision_of


class BFloat16Array(np.ndarray):
    """float32 values that were written as bfloat16, which NumPy does not have.

    Example:
        >>> values = np.array([0.69921875], dtype=np.float32).view(BFloat16Array)
        >>> score_precision(values) == BFLOAT16, score_precision(np.asarray(values)) == BFLOAT16
        (True, False)
    """


def to_array(value: Any) -> np.ndarray:
    """A NumPy array in the machine's byte order. torch is not imported: a tensor is known by its methods.

    Raises:
        TypeError: The value cannot be an array. ValueError, RuntimeError and OverflowError likewise.

    Example:
        >>> to_array(np.array([1, 2], dtype=">i4")).dtype.isnative, to_array([0.5]).tolist()
        (True, [0.5])
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu().resolve_conj().resolve_neg()
        if str(value.dtype) == "torch.bfloat16":
            return np.asarray(value.float()).view(BFloat16Array)
    if isinstance(value, (list, tuple)):
        return array_of_numbers(value)
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def is_number_type(kind: type) -> bool:
    """Whether values of a type are numbers. Truth values are not.

    Example:
        >>> is_number_type(int), is_number_type(np.float32), is_number_type(bool), is_number_type(str)
        (True, True, False, False)
    """
    return issubclass(kind, (int, float, np.integer, np.floating)) and kind is not bool


def array_of_numbers(values: Sequence[Any]) -> np.ndarray:
    """A list of numbers, or of lists of numbers, as an array of int64 or float64.

    NumPy alone also takes text, and makes all texts as long as the longest: a list of one long text and many short ones
    then takes far more memory than the file.

    Raises:
        TypeError: Something in the list is not a number, or the lists differ in length.
        OverflowError: A whole number has more than 64 bits.

    Example:
        >>> array_of_numbers([[1, 2], [3, 4.5]])
        array([[1. , 2. ],
               [3. , 4.5]])
        >>> array_of_numbers([1, "2"])
        Traceback (most recent call last):
        TypeError: must be numbers (found str)
    """
    array = np.array(values, dtype=object)
    kinds = set(map(type, array.ravel().tolist()))
    for kind in kinds:
        if not is_number_type(kind):
            raise TypeError(f"must be numbers (found {kind.__name__})")
    whole = bool(kinds) and all(issubclass(kind, (int, np.integer)) for kind in kinds)
    return array.astype(np.int64 if whole else np.float64)


def written_bytes(array: np.ndarray) -> int:
    """How many bytes the values of an array take in a file.

    Example:
        >>> values = np.zeros(3, dtype=np.float32)
        >>> written_bytes(values), written_bytes(values.view(BFloat16Array))
        (12, 6)
    """
    return array.nbytes // 2 if isinstance(array, BFloat16Array) else array.nbytes


def score_precision(array: np.ndarray) -> int:
    """The code of the precision in which scores were written (see ``functional.thresholding``).

    Example:
        >>> from mm_metrics_plugin.functional.thresholding import PRECISIONS
        >>> PRECISIONS[score_precision(np.zeros(2, dtype=np.float16))]
        'float16'
    """
    return BFLOAT16 if isinstance(array, BFloat16Array) else precision_of(array.dtype)
