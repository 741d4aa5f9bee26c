"""Pascal VOC annotations: a folder of XML files, one per image."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Tuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from mm_metrics_plugin.exceptions import ResultFileError, listing
from mm_metrics_plugin.io.arrays import check_unique
from mm_metrics_plugin.io.files import PathLike, read_bytes

DEEPEST = 64  # levels of XML


class VocAnnotations(NamedTuple):
    """The annotations of a folder.

    Args:
        image_ids: Id of each image.
        image_names: File name of each image.
        image_sizes: Height and width of each image.
        objects: Index of the image, class name, box (left, top, right, bottom) and difficult flag of each object.
    """

    image_ids: Tuple[str, ...]
    image_names: Tuple[str, ...]
    image_sizes: List[List[int]]
    objects: List[Tuple[int, str, List[int], bool]]


def read_voc(folder: Path, image_set: Optional[PathLike]) -> VocAnnotations:
    """Read the files of a folder: those that the file ``image_set`` lists, in its order, or by default all."""
    files = sorted(folder.glob("*.xml")) if image_set is None else _listed_files(Path(image_set), folder)
    if not files:
        raise ResultFileError(f"{folder.name}: holds no .xml files")
    names: List[str] = []
    sizes: List[List[int]] = []
    objects: List[Tuple[int, str, List[int], bool]] = []
    for number, path in enumerate(files):
        root = _parse(path)
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
    return VocAnnotations(tuple(path.stem for path in files), tuple(names), sizes, objects)


def _listed_files(image_set: Path, folder: Path) -> List[Path]:
    """The annotation file of every image of a list, in its order."""
    try:
        lines = read_bytes(image_set).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ResultFileError(
            f"{image_set.name}: must be text with one image id per line (found something else)"
        ) from None
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise ResultFileError(f"{image_set.name}: lists no image")
    check_unique(ids, "image id", image_set.name)
    present = {path.stem for path in folder.glob("*.xml")}
    missing = [image_id for image_id in ids if image_id not in present]
    if missing:
        raise ResultFileError(f"{image_set.name}: {listing('image', missing)} without annotations in {folder.name}")
    return [folder / f"{image_id}.xml" for image_id in ids]


def _integer(parent: Element, tag: str, path: Path) -> int:
    text = parent.findtext(tag)
    try:
        value = int(float(text or ""))
    except (ValueError, OverflowError):
        raise ResultFileError(f"{path.name}: '{tag}' must be a number (found {ascii(text)[:60]})") from None
    if abs(value) > 1 << 40:
        raise ResultFileError(f"{path.name}: '{tag}' must be a number of pixels (found {ascii(text)[:60]})")
    return value


def _parse(path: Path) -> Element:
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
        parser.Parse(read_bytes(path), True)
        return builder.close()
    except (expat.ExpatError, LookupError) as error:  # LookupError: an unknown encoding
        raise ResultFileError(f"{path.name}: is not XML ({error})") from None
