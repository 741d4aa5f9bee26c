"""Ground truth from COCO annotations or a folder of VOC files."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np

from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError
from mm_metrics_plugin.functional.detection.boxes import Boxes
from mm_metrics_plugin.functional.detection.data import GroundTruths
from mm_metrics_plugin.io.class_order import (
    ANNOTATIONS,
    CLASS_ORDERS,
    CLASSES,
    coco_categories,
    describe_orders,
    first_ten,
)
from mm_metrics_plugin.io.files import PathLike, RowCounts, column, identities, numbers, read_bytes, read_json

ImageId = Union[int, str]
DEEPEST = 64  # levels of XML


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The ground-truth objects of many images, flattened.

    Args:
        source: Name of the file or folder.
        image_ids: Id of each image, in the order of the file.
        image_names: File name of each image, "" where unknown.
        image_sizes: (images, 2) height and width, 0 where unknown.
        objects: The objects; ``image`` counts images in the order above. Crowd, difficult and ignored
            objects are marked as ``crowd``.
        row_counts: Annotations read, used and dropped.
        classes: Class names in the order of the labels, None where the file has none.
        category_ids: COCO's category id of each label, None where the file lacks the class.
        unselected_categories: Names by category id of the classes of the file that were not chosen.
        class_order: What labels follow: ``'annotations'`` (the order of the file's categories), ``'classes'``
            (the given class names), ``'metainfo'`` (those of a config), or ``''`` where the file names no classes.
        class_conflict: The error message for results with labels if two known class orders differ, else ``''``.
        images_ordered: Whether the images are in the order of the test set, so that results without image ids
            can be joined by position.
        image_folders: The folders of a config that its images are in. Their names are then paths.
    """

    source: str
    image_ids: Tuple[ImageId, ...]
    image_names: Tuple[str, ...]
    image_sizes: np.ndarray
    objects: GroundTruths
    row_counts: RowCounts
    classes: Optional[Tuple[str, ...]] = None
    category_ids: Optional[Tuple[Optional[ImageId], ...]] = None
    unselected_categories: Mapping[ImageId, str] = field(default_factory=dict)
    class_order: str = ""
    class_conflict: str = ""
    images_ordered: bool = True
    image_folders: Tuple[str, ...] = ()


def distinct_ids(ids: Sequence[ImageId], paths: Sequence[str]) -> Sequence[ImageId]:
    """The ids, or the paths where ids repeat and paths do not, as in a ConcatDataset of files that share ids.

    Example:
        >>> distinct_ids([1, 2, 1], ["a/1.jpg", "a/2.jpg", "b/1.jpg"])
        ['a/1.jpg', 'a/2.jpg', 'b/1.jpg']
        >>> distinct_ids([1, 2, 1], ["", "", ""])
        [1, 2, 1]
    """
    repeat = len(set(ids)) < len(ids) and len(set(paths)) == len(paths) and all(paths)
    return paths if repeat else ids


def read_ground_truth(
    path: PathLike,
    *,
    classes: Optional[Sequence[str]] = None,
    class_order: Optional[str] = None,
    image_set: Optional[PathLike] = None,
) -> GroundTruth:
    """Read COCO annotations (a ``.json`` file) or VOC annotations (a folder of ``.xml`` files).

    Args:
        path: The file or folder.
        classes: Names of the classes to use. Labels of VOC files follow this order; VOC files
            define none, so it must be given. For COCO files the default is all classes.
        class_order: For COCO files: ``'annotations'`` numbers labels in the order of the file's
            categories, as mmdet's ``CocoDataset`` does whatever the order of ``classes``; ``'classes'`` numbers them in
            the order of ``classes``, which may then hold names that the file lacks. By default as ``'annotations'``,
            and results with labels are refused if the orders differ.
        image_set: For VOC folders: the list of the test set, one image id per line, such as
            ``ImageSets/Main/test.txt``. Only these images are read, in this order. By default all files of the folder.

    Raises:
        ResultFileError: The file is damaged, of another kind, or has no such class.

    Example:
        >>> import json, tempfile
        >>> content = {
        ...     "images": [{"id": 7, "file_name": "a.jpg", "height": 48, "width": 64}],
        ...     "categories": [{"id": 3, "name": "cat"}],
        ...     "annotations": [
        ...         {"id": 1, "image_id": 7, "category_id": 3, "bbox": [0, 0, 10, 10], "area": 80, "iscrowd": 0},
        ...         {"id": 2, "image_id": 7, "category_id": 3, "bbox": [0, 0, 10, 0], "area": 0, "iscrowd": 0}]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "instances.json")
        ...     _ = path.write_text(json.dumps(content))
        ...     truth = read_ground_truth(path)
        >>> truth.classes, truth.image_ids, truth.objects.labels
        (('cat',), (7,), array([0]))
        >>> truth.row_counts.to_dict()
        {'read': 2, 'used': 1, 'dropped': {'empty': 1}}
    """
    if isinstance(classes, str):
        raise ResultFileError(f"'classes' must be a list of names (found {classes!r})")
    path = Path(path)
    if class_order is not None and class_order not in CLASS_ORDERS:
        raise ResultFileError(f"'class_order' must be one of {', '.join(CLASS_ORDERS)} (found {class_order!r})")
    if path.is_dir():
        if class_order == ANNOTATIONS:
            raise ResultFileError(f"{path.name}: VOC annotations have no order of classes; labels follow --classes")
        return _read_voc(path, classes, image_set)
    if image_set is not None:
        raise ResultFileError(f"{path.name}: --image-set belongs to a folder of VOC files; this file lists its images")
    if path.suffix.lower() != ".json":
        raise ResultFileError(f"{path.name}: ground truth is a COCO .json file or a folder of VOC .xml files")
    return ground_truth_from_coco(read_json(path), path.name, classes=classes, class_order=class_order)


