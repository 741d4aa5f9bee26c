"""Options of metrics, functions and the command: frozen dataclasses, validated once, standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any, Hashable, Iterable, Mapping, Sequence, TypeVar

from mm_metrics_plugin.conventions import (
    ANALYSIS_RULE,
    COCO,
    CONVENTIONS,
    DEFAULT_CONVENTION,
    DEFAULT_IOU_TYPE,
    FREQUENCIES,
    IOU_TYPES,
    MATCHING_RULES,
    OWN,
    Convention,
)
from mm_metrics_plugin.exceptions import shortened

COCO_IOU_THRS, COCO_AREA_EDGES, COCO_MAX_DETS = COCO.iou_thrs, COCO.area_edges, COCO.max_dets
MAX_AREA = 1e10
MAX_AREA_EDGES = 100
MAX_RESAMPLES = 1_000_000
TASKS = ("single-label", "multi-label")
PERMUTATIONS = 2000
DETECTION_SCORE_THR = 0.3
MULTI_LABEL_SCORE_THR = 0.5

# mAP_low and mAP_high are the ends of a confidence interval; mAP_r, mAP_c and mAP_f those of the classes of LVIS.
RESERVED_AREAS = ("all", "any", "low", "high", "r", "c", "f")
CONVENTION_OPTIONS = ("iou_thrs", "area_edges", "max_dets", "recall_max_dets")  # whose defaults are the convention's

# Options of detectors that comparisons take and record.
COMPARED_OPTIONS = (
    "iou_type",
    "sigmas",
    "score_thr",
    "operating_point",
    "iou_thr",
    "nms_iou_thr",
    "convention",
    "iou_thrs",
    "max_dets",
)

_S = TypeVar("_S")


def require(condition: bool, message: str) -> None:
    """Raises a ValueError with the message unless the condition holds."""
    if not condition:
        raise ValueError(message)


def number_text(value: float) -> str:
    """The shortest text that reads back as the same number.

    Example:
        >>> number_text(0.3), number_text(2.0), number_text(0.99998936)
        ('0.3', '2', '0.99998936')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def require_ci(ci: float | None) -> None:
    """Raises a ValueError unless a confidence level is above 0 and below 1, or None."""
    valid = ci is None or (isinstance(ci, Real) and 0 < ci < 1)
    require(valid, f"ci must be above 0 and below 1 (found {shortened(ci)})")


def require_int(name: str, value: Any, *, low: int, high: int | None = None) -> int:
    """The value as an int; raises a ValueError if it is not a whole number, or out of range."""
    limits = f"of at least {low}" if high is None else f"from {low} to {high}"
    valid = isinstance(value, Integral) and not isinstance(value, bool)
    valid = valid and low <= value and (high is None or value <= high)
    require(valid, f"{name} must be a whole number {limits} (found {shortened(value)})")
    return int(value)


def require_choice(option: str, value: Any, choices: Sequence[Any]) -> None:
    """Raises a ValueError that lists the choices unless the value is one of them."""
    valid = isinstance(value, Hashable) and value in choices
    require(valid, f"{option} must be one of {', '.join(map(repr, choices))} (found {shortened(value)})")


@dataclass(frozen=True)
class AreaRange:
    """Areas of ground truths in square pixels, both ends included, as in COCO."""

    name: str
    low: float
    high: float


def area_ranges(edges: Sequence[float] = COCO_AREA_EDGES) -> tuple[AreaRange, ...]:
    """All areas, and the ranges between edges; ``small``, ``medium`` and ``large`` are COCO's."""
    ends = [0.0, *(float(edge) for edge in edges), MAX_AREA]
    pairs = list(zip(ends, ends[1:]))
    require(all(low < high for low, high in pairs), f"area edges must be positive and ascending (found {list(edges)})")
    names = ["small", "medium", "large"]
    if tuple(ends[1:-1]) != COCO_AREA_EDGES:
        texts = [number_text(end) for end in ends]  # unique for every edge
        names = [f"area_{low}_{high}" for low, high in zip(texts, texts[1:-1])] + [f"area_{texts[-2]}_up"]
    ranges = [AreaRange(name, *pair) for name, pair in zip(names, pairs)] if len(pairs) > 1 else []
    return (AreaRange("all", 0.0, MAX_AREA), *ranges)


