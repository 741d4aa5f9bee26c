"""The cause of an impossible result, such as an mAP of 0, as far as the data show it.

A cause is named only if the evidence is strong: a weak detector, rare classes or few images get no diagnosis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterator, Mapping

import numpy as np

from mm_metrics_plugin.exceptions import MetricWarning, UndefinedMetricWarning, listing, pluralize
from mm_metrics_plugin.functional._arrays import mean_of_defined
from mm_metrics_plugin.functional.detection.diagnosis import LOCATED_IOU, SampleCheck, check_sample, class_mapping
from mm_metrics_plugin.row_counts import RowCounts
from mm_metrics_plugin.settings import number_text

if TYPE_CHECKING:
    from mm_metrics_plugin.reports.detection import DetectionReport

LOW = 0.2  # recall or AP up to this is looked at
UNDEFINED = ("no_ground_truth", "all_ignored", "no_detections")  # causes of undefined values
MIN_GTS = 10  # that a mistake must explain
MIN_DETS = 20
MIN_IMAGES = 10
MIN_PER_CLASS = 5
_EXPLAINED = 0.5  # of the ground truths of the sample
_BETTER = 3  # times as many as given
_SAME_MISTAKE = 0.8  # of the ground truths that are located
_NORMALIZED, _PIXELS = 2.0, 20.0  # largest coordinates

_BOX_FORMATS = {
    "xyxy": "left, top, right, bottom",
    "xywh": "left, top, width, height",
    "cxcywh": "center x, center y, width, height",
    "yxyx": "top, left, bottom, right",
}
_SIDES = {False: "detections", True: "ground truths"}


@dataclass(frozen=True)
class Finding:
    """A cause of an impossible result.

    Attributes:
        cause: Its code, such as ``'box_format'``.
        message: What the data show, in one sentence.
        remedy: What to do.
        numbers: The numbers of the message.
    """

    cause: str
    message: str
    remedy: str
    numbers: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.message}: {self.remedy}"

    @property
    def category(self) -> type[MetricWarning]:
        """The warning to give."""
        return UndefinedMetricWarning if self.cause in UNDEFINED else MetricWarning

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values."""
        return {**vars(self), "numbers": dict(self.numbers)}


def diagnose(report: DetectionReport) -> tuple[Finding, ...]:
    """The causes of an impossible result that the data show; none if precision, recall and AP are not low."""
    counts = report.state.counts_by_name
    if not counts["images"]:
        return ()
    finding = _nothing_to_match(report, counts)
    if finding is not None:
        return (finding,)
    return tuple(_mismatches(report, counts))


def _nothing_to_match(report: DetectionReport, counts: Mapping[str, int]) -> Finding | None:
    """No ground truths or detections, or none that count."""
    gts, ignored, dets = counts["ground_truths"], counts["crowds"], counts["detections"]
    if not gts:
        parts = [RowCounts(**entry["ground_truths"]) for entry in report.provenance.ground_truths]
        read = RowCounts.total(parts)
        message = f"there are no ground truths{_reasons(read)}"
        remedy = "check the annotation file, and that its images, classes and boxes are those of the results"
        return Finding("no_ground_truth", message, remedy, {"read": read.read, "dropped": dict(read.dropped)})
    if ignored == gts:
        number = pluralize(gts, "ground truth")
        message = f"all of {number} are ignored, so nothing can be found and AP is undefined (-1 in pycocotools)"
        remedy = "check 'iscrowd', 'ignore', 'difficult' and 'num_keypoints' of the annotations"
        return Finding("all_ignored", message, remedy, {"ground_truths": gts, "ignored": ignored})
    if not dets:
        read = report.provenance.detections
        message = f"there are no detections{_reasons(read)}"
        remedy = "check the results, the score threshold of the model's post-processing and its checkpoint"
        return Finding("no_detections", message, remedy, {"read": read.read, "dropped": dict(read.dropped)})
    return None


def _reasons(counts: RowCounts) -> str:
    """Why rows that were read are not used."""
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in counts.dropped.items())
    return f" ({counts.read:,} were read: {reasons})" if reasons else ""


@dataclass(frozen=True)
class _Result:
    """How low the result is."""

    found: float  # share of the ground truths that are matched by a detection of their class, at any score
    recall: float  # at the score threshold
    precision: float  # at the score threshold
    ap: float  # at the lowest IoU threshold; NaN if it is not computed

    @property
    def low(self) -> bool:
        """Whether recall or AP is."""
        return min(value for value in (self.found, self.recall, self.ap) if value == value) <= LOW


