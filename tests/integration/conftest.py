"""Small generated datasets."""

from __future__ import annotations

import pytest

from demo.pictures import write_pictures
from demo.shapes import write_shapes
from demo.skeletons import write_skeletons


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


@pytest.fixture(scope="session")
def skeletons(tmp_path_factory):
    """A folder with images of stick figures in ``train`` and ``val`` and their COCO annotations."""
    folder = tmp_path_factory.mktemp("skeletons")
    write_skeletons(folder)
    return folder
