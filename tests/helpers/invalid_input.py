"""Functions that make a field of a sample invalid; ``'a.b'`` is field ``b`` inside ``a``."""

from __future__ import annotations


def _edited(field, edit):
    def corrupt(sample):
        *path, last = field.split(".")
        for key in path:
            sample = sample[key]
        edit(sample, last)

    return corrupt


def without(field):
    """Remove a field."""
    return _edited(field, lambda parent, key: parent.pop(key))


def replaced(field, value):
    """Replace a field."""
    return _edited(field, lambda parent, key: parent.update({key: value}))


def with_value(field, value, dtype=None):
    """Replace the first value of a tensor, after a conversion to the dtype if there is one."""

    def edit(parent, key):
        parent[key] = parent[key].clone() if dtype is None else parent[key].to(dtype)
        parent[key].view(-1)[0] = value

    return _edited(field, edit)