def _result(report: DetectionReport, counts: Mapping[str, int], diagnosis: Mapping[str, int]) -> _Result:
    micro = report.matching_rules[0].result.micro
    found = diagnosis["found"] / (counts["ground_truths"] - counts["crowds"])
    ap = float("nan")
    if report.with_ap and report.analysis is not None:
        average_precision = report.analysis.average_precision
        ap = float(mean_of_defined(average_precision.at_iou(average_precision.iou_thrs[0])))
    return _Result(found, float(micro.recall), float(micro.precision), ap)


def _mismatches(report: DetectionReport, counts: Mapping[str, int]) -> Iterator[Finding]:
    """Detections and ground truths that do not fit together."""
    state = report.state["diagnosis"]
    diagnosis = state.counts_by_name
    result = _result(report, counts, diagnosis)
    if result.low:
        finding = _image_ids(diagnosis)
        sample = state.sample() if finding is None else None
        if sample is not None:
            finding = _boxes(check_sample(sample), report)
        if finding is not None:
            yield finding
    yield from _scores(counts["detections"], diagnosis["scores_outside"], state.scores, result)


def _image_ids(counts: Mapping[str, int]) -> Finding | None:
    dets, gts, both = (counts[f"images_with_{name}"] for name in ("detections", "ground_truths", "both"))
    if min(dets, gts) < MIN_IMAGES or both > 0.05 * min(dets, gts):
        return None
    return Finding(
        "image_ids",
        f"{pluralize(dets, 'image')} have detections and {pluralize(gts, 'image')} have ground truths, but "
        f"{both:,} have both",
        "make the image ids of the results those of the annotations",
        {"images_with_detections": dets, "images_with_ground_truths": gts, "images_with_both": both},
    )


def _boxes(check: SampleCheck, report: DetectionReport) -> Finding | None:
    """The mistake that explains the boxes of the sample, else that of the classes."""

    def explains(located: int) -> bool:
        enough = located >= max(MIN_GTS, _EXPLAINED * check.ground_truths)
        return enough and located >= _BETTER * check.located

    def shown(located: int) -> str:
        gts = f"{pluralize(check.ground_truths, 'ground truth')} in {pluralize(check.images, 'image')}"
        return (
            f"{located:,} of {gts} are then located by a detection (IoU of bounding boxes at least {LOCATED_IOU:g}), "
            f"and {check.located:,} as given"
        )

    def numbers(located: int, **others: Any) -> dict[str, Any]:
        counted = {"images": check.images, "ground_truths": check.ground_truths, "located": check.located}
        return {**counted, "located_then": located, **others}

    finding = _normalized(check)
    if finding is not None:
        return finding
    key, located = max(check.by_format.items(), key=lambda entry: entry[1])
    if explains(located):
        is_format, read_format, of_gts = key
        side, words, read_words = _SIDES[of_gts], _BOX_FORMATS[is_format], _BOX_FORMATS[read_format]
        return Finding(
            "box_format",
            f"the boxes of the {side} fit if they are read as {words} instead of {read_words} ({shown(located)})",
            f"check in which format, and in which order of x and y, the {side} are written",
            numbers(located, side=side, format=is_format, read_as=read_format),
        )
    if explains(check.by_scale):
        x, y = check.scale
        return Finding(
            "box_scale",
            f"the coordinates of the detections are {x:.3g} (x) and {y:.3g} (y) times as large as those of the ground "
            f"truths, at the median of the images ({shown(check.by_scale)})",
            "bring both to the size of the original image, for example with rescale=True in the model's test step",
            numbers(check.by_scale, scale_x=x, scale_y=y),
        )
    step, located = max(check.by_image.items(), key=lambda entry: entry[1])
    if explains(located):
        place = "next" if step > 0 else "previous"
        return Finding(
            "image_ids",
            f"the detections of an image fit the ground truths of the {place} image ({shown(located)})",
            "make the image ids, or the order of the images, of the results those of the annotations",
            numbers(located, step=step),
        )
    return _classes(check, report)


