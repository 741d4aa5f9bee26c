"""Files in ``tests/data`` that other releases of torch and NumPy wrote are read with their original values."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from mm_metrics_plugin.io.safe_pickle import read_pickle

GOLDEN = Path(__file__).resolve().parent.parent / "data"
CONTENTS = json.loads((GOLDEN / "contents.json").read_text(encoding="utf-8"))
FILES = sorted(path.name for path in GOLDEN.glob("*.pkl"))
NAME = re.compile(r"(torch|numpy)-(\d+\.\d+)\.\d+-protocol(\d)\.pkl")


def check(value, node, path):
    """The value is equal to a node of the JSON in type, dtype, shape and every number."""
    if isinstance(node, dict) and "values" in node:
        dtype = np.dtype("float32" if node["dtype"] == "bfloat16" else node["dtype"])
        assert isinstance(value, (np.ndarray, np.generic)), path
        # The byte order depends on NumPy and the protocol; the values do not.
        assert value.dtype.newbyteorder("=") == dtype.newbyteorder("="), path
        assert value.shape == tuple(node["shape"]), path
        np.testing.assert_array_equal(value, np.array(node["values"], dtype).reshape(node["shape"]), err_msg=path)
    elif isinstance(node, dict) and "tuple" in node:
        assert type(value) is tuple and len(value) == len(node["tuple"]), path
        for index, part in enumerate(node["tuple"]):
            check(value[index], part, f"{path}[{index}]")
    elif isinstance(node, dict):
        assert type(value) is dict and list(value) == list(node), path
        for key, part in node.items():
            check(value[key], part, f"{path}.{key}")
    elif isinstance(node, list):
        assert type(value) is list and len(value) == len(node), path
        for index, part in enumerate(node):
            check(value[index], part, f"{path}[{index}]")
    else:
        assert type(value) is type(node) and value == node, path


def test_every_writer_and_protocol_has_a_file():
    files = {NAME.fullmatch(name).groups() for name in FILES}
    writers = [("torch", "1.13"), ("torch", "2.1"), ("torch", "2.13")]
    writers += [("numpy", "1.20"), ("numpy", "1.26"), ("numpy", "2.0"), ("numpy", "2.5")]
    assert files == {(*writer, protocol) for writer in writers for protocol in "245"}


@pytest.mark.parametrize("name", FILES)
def test_files_of_other_releases_are_read_with_equal_values(name):
    kind, release, protocol = NAME.fullmatch(name).groups()
    data = (GOLDEN / name).read_bytes()
    assert data[:2] == b"\x80" + bytes([int(protocol)])
    if kind == "numpy":  # the names are what changed between the two
        assert (b"numpy._core" in data) == (release[0] == "2") != (b"numpy.core" in data)
    else:
        assert b"_load_from_bytes" in data
    check(read_pickle(GOLDEN / name), {"common": CONTENTS["common"], "own": CONTENTS[kind]}, name)
