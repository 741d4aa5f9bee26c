"""Matching rules and conventions of average precision, as data in one registry each. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

OWN = "this package only"  # what numbers of no other program are comparable with


@dataclass(frozen=True)
class MatchingRule:
    """How the detections of an image are matched to its ground truths for a confusion matrix.

    A new rule is an entry of ``MATCHING_RULES``; one that assigns in a new way also needs a function in
    ``functional/detection/rules.py``.
    """

    name: str
    description: str  # shown in reports
    comparable_with: str  # whose precision and recall are computed alike
    assignment: str  # key of ``rules.ASSIGNMENTS``
    overlap: str = "overlaps"  # method of the geometry that computes the overlap
    ignores_crowds: bool = True  # or counts ignored regions as ordinary ground truths
    one_to_one: bool = True  # rows and columns of the matrix sum to the ground truths and detections
    class_agnostic: bool = False  # matches by overlap alone
    has_analyses: bool = False  # counts are those of the match table: curves, intervals and operating points fit them
    prints_summary: bool = False  # reports repeat the lines of a patched confusion_matrix.py

    def __str__(self) -> str:
        return self.name


_RULES = (
    MatchingRule(
        name="coco",
        description="at most one detection per object, within classes by score; the others may be confusions",
        comparable_with=OWN,
        assignment="classes_first",
        has_analyses=True,
    ),
    MatchingRule(
        name="mmdet",
        description="every overlapping pair counts, as in mmdet's confusion_matrix.py",
        comparable_with="mmdet's confusion_matrix.py",
        assignment="every_pair",
        overlap="mmdet_overlaps",
        ignores_crowds=False,
        one_to_one=False,
        prints_summary=True,
    ),
    MatchingRule(
        name="agnostic",
        description="at most one detection per object, by overlap, regardless of the class",
        comparable_with="the confusion matrices of supervision and Ultralytics",
        assignment="by_overlap",
        class_agnostic=True,
    ),
)
MATCHING_RULES = {rule.name: rule for rule in _RULES}
# The rule whose counts the analyses of the match table share.
ANALYSIS_RULE = next(rule.name for rule in _RULES if rule.has_analyses)
DEFAULT_IOU_TYPE = "bbox"
DEFAULT_MATCHING = ("coco", "mmdet")  # of reports: the first is printed and drawn, files contain both


NO_LIMIT = 1_000_000_000  # of detections
PER_CLASS_AND_IMAGE = "class and image"
FREQUENCIES = ("r", "c", "f")  # of the classes of LVIS in its training set: rare, common, frequent


@dataclass(frozen=True)
class Convention:
    """How average precision is computed. A new convention is an entry of ``CONVENTIONS``.

    One that assigns detections in a new way also needs a function in ``functional/detection/grid.py``, one that
    averages precision in a new way a function in ``functional/detection/average_precision.py``, and one with another
    meaning of ``max_dets`` a function in ``functional/detection/federated.py``.
    """

    name: str
    title: str  # shown in reports
    description: str  # whose numbers they are, shown in reports
    comparable_with: str  # who prints the same numbers, if the settings are those of the convention; "": by IoU type
    iou_types: tuple[str, ...]  # that it is defined for
    iou_thrs: tuple[float, ...]  # averaged over
    area_edges: tuple[float, ...] = (32.0**2, 96.0**2)  # boundaries between the area ranges
    max_dets: int = 100  # detections, those with the highest scores
    max_dets_per: str = PER_CLASS_AND_IMAGE  # what they are counted in, key of ``federated.MAX_DETS_PER``
    mean_max_dets: int | None = None  # the same of mAP alone; None: max_dets
    recall_max_dets: tuple[int, ...] = ()  # fewer detections per class and image, for average recall
    federated: bool = False  # an image is annotated for some classes only, as in LVIS
    logs_areas: bool = False  # the log has the values of the area ranges
    interpolation: str = "101"  # key of ``average_precision.INTERPOLATIONS``
    assignment: str = "best_free"  # key of ``grid.ASSIGNMENTS``
    overlap: str = "overlaps"  # method of the geometry that computes the overlap

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class IouType:
    """What is matched, with the defaults of its evaluation.

    A new type is an entry of ``IOU_TYPES``, a class in ``functional/detection/geometry`` and readers that make it.
    """

    name: str
    description: str  # what an instance is, in the plural
    geometry: str  # module and class in ``functional/detection/geometry``
    comparable_with: str  # who prints the same average precision by COCO's convention
    matching: tuple[str, ...] = (ANALYSIS_RULE, "agnostic")  # of reports
    max_dets: int | None = None  # detections per class and image of average precision; None: that of the convention

    @property
    def prefix(self) -> str:
        """The prefix of its keys in the log."""
        return "det" if self.name == DEFAULT_IOU_TYPE else f"det-{self.name}"


_COCO = "the COCO leaderboard and pycocotools"
IOU_TYPES = {
    iou_type.name: iou_type
    for iou_type in (
        IouType("bbox", "boxes", "boxes.Boxes", _COCO, matching=DEFAULT_MATCHING),
        IouType("segm", "masks", "masks.Masks", _COCO),
        IouType("boundary", "masks, compared by boundary IoU", "boundaries.Boundaries", "faster-coco-eval"),
        IouType("rbox", "rotated boxes", "rotated_boxes.RotatedBoxes", "hotcoco and mmrotate's RotatedCocoMetric"),
        IouType("keypoints", "key points", "keypoints.KeyPoints", _COCO, max_dets=20),
    )
}


_COCO_IOU_THRS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.8999999999999999, 0.95)  # numpy.linspace(0.5, 0.95, 10)
COCO = Convention(
    name="coco",
    title="COCO",
    description="pycocotools",
    comparable_with="",
    iou_types=tuple(IOU_TYPES),
    iou_thrs=_COCO_IOU_THRS,
    recall_max_dets=(1, 10),
)
_LVIS: dict[str, Any] = {
    "iou_types": ("bbox", "segm", "boundary"),
    "iou_thrs": _COCO_IOU_THRS,
    "federated": True,
    "logs_areas": True,
}
_VOC: dict[str, Any] = {"iou_thrs": (0.5,), "area_edges": (), "max_dets": NO_LIMIT, "assignment": "best_overlap"}
_VOC_BOXES: dict[str, Any] = {
    **_VOC,
    "comparable_with": "the log of mmdet's VOCMetric",
    "iou_types": ("bbox",),
    "overlap": "voc_overlaps",
}
CONVENTIONS = {
    convention.name: convention
    for convention in (
        COCO,
        Convention(
            name="mmdet",
            title="mmdet",
            comparable_with="the log of mmdet's CocoMetric",
            description="mmdet's CocoMetric: mAP of 100 detections per class and image, everything else of 1000",
            iou_types=("bbox", "segm"),
            iou_thrs=_COCO_IOU_THRS,
            max_dets=1000,
            mean_max_dets=100,
            recall_max_dets=(100, 300),
            logs_areas=True,
        ),
        Convention(
            name="voc07",
            title="VOC 2007",
            description="mmdet's VOCMetric with eval_mode='11points', as for PASCAL VOC 2007",
            interpolation="11",
            **_VOC_BOXES,
        ),
        Convention(
            name="voc12",
            title="VOC 2012",
            description="mmdet's VOCMetric with eval_mode='area', as for PASCAL VOC 2012",
            interpolation="area",
            **_VOC_BOXES,
        ),
        Convention(
            name="dota",
            title="DOTA",
            description="mmrotate's DOTAMetric with eval_mode='11points'",
            comparable_with="the log of mmrotate's DOTAMetric",
            iou_types=("rbox",),
            interpolation="11",
            **_VOC,
        ),
        Convention(
            name="lvis",
            title="LVIS",
            description="lvis-api: of the best 300 detections per image, those of classes judged in the image",
            comparable_with="lvis-api and the log of mmdet's LVISMetric",
            max_dets=300,
            max_dets_per="image",
            **_LVIS,
        ),
        Convention(
            name="lvis-fixed",
            title="Fixed AP of LVIS",
            description="Fixed AP: lvis-api with the best 10,000 detections per class in place of 300 per image",
            comparable_with="Fixed AP of LVIS",
            max_dets=10_000,
            max_dets_per="class",
            **_LVIS,
        ),
    )
}
DEFAULT_CONVENTION = COCO.name
