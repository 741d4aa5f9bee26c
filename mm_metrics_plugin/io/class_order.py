"""Class orders: which class a label means if two orders of the classes are known.

mmdet's ``CocoDataset`` numbers labels in the order of the annotation file's ``categories``. ``metainfo['classes']``
selects categories, and its order never changes their numbers, so the two can name a label differently. Data sets that
are not COCO files (``XMLDataset``) number labels in the order of ``metainfo['classes']``.
"""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, Sequence

from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError, first_ten, listing
from mm_metrics_plugin.io.arrays import JsonRows
from mm_metrics_plugin.io.files import PathLike, read_json

ANNOTATIONS, CLASSES = "annotations", "classes"
CLASS_ORDERS = (ANNOTATIONS, CLASSES)
# A report's order if it comes from a config, from DOTA files without class names, and if no names are known.
METAINFO, ALPHABETICAL, LABELS = "metainfo", "alphabetical", "labels"
_CHOICE = (
    "Choose the order of the labels: class_order='annotations' (the order of mmdet's CocoDataset) or "
    "class_order='classes'"
)


class Categories(NamedTuple):
    """The categories of a COCO annotation file, in its order."""

    ids: tuple[Any, ...]
    names: tuple[str, ...]

    def numbered(self, classes: Sequence[str]) -> tuple[str, ...]:
        """The names of labels 0, 1, ... in mmdet's ``CocoDataset`` with these ``metainfo['classes']``."""
        chosen = set(classes)
        return tuple(name for name in self.names if name in chosen)


def coco_categories(content: Any, source: str) -> Categories:
    """The categories in the content of a COCO annotation file."""
    rows = content.get("categories") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise ResultFileError(f"{source}: is not a COCO annotation file (it has no list 'categories')")
    categories = JsonRows(rows, source, "category")
    return Categories(tuple(categories.ids("id")), tuple(map(str, categories.column("name"))))


def read_categories(path: PathLike) -> Categories:
    """Read the categories of a COCO annotation file."""
    return coco_categories(read_json(path)[0], Path(path).name)


def describe_orders(annotated: Sequence[str], annotated_by: str, given: Sequence[str], given_by: str) -> str:
    """Both orders, and the first label that they name differently, for a message."""
    number = min(len(annotated), len(given))
    at = next((label for label in range(number) if annotated[label] != given[label]), number)
    names = [ascii(order[at]) if at < len(order) else "no class" for order in (annotated, given)]
    return (
        f"{annotated_by} lists {first_ten(annotated)} and {given_by} lists {first_ten(given)}, "
        f"so label {at} is {names[0]} or {names[1]}"
    )


def same_labels(annotated: Sequence[str], given: Sequence[str]) -> bool:
    """Whether every label of the annotated objects has the same name in both orders.

    Further classes at the end of ``given``, which have no annotations, change no label.
    """
    return tuple(annotated) == tuple(given)[: len(annotated)]


class LabelNames(NamedTuple):
    """The class name of each label.

    Args:
        names: In the order of the labels.
        order: ``'annotations'``, ``'classes'`` or ``'metainfo'``.
        conflict: The error message for results with labels if two known orders differ, else ``''``.
        labels: The label of each label of the dataset of a config, if it has another order.
    """

    names: tuple[str, ...]
    order: str
    conflict: str = ""
    labels: list[int] | None = None


def label_names_of_file(
    categories: Categories, classes: Sequence[str] | None, class_order: str | None, source: str
) -> LabelNames:
    """The label names of a COCO file, of which ``classes`` may select some."""
    names = categories.names
    if classes is None:
        if class_order == CLASSES:
            raise ResultFileError("class_order='classes' needs class names (classes=[...])")
        return LabelNames(names, ANNOTATIONS)
    known, chosen = set(names), categories.numbered(classes)
    unknown = [name for name in classes if name not in known]
    if unknown and (class_order != CLASSES or not chosen):
        raise ResultFileError(f"{source}: has no {listing('class', unknown)}; it has {listing('class', names)}")
    if class_order == CLASSES:
        repeated = [name for name, number in Counter(chosen).items() if number > 1]
        if repeated:
            raise ResultFileError(f"{source}: has more than one category named {repeated[0]!a}")
        return LabelNames(tuple(classes), CLASSES)
    if chosen == tuple(classes) or class_order is not None:
        return LabelNames(chosen, ANNOTATIONS)
    return LabelNames(chosen, ANNOTATIONS, f"{describe_orders(chosen, source, classes, 'classes=[...]')}. {_CHOICE}")


