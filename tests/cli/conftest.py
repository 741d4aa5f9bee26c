"""Warnings inside the command are lines on stderr, where the tests look for them, and no errors as elsewhere."""

from __future__ import annotations

import warnings

import pytest

from mm_metrics_plugin.exceptions import MetricWarning


@pytest.fixture(autouse=True)
def warnings_are_shown_by_the_command():
    with warnings.catch_warnings():
        warnings.simplefilter("default", MetricWarning)
        yield
