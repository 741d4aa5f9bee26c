"""The report on a detector: everything that follows from its matched detections."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

from mm_metrics_plugin.conventions import ANALYSIS_RULE, IOU_TYPES, MATCHING_RULES, OWN
from mm_metrics_plugin.exceptions import MetricWarning, pluralize
from mm_metrics_plugin.functional.detection.average_precision import AveragePrecision
from mm_metrics_plugin.functional.detection.examples import Examples
from mm_metrics_plugin.functional.detection.froc import FROC_NAMES
from mm_metrics_plugin.functional.detection.geometry import geometry_of
from mm_metrics_plugin.functional.detection.olrp import OLRP_NAMES
from mm_metrics_plugin.functional.detection.rule_report import RuleReport, background_name, rule_report
from mm_metrics_plugin.reports.base import (
    SCHEMA_VERSION,
    Progress,
    Report,
    class_key,
    class_values,
    missing_results_lines,
    warn_unreached,
)
from mm_metrics_plugin.reports.detection_analysis import DetectionAnalysis
from mm_metrics_plugin.reports.diagnosis import Finding, diagnose
from mm_metrics_plugin.reports.provenance import Provenance
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.states.detection import DetectionState

if TYPE_CHECKING:
    from mm_metrics_plugin.functional.statistics.bootstrap import Interval

RATES = ("f1", "precision", "recall")
MICRO_RATES = ("f1_micro", "precision_micro", "recall_micro")
_OPERATING_KEYS = ("threshold", "f_score", "precision", "recall")


@dataclass(frozen=True, eq=False, repr=False)
class DetectionReport(Report):
    """Report on a detector.

    Attributes:
        classes: Class names in the order of the labels.
        state: The matches that the report is computed from, for :func:`~mm_metrics_plugin.evaluation.save_state`.
        provenance: The images, and the files that were read.
        zero_division: The value of 0/0, such as the precision of a class without detections.
        with_ap: Whether values of the log include average precision.
        with_ar: Whether values of the log include average recall.
    """

    classes: tuple[str, ...]
    state: DetectionState = field(repr=False)
    provenance: Provenance = field(default_factory=Provenance, repr=False)
    zero_division: float = float("nan")
    with_ap: bool = True
    with_ar: bool = False
    progress: Progress = field(default_factory=Progress, repr=False)

    @property
    def settings(self) -> DetectionSettings:
        """The options."""
        return self.state.settings

    @property
    def overlap_name(self) -> str:
        """The name of the overlap of a detection and a ground truth: IoU, boundary IoU or OKS."""
        return str(geometry_of(self.settings.iou_type).overlap_name)

    @property
    def shapes(self) -> str:
        """What is evaluated, such as masks."""
        return IOU_TYPES[self.settings.iou_type].description

    @cached_property
    def matching_rules(self) -> tuple[RuleReport, ...]:
        """Confusion matrix and rates by each matching rule."""
        return tuple(self._rule_report(name) for name in self.settings.matching)

    def _rule_report(self, name: str) -> RuleReport:
        rule, counted = self.state.rule(name), self.state.counts_by_name
        ground_truths, detections = rule.used
        names = ["detections_without_area", "ground_truths_without_area"]
        names += [] if MATCHING_RULES[name].ignores_crowds else ["crowds"]
        return rule_report(
            name,
            rule.matrix,
            classes=self.classes,
            ground_truths=ground_truths,
            detections=detections,
            counts={**rule.counts_by_name, **{key: counted[key] for key in names}},
            background_types=rule.background_types,
            zero_division=self.zero_division if rule.matrix.any() else float("nan"),
        )

    @cached_property
    def analysis(self) -> DetectionAnalysis | None:
        """Average precision, curves, sizes, error types, operating points and intervals; None without matches."""
        table = self.state.table()
        return None if table is None else DetectionAnalysis(self.classes, table, self.with_ap, self.progress)

    @cached_property
    def diagnosis(self) -> tuple[Finding, ...]:
        """Causes of an impossible result, such as an mAP of 0, that the data show; none of a healthy file."""
        return diagnose(self)

    @cached_property
    def examples(self) -> Examples | None:
        """The worst members of each cell and the worst images, for the page."""
        return self.state.examples()

    @property
    def inputs(self) -> dict[str, Any]:
        """The files that were read, and versions."""
        return self.provenance.inputs()

    @property
    def counts(self) -> dict[str, Any]:
        """Images, detections and objects read, used and dropped by reason."""
        return self.provenance.counts(self.state.counts_by_name, self.settings)

    def compute(self, progress: Progress) -> None:
        """Compute every part, and warn of what limits the numbers."""
        object.__setattr__(self, "progress", progress)
        analysis, counted = self.analysis, self.state.counts_by_name
        if analysis is not None:
            for name in ("intervals", "points", "errors", "average_precision", "curves", "sizes", "olrp", "froc"):
                getattr(analysis, name)
            for message in analysis.limit_messages:
                warnings.warn(message, MetricWarning)
        if 0 < counted["detections"] == counted["detections_below_threshold"]:
            warn_unreached("detection", self.settings.score_thr, None if analysis is None else analysis.table.score)
        for finding in self.diagnosis:
            warnings.warn(str(finding), finding.category)

    @property
    def labels(self) -> list[str]:
        """Names of the rows and columns of the matrices."""
        return [*self.classes, background_name(self.classes)]

    @property
    def differences(self) -> list[str]:
        """Why the matching rules differ, in numbers, one line each."""
        names = [report.name for report in self.matching_rules]
        return [line for report in self.matching_rules for line in _differences(report, names, self.settings.iou_type)]

    @property
    def missing_results(self) -> list[str]:
        """The number of images without results, if any."""
        return missing_results_lines(self.counts)

    @property
    def remarks(self) -> list[str]:
        """Why the matching rules differ, and how many images have no results."""
        return [*self.differences, *self.missing_results]

    @property
    def comparable_with(self) -> dict[str, str]:
        """Which other program or leaderboard prints the same number, by key."""
        rule = self.matching_rules[0]
        result = dict.fromkeys(rule.means, rule.rule.comparable_with)
        if self.analysis is not None:
            dropped = self.provenance.detections.dropped or self.counts["ground_truths"].get("dropped")
            ap = OWN if dropped else self.settings.ap_comparable_with
            values = self.analysis.average_precision
            result.update(dict.fromkeys(values.to_dict(), ap))
            # tidecv takes means over other classes if some have no ground truths, or none that are found.
            all_found = bool(self.analysis.sizes.tp[0].all())
            result.update(
                {
                    "errors": "tidecv" if all_found and ap != OWN else OWN,
                    **dict.fromkeys(("olrp", "froc", "operating_points", "intervals"), OWN),
                }
            )
        return result

    def _content(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "classes": list(self.classes),
            "settings": self.settings.to_dict(),
            "inputs": self.inputs,
            "counts": self.counts,
            "diagnosis": [finding.to_dict() for finding in self.diagnosis],
            "matching_rules": {report.name: report.to_dict() for report in self.matching_rules},
            "remarks": self.remarks,
            "provenance": self.comparable_with,
            **({} if self.analysis is None else self.analysis.to_dict()),
        }

    def log_values(self, *, average: str = "macro", classwise: bool = False) -> dict[str, float]:
        """The values of the first matching rule by key, the most important first, as ``DetectionPRF`` logs them.

        Args:
            average: Mean of ``f1``, ``precision`` and ``recall``: ``'macro'``, ``'micro'`` or ``'weighted'``.
            classwise: Also keys per class, such as ``f1/cat``.
        """
        return {
            **self._rates(average, classwise),
            **(self._ap_values(classwise) if self.with_ap else {}),
            **(self._olrp_values(classwise) if self.settings.olrp else {}),
            **(self._froc_values(classwise) if self.settings.froc else {}),
            **(self._operating_values(classwise) if self.settings.operating_point is not None else {}),
            **(self._interval_values(average, classwise) if self.settings.ci is not None else {}),
        }

    def _rates(self, average: str, classwise: bool) -> dict[str, float]:
        rule = self.matching_rules[0]
        result, columns = rule.result, rule.columns
        mean, micro = getattr(result, average), result.micro
        values = {
            **dict(zip(RATES, (mean.f_score, mean.precision, mean.recall))),
            "f1_of_means": result.f_of_means,
            **dict(zip(MICRO_RATES, (micro.f_score, micro.precision, micro.recall))),
            **{key: columns[key].sum() for key in ("tp", "fp", "fn")},
        }
        if average != "micro":
            values["classes_averaged"] = rule.classes_averaged["f1"]
        if classwise:
            for key in (*RATES, "tp", "fp", "fn"):
                values.update(class_values(key, self.classes, columns[key]))
        return values

    def _ap_values(self, classwise: bool) -> dict[str, float]:
        result = self._average_precision
        by_area = self.settings.area_ranges or self.settings.ap_convention.logs_areas
        means = {f"m{name}" for name in result.by_name}
        values = {}
        for key, value in result.to_dict().items():
            is_recall, is_of_area = key.startswith("AR"), key not in means and not key.startswith("AR@")
            if (self.with_ar or not is_recall) and (by_area or not is_of_area):
                values[key] = value
        for name, column in result.by_name.items() if classwise else ():
            if name.partition("@")[0] == "AP":
                values.update(class_values(name, self.classes, column))
        return values

    @property
    def _average_precision(self) -> AveragePrecision:
        if self.analysis is None:
            return AveragePrecision.undefined(self.settings, len(self.classes))
        return self.analysis.average_precision

    def _olrp_values(self, classwise: bool) -> dict[str, float]:
        result = None if self.analysis is None else self.analysis.olrp
        values = dict.fromkeys(OLRP_NAMES, np.nan) if result is None else result.means()
        for key in ("oLRP", "oLRP_threshold") if classwise else ():
            per_class = [np.nan] * len(self.classes) if result is None else result.per_class[key]
            values.update(class_values(key, self.classes, per_class))
        return values

    def _froc_values(self, classwise: bool) -> dict[str, float]:
        result = None if self.analysis is None else self.analysis.froc
        values = dict.fromkeys(FROC_NAMES, np.nan) if result is None else result.values()
        if classwise:
            per_class = [np.nan] * len(self.classes) if result is None else result.class_values()["FROC"]
            values.update(class_values("FROC", self.classes, per_class))
        return values

    def _operating_values(self, classwise: bool) -> dict[str, float]:
        analysis = self.analysis
        if analysis is None or analysis.table.num_images < 2 or analysis.points is None:
            keys = [*(f"operating_{key}" for key in _OPERATING_KEYS), "cross_fitted_f_score"]
            values, per_class = dict.fromkeys(keys, np.nan), [np.nan] * len(self.classes)
        else:
            points = analysis.points
            values = {f"operating_{key}": getattr(points.overall, key) for key in _OPERATING_KEYS}
            values["cross_fitted_f_score"] = points.overall_cross_fitted.f_score
            per_class = [point.threshold for point in points.per_class]
        return {**values, **(class_values("operating_threshold", self.classes, per_class) if classwise else {})}

    def log_intervals(
        self, *, average: str = "macro", classwise: bool = False
    ) -> dict[tuple[str, str | None], Interval]:
        """The confidence intervals of the values in the log, by key and class; the class is None for all classes."""
        from mm_metrics_plugin.functional.statistics.bootstrap import Interval  # imports SciPy

        intervals = None if self.analysis is None else self.analysis.intervals
        mean_ap = [f"m{name}" for name in self._average_precision.by_name] if self.with_ap else []
        keys = [*RATES, "f1_of_means", *MICRO_RATES, *mean_ap]
        class_keys = [*RATES, *(["AP"] if self.with_ap else [])] if classwise else []
        if intervals is None:
            nothing = Interval(np.nan, np.nan, np.nan, "undefined")
            return {
                **{(key, None): nothing for key in keys},
                **{(key, name): nothing for key in class_keys for name in self.classes},
            }
        names = {key: f"{key}_micro" if average == "micro" and key in RATES else key for key in keys}
        return {
            **{(key, None): intervals.overall[name] for key, name in names.items()},
            **{
                (key, name): intervals.per_class[key].at(index)
                for key in class_keys
                for index, name in enumerate(self.classes)
            },
        }

    def _interval_values(self, average: str, classwise: bool) -> dict[str, float]:
        values: dict[str, float] = {}
        for (key, name), interval in self.log_intervals(average=average, classwise=classwise).items():
            for end in ("low", "high"):
                values[f"{key}_{end}" if name is None else class_key(f"{key}_{end}", name)] = getattr(interval, end)
        return values


def _differences(report: RuleReport, matching_rules: Sequence[str], iou_type: str) -> list[str]:
    counts, lines, rule, geometry = report.counts, [], report.rule, geometry_of(iou_type)
    if not rule.one_to_one:
        lines += [
            f"{rule} counts {pluralize(counts['duplicates'], 'duplicate')} as TP: further detections of the right "
            "class that overlap a matched ground truth",
            f"{rule} counts {pluralize(counts['ground_truths_counted_again'], 'ground truth')} too many: a ground "
            "truth counts once per overlapping detection, and once more as FN if none of these has its class",
            f"{rule} counts {pluralize(counts['detections_counted_again'], 'detection')} too many: a detection "
            "counts once per ground truth that it overlaps",
        ]
        if counts.get("crowds") and ANALYSIS_RULE not in matching_rules:  # which has a line about crowd regions
            regions = pluralize(counts["crowds"], "crowd region")
            lines.append(f"{rule} counts {regions} as ordinary ground truths; {ANALYSIS_RULE} ignores them")
    elif counts.get("ground_truths_ignored"):
        name = geometry.ignored_name
        others = [other for other in IOU_TYPES[iou_type].matching if not MATCHING_RULES[other].ignores_crowds]
        lines.append(
            f"{rule} ignores {pluralize(counts['ground_truths_ignored'], name)} and detections that match only "
            f"{name}s ({counts['detections_ignored']:,}){''.join(f'; {other} counts them' for other in others)}"
        )
    if rule.class_agnostic:
        classes = report.result.matrix[:-1, :-1]
        between = int(classes.sum() - classes.trace())
        lines.append(
            f"{rule} matches by {geometry.overlap_name} alone: {pluralize(between, 'match')} between two classes"
        )
    return lines