def label_names_of_dataset(
    dataset: Any,
    source: str,
    *,
    own: tuple[str, ...],
    classes: Sequence[str] | None,
    class_order: str | None,
) -> LabelNames:
    """The label names of the test dataset of a config, in the dataset's order unless ``class_order`` is another.

    The dataset was built with ``classes``, if given, in place of ``own``, the class names in the config ``source``.
    """
    names = tuple(map(str, dataset.metainfo.get("classes") or ()))
    if not names:
        raise ResultFileError(f"{source}: its test dataset names no classes (give them with classes=[...])")
    named_by = "metainfo" if classes is None else "classes=[...]"
    by_file = _order_of_files(source, dataset, names)
    if by_file is None:
        if class_order == ANNOTATIONS:
            raise ResultFileError(
                f"{source}: class_order='annotations': the annotations of its test dataset ({type(dataset).__name__}) "
                "have no order of classes"
            )
        conflict = ""
        if class_order is None and set(names) <= set(own) and not same_labels(names, own):
            orders = describe_orders(own, source, names, named_by)
            conflict = f"{orders}. Leave out classes=[...], or give class_order='classes'"
        return LabelNames(names, METAINFO if classes is None else CLASSES, conflict)
    file, categories, listed = by_file
    if class_order == CLASSES:
        return LabelNames(names, CLASSES, labels=[names.index(name) for name in listed])
    if class_order == ANNOTATIONS:
        return LabelNames(listed, ANNOTATIONS)
    both = describe_orders(listed, file, names, named_by)
    if same_labels(listed, names):
        mine = categories.numbered(own)
        if classes is None or not set(names) <= set(mine) or same_labels(names, mine):
            return LabelNames(names, ANNOTATIONS)
        both = describe_orders(mine, f"{file} with the classes of {source}", names, named_by)
    elif classes is None and sorted(listed) == sorted(names):
        warnings.warn(
            f"{source}: {both}. mmdet's CocoDataset numbers labels in the order of {file}, and so does this report. "
            "List metainfo.classes in that order to make them agree; if the labels of your model follow metainfo, give "
            "class_order='classes'",
            MetricWarning,
        )
        return LabelNames(listed, ANNOTATIONS)
    return LabelNames(listed, ANNOTATIONS, f"{both}. {_CHOICE}")


def _order_of_files(
    source: str, dataset: Any, names: tuple[str, ...]
) -> tuple[str, Categories, tuple[str, ...]] | None:
    """The first annotation file, its categories, and the names of labels 0, 1, ...; None if no file numbers them."""
    files: dict[str, tuple[Categories, tuple[str, ...]]] = {}  # by path: folders may have files of the same name
    for leaf in leaf_datasets(dataset):
        category_ids, file = getattr(leaf, "cat_ids", None), getattr(leaf, "ann_file", None)
        if not category_ids or not isinstance(file, str) or not file.endswith(".json"):
            return None
        try:
            categories = read_categories(file)
        except ResultFileError:  # it is stored where only mmdet can read it
            return None
        name_of = dict(zip(categories.ids, categories.names))
        listed = tuple(name_of.get(category_id, "") for category_id in category_ids)
        if not set(listed) <= set(names):  # the dataset renames the categories
            return None
        files[file] = categories, listed
    first, *others = files
    for other in others:
        if files[other][1] != files[first][1]:
            shown = [first, other] if Path(first).name == Path(other).name else [Path(first).name, Path(other).name]
            orders = describe_orders(files[first][1], shown[0], files[other][1], shown[1])
            raise ResultFileError(f"{source}: its annotation files number the classes differently: {orders}")
    return (Path(first).name, *files[first])


def leaf_datasets(dataset: Any) -> list[Any]:
    """The datasets inside wrappers such as ``ConcatDataset``."""
    parts = getattr(dataset, "datasets", None) or ([dataset.dataset] if hasattr(dataset, "dataset") else None)
    return [dataset] if parts is None else [leaf for part in parts for leaf in leaf_datasets(part)]
