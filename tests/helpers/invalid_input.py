"""Ways to corrupt a field of a sample, wherever in it the field lies."""

from __future__ import annotations

from functools import partial


def _parent(sample, field):
    *path, last = field.split(".")
    for part in path:
        sample = sample[part]
    return sample, last


def _drop(sample, field):
    parent, last = _parent(sample, field)
    del parent[last]


def _put(sample, field, value):
    parent, last = _parent(sample, field)
    parent[last] = value


def _poke(sample, field, value, dtype):
    parent, last = _parent(sample, field)
    parent[last] = parent[last].clone() if dtype is None else parent[last].to(dtype)
    parent[last].view(-1)[0] = value


def drop(field):
    """Removes a field; a dotted path looks inside."""
    return partial(_drop, field=field)


def put(field, value):
    """Replaces a field."""
    return partial(_put, field=field, value=value)


def poke(field, value, dtype=None):
    """Changes the first value of a tensor, after turning it into another dtype if one is given."""
    return partial(_poke, field=field, value=value, dtype=dtype)