COCO_AREA_RANGES = area_ranges()


@dataclass(frozen=True)
class DetectionSettings:
    """Options of the evaluation of detectors.

    Attributes:
        iou_type: What is matched: ``'bbox'``, ``'segm'`` (masks), ``'boundary'`` (masks by boundary IoU), ``'rbox'``
            (rotated boxes) or ``'keypoints'``, for which IoU stands for OKS.
        sigmas: Standard deviation of each key point relative to the size of the object. None: those of COCO's 17 key
            points.
        score_thr: Score threshold of precision and recall. Average precision and TIDE use detections of all scores.
        iou_thr: IoU threshold of a match.
        nms_iou_thr: IoU threshold of non-maximum suppression within each class, applied first. None disables it.
        matching: Matching rules of the confusion matrices.
        convention: Convention of average precision: ``'coco'`` (pycocotools), ``'mmdet'`` (mmdet's ``CocoMetric``),
            ``'voc07'`` or ``'voc12'`` (mmdet's ``VOCMetric``), ``'dota'`` (mmrotate's ``DOTAMetric``), ``'lvis'``
            (lvis-api) or ``'lvis-fixed'`` (its Fixed AP). It gives the defaults of ``iou_thrs``, ``area_edges``,
            ``max_dets`` and ``recall_max_dets``.
        iou_thrs: IoU thresholds of average precision.
        area_edges: Boundaries between the area ranges of the results by object size.
        background_iou_thr: TIDE's background threshold: detections that overlap no more are background errors.
        area_ranges: Named area ranges instead of ``area_edges``, also for average precision: a dict such as
            ``{"tiny": (0, 400)}``, or names with the lowest and highest area.
        max_dets: Maximum number of detections per class and image for average precision only. Of COCO 100, and 20 of
            key points. Of LVIS, 300 per image; of Fixed AP, 10,000 per class.
        recall_max_dets: Smaller numbers of detections per class and image, for average recall.
        frequency: The frequency of each class, ``'r'`` (rare), ``'c'`` (common) or ``'f'`` (frequent), in LVIS, whose
            mean AP is also given. None: that of the LVIS annotation file, with ``convention='lvis'``.
        matrix_only: Compute the confusion matrices only.
        operating_point: Rule that selects the best score threshold, such as ``'f1'``. None disables it.
        olrp: Compute oLRP.
        froc: Compute the FROC curves.
        ci: Confidence level of the intervals. None disables them.
        resamples: Number of bootstrap resamples over images.
        seed: Random seed of the resamples and the folds.

    Example:
        >>> DetectionSettings(iou_thr=2)
        Traceback (most recent call last):
        ValueError: iou_thr must be above 0 and at most 1 (found 2)
    """

    iou_type: str = DEFAULT_IOU_TYPE
    sigmas: tuple[float, ...] | None = None
    score_thr: float = DETECTION_SCORE_THR
    iou_thr: float = 0.5
    nms_iou_thr: float | None = None
    matching: tuple[str, ...] = (ANALYSIS_RULE,)
    convention: str = DEFAULT_CONVENTION
    iou_thrs: tuple[float, ...] = None  # type: ignore[assignment]
    area_edges: tuple[float, ...] = None  # type: ignore[assignment]
    background_iou_thr: float = 0.1
    area_ranges: tuple[AreaRange, ...] = ()
    max_dets: int = None  # type: ignore[assignment]
    recall_max_dets: tuple[int, ...] = None  # type: ignore[assignment]
    frequency: tuple[str, ...] | None = None
    matrix_only: bool = False
    operating_point: str | None = None
    olrp: bool = True
    froc: bool = True
    ci: float | None = None
    resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        require_choice("iou_type", self.iou_type, list(IOU_TYPES))
        require_choice("convention", self.convention, list(CONVENTIONS))
        convention = CONVENTIONS[self.convention]
        require(
            self.iou_type in convention.iou_types,
            f"convention={self.convention!r} is defined for iou_type={' or '.join(map(repr, convention.iou_types))} "
            f"(found {self.iou_type!r})",
        )
        defaults = {name: getattr(convention, name) for name in CONVENTION_OPTIONS}
        defaults["max_dets"] = IOU_TYPES[self.iou_type].max_dets or convention.max_dets
        for name, default in defaults.items():
            if getattr(self, name) is None:
                self._set(name, default)
        if self.sigmas is not None:
            self._set("sigmas", _numbers("sigmas", self.sigmas))
            require(
                len(self.sigmas) > 0 and min(self.sigmas) > 0,
                f"sigmas must be above 0, one per key point (found {shortened(self.sigmas)})",
            )
        for name in ("score_thr", "iou_thr", "background_iou_thr"):
            self._set(name, _number(name, getattr(self, name)))
        for name in ("nms_iou_thr", "ci"):
            value = getattr(self, name)
            self._set(name, None if value is None else _number(name, value))
        for name in ("iou_thrs", "area_edges"):
            self._set(name, _numbers(name, getattr(self, name)))
        self._set("area_ranges", _area_ranges(self.area_ranges))
        if self.area_ranges:
            self._set("area_edges", ())
        self._set("max_dets", require_int("max_dets", self.max_dets, low=1))
        require(
            isinstance(self.recall_max_dets, Iterable) and not isinstance(self.recall_max_dets, str),
            f"recall_max_dets must be whole numbers (found {shortened(self.recall_max_dets)})",
        )
        numbers = tuple(require_int("recall_max_dets", number, low=1) for number in self.recall_max_dets)
        require(list(numbers) == sorted(set(numbers)), f"recall_max_dets must be ascending (found {list(numbers)})")
        self._set("recall_max_dets", numbers)
        if self.frequency is not None:
            self._set("frequency", tuple(self.frequency))
            require(
                all(value in (*FREQUENCIES, "") for value in self.frequency),
                f"frequency must be {', '.join(map(repr, FREQUENCIES))} or '' of each class "
                f"(found {shortened(self.frequency)})",
            )
        self._set("resamples", require_int("resamples", self.resamples, low=1, high=MAX_RESAMPLES))
        self._set("seed", require_int("seed", self.seed, low=0))
        require(0 < self.iou_thr <= 1, f"iou_thr must be above 0 and at most 1 (found {number_text(self.iou_thr)})")
        require(
            self.nms_iou_thr is None or 0 <= self.nms_iou_thr <= 1,
            f"nms_iou_thr must be from 0 to 1 (found {self.nms_iou_thr})",
        )
        rules = [self.matching] if isinstance(self.matching, str) else self.matching
        valid = isinstance(rules, (list, tuple)) and bool(rules) and all(isinstance(rule, str) for rule in rules)
        require(
            valid and all(rule in MATCHING_RULES for rule in rules) and len(set(rules)) == len(rules),
            f"matching must be some of {', '.join(MATCHING_RULES)}, each once (found {shortened(self.matching)})",
        )
        self._set("matching", tuple(rules))
        thrs = list(self.iou_thrs)
        require(
            0 < len(thrs) < 64 and thrs == sorted(set(thrs)) and 0 < thrs[0] <= thrs[-1] <= 1,
            f"iou_thrs must be ascending, above 0 and at most 1 (found {thrs})",
        )
        require(
            len(self.area_edges) <= MAX_AREA_EDGES,
            f"area_edges must be at most {MAX_AREA_EDGES} areas (found {len(self.area_edges)})",
        )
        area_ranges(self.area_edges)
        require(
            0 <= self.background_iou_thr < 1,
            f"background_iou_thr must be from 0 to below 1 (found {self.background_iou_thr})",
        )
        for name in ("matrix_only", "olrp", "froc"):
            value = getattr(self, name)
            require(isinstance(value, bool), f"{name} must be True or False (found {shortened(value)})")
        if self.operating_point is not None:
            OperatingRule.parse(self.operating_point)
        require_ci(self.ci)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def ap_convention(self) -> Convention:
        """The convention of average precision."""
        return CONVENTIONS[self.convention]

    @property
    def ap_comparable_with(self) -> str:
        """Which other program or leaderboard prints the same average precision."""
        names = [*CONVENTION_OPTIONS, "nms_iou_thr", "area_ranges", "convention", "iou_type", "sigmas"]
        stock = DetectionSettings(convention=self.convention, iou_type=self.iou_type)
        own = self.sigmas is not None or any(getattr(self, name) != getattr(stock, name) for name in names)
        if own:
            return OWN
        return self.ap_convention.comparable_with or IOU_TYPES[self.iou_type].comparable_with

    @property
    def mean_max_dets(self) -> int:
        """Maximum number of detections per class and image for mAP, which is less than ``max_dets`` in mmdet."""
        return min(self.ap_convention.mean_max_dets or self.max_dets, self.max_dets)

    @property
    def ap_ranges(self) -> tuple[AreaRange, ...]:
        """The area ranges of average precision: all areas, then COCO's or ``area_ranges``."""
        if self.area_ranges:
            return (*area_ranges(()), *self.area_ranges)
        return COCO_AREA_RANGES if self.area_edges else area_ranges(())

    @property
    def size_ranges(self) -> tuple[AreaRange, ...]:
        """The area ranges of the results by object size: all areas, then those of the edges or ``area_ranges``."""
        return self.ap_ranges if self.area_ranges else area_ranges(self.area_edges)

    def with_frequency(self, frequency: tuple[str, ...] | None) -> DetectionSettings:
        """The settings with the frequency of the classes that the ground truth names, if the convention uses it."""
        used = self.frequency is None and self.ap_convention.federated
        return replace(self, frequency=frequency) if used else self

    def truncation_message(self, most_detections: int) -> str:
        """A message if there are more detections, by default of a class in an image, than average precision uses."""
        if most_detections <= self.mean_max_dets:
            return ""
        per = self.ap_convention.max_dets_per
        of_all = f"of up to {most_detections} detections per {per} (max_dets={self.max_dets})"
        if self.mean_max_dets < self.max_dets:
            others = f"the others the best {self.max_dets}, as {self.ap_convention.title} does"
            return f"mAP uses the best {self.mean_max_dets} {of_all}, {others}"
        is_default = self.max_dets == self.ap_convention.max_dets
        reason = f", as {self.ap_convention.title} does" if is_default else ""
        return f"AP uses the best {self.max_dets} {of_all}{reason}"

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain Python values."""
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        return {**values, "area_ranges": [list(vars(area_range).values()) for area_range in self.area_ranges]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DetectionSettings:
        """The inverse of :meth:`to_dict`."""
        names = {field.name for field in fields(cls)}
        require(
            set(values) == names, f"settings must be {', '.join(sorted(names))} (found {', '.join(sorted(values))})"
        )
        plain: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        return cls(**plain)


@dataclass(frozen=True)
class ClassificationSettings:
    """Options of the evaluation of classifiers.

    Attributes:
        task: ``'single-label'`` or ``'multi-label'``. None infers it from the results.
        task_reason: What the task was inferred from.
        score_thr: Score threshold of a multi-label task, 0.5 by default. A single-label task has none.
        at_specificity: Specificity at which sensitivity is reported.
        at_sensitivity: Sensitivity at which specificity is reported.
        ci: Confidence level of the intervals. None disables them.

    Example:
        >>> ClassificationSettings(at_specificity=2)
        Traceback (most recent call last):
        ValueError: at_specificity must be from 0 to 1 (found 2)
    """

    task: str | None = None
    task_reason: str = field(default="", metadata={"option": False})
    score_thr: float | None = None
    at_specificity: float = 0.95
    at_sensitivity: float = 0.95
    ci: float | None = None

    def __post_init__(self) -> None:
        if self.task is not None:
            require_choice("task", self.task, TASKS)
        for name in ("at_specificity", "at_sensitivity"):
            value = _number(name, getattr(self, name))
            require(0 <= value <= 1, f"{name} must be from 0 to 1 (found {number_text(value)})")
        if self.score_thr is not None:
            _number("score_thr", self.score_thr)
        require_ci(self.ci)

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain Python values."""
        return dict(vars(self))


