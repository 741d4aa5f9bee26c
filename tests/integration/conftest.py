"""Small generated data sets, and one real training run of each kind for all tests that look at it."""

from __future__ import annotations

import numpy as np
import pytest

from demo.make_detections import write_part
from demo.pictures import write_pictures


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
    generator = np.random.default_rng(1)
    write_part(folder, "train", 60, generator)
    write_part(folder, "val", 25, generator)
    return folder
