"""Small generated datasets, and one real training run of each kind for all tests that look at it."""

from __future__ import annotations

import pytest

from demo.pictures import write_pictures
from demo.shapes import write_shapes


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """A folder with ``train`` and ``val`` pictures of four classes."""
    folder = tmp_path_factory.mktemp("pictures")
    write_pictures(folder)
    return folder


@pytest.fixture(scope="session")
def shapes(tmp_path_factory):
    """A folder with ``train`` and ``val`` pictures of shapes and their COCO annotations."""
    folder = tmp_path_factory.mktemp("shapes")
    write_shapes(folder)
    return folder