# -- COCO ------------------------------------------------------------------------------------------------------------


def ground_truth_from_coco(
    content: Any, source: str, *, classes: Optional[Sequence[str]] = None, class_order: Optional[str] = None
) -> GroundTruth:
    """Ground truth from a dict of COCO annotations.

    Args:
        content: A dict with the lists ``images``, ``annotations`` and ``categories``.
        source: The name in messages.
        classes: As in :func:`read_ground_truth`.
        class_order: As in :func:`read_ground_truth`.

    Example:
        >>> content = {"images": [], "annotations": [], "categories": [{"id": 3, "name": "cat"}]}
        >>> ground_truth_from_coco(content, "annotations").classes
        ('cat',)
    """
    for part in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(part), list):
            raise ResultFileError(
                f"{source}: is no COCO annotation file (expected lists 'images', 'annotations' and 'categories'; "
                f"{_found(content)})"
            )
    images, annotations = content["images"], content["annotations"]

    image_ids = identities(column(images, "id", source, "image"), "id", source, "image")
    _refuse_repeated(image_ids, "image ids", source)
    sizes = np.stack([numbers(column(images, side, source, "image"), side, source, "image") for side in SIDES], axis=1)
    names = [name if isinstance(name, str) else "" for name in (image.get("file_name", "") for image in images)]

    category_ids, category_names = coco_categories(content, source)
    if not category_ids:
        raise ResultFileError(f"{source}: 'categories' must list at least one class (found an empty list)")
    _refuse_repeated(category_ids, "category ids", source)
    repeated = sorted(name for name, number in Counter(category_names).items() if number > 1)
    if repeated:
        warnings.warn(
            f"{source}: several categories have the same name ({first_ten(repeated)}); each is a class of its own",
            MetricWarning,
        )
    names_of_labels, conflict = _label_names(category_names, classes, class_order, source)
    if class_order == CLASSES:
        place = {name: label for label, name in enumerate(names_of_labels)}
        labels_of = {one: place[name] for one, name in zip(category_ids, category_names) if name in place}
    else:
        wanted = set(names_of_labels)
        chosen = [one for one, name in zip(category_ids, category_names) if name in wanted]
        labels_of = {one: label for label, one in enumerate(chosen)}
    ids_of_labels = {label: one for one, label in labels_of.items()}

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

    # Objects thinner than a pixel and those whose area is 0 are kept, as in pycocotools. mmdet's CocoDataset leaves
    # them out. Boxes that nothing can overlap and annotations marked 'ignore' are left out, as in mmdet, and counted.
    left, top, width, height = boxes.T
    image_height, image_width = sizes[image].T if len(image_ids) else np.zeros((2, len(image)))
    inside_width = np.maximum(0, np.minimum(left + width, image_width) - np.maximum(left, 0))
    inside_height = np.maximum(0, np.minimum(top + height, image_height) - np.maximum(top, 0))
    reasons = {
        "image not in the file": image < 0,
        "marked 'ignore'": ignore,
        "empty": (width <= 0) | (height <= 0) | (area < 0),
        "outside the image": inside_width * inside_height == 0,
        "category not in the file": ~listed,
        "class not chosen": label < 0,
    }
    keep = ~np.any(list(reasons.values()), axis=0)
    return GroundTruth(
        source=source,
        image_ids=tuple(image_ids),
        image_names=tuple(names),
        image_sizes=np.clip(sizes, 0, 1 << 40).astype(np.int64),
        objects=GroundTruths(image[keep], Boxes(boxes[keep], "xywh"), label[keep], crowd=crowd[keep], area=area[keep]),
        row_counts=RowCounts.count(keep, reasons),
        classes=names_of_labels,
        category_ids=tuple(ids_of_labels.get(label) for label in range(len(names_of_labels))),
        unselected_categories={one: name for one, name in zip(category_ids, category_names) if one not in labels_of},
        class_order=class_order or ANNOTATIONS,
        class_conflict=conflict,
    )