def _normalized(check: SampleCheck) -> Finding | None:
    extents = {False: check.extent, True: check.gt_extent}
    for of_gts, extent in extents.items():
        other = extents[not of_gts]
        if check.ground_truths >= MIN_GTS and 0 < extent <= _NORMALIZED and other >= _PIXELS and not check.located:
            side = _SIDES[of_gts]
            return Finding(
                "box_scale",
                f"the coordinates of the {side} are at most {extent:.3g}, and those of the {_SIDES[not of_gts]} at "
                f"most {other:.5g}, so the {side} seem to be normalized to the size of the image",
                "multiply x by the width and y by the height of the image",
                {"side": side, "largest": extent, "largest_of_others": other, "ground_truths": check.ground_truths},
            )
    return None


def _classes(check: SampleCheck, report: DetectionReport) -> Finding | None:
    """Boxes that agree, but with other classes, in the same way for all."""
    labels, predicted, names = check.labels, check.predicted, report.classes
    located, right = len(labels), int(np.count_nonzero(labels == predicted))
    if located < max(MIN_DETS, _EXPLAINED * check.ground_truths) or right > (1 - _SAME_MISTAKE) / 2 * located:
        return None
    counted = f"{located:,} ground truths are located by a detection, {right:,} of them by one of their class"
    numbers: dict[str, Any] = {"located": located, "right_class": right}
    for step in (-1, 1):
        same = predicted - labels == step
        if np.count_nonzero(same) >= _SAME_MISTAKE * located and _frequent_classes(labels[same]) > 1:
            number = int(np.count_nonzero(same))
            more = "above" if step > 0 else "below"
            return Finding(
                "labels_off_by_one",
                f"labels of detections are one {more} those of the ground truths ({counted}, and {number:,} by one of "
                f"the class {more})",
                "check that both count classes from 0 and that neither has a background class",
                {**numbers, "step": step, "explained": number},
            )
    mapping = class_mapping(labels, predicted, len(names))
    same = (mapping[labels] == predicted) & (labels != predicted)
    if np.count_nonzero(same) >= _SAME_MISTAKE * located and _frequent_classes(labels[same]) > 1:
        pairs = {names[label]: names[mapping[label]] for label in np.unique(labels[same]).tolist()}
        shown = ", ".join(f"{name!a} as {other!a}" for name, other in list(pairs.items())[:5])
        return Finding(
            "class_order",
            f"each class is detected as another one: {shown}{', ...' if len(pairs) > 5 else ''} ({counted}, and "
            f"{np.count_nonzero(same):,} by one of these classes)",
            "give the class names in the order of the model's labels, or map its category ids",
            {**numbers, "explained": int(np.count_nonzero(same)), "detected_as": pairs},
        )
    classes, detected = np.unique(labels).tolist(), check.detected_classes.tolist()
    # A detector that knows only one class is weak, unless there is only one.
    if not set(classes) & set(detected) and len(detected) >= min(2, len(classes)):
        own, others = [names[label] for label in classes], [names[label] for label in detected]
        return Finding(
            "class_names",
            f"ground truths and detections have no class in common: {listing('class', own)} and "
            f"{listing('class', others)} ({counted})",
            "check that the results and the annotations have the same classes in the same order",
            {**numbers, "classes": own, "detected": others},
        )
    return None


def _frequent_classes(labels: np.ndarray) -> int:
    return int(np.count_nonzero(np.bincount(labels) >= MIN_PER_CLASS)) if len(labels) else 0


def _scores(detections: int, outside: int, limits: np.ndarray | None, result: _Result) -> Iterator[Finding]:
    """Scores that are not confidences."""
    if limits is None or detections < MIN_DETS:
        return
    low, high = -float(limits[0]), float(limits[1])
    numbers = {"detections": detections, "lowest": low, "highest": high}
    if outside >= detections / 2 and (result.low or result.precision <= LOW):
        yield Finding(
            "scores_outside",
            f"{outside:,} of {detections:,} scores are outside [0, 1], from {low:.4g} to {high:.4g}, so the score "
            "threshold does not mean what it says",
            "give confidences from 0 to 1, such as the sigmoid of logits, or percentages divided by 100",
            {**numbers, "outside": outside},
        )
    if low == high and (result.ap < result.found / 2 or result.ap <= LOW):
        yield Finding(
            "scores_equal",
            f"all {detections:,} scores are {number_text(low)}, so AP ranks detections in the order of the file",
            "give each detection the confidence of the model",
            numbers,
        )
