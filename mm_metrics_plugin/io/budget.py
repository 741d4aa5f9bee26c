"""How much memory the content of a file may take.

A small file must not take much memory. A pickle can make objects that are larger than their bytes in the file, and it
can use one object many times. Both are charged to one budget, which is proportional to the size of the file. An object
is charged when it is made, and again each time it is used again, because a reader that copies the content copies it
each time. Other formats are bounded by their syntax: JSON and XML use every value once, and the entries of a ``.npz``
file are not compressed and must together fit into the file.
"""

from __future__ import annotations

from math import isqrt
from typing import Optional

from mm_metrics_plugin.exceptions import ResultFileError

BASE_BYTES = 32 << 20
BYTES_PER_BYTE = 24  # small arrays take up to 17 times their bytes in the file; 80 empty ones per image are usual
MATRIX_BASE_BYTES = 4 << 30  # for classes that are named or have scores of their own


class OverBudget(Exception):
    """The content takes more memory than a file of this size may. The reader adds the name of the file."""

    def __init__(self) -> None:
        super().__init__("it unfolds to far more data than the file holds")


class MemoryBudget:
    """The memory that is left for the content of one file.

    Args:
        file_size: In bytes.

    Example:
        >>> budget = MemoryBudget(100)
        >>> budget.left == (32 << 20) + 24 * 100
        True
        >>> budget.charge(budget.left)
        >>> budget.charge(1)
        Traceback (most recent call last):
        mm_metrics_plugin.io.budget.OverBudget: it unfolds to far more data than the file holds
    """

    __slots__ = ("left",)

    def __init__(self, file_size: int) -> None:
        self.left = BASE_BYTES + BYTES_PER_BYTE * file_size

    def charge(self, cost: int) -> None:
        """Take ``cost`` bytes from what is left."""
        self.left -= cost
        if self.left < 0:
            raise OverBudget


def check_num_classes(num_classes: int, source: str, file_size: Optional[int], *, labels_only: bool) -> None:
    """Refuse a number of classes whose confusion matrix would take far more memory than the file explains.

    The matrix may take 24 times the size of the file, and besides 32 MB where only labels tell the number of classes
    (2,047 classes), or 4 GB where classes are named or have scores (23,169 classes).

    Args:
        num_classes: Number of classes.
        source: How the message names the file.
        file_size: In bytes. None: the content comes from no file, and nothing is refused.
        labels_only: Whether the number is the largest label plus one.

    Raises:
        ResultFileError: There are too many classes.

    Example:
        >>> check_num_classes(1000, "results.pkl", 300, labels_only=True)
        >>> check_num_classes(60001, "results.pkl", 300, labels_only=True)
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.ResultFileError: results.pkl: the largest label is 60000, and class names are ...
    """
    if file_size is None:
        return
    base = BASE_BYTES if labels_only else MATRIX_BASE_BYTES
    most = isqrt((base + BYTES_PER_BYTE * file_size) // 8) - 1
    if num_classes <= most:
        return
    if labels_only:
        raise ResultFileError(
            f"{source}: the largest label is {num_classes - 1}, and class names are not given. Without names, a file "
            f"of this size may have at most {most} classes (give the names with --classes)"
        )
    raise ResultFileError(f"{source}: {num_classes} classes are more than a file of this size may have ({most})")
