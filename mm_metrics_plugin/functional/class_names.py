"""Names of classes as keys."""

from __future__ import annotations

from collections import Counter
from typing import List, Sequence


def unique_names(names: Sequence[str]) -> List[str]:
    """The names, with the index of the class behind those that occur more than once.

    The index is repeated until the name is no other class's name.

    Example:
        >>> unique_names(["a", "a", "b", "a_0"])
        ['a_0_0', 'a_1', 'b', 'a_0']
    """
    counts = Counter(names)
    taken = set(names)
    result = []
    for index, name in enumerate(names):
        if counts[name] > 1:
            name = f"{name}_{index}"
            while name in taken:
                name += f"_{index}"
            taken.add(name)
        result.append(name)
    return result