SIDES = ("height", "width")


def _found(content: Any) -> str:
    if isinstance(content, list):
        return "found a list, as COCO results are; GROUND_TRUTH comes first"
    if isinstance(content, dict):
        return f"found {', '.join(sorted(map(str, content))[:6]) or 'nothing'}"
    return f"found a {type(content).__name__}"


def _places(values: List[Any], places: Dict[Any, int]) -> np.ndarray:
    """The index of each value, -1 if it has none."""
    try:
        return np.array([places.get(value, -1) for value in values], dtype=np.int64)
    except TypeError:  # lists and dicts are not hashable
        return np.array([places.get(v, -1) if isinstance(v, (int, str)) else -1 for v in values], dtype=np.int64)


def _label_names(
    names: Sequence[str], classes: Optional[Sequence[str]], class_order: Optional[str], source: str
) -> Tuple[Tuple[str, ...], str]:
    """The class name of each label, and the error message for results with labels if two class orders differ."""
    if class_order == CLASSES:
        if classes is None:
            raise ResultFileError("--class-order classes: the classes must be given (--classes)")
        wanted = set(classes)
        chosen = tuple(name for name in names if name in wanted)
        if len(set(chosen)) < len(chosen):
            twice = next(name for name in chosen if chosen.count(name) > 1)
            raise ResultFileError(f"{source}: has more than one category of the name {twice!a}")
        if not chosen:
            raise ResultFileError(f"{source}: has no {listing('class', classes)}; it has {listing('class', names)}")
        return tuple(classes), ""
    if classes is None:
        return tuple(names), ""
    known, wanted = set(names), set(classes)
    unknown = [name for name in classes if name not in known]
    if unknown:
        raise ResultFileError(f"{source}: has no {listing('class', unknown)}; it has {listing('class', names)}")
    chosen = tuple(name for name in names if name in wanted)
    if chosen == tuple(classes) or class_order is not None:
        return chosen, ""
    return chosen, (
        f"{describe_orders(chosen, source, classes, '--classes')}. Say which order the labels follow: --class-order "
        "annotations (mmdet's CocoDataset numbers them so) or --class-order classes"
    )


def _refuse_repeated(values: Sequence[Any], what: str, source: str) -> None:
    if len(set(values)) < len(values):
        seen: Set[Any] = set()
        repeated = [value for value in values if value in seen or seen.add(value)]  # type: ignore[func-returns-value]
        raise ResultFileError(f"{source}: {len(repeated)} {what} are repeated ({first_ten(repeated)})")


def listing(noun: str, names: Sequence[Any]) -> str:
    """One name, or how many and the first ten, for a message.

    Example:
        >>> listing("class", ["cat"]), listing("class", ["cat", "dog"])
        ("class 'cat'", "2 classes ('cat', 'dog')")
    """
    if len(names) == 1:
        return f"{noun} {names[0]!a}"
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{len(names)} {plural} ({first_ten(names)})"


# -- VOC -------------------------------------------------------------------------------------------------------------


def _read_voc(folder: Path, classes: Optional[Sequence[str]], image_set: Optional[PathLike]) -> GroundTruth:
    if (folder / "Annotations").is_dir():
        folder = folder / "Annotations"
    files = sorted(folder.glob("*.xml")) if image_set is None else _files_of(Path(image_set), folder)
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
        if root.tag != "annotation":
            raise ResultFileError(
                f"{path.name}: is no VOC annotation (expected the root element 'annotation'; found {root.tag[:60]!a})"
            )
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
    if classes is None:
        raise ResultFileError(
            f"{folder.name}: VOC annotations do not say which label a class has; list all classes of the model in the "
            "order of its labels with --classes, or give the config as GROUND_TRUTH (the folder has objects of "
            f"{listing('class', sorted(set(names))) if names else 'no class'})"
        )
    labels = _places(names, {name: label for label, name in enumerate(classes)})
    objects = GroundTruths(
        np.array(image, dtype=np.int64),
        np.array(boxes, dtype=np.float64).reshape(-1, 4),
        labels,
        crowd=np.array(difficult, dtype=bool),
    )
    reasons = {SWAPPED: has_swapped_corners(objects.boxes.array), "class not chosen": labels < 0}
    return GroundTruth(
        source=folder.name,
        image_ids=tuple(path.stem for path in files),
        image_names=tuple(image_names),
        image_sizes=np.array(sizes, dtype=np.int64),
        objects=objects.take(~np.any(list(reasons.values()), axis=0)),
        row_counts=RowCounts.count(labels, reasons),
        classes=tuple(classes),
        class_order=CLASSES,
        images_ordered=image_set is not None,
    )


