"""Shards: the matched detections of some images; merging, also across processes; saving and reading.

A report is made from one shard with all images. Each result file, each process and each state saved with
``--save-state`` gives a shard, so all of them lead to the same report.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

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
from mm_metrics_plugin.states.distributed import all_gather_or_raise, all_reduce_state, launched_processes

KIND = "detection"
IMAGES_PER_BLOCK = 5000  # of matching, between two updates of the progress bar
Entry = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Shard:
    """The accumulated state of some images, with its provenance."""

    name: str  # in messages
    classes: Tuple[str, ...]
    settings: DetectionSettings
    image_ids: Tuple[ImageId, ...]  # in the order of the image keys of the state
    image_names: Mapping[ImageId, str]  # file names as in the ground truth; "" if unknown
    detections: RowCounts
    missing_images: int  # images without results, evaluated as images without detections
    results: Tuple[Entry, ...]  # provenance of the result files
    ground_truths: Tuple[Entry, ...]  # provenance, number of images, row counts and image folders of the ground truths
    ground_truth_in_results: bool
    versions: Tuple[Entry, ...]
    state: DetectionState
    allow_missing: bool = False
    image_sizes: Mapping[ImageId, Tuple[int, int]] = field(default_factory=dict)  # height and width, where known

    @property
    def images_elsewhere(self) -> int:
        """Number of images of the ground truth that are not in this shard."""
        return sum(int(entry["images"]) for entry in self.ground_truths) - len(self.image_ids)

    def renumbered_state(self, positions: Mapping[ImageId, int]) -> DetectionState:
        """The state with other image keys, in the same order."""
        return self.state.renumbered(np.array([positions[image_id] for image_id in self.image_ids], dtype=np.int64))

    def inputs(self) -> Dict[str, Any]:
        """The provenance of the report."""
        inputs: Dict[str, Any] = {"results": _single_or_list(self.results)}
        if not self.ground_truth_in_results:
            keys = ("file", "sha256", "image_set")
            entries = [{key: entry[key] for key in keys if key in entry} for entry in self.ground_truths]
            inputs["ground_truth"] = _single_or_list(entries)
        orders = list(dict.fromkeys(entry["class_order"] for entry in self.ground_truths if "class_order" in entry))
        if orders:
            inputs["class_order"] = _single_or_list(orders)
        return {**inputs, "allow_missing": self.allow_missing, "versions": _single_or_list(self.versions)}

    def counts(self) -> Dict[str, Any]:
        """Images, detections and ground truths read, used and dropped by reason."""
        counted = self.state.counts_by_name
        detections = self.detections.drop("removed by NMS", counted["detections_suppressed"])
        detections = detections.drop(f"score below {self.settings.score_thr:g}", counted["detections_below_threshold"])
        ground_truths = RowCounts.total(RowCounts(**entry["ground_truths"]) for entry in self.ground_truths)
        ground_truths = ground_truths.drop(
            "in an image of another shard", ground_truths.used - counted["ground_truths"]
        )
        images = len(self.image_ids)
        return {
            "images": {"read": images, "used": images, "dropped": {}, "without_results": self.missing_images},
            "detections": detections.to_dict(),
            "ground_truths": ground_truths.to_dict(),
        }


def _single_or_list(entries: Sequence[Any]) -> Any:
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
    joined = in_image_order(joined)  # the order breaks ties of scores and of examples
    sizes = [] if joined.image_sizes is None else joined.image_sizes.tolist()
    return Shard(
        name=", ".join(entry["file"] for entry in results),
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
        ResultFileError: Shards share an image, or differ in classes, settings or the place of the ground truth.
    """
    positions = image_positions(shards)
    return with_state(shards, positions, merge_all([shard.renumbered_state(positions) for shard in shards]))


