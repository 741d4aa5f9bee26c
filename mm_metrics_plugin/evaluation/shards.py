"""What is known of some images of a detector's results, and how several such parts become one.

A report is always made of one part: that of all images. A file is a part, a process has a part, and a state saved
with ``--save-state`` is one, so that they all give the same report.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.evaluation.image_order import image_order
from mm_metrics_plugin.evaluation.joining import Joined
from mm_metrics_plugin.exceptions import MetricInputError, ResultFileError
from mm_metrics_plugin.io.budget import check_num_classes
from mm_metrics_plugin.io.ground_truth import ImageId, listing
from mm_metrics_plugin.io.row_counts import Tally
from mm_metrics_plugin.io.state_file import read_state, write_state
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.states.base import merge_all
from mm_metrics_plugin.states.detection import DetectionState
from mm_metrics_plugin.states.detection_checks import check_detection_state

KIND = "detection"
Entry = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Part:
    """The state of some images, and where it comes from.

    Attributes:
        name: How messages speak of it.
        classes: Class names.
        settings: What was asked for.
        image_ids: Of the images, in the order of the keys in the state.
        image_names: Their files, as the ground truth names them, by id; "" where unknown.
        detections: Detections read, used and dropped.
        missing_images: Images without results, taken as without detections.
        results: Name and sha256 of the files of results.
        truths: The same of the ground truth, with the number of its images, the tally of its objects, and the image
            folders of a config.
        truth_inside: Whether the ground truth came with the results.
        versions: By which versions of what it was read.
        state: What was matched and counted; images are at their place in ``image_ids``.
        allow_missing: Whether images without results were allowed.
        image_sizes: Height and width of the images, by id, where known.
    """

    name: str
    classes: Tuple[str, ...]
    settings: DetectionSettings
    image_ids: Tuple[ImageId, ...]
    image_names: Mapping[ImageId, str]
    detections: Tally
    missing_images: int
    results: Tuple[Entry, ...]
    truths: Tuple[Entry, ...]
    truth_inside: bool
    versions: Tuple[Entry, ...]
    state: DetectionState
    allow_missing: bool = False
    image_sizes: Mapping[ImageId, Tuple[int, int]] = field(default_factory=dict)

    @property
    def images_elsewhere(self) -> int:
        """How many images of the ground truth are not in this part."""
        return sum(one["images"] for one in self.truths) - len(self.image_ids)

    def keyed(self, places: Sequence[int]) -> Part:
        """The part with its images at other places: ``places`` in the order of ``image_ids``, ascending."""
        return replace(self, state=self.state.renumbered(np.array(places, dtype=np.int64)))

    def inputs(self) -> Dict[str, Any]:
        """Which files were read, as the report names them."""
        found: Dict[str, Any] = {"results": _one_or_all(self.results)}
        if not self.truth_inside:
            shown = ("file", "sha256", "image_set")
            found["truth"] = _one_or_all([{key: one[key] for key in shown if key in one} for one in self.truths])
        orders = list(dict.fromkeys(one["class_order"] for one in self.truths if "class_order" in one))
        if orders:
            found["class_order"] = _one_or_all(orders)
        return {**found, "allow_missing": self.allow_missing, "versions": _one_or_all(self.versions)}


def _one_or_all(entries: Sequence[Any]) -> Any:
    return entries[0] if len(entries) == 1 else list(entries)


def empty_state(num_classes: int, settings: DetectionSettings, worst_images: Optional[int]) -> DetectionState:
    """What is kept of every image."""
    table = "none" if settings.matrix_only else "full"
    return DetectionState(num_classes, settings, table=table, worst_images=worst_images)


def part_of(
    joined: Joined,
    settings: DetectionSettings,
    *,
    results: Sequence[Entry],
    truth: Entry,
    truth_inside: bool,
    versions: Entry,
    allow_missing: bool = False,
    worst_images: Optional[int] = None,
) -> Part:
    """Match and count what was joined."""
    ordered = image_order(joined.image_ids)
    place = {image_id: at for at, image_id in enumerate(ordered)}
    order = np.array([place[image_id] for image_id in joined.image_ids], dtype=np.int64)
    sizes = [] if joined.image_sizes is None else joined.image_sizes.tolist()
    return Part(
        name=", ".join(one["file"] for one in results),
        classes=tuple(joined.classes),
        settings=settings,
        image_ids=tuple(ordered),
        image_names=dict(zip(joined.image_ids, joined.image_names)),
        detections=joined.detections,
        missing_images=joined.missing_images,
        results=tuple(results),
        truths=(truth,),
        truth_inside=truth_inside,
        versions=(versions,),
        state=empty_state(len(joined.classes), settings, worst_images).update(
            joined.batch, order, names=joined.image_ids
        ),
        allow_missing=allow_missing,
        image_sizes={image_id: (height, width) for image_id, (height, width) in zip(joined.image_ids, sizes)},
    )


def merge_parts(parts: Sequence[Part]) -> Part:
    """One part of all.

    Raises:
        ResultFileError: Parts share an image, or differ in classes, settings or the way boxes are given.
    """
    image_ids, keyed = renumber(parts)
    return with_state(keyed, image_ids, merge_all([part.state for part in keyed]))


def renumber(parts: Sequence[Part]) -> Tuple[Tuple[ImageId, ...], List[Part]]:
    """The ids of all images in order, and the parts with keys that stand for the places in it."""
    first = parts[0]
    for part in parts[1:]:
        _check_alike(first, part)
    part_of_image: Dict[ImageId, str] = {}
    twice: List[ImageId] = []
    names: List[str] = []
    for part in parts:
        for image_id in part.image_ids:
            if image_id in part_of_image:
                twice.append(image_id)
                names = [part_of_image[image_id], part.name]
            part_of_image[image_id] = part.name
    if twice:
        raise ResultFileError(f"{names[0]} and {names[1]}: both hold {listing('image', twice)}")
    ordered = image_order(list(part_of_image))
    place = {image_id: at for at, image_id in enumerate(ordered)}
    return tuple(ordered), [part.keyed([place[image_id] for image_id in part.image_ids]) for part in parts]


def with_state(parts: Sequence[Part], image_ids: Sequence[ImageId], state: DetectionState) -> Part:
    """The part whose images and state are given, with everything else taken together from the parts."""
    first = parts[0]
    truths = _distinct([one for part in parts for one in part.truths])
    return replace(
        first,
        name=", ".join(dict.fromkeys(part.name for part in parts)),
        image_ids=tuple(image_ids),
        image_names={image_id: name for part in parts for image_id, name in part.image_names.items()},
        image_sizes={image_id: size for part in parts for image_id, size in part.image_sizes.items()},
        detections=Tally.total(part.detections for part in parts),
        missing_images=sum(part.missing_images for part in parts),
        results=tuple(_distinct([one for part in parts for one in part.results])),
        truths=tuple(truths),
        versions=tuple(_different([one for part in parts for one in part.versions])),
        state=state,
    )


def _distinct(entries: Sequence[Entry]) -> List[Entry]:
    """Every file once, by name."""
    found = {(one.get("file", ""), one.get("sha256", "")): one for one in entries}
    return [found[key] for key in sorted(found)]


def _different(entries: Sequence[Entry]) -> List[Entry]:
    return [one for at, one in enumerate(entries) if one not in entries[:at]]


def _check_alike(first: Part, other: Part) -> None:
    both = f"{first.name} and {other.name}"
    if first.classes != other.classes:
        raise ResultFileError(
            f"{both}: are of different classes ({listing('class', first.classes)}; {listing('class', other.classes)})"
        )
    for key, mine in _settings(first).items():
        theirs = _settings(other)[key]
        if mine != theirs:
            raise ResultFileError(f"{both}: were made with different settings ('{key}' is {mine!a} and {theirs!a})")
    if first.truth_inside != other.truth_inside:
        raise ResultFileError(f"{both}: only one of them carries its ground truth inside the results")


def _settings(part: Part) -> Dict[str, Any]:
    return {**part.settings.to_dict(), "allow_missing": part.allow_missing}


# -- files -----------------------------------------------------------------------------------------------------------


def header_of(part: Part) -> Dict[str, Any]:
    """Everything but the arrays, as JSON can say it."""
    return {
        "kind": KIND,
        "classes": list(part.classes),
        "settings": part.settings.to_dict(),
        "allow_missing": part.allow_missing,
        "worst_images": part.state.worst_images,
        "image_ids": list(part.image_ids),
        "image_names": [part.image_names[image_id] for image_id in part.image_ids],
        "image_sizes": [part.image_sizes.get(image_id, (0, 0)) for image_id in part.image_ids],
        "detections": part.detections.to_dict(),
        "missing_images": part.missing_images,
        "results": [dict(one) for one in part.results],
        "truths": [dict(one) for one in part.truths],
        "truth_inside": part.truth_inside,
        "versions": [dict(one) for one in part.versions],
    }


def save_part(path: str, part: Part) -> None:
    """Write a part to a ``.npz`` file."""
    write_state(path, header_of(part), part.state.arrays())


def read_part(path: str) -> Part:
    """Read a part that :func:`save_part` wrote.

    Raises:
        ResultFileError: The file is damaged, or holds something else.
    """
    name = Path(path).name
    header, arrays = read_state(path)
    try:
        _check_header(header)
        part = part_of_header(name, header)
        if not part.image_ids:  # else the matrices are in the file
            check_num_classes(len(part.classes), name, Path(path).stat().st_size, labels_only=False)
        if len(set(part.image_ids)) < len(part.image_ids):
            raise ValueError("an image comes twice")
        if len(part.image_names) < len(part.image_ids):
            raise ValueError("an image has no name")
        unknown = set(arrays) - set(part.state.reductions)
        if unknown:
            raise ValueError(f"{min(unknown)!a} is not part of a state with these settings")
        if part.image_ids:
            part = replace(
                part,
                state=part.state.with_arrays({name: arrays.get(name) for name in part.state.reductions}),  # type: ignore[arg-type]
            )
            check_detection_state(part.state, len(part.image_ids))
            counted = part.state.tally
            if part.detections.used != counted["detections"] + counted["detections_suppressed"]:
                raise ValueError(f"the number of detections used must be {counted['detections']}")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, MetricInputError) as error:
        raise ResultFileError(
            f"{name}: is no state that --save-state wrote ({type(error).__name__}: {error})"
        ) from None
    return part


def _check_header(header: Mapping[str, Any]) -> None:
    """Raises a ValueError if a value is of another type than :func:`header_of` writes."""
    ids, tally = header["image_ids"], header["detections"]
    counts = [header["missing_images"], tally["read"], tally["used"], *tally["dropped"].values()]
    kinds = {
        "classes": all(isinstance(one, str) for one in header["classes"]),
        "image_ids": all(type(one) in (int, str) for one in ids),
        "image_names": len(header["image_names"]) == len(ids)
        and all(isinstance(s, str) for s in header["image_names"]),
        "allow_missing": isinstance(header["allow_missing"], bool),
        "truth_inside": isinstance(header["truth_inside"], bool),
        "worst_images": header["worst_images"] is None or type(header["worst_images"]) is int,
        "detections": all(type(one) is int and one >= 0 for one in counts)
        and tally["read"] == tally["used"] + sum(tally["dropped"].values()),
        "missing_images": header["missing_images"] <= len(ids),
    }
    for name, holds in kinds.items():
        if not holds:
            raise ValueError(f"{name!a} is not what such a file says")


def part_of_header(name: str, header: Mapping[str, Any]) -> Part:
    """A part with an empty state."""
    if header["kind"] != KIND:
        raise ValueError(f"it is of kind {header['kind']!a}")
    tally = header["detections"]
    settings = DetectionSettings.from_dict(header["settings"])
    return Part(
        name=name,
        classes=tuple(map(str, header["classes"])),
        settings=settings,
        image_ids=tuple(header["image_ids"]),
        image_names=dict(zip(header["image_ids"], map(str, header["image_names"]))),
        detections=Tally(tally["read"], tally["used"], dict(tally["dropped"])),
        missing_images=int(header["missing_images"]),
        results=tuple(header["results"]),
        truths=tuple(header["truths"]),
        truth_inside=bool(header["truth_inside"]),
        versions=tuple(header["versions"]),
        state=empty_state(len(header["classes"]), settings, header["worst_images"]),
        allow_missing=bool(header["allow_missing"]),
        image_sizes={
            image_id: (int(height), int(width))
            for image_id, (height, width) in zip(header["image_ids"], header.get("image_sizes", ()))
        },
    )