@dataclass(frozen=True)
class ComparisonSettings:
    """Options of the comparison of runs.

    Attributes:
        detection: Options of detectors; None for classifiers.
        classification: Options of classifiers; None for detectors.
        ci: Confidence level of the intervals of differences; the significance level is 1 - ci.
        permutations: Number of permutations of the paired permutation test.
        seed: Random seed of the permutations and the folds.

    Example:
        >>> ComparisonSettings(DetectionSettings(), permutations=500).to_dict()["permutations"]
        500
    """

    detection: DetectionSettings | None = None
    classification: ClassificationSettings | None = None
    ci: float = 0.95
    permutations: int = PERMUTATIONS
    seed: int = 0

    def __post_init__(self) -> None:
        require(
            (self.detection is None) != (self.classification is None), "runs must be either detectors or classifiers"
        )
        require(self.ci is not None, "ci must be above 0 and below 1 (found None)")
        require_ci(self.ci)
        require_int("permutations", self.permutations, low=1, high=MAX_RESAMPLES)
        require_int("seed", self.seed, low=0)

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain Python values."""
        own = {"ci": self.ci, "permutations": self.permutations, "seed": self.seed}
        if self.detection is not None:
            values = self.detection.to_dict()
            own_thr = {} if self.detection.operating_point is None else {"score_thr": None}
            return {**{name: values[name] for name in COMPARED_OPTIONS}, **own_thr, **own}
        classification = self.classification or ClassificationSettings()
        return {**{name: getattr(classification, name) for name in ("task", "task_reason", "score_thr")}, **own}


@dataclass(frozen=True)
class OperatingRule:
    """How the best score threshold is selected: by F-score, or by one rate subject to a minimum of the other."""

    kind: str  # 'f', or the rate with a minimum, 'precision' or 'recall'
    value: float  # beta of the F-score, or the minimum

    @classmethod
    def parse(cls, text: str) -> OperatingRule:
        """Parse ``f1``, ``f2``, ``f0.5``, ``precision=0.9`` or ``recall=0.95``."""
        kind, _, minimum = str(text).strip().lower().partition("=")
        try:
            if kind in ("precision", "recall") and 0 < float(minimum) <= 1:
                return cls(kind, float(minimum))
            if kind.startswith("f") and not minimum and 0 < float(kind[1:]) < float("inf"):
                return cls("f", float(kind[1:]))
        except ValueError:
            pass
        raise ValueError(
            f"operating_point must be like 'f1', 'f2', 'precision=0.9' or 'recall=0.95' (found {shortened(text)})"
        )

    @property
    def beta(self) -> float:
        """Beta of the reported F-score: 1 unless another one is maximized."""
        return self.value if self.kind == "f" else 1.0

    def __str__(self) -> str:
        if self.kind == "f":
            return f"greatest F{number_text(self.value)}"
        other = "recall" if self.kind == "precision" else "precision"
        return f"greatest {other} with {self.kind} >= {number_text(self.value)}"


def given_or_default(settings: _S | None, default: _S) -> _S:
    """The default if no settings are given; raises a ValueError if they are of another type."""
    if settings is None:
        return default
    kind = type(default)
    require(isinstance(settings, kind), f"settings must be {kind.__name__} (found {shortened(settings)})")
    return settings


def with_options(settings: _S, options: Mapping[str, Any], others: Sequence[str] = ()) -> _S:
    """Settings with some fields replaced; ``others`` are further arguments of the caller that a message suggests."""
    names = [option.name for option in fields(settings) if option.metadata.get("option", True)]  # type: ignore[arg-type]
    require_known_options(options, names, others)
    for name, dependent in (("iou_type", ("max_dets",)), ("convention", CONVENTION_OPTIONS)):
        if name in options and options[name] != getattr(settings, name):
            options = {**dict.fromkeys(dependent), **options}  # their defaults depend on it
    result = replace(settings, **options)  # type: ignore[type-var]
    if options.get("recall_max_dets") is not None:
        require_recall_limits(options["recall_max_dets"], result.max_dets)  # type: ignore[attr-defined]
    return result


def require_recall_limits(recall_max_dets: Sequence[int], max_dets: int) -> None:
    """Raises a ValueError if average recall is asked for more detections than average precision uses."""
    require(
        max(recall_max_dets, default=0) <= max_dets,
        f"recall_max_dets must be at most max_dets, {max_dets} (found {shortened(list(recall_max_dets))})",
    )


def require_known_options(
    options: Iterable[str], names: Sequence[str], others: Sequence[str] = (), *, owner: str = ""
) -> None:
    """Raises a TypeError if an option is not one of ``names``; its message suggests the nearest of all names.

    Args:
        options: The names of the given options.
        names: The options that exist.
        others: Further arguments that a message suggests.
        owner: What the message says the option is not an option of.
    """
    for name in options:
        if name not in names:
            known = [*names, *others]
            nearest = nearest_name(name, known)
            hint = f"options are {', '.join(known)}" if nearest is None else f"did you mean {nearest!r}?"
            raise TypeError(f"{name!r} is not an option{f' of {owner}' if owner else ''}; {hint}")


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The name most like another one, for a message; None if none is like it.

    Example:
        >>> nearest_name("class_wise", ["average", "classwise"]), nearest_name("x", ["average", "classwise"])
        ('classwise', None)
    """
    from difflib import get_close_matches

    listed = list(names)
    beginning = max((each for each in listed if len(each) > 3 and name.startswith(each)), key=len, default=None)
    return beginning or next(iter(get_close_matches(name, listed, n=1)), None)


