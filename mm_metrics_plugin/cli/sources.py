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
from mm_metrics_plugin.exceptions import ClassNamesError, ResultFileError
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


@dataclass(frozen=True, eq=False)
class _Input:
    """A file of results that was read, and its ground truth."""

    entry: Entry
    results: DetectionResults
    truth: GroundTruth


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
    truth = read_ground_truth(arguments.truth, classes=classes, class_order=order, image_set=arguments.image_set)
    if arguments.out_dir in truth.unselected_categories.values():
        raise ClassNamesError(f"{truth.source}: has class {arguments.out_dir!a}, which --classes does not name")
    return truth


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


def with_masks(entry: Entry, results: DetectionResults) -> Entry:
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
        self.truth_entry: Dict[str, Any] = {}
        if self.inside:
            check_inside(arguments)
        else:
            steps.step("reading the ground truth")
            self.truth_entry, self.truth = truth_entry(arguments), read_truth(arguments, self.classes, steps)
        self.versions = versions(*(("mmengine", "mmdet") if arguments.truth.endswith(".py") else ()))
        self.files: List[_File] = []
        self.matched: List[Part] = []
        self.waiting: List[_Input] = []
        self.like: Optional[DetectionResults] = None  # without any detection
        self.num_classes = 0
        steps.step("reading the results")
        for path in paths:
            self._read(path)

    def _read(self, path: str) -> None:
        """Read a file. One of several is matched at once, so that its boxes are in memory no longer than needed."""
        results = read_results(path, trust=self.arguments.trust)
        if self.several and results.image_ids is None:
            raise ResultFileError(f"{results.source}: has no image ids, so it cannot be one of several files")
        truth = truth_inside(results) if self.inside else self.truth
        if not self.inside:
            results = ids_as_in(truth, results)
        self.files.append(_File(results.source, results.dialect, results.image_ids or ()))
        self.like = self.like or _without_detections(results)
        one = _Input(input_entry(path), results, truth)
        names_classes = self.classes is not None or not self.inside
        if not names_classes:
            self.num_classes = max(self.num_classes, classes_from_labels(results, truth))
        if self.several and names_classes:
            self.matched.append(self._match(one))
        else:
            self.waiting.append(one)

    def told(self) -> _Told:
        """What the others must know: all images, and how many classes there are where nobody names them."""
        return _Told(tuple(self.files), self.num_classes)

    def parts(self, told: Sequence[_Told]) -> List[Part]:
        """Join and match what was not matched yet."""
        self.steps.step("joining and matching")
        if self.inside and self.classes is None and (self.several or self.ranks.world_size > 1):
            self.classes = [str(label) for label in range(max(one.num_classes for one in told))]
        parts = self.matched
        while self.waiting:
            parts.append(self._match(self.waiting.pop(0)))
        rest = None if self.inside or not self.several or not self.ranks.is_first else self._rest(told)
        if rest is not None:
            parts.append(self._part(rest, [], self.truth, {}))
        return parts

    def _match(self, one: _Input) -> Part:
        """The part of one file; of the only file, this process' share of the images."""
        share = one.truth
        if self.several or (self.partial and one.results.dialect == "mmdet"):
            share = share_of_truth(one.truth, one.results.image_ids or ())
        allow_missing = self.arguments.allow_missing and not self.several
        joined = join(share, one.results, classes=self.classes, allow_missing=allow_missing)
        if not self.several:
            joined = share_of_joined(joined, self.ranks.rank, self.ranks.world_size)
        return self._part(joined, [with_masks(one.entry, one.results)], one.truth, one.entry)

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
                f"{files[0].source} and the other files: no results for {listing('image', rest)} of "
                f"{self.truth.source} (--allow-missing takes them as without detections)"
            )
        return join(
            share_of_truth(self.truth, rest),
            self.like,  # type: ignore[arg-type]
            classes=self.classes,
            allow_missing=True,
        )


def _without_detections(results: DetectionResults) -> DetectionResults:
    """Results of the same form for no image at all."""
    return replace(
        results,
        num_images=0,
        image_ids=(),
        detections=results.detections.take(np.empty(0, dtype=np.int64)),
        tally=Tally(0, 0),
        category_ids=None if results.category_ids is None else (),
        truth=None,
    )
