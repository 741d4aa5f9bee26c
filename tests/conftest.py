"""How many examples Hypothesis tries: the same few hundred at every run, or many new ones.

``HYPOTHESIS_PROFILE=campaign`` tries 10,000 random examples a property (``MM_METRICS_EXAMPLES`` says otherwise), other
ones at every run unless ``pytest --hypothesis-seed=...`` says which. What fails prints a line that repeats it alone.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings

import pytest

from mm_metrics_plugin.exceptions import MetricWarning

try:
    from hypothesis import HealthCheck, Phase, settings
except ImportError:  # environments that only run the tests inside OpenMMLab do without
    pass
else:
    common = dict(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("default", max_examples=200, derandomize=True, **common)
    examples = int(os.environ.get("MM_METRICS_EXAMPLES", "10000"))
    settings.register_profile("campaign", max_examples=examples, derandomize=False, print_blob=True, **common)
    # Quick to notice, or not at all; and nobody reads the smallest example.
    settings.register_profile("mutation", max_examples=20, derandomize=True, phases=[Phase.generate], **common)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(autouse=True)
def no_logger_of_an_earlier_runner():
    """Warnings go to mmengine's logger once a Runner has made one in this process: no test leaves one behind."""
    yield
    logging = sys.modules.get("mmengine.logging")
    if logging is not None:
        logging.MMLogger._instance_dict.clear()


@pytest.fixture
def shown_warnings():
    """Warnings of the command are lines on stderr, where tests look for them, and no errors as elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", MetricWarning)
        yield


@pytest.fixture
def interruptible():
    """SIGINT interrupts this process, also where it was started in the background of a shell and ignores SIGINT.

    A process that a test starts inherits an ignored SIGINT, but not a handler: it starts with the default.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
