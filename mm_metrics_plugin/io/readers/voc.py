"""Pascal VOC annotations: a folder of XML files, one per image."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple, Sequence
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError, listing
from mm_metrics_plugin.functional.detection.data import GroundTruths
from mm_metrics_plugin.io.arrays import check_unique
from mm_metrics_plugin.io.class_order import ANNOTATIONS, CLASSES
from mm_metrics_plugin.io.detection_data import AnnotationSet
from mm_metrics_plugin.io.file_heads import holds
from mm_metrics_plugin.io.files import PathLike, read_bytes
from mm_metrics_plugin.io.formats import GROUND_TRUTH, Format, ReadOptions
from mm_metrics_plugin.io.readers.coco import lookup
from mm_metrics_plugin.io.readers.shapes import SWAPPED, has_swapped_corners
from mm_metrics_plugin.row_counts import RowCounts

DEEPEST = 64  # levels of XML


class _Annotations(NamedTuple):
    """The annotations of a folder.

    Args:
        image_ids: Id of each image.
        image_names: File name of each image.
        image_sizes: Height and width of each image.
        objects: Index of the image, class name, box (left, top, right, bottom) and difficult flag of each object.
        sha256: Of the lines that ``sha256sum`` prints for the files, in alphabetical order.
    """

    image_ids: tuple[str, ...]
    image_names: tuple[str, ...]
    image_sizes: list[list[int]]
    objects: list[tuple[int, str, list[int], bool]]
    sha256: str


def _read_files(folder: Path, files: Sequence[Path]) -> _Annotations:
    """Read some files of a folder, in their order."""
    names: list[str] = []
    sizes: list[list[int]] = []
    objects: list[tuple[int, str, list[int], bool]] = []
    digests: list[str] = []
    for number, path in enumerate(files):
        data = read_bytes(path)
        digests.append(f"{hashlib.sha256(data).hexdigest()}  {path.name}\n")
        root = _parse(data, path)
        if root.tag != "annotation":
            raise ResultFileError(
                f"{path.name}: is not a VOC annotation (expected the root element 'annotation'; "
                f"found {root.tag[:60]!a})"
            )
        size = root.find("size")
        sizes.append([0, 0] if size is None else [_integer(size, side, path) for side in ("height", "width")])
        names.append(root.findtext("filename") or f"{path.stem}.jpg")
        for element in root.findall("object"):
            corners, name = element.find("bndbox"), element.findtext("name")
            if corners is None or name is None:
                raise ResultFileError(f"{path.name}: object number {len(objects)} has no name or no bndbox")
            # VOC counts pixels from 1. Like mmdet's XMLDataset, this subtracts 1 from all four edges.
            box = [_integer(corners, edge, path) - 1 for edge in ("xmin", "ymin", "xmax", "ymax")]
            difficult = element.find("difficult") is not None and bool(_integer(element, "difficult", path))
            objects.append((number, name, box, difficult))
    digest = hashlib.sha256("".join(sorted(digests, key=lambda line: line[66:])).encode()).hexdigest()
    return _Annotations(tuple(path.stem for path in files), tuple(names), sizes, objects, digest)


def annotation_files(folder: Path, suffix: str, image_set: PathLike | None) -> tuple[list[Path], str | None]:
    """The files of a folder, and the SHA-256 of the list ``image_set``, whose order they have if it is given."""
    if image_set is not None:
        data = read_bytes(image_set)
        return _listed_files(data, Path(image_set).name, folder, suffix), hashlib.sha256(data).hexdigest()
    files = sorted(folder.glob(f"*{suffix}"))
    if not files:
        raise ResultFileError(f"{folder.name}: holds no {suffix} files")
    return files, None


def _listed_files(data: bytes, name: str, folder: Path, suffix: str) -> list[Path]:
    """The annotation file of every image of the list ``name``, in its order."""
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ResultFileError(f"{name}: must be text with one image id per line (found something else)") from None
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise ResultFileError(f"{name}: lists no image")
    check_unique(ids, "image id", name)
    present = {path.stem for path in folder.glob(f"*{suffix}")}
    missing = [image_id for image_id in ids if image_id not in present]
    if missing:
        raise ResultFileError(f"{name}: {listing('image', missing)} without annotations in {folder.name}")
    return [folder / f"{image_id}{suffix}" for image_id in ids]


def _integer(parent: Element, tag: str, path: Path) -> int:
    text = parent.findtext(tag)
    try:
        value = int(float(text or ""))
    except (ValueError, OverflowError):
        raise ResultFileError(f"{path.name}: '{tag}' must be a number (found {ascii(text)[:60]})") from None
    if abs(value) > 1 << 40:
        raise ResultFileError(f"{path.name}: '{tag}' must be a number of pixels (found {ascii(text)[:60]})")
    return value


def _parse(data: bytes, path: Path) -> Element:
    """Parse XML without attributes, which VOC files do not have, and without entities."""
    builder = TreeBuilder()
    parser = expat.ParserCreate()
    depth = 0

    def start(tag: str, attributes: Any) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise ResultFileError(f"{path.name}: is nested deeper than {DEEPEST} levels, which VOC files never are")
        builder.start(tag, {})

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def refuse(*declaration: Any) -> None:
        raise ResultFileError(f"{path.name}: declares a document type or entities, which VOC files never need")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
        return builder.close()
    except (expat.ExpatError, LookupError) as error:  # LookupError: an unknown encoding
        raise ResultFileError(f"{path.name}: is not XML ({error})") from None


def _read(folder: Path, options: ReadOptions) -> AnnotationSet:
    """The ground truth in a folder.

    ``classes`` gives the order of the labels, which VOC files do not define. ``image_set`` is the list of the test set,
    one image id per line, such as ``ImageSets/Main/test.txt``: only these images are read, in this order.
    """
    classes, image_set = options.classes, options.image_set
    if options.class_order == ANNOTATIONS:
        raise ResultFileError(f"{folder.name}: VOC annotations have no order of classes; labels follow classes=[...]")
    if (folder / "Annotations").is_dir():
        folder = folder / "Annotations"
    files, image_set_sha256 = annotation_files(folder, ".xml", image_set)
    annotations = _read_files(folder, files)
    images, names, boxes, difficult = zip(*annotations.objects) if annotations.objects else ((),) * 4
    if classes is None:
        raise ResultFileError(
            f"{folder.name}: VOC annotations do not define the label of a class; list all classes of the model in the "
            "order of its labels with classes=[...], or give the config as ground_truth=... (the folder has objects of "
            f"{listing('class', sorted(set(names))) if names else 'no class'})"
        )
    labels = lookup(names, {name: label for label, name in enumerate(classes)})
    corners, crowd = np.array(boxes, dtype=np.float64).reshape(-1, 4), np.array(difficult, dtype=bool)
    objects = GroundTruths(np.array(images, dtype=np.int64), corners, labels, crowd=crowd)
    keep, row_counts = RowCounts.select(
        {SWAPPED: has_swapped_corners(objects.geometry), "class not chosen": labels < 0}
    )
    return AnnotationSet(
        source=folder.name,
        image_ids=annotations.image_ids,
        image_names=annotations.image_names,
        image_sizes=np.array(annotations.image_sizes, dtype=np.int64),
        objects=objects.take(keep),
        row_counts=row_counts,
        classes=tuple(classes),
        class_order=CLASSES,
        images_ordered=image_set is not None,
        sha256=annotations.sha256,
        image_set_sha256=image_set_sha256,
    )


FORMATS = (
    Format(
        "a folder of VOC annotations",
        holds("*.xml", "Annotations/*.xml"),
        GROUND_TRUTH,
        _read,
        on_disk=True,
        options=("class_order", "image_set"),
    ),
)
