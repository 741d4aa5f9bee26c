"""What is really in the images: COCO annotations, or a folder of VOC files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.functional.detection_batch import Objects
from mm_metrics_plugin.io.json_file import column, identities, numbers, read_json
from mm_metrics_plugin.io.reading import PathLike, read_bytes
from mm_metrics_plugin.io.tally import Tally

ImageId = Union[int, str]


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """Objects of many images, laid flat.

    Args:
        source (str): Name of the file or folder.
        image_ids (Tuple): Id of each image, in the order of the file.
        image_names (Tuple[str, ...]): File name of each image, "" where unknown.
        image_sizes (np.ndarray): (images, 2) height and width, 0 where unknown.
        objects (Objects): The objects; ``image`` counts images in the order above. Crowd, difficult and ignored
            objects are marked as ``crowd``.
        tally (Tally): Annotations read, used and dropped.
        classes (Tuple[str, ...], optional): Class names in the order of the labels, None where the file has none.
        category_ids (Tuple, optional): COCO's category id of each label.
    """

    source: str
    image_ids: Tuple[ImageId, ...]
    image_names: Tuple[str, ...]
    image_sizes: np.ndarray
    objects: Objects
    tally: Tally
    classes: Optional[Tuple[str, ...]] = None
    category_ids: Optional[Tuple[ImageId, ...]] = None
    unselected_category_ids: Tuple[ImageId, ...] = ()


def read_ground_truth(path: PathLike, *, classes: Optional[Sequence[str]] = None) -> GroundTruth:
    """Read COCO annotations (a ``.json`` file) or VOC annotations (a folder of ``.xml`` files).

    Args:
        path (str or PathLike): The file or folder.
        classes (Sequence[str], optional): Names of the classes to use; all of them by default. As in mmdet, labels
            of COCO files follow the order of the file's categories whatever the order given here, and labels of VOC
            files follow the order given here (the alphabet by default).

    Raises:
        ResultFileError: The file is damaged, of another kind, or has no such class.

    Examples:
        >>> import json, tempfile
        >>> content = {
        ...     "images": [{"id": 7, "file_name": "a.jpg", "height": 48, "width": 64}],
        ...     "categories": [{"id": 3, "name": "cat"}],
        ...     "annotations": [
        ...         {"id": 1, "image_id": 7, "category_id": 3, "bbox": [0, 0, 10, 10], "area": 80, "iscrowd": 0},
        ...         {"id": 2, "image_id": 7, "category_id": 3, "bbox": [0, 0, 10, 0.5], "area": 5, "iscrowd": 0}]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "instances.json")
        ...     _ = path.write_text(json.dumps(content))
        ...     truth = read_ground_truth(path)
        >>> truth.classes, truth.image_ids, truth.objects.labels
        (('cat',), (7,), array([0]))
        >>> truth.tally.to_dict()
        {'read': 2, 'used': 1, 'dropped': {'empty or thinner than a pixel': 1}}
    """
    if isinstance(classes, str):
        raise ResultFileError(f"'classes' must be a list of names (found {classes!r})")
    path = Path(path)
    if path.is_dir():
        return _read_voc(path, classes)
    if path.suffix.lower() != ".json":
        raise ResultFileError(f"{path.name}: ground truth is a COCO .json file or a folder of VOC .xml files")
    return _read_coco(read_json(path), path.name, classes)


# -- COCO ------------------------------------------------------------------------------------------------------------


def _read_coco(content: Any, source: str, classes: Optional[Sequence[str]]) -> GroundTruth:
    for part in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(part), list):
            raise ResultFileError(
                f"{source}: is no COCO annotation file (expected lists 'images', 'annotations' and 'categories'; "
                f"{_found(content)})"
            )
    images, annotations, categories = content["images"], content["annotations"], content["categories"]

    image_ids = identities(column(images, "id", source, "image"), "id", source, "image")
    _refuse_repeated(image_ids, "image ids", source)
    sizes = np.stack([numbers(column(images, side, source, "image"), side, source, "image") for side in SIDES], axis=1)
    names = [name if isinstance(name, str) else "" for name in (image.get("file_name", "") for image in images)]

    category_ids = identities(column(categories, "id", source, "category"), "id", source, "category")
    _refuse_repeated(category_ids, "category ids", source)
    category_names = column(categories, "name", source, "category")
    chosen = _choose([str(name) for name in category_names], classes, source)
    labels_of = {category_ids[at]: label for label, at in enumerate(chosen)}

    if any("id" in row for row in annotations if isinstance(row, dict)):
        _refuse_repeated(
            identities(column(annotations, "id", source, "annotation"), "id", source, "annotation"),
            "annotation ids",
            source,
        )
    boxes = numbers(column(annotations, "bbox", source, "annotation"), "bbox", source, "annotation", 4)
    image_of = {image_id: number for number, image_id in enumerate(image_ids)}
    image = _places(column(annotations, "image_id", source, "annotation"), image_of)
    categories_of = column(annotations, "category_id", source, "annotation")
    label = _places(categories_of, labels_of)
    listed = _places(categories_of, dict.fromkeys(category_ids, 0)) >= 0
    areas = [row["area"] if "area" in row else row["bbox"][2] * row["bbox"][3] for row in annotations]
    area = numbers(areas, "area", source, "annotation")
    crowd = np.array([bool(row.get("iscrowd", False)) for row in annotations], dtype=bool)
    ignore = np.array([bool(row.get("ignore", False)) for row in annotations], dtype=bool)

    # The rules of mmdet's CocoDataset, so that counts agree with what a model was tested on.
    left, top, width, height = boxes.T
    image_height, image_width = sizes[image].T if len(image_ids) else np.zeros((2, len(image)))
    inside_width = np.maximum(0, np.minimum(left + width, image_width) - np.maximum(left, 0))
    inside_height = np.maximum(0, np.minimum(top + height, image_height) - np.maximum(top, 0))
    reasons = {
        "image not in the file": image < 0,
        "marked 'ignore'": ignore,
        "outside the image": inside_width * inside_height == 0,
        "empty or thinner than a pixel": (area <= 0) | (width < 1) | (height < 1),
        "category not in the file": ~listed,
        "class not chosen": label < 0,
    }
    keep = ~np.any(list(reasons.values()), axis=0)
    return GroundTruth(
        source=source,
        image_ids=tuple(image_ids),
        image_names=tuple(names),
        image_sizes=np.clip(sizes, 0, 1 << 40).astype(np.int64),
        objects=Objects(image[keep], boxes[keep], label[keep], crowd=crowd[keep], area=area[keep], box_format="xywh"),
        tally=Tally.of(keep, reasons),
        classes=tuple(str(category_names[at]) for at in chosen),
        category_ids=tuple(category_ids[at] for at in chosen),
        unselected_category_ids=tuple(set(category_ids) - set(labels_of)),
    )


SIDES = ("height", "width")


def _found(content: Any) -> str:
    if isinstance(content, list):
        return "found a list, as COCO results are"
    if isinstance(content, dict):
        return f"found {', '.join(sorted(map(str, content))[:6]) or 'nothing'}"
    return f"found a {type(content).__name__}"


def _places(values: List[Any], places: Dict[Any, int]) -> np.ndarray:
    """Where each value stands, -1 where nowhere."""
    try:
        return np.array([places.get(value, -1) for value in values], dtype=np.int64)
    except TypeError:  # a list or dict is nobody's id
        return np.array([places.get(v, -1) if isinstance(v, (int, str)) else -1 for v in values], dtype=np.int64)


def _choose(names: List[str], classes: Optional[Sequence[str]], source: str) -> List[int]:
    if classes is None:
        return list(range(len(names)))
    unknown = [name for name in classes if name not in names]
    if unknown:
        raise ResultFileError(f"{source}: has no {listing('class', unknown)}; it has {listing('class', names)}")
    return [at for at, name in enumerate(names) if name in classes]


def _refuse_repeated(values: List[Any], what: str, source: str) -> None:
    if len(set(values)) < len(values):
        seen: set = set()
        repeated = [value for value in values if value in seen or seen.add(value)]  # type: ignore[func-returns-value]
        raise ResultFileError(f"{source}: {len(repeated)} {what} come twice ({first_ten(repeated)})")


def first_ten(values: Sequence[Any]) -> str:
    """The first ten of a list for a message.

    Examples:
        >>> first_ten(range(12))
        '0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...'
    """
    return ", ".join(ascii(value) for value in values[:10]) + (", ..." if len(values) > 10 else "")


def listing(noun: str, names: Sequence[Any]) -> str:
    """One name, or how many and the first ten, for a message.

    Examples:
        >>> listing("class", ["cat"]), listing("class", ["cat", "dog"])
        ("class 'cat'", "2 classes ('cat', 'dog')")
    """
    if len(names) == 1:
        return f"{noun} {names[0]!a}"
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{len(names)} {plural} ({first_ten(names)})"


# -- VOC -------------------------------------------------------------------------------------------------------------


def _read_voc(folder: Path, classes: Optional[Sequence[str]]) -> GroundTruth:
    if (folder / "Annotations").is_dir():
        folder = folder / "Annotations"
    files = sorted(folder.glob("*.xml"))
    if not files:
        raise ResultFileError(f"{folder.name}: holds no .xml files")
    image: List[int] = []
    names: List[str] = []
    boxes: List[List[int]] = []
    difficult: List[bool] = []
    image_names: List[str] = []
    sizes: List[List[int]] = []
    for number, path in enumerate(files):
        root = _parse(path)
        size = root.find("size")
        sizes.append([0, 0] if size is None else [_whole(size, side, path) for side in SIDES])
        image_names.append(root.findtext("filename") or f"{path.stem}.jpg")
        for element in root.findall("object"):
            corners = element.find("bndbox")
            name = element.findtext("name")
            if corners is None or name is None:
                raise ResultFileError(f"{path.name}: object number {len(boxes)} has no name or no bndbox")
            image.append(number)
            names.append(name)
            # VOC counts pixels from 1; mmdet's XMLDataset takes one off all four edges, and so does this.
            boxes.append([_whole(corners, edge, path) - 1 for edge in ("xmin", "ymin", "xmax", "ymax")])
            difficult.append(element.find("difficult") is not None and bool(_whole(element, "difficult", path)))
    chosen = sorted(set(names)) if classes is None else list(classes)
    labels = _places(names, {name: label for label, name in enumerate(chosen)})
    keep = labels >= 0
    return GroundTruth(
        source=folder.name,
        image_ids=tuple(path.stem for path in files),
        image_names=tuple(image_names),
        image_sizes=np.array(sizes, dtype=np.int64),
        objects=Objects(
            np.array(image, dtype=np.int64)[keep],
            np.array(boxes, dtype=np.float64).reshape(-1, 4)[keep],
            labels[keep],
            crowd=np.array(difficult, dtype=bool)[keep],
        ),
        tally=Tally.of(keep, {"class not chosen": ~keep}),
        classes=tuple(chosen),
    )


def _whole(parent: Element, tag: str, path: Path) -> int:
    text = parent.findtext(tag)
    try:
        value = int(float(text or ""))
    except (ValueError, OverflowError):
        raise ResultFileError(f"{path.name}: '{tag}' must be a number (found {ascii(text)[:60]})") from None
    if abs(value) > 1 << 40:
        raise ResultFileError(f"{path.name}: '{tag}' must be a number of pixels (found {ascii(text)[:60]})")
    return value


def _parse(path: Path) -> Element:
    """Parse XML that declares nothing: without a DOCTYPE there are no entities to expand or fetch."""
    builder = TreeBuilder()
    parser = expat.ParserCreate()
    handlers: Dict[str, Callable[..., Any]] = {
        "StartElementHandler": builder.start,
        "EndElementHandler": builder.end,
        "CharacterDataHandler": builder.data,
    }
    for name, handler in handlers.items():
        setattr(parser, name, handler)

    def refuse(*declaration: Any) -> None:
        raise ResultFileError(f"{path.name}: declares a document type or entities, which VOC files never need")

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(read_bytes(path), True)
        return builder.close()
    except expat.ExpatError as error:
        raise ResultFileError(f"{path.name}: is not XML ({error})") from None
