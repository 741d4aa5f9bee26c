"""Shards: the matched detections of some images, and how shards are merged, saved and read.

A report is made of one shard, that of all images. A result file, a process, and a state saved with ``--save-state``
each give a shard, so that they all lead to the same report.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.evaluation.joining import JoinedImages, image_order, in_image_order
from mm_metrics_plugin.evaluation.report import Progress
from mm_metrics_plugin.exceptions import MetricInputError, ResultFileError, listing
from mm_metrics_plugin.io.files import RowCounts, check_num_classes
from mm_metrics_plugin.io.ground_truth import ImageId
from mm_metrics_plugin.io.state_file import read_state, write_state
from mm_metrics_plugin.settings import DetectionSettings
from mm_metrics_plugin.states.base import merge_all
from mm_metrics_plugin.states.detection import DetectionState
from mm_metrics_plugin.states.detection_checks import check_detection_state

KIND = "detection"
IMAGES_PER_BLOCK = 5000  # of matching, between two updates of the progress bar
Entry = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Shard:
    """The accumulated state of some images, with its provenance.

    Attributes:
        name: The name in messages.
        image_ids: The images, in the order of the image keys of the state.
        image_names: File names as in the ground truth, by id; "" where unknown.
        detections: Detections read, used and dropped.
        missing_images: Images without results, evaluated as images without detections.
        results: Name and SHA-256 of the result files.
        ground_truths: Name and SHA-256 of the ground truth files, with the number of images, the row counts and the
            image folders of a config.
        ground_truth_in_results: Whether the results contain the ground truth.
        image_sizes: Height and width by id, where known.
    """

    name: str
    classes: Tuple[str, ...]
    settings: DetectionSettings
    image_ids: Tuple[ImageId, ...]
    image_names: Mapping[ImageId, str]
    detections: RowCounts
    missing_images: int
    results: Tuple[Entry, ...]
    ground_truths: Tuple[Entry, ...]
    ground_truth_in_results: bool
    versions: Tuple[Entry, ...]
    state: DetectionState
    allow_missing: bool = False
    image_sizes: Mapping[ImageId, Tuple[int, int]] = field(default_factory=dict)

    @property
    def images_elsewhere(self) -> int:
        """How many images of the ground truth are not in this shard."""
        return int(sum(one["images"] for one in self.ground_truths)) - len(self.image_ids)

    def renumbered(self, positions: Sequence[int]) -> Shard:
        """The shard with other image keys: ``positions`` in the order of ``image_ids``, ascending."""
        return replace(self, state=self.state.renumbered(np.array(positions, dtype=np.int64)))

    def inputs(self) -> Dict[str, Any]:
        """Which files were read, as the report names them."""
        found: Dict[str, Any] = {"results": _one_or_all(self.results)}
        if not self.ground_truth_in_results:
            shown = ("file", "sha256", "image_set")
            found["ground_truth"] = _one_or_all(
                [{key: one[key] for key in shown if key in one} for one in self.ground_truths]
            )
        orders = list(dict.fromkeys(one["class_order"] for one in self.ground_truths if "class_order" in one))
        if orders:
            found["class_order"] = _one_or_all(orders)
        return {**found, "allow_missing": self.allow_missing, "versions": _one_or_all(self.versions)}

    def counts(self) -> Dict[str, Any]:
        """Images, detections and objects read, used and dropped by reason."""
        counted = self.state.counts_by_name
        detections = self.detections.drop("removed by NMS", counted["detections_suppressed"])
        detections = detections.drop(f"score below {self.settings.score_thr:g}", counted["detections_below_threshold"])
        ground_truths = RowCounts.total(RowCounts(**one["ground_truths"]) for one in self.ground_truths)
        elsewhere = ground_truths.used - counted["ground_truths"]
        ground_truths = ground_truths.drop("in an image of another shard", elsewhere)
        images = len(self.image_ids)
        return {
            "images": {"read": images, "used": images, "dropped": {}, "without_results": self.missing_images},
            "detections": detections.to_dict(),
            "ground_truths": ground_truths.to_dict(),
        }


def _one_or_all(entries: Sequence[Any]) -> Any:
    return entries[0] if len(entries) == 1 else list(entries)


def empty_state(num_classes: int, settings: DetectionSettings, worst_images: Optional[int]) -> DetectionState:
    """The state before any image is added."""
    table = "none" if settings.matrix_only else "full"
    return DetectionState(num_classes, settings, table=table, worst_images=worst_images)


def match_in_blocks(state: DetectionState, joined: JoinedImages, progress: Progress) -> DetectionState:
    """Match joined images block by block. The key of an image in the state is its position."""
    images = joined.batch.num_images
    order = np.arange(images)
    if images <= IMAGES_PER_BLOCK:
        return state.update(joined.batch, order, names=joined.image_ids)
    for start in progress.track(range(0, images, IMAGES_PER_BLOCK)):
        rows = slice(start, start + IMAGES_PER_BLOCK)
        state = state.update(joined.batch.images(rows.start, rows.stop), order[rows], names=joined.image_ids[rows])
    return state


def make_shard(
    joined: JoinedImages,
    settings: DetectionSettings,
    *,
    results: Sequence[Entry],
    ground_truth: Entry,
    ground_truth_in_results: bool,
    versions: Entry,
    allow_missing: bool = False,
    worst_images: Optional[int] = None,
    progress: Optional[Progress] = None,
) -> Shard:
    """Match joined detections and ground truths."""
    joined = in_image_order(joined)  # which decides between equal scores, and between equally bad examples
    sizes = [] if joined.image_sizes is None else joined.image_sizes.tolist()
    return Shard(
        name=", ".join(one["file"] for one in results),
        classes=tuple(joined.classes),
        settings=settings,
        image_ids=joined.image_ids,
        image_names=dict(zip(joined.image_ids, joined.image_names)),
        detections=joined.detections,
        missing_images=joined.missing_images,
        results=tuple(results),
        ground_truths=(ground_truth,),
        ground_truth_in_results=ground_truth_in_results,
        versions=(versions,),
        state=match_in_blocks(empty_state(len(joined.classes), settings, worst_images), joined, progress or Progress()),
        allow_missing=allow_missing,
        image_sizes={image_id: (height, width) for image_id, (height, width) in zip(joined.image_ids, sizes)},
    )


def merge_shards(shards: Sequence[Shard]) -> Shard:
    """Merge shards.

    Raises:
        ResultFileError: Shards share an image, or differ in classes, settings or the way boxes are given.
    """
    image_ids, keyed = renumber(shards)
    return with_state(keyed, image_ids, merge_all([shard.state for shard in keyed]))


def renumber(shards: Sequence[Shard]) -> Tuple[Tuple[ImageId, ...], List[Shard]]:
    """All image ids in order, and the shards with image keys that are positions in this order."""
    first = shards[0]
    for shard in shards[1:]:
        _check_alike(first, shard)
    shard_of_image: Dict[ImageId, str] = {}
    twice: List[ImageId] = []
    names: List[str] = []
    for shard in shards:
        for image_id in shard.image_ids:
            if image_id in shard_of_image:
                twice.append(image_id)
                names = [shard_of_image[image_id], shard.name]
            shard_of_image[image_id] = shard.name
    if twice:
        json_only = all(str(one["file"]).endswith(".json") for shard in shards for one in shard.results)
        hint = (
            "; COCO results do not list images without detections, so each file stands for all images: give all files "
            "to one call of mm-metrics detection"
        )
        raise ResultFileError(
            f"{names[0]} and {names[1]}: both hold {listing('image', twice)}{hint if json_only else ''}"
        )
    ordered = image_order(list(shard_of_image))
    place = {image_id: at for at, image_id in enumerate(ordered)}
    return tuple(ordered), [shard.renumbered([place[image_id] for image_id in shard.image_ids]) for shard in shards]


def with_state(shards: Sequence[Shard], image_ids: Sequence[ImageId], state: DetectionState) -> Shard:
    """A shard with the given images and state, and everything else merged from the shards."""
    first = shards[0]
    ground_truths = _distinct([one for shard in shards for one in shard.ground_truths])
    return replace(
        first,
        name=", ".join(dict.fromkeys(shard.name for shard in shards)),
        image_ids=tuple(image_ids),
        image_names={image_id: name for shard in shards for image_id, name in shard.image_names.items()},
        image_sizes={image_id: size for shard in shards for image_id, size in shard.image_sizes.items()},
        detections=RowCounts.total(shard.detections for shard in shards),
        missing_images=sum(shard.missing_images for shard in shards),
        results=tuple(_distinct([one for shard in shards for one in shard.results])),
        ground_truths=tuple(ground_truths),
        versions=tuple(_different([one for shard in shards for one in shard.versions])),
        state=state,
    )


def _distinct(entries: Sequence[Entry]) -> List[Entry]:
    """Every file once, by name."""
    found = {(one.get("file", ""), one.get("sha256", "")): one for one in entries}
    return [found[key] for key in sorted(found)]


def _different(entries: Sequence[Entry]) -> List[Entry]:
    return [one for at, one in enumerate(entries) if one not in entries[:at]]


def _check_alike(first: Shard, other: Shard) -> None:
    both = f"{first.name} and {other.name}"
    if first.classes != other.classes:
        raise ResultFileError(
            f"{both}: are of different classes ({listing('class', first.classes)}; {listing('class', other.classes)})"
        )
    for key, mine in _settings(first).items():
        theirs = _settings(other)[key]
        if mine != theirs:
            raise ResultFileError(f"{both}: were made with different settings ('{key}' is {mine!a} and {theirs!a})")
    if first.ground_truth_in_results != other.ground_truth_in_results:
        raise ResultFileError(f"{both}: only one of them has results that contain the ground truth")


def _settings(shard: Shard) -> Dict[str, Any]:
    return {**shard.settings.to_dict(), "allow_missing": shard.allow_missing}


# -- files -----------------------------------------------------------------------------------------------------------


def header_of(shard: Shard) -> Dict[str, Any]:
    """Everything but the arrays, as JSON values."""
    return {
        "kind": KIND,
        "classes": list(shard.classes),
        "settings": shard.settings.to_dict(),
        "allow_missing": shard.allow_missing,
        "worst_images": shard.state.worst_images,
        "image_ids": list(shard.image_ids),
        "image_names": [shard.image_names[image_id] for image_id in shard.image_ids],
        "image_sizes": [shard.image_sizes.get(image_id, (0, 0)) for image_id in shard.image_ids],
        "detections": shard.detections.to_dict(),
        "missing_images": shard.missing_images,
        "results": [dict(one) for one in shard.results],
        "ground_truths": [dict(one) for one in shard.ground_truths],
        "ground_truth_in_results": shard.ground_truth_in_results,
        "versions": [dict(one) for one in shard.versions],
    }


def save_shard(path: str, shard: Shard) -> None:
    """Write a shard to a ``.npz`` file."""
    write_state(path, header_of(shard), shard.state.arrays())


def read_shard(path: str) -> Shard:
    """Read a shard that :func:`save_shard` wrote.

    Raises:
        ResultFileError: The file is damaged, or holds something else.
    """
    name = Path(path).name
    header, arrays = read_state(path)
    try:
        _check_header(header)
        shard = shard_of_header(name, header)
        if not shard.image_ids:  # else the matrices are in the file
            check_num_classes(len(shard.classes), name, Path(path).stat().st_size, labels_only=False)
        if len(set(shard.image_ids)) < len(shard.image_ids):
            raise ValueError("an image comes twice")
        if len(shard.image_names) < len(shard.image_ids):
            raise ValueError("an image has no name")
        unknown = set(arrays) - set(shard.state.reductions)
        if unknown:
            raise ValueError(f"{min(unknown)!a} is not part of a state with these settings")
        if shard.image_ids:
            shard = replace(
                shard,
                state=shard.state.with_arrays({name: arrays.get(name) for name in shard.state.reductions}),  # type: ignore[arg-type]
            )
            check_detection_state(shard.state, len(shard.image_ids))
            counted = shard.state.counts_by_name
            if shard.detections.used != counted["detections"] + counted["detections_suppressed"]:
                raise ValueError(f"the number of detections used must be {counted['detections']}")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, MetricInputError) as error:
        raise ResultFileError(
            f"{name}: is no state that --save-state wrote ({type(error).__name__}: {error})"
        ) from None
    return shard


def _check_header(header: Mapping[str, Any]) -> None:
    """Raises a ValueError if a value is of another type than :func:`header_of` writes."""
    ids = header["image_ids"]
    kinds = {
        "classes": all(isinstance(one, str) for one in header["classes"]),
        "image_ids": all(type(one) in (int, str) for one in ids),
        "image_names": len(header["image_names"]) == len(ids)
        and all(isinstance(s, str) for s in header["image_names"]),
        "allow_missing": isinstance(header["allow_missing"], bool),
        "ground_truth_in_results": isinstance(header["ground_truth_in_results"], bool),
        "worst_images": header["worst_images"] is None or type(header["worst_images"]) is int,
        "detections": _is_tally(header["detections"]),
        "missing_images": _is_count(header["missing_images"]) and header["missing_images"] <= len(ids),
        **{name: _is_entries(header[name]) for name in ("results", "versions")},
        "ground_truths": _is_entries(header["ground_truths"])
        and all(_is_count(one["images"]) and _is_tally(one["ground_truths"]) for one in header["ground_truths"]),
    }
    for name, holds in kinds.items():
        if not holds:
            raise ValueError(f"{name!a} is not what such a file says")


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_tally(value: Any) -> bool:
    counts = [value["read"], value["used"], *value["dropped"].values()]
    return all(map(_is_count, counts)) and value["read"] == value["used"] + sum(value["dropped"].values())


def _is_entries(value: Any) -> bool:
    """Whether a value is a list of entries about files, as :func:`header_of` writes them."""
    texts = ("file", "class_order", "joined_by")
    return isinstance(value, list) and all(
        isinstance(one, dict)
        and all(isinstance(one.get(key, ""), str) for key in texts)
        and isinstance(one.get("sha256"), (str, type(None)))
        for one in value
    )


def shard_of_header(name: str, header: Mapping[str, Any]) -> Shard:
    """A shard with an empty state."""
    if header["kind"] != KIND:
        raise ValueError(f"it is of kind {header['kind']!a}")
    tally = header["detections"]
    settings = DetectionSettings.from_dict(header["settings"])
    return Shard(
        name=name,
        classes=tuple(map(str, header["classes"])),
        settings=settings,
        image_ids=tuple(header["image_ids"]),
        image_names=dict(zip(header["image_ids"], map(str, header["image_names"]))),
        detections=RowCounts(tally["read"], tally["used"], dict(tally["dropped"])),
        missing_images=int(header["missing_images"]),
        results=tuple(header["results"]),
        ground_truths=tuple(header["ground_truths"]),
        ground_truth_in_results=bool(header["ground_truth_in_results"]),
        versions=tuple(header["versions"]),
        state=empty_state(len(header["classes"]), settings, header["worst_images"]),
        allow_missing=bool(header["allow_missing"]),
        image_sizes={
            image_id: (int(height), int(width))
            for image_id, (height, width) in zip(header["image_ids"], header.get("image_sizes", ()))
        },
    )
