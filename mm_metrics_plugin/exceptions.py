"""Exceptions and warnings of this package, and parts of their messages."""

from __future__ import annotations

from reprlib import Repr
from typing import Any, Sequence


class MetricInputError(ValueError):
    """A sample or image is invalid. The message names it, the field, the expected and the actual value."""


class ResultFileError(ValueError):
    """A file is damaged or of another kind than expected. The message names the file and the position in it."""


class ClassNamesError(ResultFileError):
    """The given class names do not match those of a file, or their number is wrong."""


class UnsafePickleError(ResultFileError):
    """A pickle contains a name or opcode that data does not need. Nothing of it was executed."""


class MetricWarning(UserWarning):
    """A warning for users of this package. Inside a Runner it is logged by mmengine instead."""


class UndefinedMetricWarning(MetricWarning):
    """A value is undefined on this data, such as the AUC of a class without samples, and is NaN."""


# -- parts of messages -------------------------------------------------------------------------------------------------


def pluralize(number: int, noun: str) -> str:
    """A number with a noun in the singular or plural.

    Example:
        >>> pluralize(1, "image"), pluralize(1200, "class"), pluralize(0, "match")
        ('1 image', '1,200 classes', '0 matches')
    """
    plural = noun + ("es" if noun.endswith(("s", "x", "ch")) else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def shortened(value: Any) -> str:
    """A value in one line of ASCII, at most 60 characters long. Only the beginning of a large value is read.

    Example:
        >>> shortened(list(range(100)))
        '[0, 1, 2, 3, 4, 5, 6, 7, ...]'
    """
    text = " ".join(_SHORT.repr(value).encode("ascii", "backslashreplace").decode().split())
    return text if len(text) <= 60 else text[:57] + "..."


class _Repr(Repr):
    """Names the size of integers that Python does not convert to text."""

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() < 10_000 else f"an integer of {x.bit_length()} bits"


_SHORT = _Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring, _SHORT.maxother = 3, 8, 8, 60, 60


def first_ten(values: Sequence[Any]) -> str:
    """The first ten values of a list."""
    return ", ".join(ascii(value) for value in values[:10]) + (", ..." if len(values) > 10 else "")


def listing(noun: str, names: Sequence[Any]) -> str:
    """One name, or the number of names and the first ten.

    Example:
        >>> listing("class", ["cat"]), listing("class", ["cat", "dog"])
        ("class 'cat'", "2 classes ('cat', 'dog')")
    """
    return f"{noun} {names[0]!a}" if len(names) == 1 else f"{pluralize(len(names), noun)} ({first_ten(names)})"
