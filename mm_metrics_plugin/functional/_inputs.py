"""Arrays from the arguments of functions: NumPy arrays, tensors, lists of numbers and pandas columns."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError, shortened
from mm_metrics_plugin.functional._exact_sum import split_values
from mm_metrics_plugin.functional.thresholding import BFLOAT16, precision_of


class BFloat16Array(np.ndarray):
    """float32 values that were bfloat16, which NumPy does not have."""


def score_precision(array: np.ndarray) -> int:
    """The code of the precision in which scores were written (see ``functional.thresholding``)."""
    return BFLOAT16 if isinstance(array, BFloat16Array) else precision_of(array.dtype)


def is_tensor(value: object) -> bool:
    """Whether a value is a torch tensor, recognized by its methods, so that torch is not imported."""
    return hasattr(value, "resolve_neg")


def tensor_to_array(tensor: Any) -> np.ndarray:
    """The values of a tensor, on any device and with or without gradient."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if str(tensor.dtype) == "torch.bfloat16":
        return np.asarray(tensor.float()).view(BFloat16Array)
    return np.asarray(tensor)


def as_array(value: Any, name: str) -> np.ndarray:
    """The value of an argument as an array of real numbers in native byte order.

    Raises:
        MetricInputError: It is something else; the message names the argument.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise MetricInputError(
            f"'{name}' must be an array without a mask (found {int(value.mask.sum())} masked values)"
        )
    array: Any = None
    try:
        if isinstance(value, BFloat16Array):
            array = value
        elif is_tensor(value):
            array = tensor_to_array(value)
        elif isinstance(value, (list, tuple)) and any(is_tensor(part) for part in value):
            array = np.asarray([tensor_to_array(part) if is_tensor(part) else part for part in value])
        else:
            array = np.asarray(value)
        if array.dtype.kind == "O" and array.size:  # pandas columns, and integers beyond 64 bits
            array = np.array(array.tolist())
    except Exception:  # a conversion can raise any exception
        array = None
    if array is None or array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise MetricInputError(f"'{name}' must be real numbers of at most 64 bits (found {_kind_of(value)})")
    native: np.ndarray = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return native


def _kind_of(value: object) -> str:
    """A type with its dtype, or the value itself."""
    dtype = getattr(value, "dtype", None)
    return shortened(value) if dtype is None else f"{type(value).__name__} of {dtype}"


class InvalidValue(Exception):
    """A value of a list is invalid: its index, what it must do or be (``be finite``), and what was found."""

    def __init__(self, index: int, expected: str, found: object) -> None:
        super().__init__(expected)
        self.index, self.expected, self.found = index, expected, found

    def named(self, field: str, name: Callable[[int], str]) -> MetricInputError:
        """The error that names the field and the sample or image."""
        return MetricInputError(f"'{field}' of {name(self.index)} must {self.expected} (found {self.found})")


def exact_arrays(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays in the common dtype of those that are not empty.

    Raises:
        InvalidValue: The common dtype would round a whole number.
    """
    dtypes = {array.dtype for array in arrays if array.size} or {array.dtype for array in arrays}
    dtype = np.result_type(*dtypes)
    for index, array in enumerate(arrays):
        if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and dtype.kind == "f":
            rest = split_values(array)[1]
            if rest.any():
                expected = f"hold numbers that {dtype} holds exactly, because others are of another dtype"
                raise InvalidValue(index, expected, array[rest != 0][0])
    return [array.astype(dtype, copy=False) for array in arrays]
