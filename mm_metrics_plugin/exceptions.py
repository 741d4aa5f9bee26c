"""Everything this package raises or warns on its own account."""

from __future__ import annotations


class MetricInputError(ValueError):
    """A sample holds something no metric can be computed from.

    The message names the sample or image, the field, what was expected and what was found.
    """


class ResultFileError(ValueError):
    """A file is damaged or is not of the expected kind. The message names the file and the place in it."""


class ClassNamesError(ResultFileError):
    """The class names that were given are not those of a file, or are too few or too many for it."""


class UnsafePickleError(ResultFileError):
    """A pickle asks for something that reading data never needs. Nothing of it was run."""


class MetricWarning(UserWarning):
    """Something a user of this package should know. Inside a Runner it is a line of mmengine's log instead."""


class UndefinedMetricWarning(MetricWarning):
    """A value has no definition on this data (such as the AUC of a class without samples) and is NaN."""
