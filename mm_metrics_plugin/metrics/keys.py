"""Keys of single classes, which can be no key of anything else."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Sequence


def class_key(figure: str, name: str) -> str:
    """The key of a figure of one class: ``<figure>/<class>``.

    No figure has a slash in its name, so what stands before the first slash is the figure and the rest is the class,
    whatever characters the name of the class has. Keys without a slash are those of figures over all classes.

    Example:
        >>> class_key("mAP", "50"), class_key("f1_low", "a/b")
        ('mAP/50', 'f1_low/a/b')
    """
    return f"{figure}/{name}"


def class_values(figure: str, names: Sequence[str], values: Iterable[Any]) -> Dict[str, Any]:
    """The values of a figure by the keys of the classes.

    Example:
        >>> class_values("recall", ["cat", "dog"], [0.5, 1.0])
        {'recall/cat': 0.5, 'recall/dog': 1.0}
    """
    return {class_key(figure, name): value for name, value in zip(names, values)}