SWAPPED = "corners swapped"


def has_swapped_corners(boxes: np.ndarray) -> np.ndarray:
    """Which boxes (left, top, right, bottom) have negative width or height. Nothing can match them.

    Example:
        >>> has_swapped_corners(np.array([[0, 0, 9, 9], [9, 0, 0, 9], [5, 5, 5, 9]]))
        array([False,  True, False])
    """
    return (boxes[:, 2] < boxes[:, 0]) | (boxes[:, 3] < boxes[:, 1])


def _files_of(image_set: Path, folder: Path) -> List[Path]:
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
    _refuse_repeated(ids, "image ids", image_set.name)
    present = {path.stem for path in folder.glob("*.xml")}
    missing = [one for one in ids if one not in present]
    if missing:
        raise ResultFileError(f"{image_set.name}: {listing('image', missing)} without annotations in {folder.name}")
    return [folder / f"{one}.xml" for one in ids]


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
    """Parse XML without a DOCTYPE, so that there are no entities to expand or fetch."""
    builder = TreeBuilder()
    parser = expat.ParserCreate()
    depth = 0

    def start(tag: str, attributes: Any) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise ResultFileError(f"{path.name}: is nested deeper than {DEEPEST} levels, which VOC files never are")
        builder.start(tag, {})  # VOC files have no attributes

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    handlers: Dict[str, Callable[..., Any]] = {
        "StartElementHandler": start,
        "EndElementHandler": end,
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


# -- comparison -------------------------------------------------------------------------------------------------------


def check_same_ground_truth(first: GroundTruth, second: GroundTruth) -> None:
    """Raise an error if two ground truths differ in an image that both contain.

    The order of images, and of the objects of an image, does not matter. Images in only one of them are
    checked when results are joined.

    Args:
        first: Ground truth in the results of the first run.
        second: Ground truth in the results of another run.

    Raises:
        ResultFileError: They differ. The message names the first such image, in the order of ``first``.

    Example:
        >>> from mm_metrics_plugin.functional.detection.data import GroundTruths
        >>> def truth(source, ids, labels):
        ...     objects = GroundTruths([0, 1], [[0, 0, 9, 9], [0, 0, 5, 5]], labels)
        ...     return GroundTruth(source, ids, ("", ""), np.zeros((2, 2), int), objects, RowCounts(2, 2))
        >>> check_same_ground_truth(truth("a.pkl", (7, 8), [3, 3]), truth("b.pkl", (7, 8), [3, 4]))
        Traceback (most recent call last):
        mm_metrics_plugin.exceptions.ResultFileError: a.pkl and b.pkl: differ in the ground truth of image 8 (class, \
box or crowd flag of object number 0); give the annotations as GROUND_TRUTH instead of -
    """
    number = {image_id: at for at, image_id in enumerate(first.image_ids)}
    mine, theirs = (_sorted_rows(one, number) for one in (first, second))
    shared = np.zeros(len(number) + 1, dtype=bool)
    shared[[number.get(image_id, -1) for image_id in second.image_ids]] = True
    shared[-1] = False
    mine, theirs = (rows[shared[rows[:, 0].astype(np.int64)]] for rows in (mine, theirs))
    counts = [np.bincount(rows[:, 0].astype(np.int64), minlength=len(number)) for rows in (mine, theirs)]
    other = np.flatnonzero(counts[0] != counts[1])
    length = min(len(mine), len(theirs))
    rows = np.flatnonzero((mine[:length] != theirs[:length]).any(axis=1))
    image = min([*other[:1].tolist(), *mine[rows[:1], 0].astype(int).tolist()], default=None)
    if image is None:
        return
    if counts[0][image] != counts[1][image]:
        what = f"{counts[0][image]} and {counts[1][image]} objects"
    else:
        what = f"class, box or crowd flag of object number {rows[0] - int(counts[0][:image].sum())}"
    raise ResultFileError(
        f"{first.source} and {second.source}: differ in the ground truth of image {first.image_ids[image]!a} ({what}); "
        "give the annotations as GROUND_TRUTH instead of -"
    )


def _sorted_rows(ground_truth: GroundTruth, number: Dict[ImageId, int]) -> np.ndarray:
    """Image, class, crowd flag and box of every object, sorted; images not in ``number`` are last."""
    objects = ground_truth.objects
    place = np.array([number.get(image_id, len(number)) for image_id in ground_truth.image_ids], dtype=np.int64)
    columns: Any = [place[objects.image], objects.labels, objects.crowd, *objects.boxes.array.T.astype(np.float64)]
    rows = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    return rows[np.lexsort(rows.T[::-1])]
