"""The provenance of a report: the images it covers, the files it was made from, and the rows read and dropped."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Iterable, Mapping, Sequence, TypeVar

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError, listing
from mm_metrics_plugin.functional.detection.data import ImageId, image_order
from mm_metrics_plugin.row_counts import RowCounts
from mm_metrics_plugin.settings import DetectionSettings, number_text

_T = TypeVar("_T")
Entry = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Provenance:
    """Where the images of an evaluation come from. Image columns are in the order of the images in the state."""

    image_ids: tuple[ImageId, ...] = ()
    image_names: tuple[str, ...] = ()  # file names as in the ground truth; "" if unknown
    image_sizes: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))  # height and width, or 0
    detections: RowCounts = field(default_factory=lambda: RowCounts(0, 0))
    missing_images: int = 0  # images without results, evaluated as images without detections
    results: tuple[Entry, ...] = ()  # name, SHA-256 and more of each result file
    ground_truths: tuple[Entry, ...] = ()  # of each ground truth, with its images, row counts and image folders
    ground_truth_in_results: bool = False
    versions: tuple[Entry, ...] = ()
    allow_missing: bool = False
    images_added: int = 0  # by ``update``, not from the files above
    ground_truths_added: int = 0  # of these images
    saved_as: str = ""  # the file that the state was read from

    @property
    def name(self) -> str:
        """The saved state or the result files, for messages."""
        return (
            self.saved_as
            or ", ".join(dict.fromkeys(str(entry["file"]) for entry in self.results))
            or "the images added"
        )

    @property
    def images_in_other_shards(self) -> int:
        """Number of images of the ground truths that are not among these."""
        of_files = sum(int(entry["images"]) for entry in self.ground_truths)
        return of_files + self.images_added - len(self.image_ids)

    @property
    def image_folders(self) -> list[str]:
        """The folders of the images, where the ground truth names them."""
        return [folder for entry in self.ground_truths for folder in entry.get("image_folders", ())]

    def with_images(self, ids: Sequence[ImageId], names: Sequence[str], sizes: np.ndarray | None) -> Provenance:
        """The same with more images at the end."""
        sizes = np.zeros((len(ids), 2), dtype=np.int64) if sizes is None else np.asarray(sizes, dtype=np.int64)
        return replace(
            self,
            image_ids=(*self.image_ids, *ids),
            image_names=(*self.image_names, *names),
            image_sizes=np.concatenate([self.image_sizes, sizes]),
        )

    def with_added(self, images: int, detections: int, ground_truths: int) -> Provenance:
        """The same with the numbers of images that come from no file."""
        return replace(
            self,
            images_added=self.images_added + images,
            ground_truths_added=self.ground_truths_added + ground_truths,
            detections=RowCounts.total([self.detections, RowCounts(detections, detections)]),
        )

    def in_order(self) -> tuple[Provenance, np.ndarray | None]:
        """The same with images in the order that breaks ties, and the new position of each; None if nothing moved."""
        ordered = image_order(self.image_ids)
        if tuple(ordered) == self.image_ids:
            return self, None
        position = {image_id: index for index, image_id in enumerate(ordered)}
        moved = np.array([position[image_id] for image_id in self.image_ids], dtype=np.int64)
        rows = np.argsort(moved)
        names = tuple(self.image_names[row] for row in rows)
        return replace(self, image_ids=tuple(ordered), image_names=names, image_sizes=self.image_sizes[rows]), moved

    @classmethod
    def merged(cls, parts: Sequence[Provenance]) -> Provenance:
        """The provenance of the images of all parts, one after the other.

        Raises:
            ResultFileError: Parts share an image, or only some have the ground truth in their results.
        """
        first = parts[0]
        for other in parts[1:]:
            if first.ground_truth_in_results != other.ground_truth_in_results:
                raise ResultFileError(
                    f"{first.name} and {other.name}: only one of them has results that contain the ground truth"
                )
        _check_distinct_images(parts)
        return replace(
            first,
            image_ids=tuple(image_id for part in parts for image_id in part.image_ids),
            image_names=tuple(name for part in parts for name in part.image_names),
            image_sizes=np.concatenate([part.image_sizes for part in parts]),
            detections=RowCounts.total(part.detections for part in parts),
            missing_images=sum(part.missing_images for part in parts),
            images_added=sum(part.images_added for part in parts),
            ground_truths_added=sum(part.ground_truths_added for part in parts),
            results=_distinct_files(entry for part in parts for entry in part.results),
            ground_truths=_distinct_files(entry for part in parts for entry in part.ground_truths),
            versions=tuple(_distinct(entry for part in parts for entry in part.versions)),
            saved_as=", ".join(part.saved_as for part in parts if part.saved_as),
        )

    def inputs(self) -> dict[str, Any]:
        """The files, options of reading and versions, as in ``report.json``."""
        inputs: dict[str, Any] = {"results": _single_or_list(self.results)}
        if not self.ground_truth_in_results:
            keys = ("file", "sha256", "image_set")
            entries = [{key: entry[key] for key in keys if key in entry} for entry in self.ground_truths]
            inputs["ground_truth"] = _single_or_list(entries)
        orders = _distinct(entry["class_order"] for entry in self.ground_truths if "class_order" in entry)
        if orders:
            inputs["class_order"] = _single_or_list(orders)
        return {**inputs, "allow_missing": self.allow_missing, "versions": _single_or_list(self.versions)}

    def counts(self, counted: Mapping[str, int], settings: DetectionSettings) -> dict[str, Any]:
        """Images, detections and ground truths read, used and dropped by reason; ``counted`` by the state."""
        added = RowCounts(self.ground_truths_added, self.ground_truths_added)
        return row_counts(
            counted,
            self.detections,
            RowCounts.total([added, *(RowCounts(**entry["ground_truths"]) for entry in self.ground_truths)]),
            images=len(self.image_ids),
            missing_images=self.missing_images,
            below={f"score below {number_text(settings.score_thr)}": counted["detections_below_threshold"]},
        )

    def header(self) -> dict[str, Any]:
        """As JSON values, for files and other processes."""
        return {
            "image_ids": list(self.image_ids),
            "image_names": list(self.image_names),
            "image_sizes": self.image_sizes.tolist(),
            "detections": self.detections.to_dict(),
            "missing_images": self.missing_images,
            "results": list(map(dict, self.results)),
            "ground_truths": list(map(dict, self.ground_truths)),
            "ground_truth_in_results": self.ground_truth_in_results,
            "versions": list(map(dict, self.versions)),
            "allow_missing": self.allow_missing,
            "images_added": self.images_added,
            "ground_truths_added": self.ground_truths_added,
        }

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> Provenance:
        """The inverse of :meth:`header`."""
        return cls(
            image_ids=tuple(header["image_ids"]),
            image_names=tuple(header["image_names"]),
            image_sizes=np.array(header["image_sizes"], dtype=np.int64).reshape(-1, 2),
            detections=RowCounts(**header["detections"]),
            missing_images=header["missing_images"],
            results=tuple(header["results"]),
            ground_truths=tuple(header["ground_truths"]),
            ground_truth_in_results=header["ground_truth_in_results"],
            versions=tuple(header["versions"]),
            allow_missing=header["allow_missing"],
            images_added=header["images_added"],
            ground_truths_added=header["ground_truths_added"],
        )


def row_counts(
    counted: Mapping[str, int],
    detections: RowCounts,
    ground_truths: RowCounts,
    *,
    images: int,
    missing_images: int,
    below: Mapping[str, int],
) -> dict[str, Any]:
    """Images, detections and ground truths read, used and dropped by reason.

    ``counted`` are the counts of the state, ``detections`` and ``ground_truths`` those of reading; ``below``, the
    detections below the score threshold.
    """
    for reason, number in {"removed by NMS": counted["detections_suppressed"], **below}.items():
        detections = detections.drop(reason, number)
    elsewhere = ground_truths.used - counted["ground_truths"]
    return {
        "images": {"read": images, "used": images, "dropped": {}, "without_results": missing_images},
        "detections": detections.to_dict(),
        "ground_truths": ground_truths.drop("in an image of another shard", elsewhere).to_dict(),
    }


def _check_distinct_images(parts: Sequence[Provenance]) -> None:
    part_of_image: dict[ImageId, str] = {}
    repeated: list[ImageId] = []
    for part in parts:
        for image_id in part.image_ids:
            if image_id in part_of_image:
                repeated.append(image_id)
                both = f"{part_of_image[image_id]} and {part.name}"
            part_of_image[image_id] = part.name
    if repeated:
        hint = ""
        if len({frozenset(part.image_ids) for part in parts}) == 1:
            hint = (
                "; COCO results and key points of mmpose do not list images without detections, so each file covers "
                "all images: evaluate all files in one call"
            )
        raise ResultFileError(f"{both}: both hold {listing('image', repeated)}{hint}")


def _distinct_files(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Every file once, by name."""
    by_name = {(entry.get("file") or "", entry.get("sha256") or ""): entry for entry in entries}
    return tuple(by_name[key] for key in sorted(by_name))


def _distinct(values: Iterable[_T]) -> list[_T]:
    result: list[_T] = []
    for value in values:
        if value not in result:
            result.append(value)
    return result


def _single_or_list(entries: Sequence[Any]) -> Any:
    return entries[0] if len(entries) == 1 else list(entries)
