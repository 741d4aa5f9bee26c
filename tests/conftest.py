"""How many examples Hypothesis tries: the same 200 at every run, or with ``--hypothesis-profile slow`` 10,000 new ones.

``--hypothesis-seed`` repeats a run of new examples; a failure prints a line that repeats it alone.
"""

from __future__ import annotations

import os
import shutil
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


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NO_BROWSER = "NO BROWSER: the pages are not tested. Install Chromium (Debian: apt-get install chromium) to test them."
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser():
    """A real browser. A process can start only one, so all tests share it."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        warnings.warn(NO_BROWSER)
        # Where the project is checked for everybody, tests that did not run are no success.
        (pytest.fail if os.environ.get("CI", "").lower() == "true" else pytest.skip)(NO_BROWSER)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield found
        found.close()
