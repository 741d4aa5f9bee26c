"""Keys of single classes, which can be no key of anything else."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping, Optional, Sequence

from mm_metrics_plugin.render.tables import printable


def class_key(figure: str, name: str) -> str:
    """The key of a figure of one class: ``<figure>/<class>``.

    No figure has a slash in its name, so what stands before the first slash is the figure and the rest is the class,
    whatever characters the name of the class has. Keys without a slash are those of figures over all classes.

    Example:
        >>> class_key("mAP", "50"), class_key("f1_low", "a/b")
        ('mAP/50', 'f1_low/a/b')
    """
    return f"{figure}/{name}"


def class_table(metrics: Mapping[str, float]) -> str:
    """The values per class of an evaluation, one row per class and one column per figure; nothing if there are none.

    Example:
        >>> print(class_table({"f1": 0.5, "f1/cat": 0.25, "f1/dog": 0.75, "tp/cat": 3.0, "tp/dog": 12.0}))
        class      f1  tp
        cat    0.2500   3
        dog    0.7500  12
    """
    rows: Dict[str, Dict[str, float]] = {}
    for key, value in metrics.items():
        figure, slash, name = key.partition("/")
        if slash:
            rows.setdefault(name, {})[figure] = value
    figures = list(dict.fromkeys(figure for row in rows.values() for figure in row))
    cells = [["class", *figures]]
    cells += [[printable(name), *(_number(one, row.get(one)) for one in figures)] for name, row in rows.items()]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
        for row in cells
    ]
    return "\n".join(lines) if rows else ""


def _number(figure: str, value: Optional[float]) -> str:
    if value is None:
        return ""
    whole = figure.split("_")[0] in ("tp", "fp", "tn", "fn")
    return f"{value:.0f}" if whole else f"{value:.4f}"


def class_values(figure: str, names: Sequence[str], values: Iterable[Any]) -> Dict[str, Any]:
    """The values of a figure by the keys of the classes.

    Example:
        >>> class_values("recall", ["cat", "dog"], [0.5, 1.0])
        {'recall/cat': 0.5, 'recall/dog': 1.0}
    """
    return {class_key(figure, name): value for name, value in zip(names, values)}
