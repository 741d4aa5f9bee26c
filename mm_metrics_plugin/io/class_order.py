"""Class orders: which class a label stands for if two orders of the classes are known.

mmdet's ``CocoDataset`` numbers labels in the order of the annotation file's ``categories``. ``metainfo['classes']``
selects categories, and its order never changes their numbers, so the two can name a label differently. Data sets that
are not COCO files (``XMLDataset``) number labels in the order of ``metainfo['classes']``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Sequence, Tuple

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.files import PathLike, column, identities, read_json

ANNOTATIONS, CLASSES = "annotations", "classes"
CLASS_ORDERS = (ANNOTATIONS, CLASSES)
METAINFO, LABELS = "metainfo", "labels"  # where a report's order comes from a config, and where no names are known


class Categories(NamedTuple):
    """The categories of a COCO annotation file, in its order."""

    ids: Tuple[Any, ...]
    names: Tuple[str, ...]

    def numbered(self, classes: Sequence[str]) -> Tuple[str, ...]:
        """The names that labels 0, 1, ... have in mmdet's ``CocoDataset`` with these ``metainfo['classes']``.

        Example:
            >>> Categories((7, 3, 9), ("cat", "dog", "emu")).numbered(["emu", "cat"])
            ('cat', 'emu')
        """
        chosen = set(classes)
        return tuple(name for name in self.names if name in chosen)


def coco_categories(content: Any, source: str) -> Categories:
    """The categories in the content of a COCO annotation file.

    Example:
        >>> coco_categories({"categories": [{"id": 7, "name": "cat"}]}, "a.json")
        Categories(ids=(7,), names=('cat',))
    """
    rows = content.get("categories") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise ResultFileError(f"{source}: is no COCO annotation file (it has no list 'categories')")
    ids = identities(column(rows, "id", source, "category"), "id", source, "category")
    return Categories(tuple(ids), tuple(map(str, column(rows, "name", source, "category"))))


def read_categories(path: PathLike) -> Categories:
    """Read the categories of a COCO annotation file.

    Args:
        path: The file.

    Raises:
        ResultFileError: The file cannot be read, or is no COCO annotation file.
    """
    return coco_categories(read_json(path), Path(path).name)


def describe_orders(annotated: Sequence[str], annotated_by: str, given: Sequence[str], given_by: str) -> str:
    """Both orders, and the first label that they name differently, for a message.

    Example:
        >>> describe_orders(["cat", "dog"], "a.json", ["dog", "cat"], "--classes")
        "a.json lists 'cat', 'dog' and --classes lists 'dog', 'cat', so label 0 is 'cat' or 'dog'"
    """
    number = min(len(annotated), len(given))
    at = next((label for label in range(number) if annotated[label] != given[label]), number)
    names = [ascii(order[at]) if at < len(order) else "no class" for order in (annotated, given)]
    return (
        f"{annotated_by} lists {first_ten(annotated)} and {given_by} lists {first_ten(given)}, "
        f"so label {at} is {names[0]} or {names[1]}"
    )


def same_labels(annotated: Sequence[str], given: Sequence[str]) -> bool:
    """Whether every label of the annotated objects has the same name in both orders.

    Classes at the end of ``given`` that nothing is annotated with change no label.

    Example:
        >>> same_labels(["cat", "dog"], ["cat", "dog", "emu"]), same_labels(["dog"], ["cat", "dog"])
        (True, False)
    """
    return tuple(annotated) == tuple(given)[: len(annotated)]


def first_ten(values: Sequence[Any]) -> str:
    """The first ten of a list for a message.

    Example:
        >>> first_ten(range(12))
        '0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...'
    """
    return ", ".join(ascii(value) for value in values[:10]) + (", ..." if len(values) > 10 else "")
