"""Small generated data sets, and one real training run of each kind for all tests that look at it."""

from __future__ import annotations

import pytest

from demo.pictures import write_pictures


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """A folder with ``train`` and ``val`` pictures of four classes."""
    folder = tmp_path_factory.mktemp("pictures")
    write_pictures(folder)
    return folder
