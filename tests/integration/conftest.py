"""Small generated datasets."""

from __future__ import annotations

import pytest

from demo.pictures import write_pictures
from demo.shapes import write_shapes


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """A folder with images of four classes in ``train`` and ``val``."""
    folder = tmp_path_factory.mktemp("pictures")
    write_pictures(folder)
    return folder


@pytest.fixture(scope="session")
def shapes(tmp_path_factory):
    """A folder with images of shapes in ``train`` and ``val`` and their COCO annotations."""
    folder = tmp_path_factory.mktemp("shapes")
    write_shapes(folder)
    return folder
