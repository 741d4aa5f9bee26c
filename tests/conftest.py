"""How many examples Hypothesis tries: the same 200 at every run, or with ``--hypothesis-profile slow`` 10,000 new ones.

``--hypothesis-seed`` repeats a run of new examples; a failure prints a line that repeats it alone.
"""

from __future__ import annotations

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
    settings.register_profile("slow", max_examples=10_000, derandomize=False, print_blob=True, **common)
    # For `make mutation`: a mutant is found by the first examples or not at all, and its example is not shrunk.
    settings.register_profile("mutation", max_examples=20, derandomize=True, phases=[Phase.generate], **common)
    settings.load_profile("default")


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