def image_positions(shards: Sequence[Shard]) -> Dict[ImageId, int]:
    """The position of each image in the merged shards. Raises a ResultFileError if they cannot be merged."""
    for shard in shards[1:]:
        _check_alike(shards[0], shard)
    shard_of_image: Dict[ImageId, str] = {}
    repeated: List[ImageId] = []
    for shard in shards:
        for image_id in shard.image_ids:
            if image_id in shard_of_image:
                repeated.append(image_id)
                both = f"{shard_of_image[image_id]} and {shard.name}"
            shard_of_image[image_id] = shard.name
    if repeated:
        hint = ""
        if all(str(entry["file"]).endswith(".json") for shard in shards for entry in shard.results):
            hint = (
                "; COCO results do not list images without detections, so each file covers all images: give all "
                "files to one call of mm-metrics detection"
            )
        raise ResultFileError(f"{both}: both hold {listing('image', repeated)}{hint}")
    return {image_id: position for position, image_id in enumerate(image_order(list(shard_of_image)))}


def with_state(shards: Sequence[Shard], image_ids: Iterable[ImageId], state: DetectionState) -> Shard:
    """A shard with the given images and state, and everything else merged from the shards."""
    versions: List[Entry] = []
    for shard in shards:
        versions += [entry for entry in shard.versions if entry not in versions]
    return replace(
        shards[0],
        name=", ".join(dict.fromkeys(shard.name for shard in shards)),
        image_ids=tuple(image_ids),
        image_names={image_id: name for shard in shards for image_id, name in shard.image_names.items()},
        image_sizes={image_id: size for shard in shards for image_id, size in shard.image_sizes.items()},
        detections=RowCounts.total(shard.detections for shard in shards),
        missing_images=sum(shard.missing_images for shard in shards),
        results=_distinct_files(entry for shard in shards for entry in shard.results),
        ground_truths=_distinct_files(entry for shard in shards for entry in shard.ground_truths),
        versions=tuple(versions),
        state=state,
    )


def _distinct_files(entries: Iterable[Entry]) -> Tuple[Entry, ...]:
    """Every file once, by name."""
    by_name = {(entry.get("file") or "", entry.get("sha256") or ""): entry for entry in entries}
    return tuple(by_name[key] for key in sorted(by_name))


def _check_alike(first: Shard, other: Shard) -> None:
    both = f"{first.name} and {other.name}"
    if first.classes != other.classes:
        raise ResultFileError(
            f"{both}: are of different classes ({listing('class', first.classes)}; {listing('class', other.classes)})"
        )
    settings, others = ({**one.settings.to_dict(), "allow_missing": one.allow_missing} for one in (first, other))
    for key, value in settings.items():
        if value != others[key]:
            raise ResultFileError(
                f"{both}: were made with different settings ('{key}' is {value!a} and {others[key]!a})"
            )
    if first.ground_truth_in_results != other.ground_truth_in_results:
        raise ResultFileError(f"{both}: only one of them has results that contain the ground truth")


class ProcessGroup:
    """The processes that torchrun started, or this process alone. torch is imported only if there are several.

    Every process must call the same methods in the same order. An error on one of them is raised on all.
    """

    def __init__(self, *, distributed: bool) -> None:
        self.rank, self.world_size = launched_processes() if distributed else (0, 1)
        if self.world_size > 1:
            import torch.distributed

            if not torch.distributed.is_initialized():
                torch.distributed.init_process_group("gloo")

    def all_gather(self, value: Any, error: Optional[Exception] = None) -> List[Any]:
        """The value of every process, in the order of ranks."""
        if self.world_size > 1:
            return all_gather_or_raise(value, error)
        if error is not None:
            raise error
        return [value]

    def merge(self, shards: Sequence[Shard], error: Optional[Exception] = None) -> Shard:
        """Merge the shards of all processes."""
        own = None
        if error is None and shards:
            try:
                own = merge_shards(shards)
            except Exception as caught:  # raised on every process below
                error = caught
        headers = self.all_gather(None if own is None else (own.name, header_of(own)), error)
        if self.world_size == 1:
            return own  # type: ignore[return-value]
        others = [shard_of_header(*header) for header in headers if header is not None]
        positions = image_positions(others)
        own = own or replace(others[0], image_ids=())  # more processes than files
        state, _ = all_reduce_state(own.renumbered_state(positions), len(own.image_ids), None)
        return with_state(others, positions, state)  # type: ignore[arg-type]

    def close(self) -> None:
        """Leave the process group."""
        if self.world_size > 1:
            import torch.distributed

            torch.distributed.destroy_process_group()


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
        "results": list(map(dict, shard.results)),
        "ground_truths": list(map(dict, shard.ground_truths)),
        "ground_truth_in_results": shard.ground_truth_in_results,
        "versions": list(map(dict, shard.versions)),
    }


