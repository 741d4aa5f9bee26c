"""Exact metrics for OpenMMLab: right by default, reproducible on request.

Importing this package registers every metric in mmengine's root registry. Where torch or mmengine is not installed,
everything but the registered metrics is still there.
"""

from importlib.util import find_spec

from mm_metrics_plugin.exceptions import (
    MetricInputError,
    ResultFileError,
    UndefinedMetricWarning,
    UnsafePickleError,
)
from mm_metrics_plugin.version import __version__

__all__ = ["MetricInputError", "ResultFileError", "UndefinedMetricWarning", "UnsafePickleError", "__version__"]

# Looked for, not tried: an error inside an installed torch or mmengine must be seen, not swallowed.
if find_spec("torch") is not None and find_spec("mmengine") is not None:
    from mm_metrics_plugin import metrics
    from mm_metrics_plugin.metrics import *  # noqa: F403  # exactly the names of metrics.__all__, which is one list

    __all__ += metrics.__all__
