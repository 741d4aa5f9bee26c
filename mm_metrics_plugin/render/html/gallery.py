"""Images for a page: found, made small, and counted where they are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from mm_metrics_plugin.render.html.thumbnails import Thumbnail

MOST_PICTURE_BYTES = 5_000_000


def collect_thumbnails(
    images: Sequence[int],
    names: Sequence[str],
    *,
    folder: Optional[str],
    dataset_folders: Sequence[str] = (),
    sizes: Sequence[Tuple[int, int]] = (),
) -> Tuple[Dict[int, Thumbnail], List[str]]:
    """Small images by their number, and remarks on those that are not there.

    Args:
        images: Numbers of the images that are wanted, the most wanted first.
        names: The names of all images in the ground truth, "" where unknown.
        folder: The folder to look in; None: the folders of the dataset.
        dataset_folders: The folders below which names are whole paths.
        sizes: Height and width of the images, 0 where unknown.
    """
    from mm_metrics_plugin.render.html.thumbnails import ImageFinder, thumbnail

    finder = ImageFinder(names, dataset_folders, folder)
    found: Dict[int, Thumbnail] = {}
    absent, outside, unreadable, left_out, size = 0, 0, 0, 0, 0
    for image in dict.fromkeys(images):
        if size > MOST_PICTURE_BYTES:
            left_out += 1
            continue
        place = finder.find(names[image])
        if place.path is None:
            absent, outside = absent + (not place.outside), outside + place.outside
            continue
        small = thumbnail(place.path)
        if small is None:
            unreadable += 1
        elif place.by_last_part and len(sizes) and not small.has_size(*sizes[image]):
            absent += 1  # it is another image of the same name
        else:
            found[image] = small
            size += len(small.uri)
    remarks = (
        (absent, "were not found: --images must name the folder that contains them"),
        (outside, "were left out, because they are not below the image folder"),
        (unreadable, "could not be read"),
        (left_out, "were left out, to keep the page small"),
    )
    return found, [f"{number} of the images {what}" for number, what in remarks if number]