def _number(name: str, value: Any) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    require(is_number and abs(value) < float("inf"), f"{name} must be a finite number (found {shortened(value)})")
    return float(value)


def _area_ranges(values: Any) -> tuple[AreaRange, ...]:
    """Named area ranges from a dict, or from rows of a name, the lowest and the highest area."""
    if isinstance(values, Mapping):
        values = [(name, *ends) if isinstance(ends, (list, tuple)) else (name,) for name, ends in values.items()]
    require(
        isinstance(values, (list, tuple)) and len(values) <= MAX_AREA_EDGES,
        f"area_ranges must be like {{'tiny': (0, 400)}} (found {shortened(values)})",
    )
    ranges = []
    for row in values:
        parts = tuple(vars(row).values()) if isinstance(row, AreaRange) else row
        require(
            isinstance(parts, (list, tuple))
            and len(parts) == 3
            and isinstance(parts[0], str)
            and parts[0].isidentifier(),
            f"area_ranges must be names, such as 'tiny', with a lowest and a highest area (found {shortened(row)})",
        )
        low, high = (_number(f"the area of {parts[0]!r}", end) for end in parts[1:])
        require(0 <= low < high, f"the areas of {parts[0]!r} must be ascending (found {low:g} and {high:g})")
        ranges.append(AreaRange(parts[0], low, high))
    names = [area_range.name for area_range in ranges]
    taken = [name for name in names if name in RESERVED_AREAS]
    require(not taken, f"area_ranges cannot have the name {', '.join(map(repr, taken))}, which has another meaning")
    require(len(set(names)) == len(names), f"area_ranges must have distinct names (found {', '.join(names)})")
    return tuple(ranges)


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    valid = isinstance(values, Iterable) and not isinstance(values, (str, bytes)) and getattr(values, "ndim", 1) == 1
    require(valid, f"{name} must be numbers (found {shortened(values)})")
    return tuple(_number(name, value) for value in values)
