"""What is said about two or more runs: numbers in their place, not yet in any form for a reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from mm_metrics_plugin.evaluation.detection import SCHEMA_VERSION
from mm_metrics_plugin.evaluation.disagreements import Disagreements
from mm_metrics_plugin.functional.statistics.paired_tests import ChangedImage, Comparison
from mm_metrics_plugin.functional.statistics.permutation import significant
from mm_metrics_plugin.settings import ComparisonSettings

_NOTHING = 1e-12  # the same numbers added up in another order
BETTER, WORSE, NOT_SIGNIFICANT, SAME = "better", "worse", "not significant", "the same"


class DifferenceRow(NamedTuple):
    """One figure of two runs, as in :class:`~mm_metrics_plugin.functional.statistics.paired_tests.Difference`.

    ``class_name`` is None for figures over all classes.
    """

    metric: str
    class_name: Optional[str]
    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float
    low_unadjusted: float
    high_unadjusted: float
    p_unadjusted: float
    verdict: str


def verdict(difference: float, p_value: float, *, ci: float) -> str:
    """Whether the second run is significantly better or worse.

    Example:
        >>> [verdict(0.01, p, ci=0.95) for p in (0.003, 0.3)], verdict(-0.01, 0.003, ci=0.95)
        (['better', 'not significant'], 'worse')
    """
    if abs(difference) < _NOTHING:
        return SAME
    if not significant(np.asarray(p_value), ci=ci):
        return NOT_SIGNIFICANT
    return BETTER if difference > 0 else WORSE


class ChangedClass(NamedTuple):
    """A sample that two classifiers decided differently: its class, and the classes they decided for."""

    true_class: str
    first_class: str
    second_class: str


@dataclass(frozen=True, eq=False)
class Versus:
    """One run against another.

    Attributes:
        first: Name of the run that the other is measured by.
        second: Name of the other.
        comparison: Of what is counted, of average precision and of AUC.
        changed: The images on which they differ most.
        image_names: What those images are called, in the same order.
        disagreements: The images on which one makes errors that the other does not.
        changed_classes: Of classifiers with one class per sample, the classes of the changed samples likewise.
    """

    first: str
    second: str
    comparison: Comparison
    changed: Tuple[ChangedImage, ...]
    image_names: Tuple[Any, ...]
    disagreements: Disagreements
    changed_classes: Tuple[ChangedClass, ...] = ()

    def rows(self, classes: Tuple[str, ...]) -> List[DifferenceRow]:
        """Every difference, those over all classes first."""
        ci = self.comparison.ci

        def row(name: str, class_name: Optional[str], values: Dict[str, float]) -> DifferenceRow:
            said = verdict(values["difference"], values["p_value"], ci=ci)
            return DifferenceRow(name, class_name, verdict=said, **values)

        rows = [row(name, None, vars(one)) for name, one in self.comparison.overall.items()]
        for name, many in self.comparison.per_class.items():
            columns = [np.asarray(part).tolist() for part in vars(many).values()]
            rows += [
                row(name, class_name, dict(zip(vars(many), values)))
                for class_name, values in zip(classes, zip(*columns))
            ]
        return rows

    def changed_entries(self) -> List[Tuple[ChangedImage, Any, Dict[str, str]]]:
        """The changed images with their names, and the classes of a classifier by name."""
        classes = [one._asdict() for one in self.changed_classes] or [{}] * len(self.changed)
        return list(zip(self.changed, self.image_names, classes))

    def to_dict(self, classes: Tuple[str, ...]) -> Dict[str, Any]:
        """As plain Python values."""
        rows = self.rows(classes)
        return {
            "first": self.first,
            "second": self.second,
            "overall": [_plain(row, ("class_name",)) for row in rows if row.class_name is None],
            "per_class": [_plain(row) for row in rows if row.class_name is not None],
            "images_right": dict(self.disagreements.agreement),
            "changed_images": [
                {**one.to_dict(), "image": name, **classes} for one, name, classes in self.changed_entries()
            ],
        }


def _plain(row: DifferenceRow, without: Tuple[str, ...] = ()) -> Dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if name not in without}


@dataclass(frozen=True, eq=False)
class ComparisonReport:
    """Everything a comparison says.

    Attributes:
        kind: ``'detection'`` or ``'classification'``.
        classes: Class names.
        settings: What was asked for.
        inputs: Which files were read, and by which versions of what.
        images: How many images all runs were tested on.
        versus: Every other run against the first.
    """

    kind: str
    classes: Tuple[str, ...]
    settings: ComparisonSettings
    inputs: Mapping[str, Any]
    images: int
    versus: Tuple[Versus, ...]

    def to_dict(self) -> Dict[str, Any]:
        """As plain Python values, in the order of the JSON report."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": self.kind,
            "classes": list(self.classes),
            "settings": self.settings.to_dict(),
            "inputs": dict(self.inputs),
            "images": self.images,
            "comparisons": [one.to_dict(self.classes) for one in self.versus],
        }