def save_shard(path: str, shard: Shard) -> None:
    """Write a shard to a ``.npz`` file."""
    write_state(path, header_of(shard), shard.state.arrays())


def read_shard(path: str) -> Shard:
    """Read a shard that :func:`save_shard` wrote.

    Raises:
        ResultFileError: The file is damaged, or of another kind.
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
            f"{name}: is not a state file of --save-state ({type(error).__name__}: {error})"
        ) from None
    return shard


def _check_header(header: Mapping[str, Any]) -> None:
    """Raises a ValueError if a value is not of the type that :func:`header_of` writes."""
    ids, names, entries = header["image_ids"], header["image_names"], header["ground_truths"]
    is_valid = {
        "classes": all(isinstance(name, str) for name in header["classes"]),
        "image_ids": all(type(image_id) in (int, str) for image_id in ids),
        "image_names": len(names) == len(ids) and all(isinstance(name, str) for name in names),
        "allow_missing": isinstance(header["allow_missing"], bool),
        "ground_truth_in_results": isinstance(header["ground_truth_in_results"], bool),
        "worst_images": header["worst_images"] is None or type(header["worst_images"]) is int,
        "detections": _are_row_counts(header["detections"]),
        "missing_images": _is_count(header["missing_images"]) and header["missing_images"] <= len(ids),
        "results": _are_entries(header["results"]),
        "versions": _are_entries(header["versions"]),
        "ground_truths": _are_entries(entries)
        and all(_is_count(entry["images"]) and _are_row_counts(entry["ground_truths"]) for entry in entries),
    }
    for name, valid in is_valid.items():
        if not valid:
            raise ValueError(f"{name!a} has a value that --save-state does not write")


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_row_counts(value: Any) -> bool:
    counts = [value["used"], *value["dropped"].values()]
    return all(map(_is_count, [value["read"], *counts])) and value["read"] == sum(counts)


def _are_entries(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, dict)
        and all(isinstance(entry.get(key, ""), str) for key in ("file", "class_order", "joined_by"))
        and isinstance(entry.get("sha256"), (str, type(None)))
        for entry in value
    )


def shard_of_header(name: str, header: Mapping[str, Any]) -> Shard:
    """A shard with an empty state."""
    if header["kind"] != KIND:
        raise ValueError(f"it is of kind {header['kind']!a}")
    settings, image_ids = DetectionSettings.from_dict(header["settings"]), tuple(header["image_ids"])
    return Shard(
        name=name,
        classes=tuple(header["classes"]),
        settings=settings,
        image_ids=image_ids,
        image_names=dict(zip(image_ids, header["image_names"])),
        detections=RowCounts(**header["detections"]),
        missing_images=header["missing_images"],
        results=tuple(header["results"]),
        ground_truths=tuple(header["ground_truths"]),
        ground_truth_in_results=header["ground_truth_in_results"],
        versions=tuple(header["versions"]),
        state=empty_state(len(header["classes"]), settings, header["worst_images"]),
        allow_missing=header["allow_missing"],
        image_sizes={
            image_id: (int(height), int(width))
            for image_id, (height, width) in zip(image_ids, header.get("image_sizes", ()))
        },
    )
