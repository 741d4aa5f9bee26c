"""Exceptions and warnings of this package; singular and plural in messages."""

from __future__ import annotations


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


def pluralize(number: int, noun: str) -> str:
    """A number with a noun in the singular or plural.

    Example:
        >>> pluralize(1, "image"), pluralize(1200, "class"), pluralize(0, "match")
        ('1 image', '1,200 classes', '0 matches')
    """
    plural = noun + ("es" if noun.endswith(("s", "ch")) else "s")
    return f"{number:,} {noun if number == 1 else plural}"
