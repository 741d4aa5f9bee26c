"""From the files named on the command line to the part of a report that this process has to count."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.cli.output import input_entry, versions
from mm_metrics_plugin.cli.parsing import class_names
from mm_metrics_plugin.cli.parts import Entry, Part, part_of
from mm_metrics_plugin.cli.progress import Steps
from mm_metrics_plugin.cli.ranks import Ranks
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.class_order import CLASSES, LABELS
from mm_metrics_plugin.io.ground_truth import GroundTruth, ImageId, listing, read_ground_truth
from mm_metrics_plugin.io.joining import Joined, classes_from_labels, ids_as_in, join
from mm_metrics_plugin.io.results import DetectionResults, read_results
from mm_metrics_plugin.io.shares import share_of_joined, share_of_truth
from mm_metrics_plugin.io.tally import Tally
from mm_metrics_plugin.io.test_sets import read_test_set
from mm_metrics_plugin.settings import DetectionSettings

INSIDE = "-"


@dataclass(frozen=True)
class _File:
    """What the other processes must know of a file of results."""

    source: str
    dialect: str
    image_ids: Tuple[ImageId, ...]


@dataclass(frozen=True)
class _Told:
    """What a process tells the others before it counts."""

    files: Tuple[_File, ...]
    num_classes: int


def make_part(
    arguments: argparse.Namespace,
    settings: DetectionSettings,
    ranks: Ranks,
    steps: Steps,
    *,
    worst_images: Optional[int] = None,
) -> Part:
    """Everything that is known of all images, from the files named on the command line.

    Args:
        arguments: Of the command.
        settings: What was asked for.
        ranks: The processes that work on it.
        steps: To show how far it got.
        worst_images: Keep examples for a page, and of the worst images so many in each order; None: none.
    """
    parts: List[Part] = []
    reader, error = None, None
    try:
        reader = _Reader(arguments, settings, ranks, steps, worst_images)
    except Exception as caught:  # raised on every process by the exchange
        error = caught
    told = ranks.exchange(None if reader is None else reader.told(), error)
    try:
        parts = reader.parts(told)  # type: ignore[union-attr]
    except Exception as caught:  # likewise
        error = caught
    return ranks.add_up(parts, error)


def read_truth(arguments: argparse.Namespace, classes: Optional[List[str]], steps: Steps) -> GroundTruth:
    """The ground truth that stands in a file, a folder, or the test data set of a config."""
    order = arguments.class_order
    if arguments.truth.endswith(".py"):
        if arguments.image_set is not None:
            raise ResultFileError(f"--image-set: the test set of {arguments.truth} lists its images itself")
        options = {"options": arguments.cfg_options, "track": steps.track}
        return read_test_set(arguments.truth, classes=classes, class_order=order, **options)
    if arguments.cfg_options:
        raise ResultFileError("--cfg-options: TRUTH is no config whose settings could be overridden")
    return read_ground_truth(arguments.truth, classes=classes, class_order=order, image_set=arguments.image_set)


def truth_entry(arguments: argparse.Namespace) -> Dict[str, Any]:
    """Name and SHA-256 of the ground truth, and of the list of its images."""
    image_set = {} if arguments.image_set is None else {"image_set": input_entry(arguments.image_set)}
    return {**input_entry(arguments.truth), **image_set}


def check_inside(arguments: argparse.Namespace) -> None:
    """Refuse options about a ground truth that is inside the results."""
    for option in ("class_order", "image_set"):
        if getattr(arguments, option) is not None:
            raise ResultFileError(f"--{option.replace('_', '-')}: the ground truth is inside the results (TRUTH is -)")


def truth_inside(results: DetectionResults) -> GroundTruth:
    """The ground truth inside results."""
    if results.truth is None:
        raise ResultFileError(f"{results.source}: holds no ground truth; give the annotation file as TRUTH")
    return results.truth


def class_order(arguments: argparse.Namespace, joined: Joined) -> str:
    """What labels follow; class names that stand for themselves are not given ones."""
    if arguments.truth == INSIDE:
        return CLASSES if arguments.classes else LABELS
    return joined.class_order


def _with_masks(entry: Entry, results: DetectionResults) -> Entry:
    """The entry of a file, with the number of its masks if it has any."""
    return {**entry, "masks": results.masks} if results.masks else entry


class _Reader:
    """What this process reads: of one file a share of the images, of several files some of the files."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        settings: DetectionSettings,
        ranks: Ranks,
        steps: Steps,
        worst_images: Optional[int],
    ) -> None:
        self.arguments, self.settings, self.ranks, self.steps = arguments, settings, ranks, steps
        self.worst_images = worst_images
        self.several = len(arguments.results) > 1
        self.inside = arguments.truth == INSIDE
        self.partial = arguments.save_state is not None and not arguments.allow_missing
        self.classes = class_names(arguments.classes)
        paths = ranks.share(arguments.results) if self.several else arguments.results
        self.entries = [input_entry(path) for path in paths]
        self.truth_entry: Dict[str, Any] = {} if self.inside else truth_entry(arguments)
        steps.step("reading the results")
        self.results = [read_results(path, trust=arguments.trust) for path in paths]
        for one in self.results:
            if self.several and one.image_ids is None:
                raise ResultFileError(f"{one.source}: has no image ids, so it cannot be one of several files")
        steps.step("reading the ground truth")
        self.truths = self._read_truths()
        self.num_classes = 0
        if self.inside and self.classes is None:
            pairs = zip(self.results, self.truths)
            self.num_classes = max((classes_from_labels(*pair) for pair in pairs), default=0)
        self.versions = versions(*(("mmengine", "mmdet") if arguments.truth.endswith(".py") else ()))

    def _read_truths(self) -> List[GroundTruth]:
        """The ground truth of each of its files."""
        arguments = self.arguments
        if self.inside:
            check_inside(arguments)
            return [truth_inside(one) for one in self.results]
        self.truth = read_truth(arguments, self.classes, self.steps)
        self.results = [ids_as_in(self.truth, one) for one in self.results]
        return [self.truth] * len(self.results)

    def told(self) -> _Told:
        """What the others must know: all images, and how many classes there are where nobody names them."""
        return _Told(
            tuple(_File(one.source, one.dialect, one.image_ids or ()) for one in self.results),
            self.num_classes,
        )

    def parts(self, told: Sequence[_Told]) -> List[Part]:
        """Join and count."""
        self.steps.step("joining and matching")
        if self.inside and self.classes is None and (self.several or self.ranks.world_size > 1):
            self.classes = [str(label) for label in range(max(one.num_classes for one in told))]
        if not self.several:
            results, truth = self.results[0], self.truths[0]
            share = truth
            if self.partial and results.dialect == "mmdet":
                share = share_of_truth(truth, results.image_ids or ())
            joined = join(share, results, classes=self.classes, allow_missing=self.arguments.allow_missing)
            joined = share_of_joined(joined, self.ranks.rank, self.ranks.world_size)
            return [self._part(joined, [_with_masks(self.entries[0], results)], truth, self.entries[0])]
        parts = []
        for entry, results, truth in zip(self.entries, self.results, self.truths):
            share = share_of_truth(truth, results.image_ids or ())
            joined = join(share, results, classes=self.classes)
            parts.append(self._part(joined, [_with_masks(entry, results)], truth, entry))
        rest = None if self.inside or not self.ranks.is_first else self._rest(told)
        if rest is not None:
            parts.append(self._part(rest, [], self.truth, {}))
        return parts

    def _part(self, joined: Joined, entries: Sequence[Entry], truth: GroundTruth, entry: Entry) -> Part:
        name = entry if self.inside else self.truth_entry
        return part_of(
            joined,
            self.settings,
            results=[{**one, "joined_by": joined.joined_by} for one in entries],
            truth={
                **name,
                "images": len(truth.image_ids),
                "objects": truth.tally.to_dict(),
                "class_order": class_order(self.arguments, joined),
                "image_folders": list(truth.image_folders),
            },
            truth_inside=self.inside,
            versions=self.versions,
            allow_missing=self.arguments.allow_missing,
            worst_images=self.worst_images,
        )

    def _rest(self, told: Sequence[_Told]) -> Optional[Joined]:
        """The images that no file speaks of, if they belong to this report."""
        files = [file for one in told for file in one.files]
        seen = {image_id for file in files for image_id in file.image_ids}
        rest = [image_id for image_id in self.truth.image_ids if image_id not in seen]
        names_all = any(file.dialect != "coco" for file in files)
        if not rest or (names_all and self.partial):
            return None
        if names_all and not self.arguments.allow_missing:
            raise ResultFileError(
                f"{self.results[0].source} and the other files: no results for {listing('image', rest)} of "
                f"{self.truth.source} (--allow-missing takes them as without detections)"
            )
        like = self.results[0]
        nothing = replace(
            like,
            num_images=0,
            image_ids=(),
            detections=like.detections.take(np.empty(0, dtype=np.int64)),
            tally=Tally(0, 0),
            category_ids=None if like.category_ids is None else (),
        )
        return join(share_of_truth(self.truth, rest), nothing, classes=self.classes, allow_missing=True)
