"""Writes ``contents.json`` as pickles with the torch and the NumPy of the Python that runs this: one file a protocol.

``nox -s golden`` runs it in an environment of its own for every release the golden files stand for; nothing here
imitates a writer. It must itself run on the oldest of them, so it needs nothing but those two packages.
"""

import json
import pickle
from pathlib import Path

import numpy as np

try:
    import torch
except ImportError:
    torch = None

HERE = Path(__file__).resolve().parent
PROTOCOLS = (2, 4, 5)


def numpy_array(node):
    """The array a node of the JSON describes, lying in memory as it says."""
    values = np.array(node["values"], dtype=node["dtype"]).reshape(node["shape"])
    if node.get("layout") == "transposed":
        return np.asfortranarray(values)
    if node.get("layout") == "sliced":
        wide = np.zeros((values.shape[0] + 1, 2 * values.shape[1]), values.dtype)
        wide[1:, ::2] = values
        return wide[1:, ::2]
    return values[()] if node.get("layout") == "scalar" else values


def torch_tensor(node):
    """The same as a tensor."""
    values = torch.tensor(node["values"], dtype=getattr(torch, node["dtype"])).reshape(node["shape"])
    if node.get("layout") == "transposed":
        return values.t().contiguous().t()
    if node.get("layout") == "sliced":
        wide = torch.zeros(values.shape[0] + 1, 2 * values.shape[1], dtype=values.dtype)
        wide[1:, ::2] = values
        return wide[1:, ::2]
    return torch.nn.Parameter(values) if node.get("layout") == "parameter" else values


def build(node, make):
    """The value of a node of the JSON: arrays made by ``make``, tuples, and plain values."""
    if isinstance(node, dict):
        if "values" in node:
            return make(node)
        if "tuple" in node:
            return tuple(build(part, make) for part in node["tuple"])
        return {key: build(part, make) for key, part in node.items()}
    if isinstance(node, list):
        return [build(part, make) for part in node]
    return node


def write(kind, version, make):
    """One file for each protocol."""
    contents = json.loads((HERE / "contents.json").read_text(encoding="utf-8"))
    value = build({"common": contents["common"], "own": contents[kind]}, make)
    for protocol in PROTOCOLS:
        path = HERE / f"{kind}-{version.split('+')[0]}-protocol{protocol}.pkl"
        path.write_bytes(pickle.dumps(value, protocol))
        print(path.name, path.stat().st_size, "bytes")


if __name__ == "__main__":
    if torch is None:
        write("numpy", np.__version__, numpy_array)
    else:
        write("torch", torch.__version__, torch_tensor)
