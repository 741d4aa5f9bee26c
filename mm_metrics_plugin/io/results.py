"""Detection results: all formats of result files, read into one layout.

================  ===============================================================================================
``mmdet``         list of dicts with ``pred_instances`` (mmdet 3.x, mmyolo); ground truth may be inside, as
                  ``gt_instances`` and ``ignored_instances`` (mmyolo) or ``instances`` (OpenImages, DSDL)
``mmdet 2``       list of one list of (n, 5) arrays per class, or of tuples of that and masks; no image ids
``coco``          JSON list of ``image_id``, ``category_id``, ``bbox`` and ``score``
================  ===============================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.functional.detection.boxes import Boxes
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths
from mm_metrics_plugin.io.files import PathLike, RowCounts, column, identities, numbers, read_json, trim_memory
from mm_metrics_plugin.io.ground_truth import SWAPPED, GroundTruth, ImageId, distinct_ids, has_swapped_corners
from mm_metrics_plugin.io.safe_pickle import read_pickle
from mm_metrics_plugin.io.values import score_precision, to_array

LEAST_BYTES_PER_BOX = 8  # four numbers of half precision


@dataclass(frozen=True, eq=False)
class DetectionResults:
    """The detections of many images, flattened.

    Args:
        source: Name of the file.
        dialect: ``'mmdet'``, ``'mmdet 2'`` or ``'coco'``.
        num_images: Images in the file.
        image_ids: Id of each image; None in ``mmdet 2`` files, which have only an order.
        detections: ``image`` counts images in the order of the file. Labels are class indices; in
            ``coco`` files, positions in ``category_ids``.
        row_counts: Detections read, used and dropped.
        image_names: Path of each image, "" where unknown.
        image_sizes: (images, 2) height and width, 0 where unknown.
        category_ids: The category ids of a ``coco`` file.
        num_classes: Number of classes, if the file has it.
        ground_truth: The ground truth in the file, if it has one.
        file_size: In bytes; None if the content comes from no file.
        masks: Detections that have a mask, which is not read.
    """

    source: str
    dialect: str
    num_images: int
    image_ids: Optional[Tuple[ImageId, ...]]
    detections: Detections
    row_counts: RowCounts
    image_names: Tuple[str, ...]
    image_sizes: np.ndarray
    category_ids: Optional[Tuple[ImageId, ...]] = None
    num_classes: Optional[int] = None
    ground_truth: Optional[GroundTruth] = None
    file_size: Optional[int] = None
    masks: int = 0


def read_results(
    path: PathLike, *, trust: bool = False, on_progress: Optional[Callable[[float], None]] = None
) -> DetectionResults:
    """Read the detections in a ``.pkl`` or ``.json`` file.

    Args:
        path: The file.
        trust: Read a pickle with plain pickle, which runs whatever is in it.
        on_progress: Receives the fraction of a pickle that was read.

    Raises:
        UnsafePickleError: The pickle asks for something that data never needs.
        ResultFileError: The file is damaged, or is no file of detections.

    Example:
        >>> import pickle, tempfile
        >>> instances = {"bboxes": np.array([[0, 0, 9, 9.5]]), "scores": np.array([0.9]), "labels": np.array([3])}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "results.pkl")
        ...     _ = path.write_bytes(pickle.dumps([{"img_id": 7, "pred_instances": instances}], protocol=2))
        ...     results = read_results(path)
        >>> results.dialect, results.image_ids, results.detections.labels, results.row_counts.used
        ('mmdet', (7,), array([3]), 1)
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind == ".json":
        return replace(_read_coco(read_json(path), path.name), file_size=path.stat().st_size)
    if kind not in (".pkl", ".pickle"):
        raise ResultFileError(f"{path.name}: results are a .pkl, .pickle or .json file (found {kind or 'no suffix'!r})")
    content, size = read_pickle(path, trust=trust, on_progress=on_progress), path.stat().st_size
    results = results_from_images(content, path.name, file_size=size)
    del content
    trim_memory()
    return results


def results_from_content(content: Any, source: str) -> DetectionResults:
    """Detections that are in memory, in any of the dialects.

    Example:
        >>> rows = [{"image_id": 7, "category_id": 3, "bbox": [0, 0, 9, 9], "score": 0.5}]
        >>> results_from_content(rows, "results").dialect
        'coco'
    """
    is_coco = isinstance(content, list) and content and isinstance(content[0], dict) and "category_id" in content[0]
    return _read_coco(content, source) if is_coco else results_from_images(content, source)


def results_from_images(content: Any, source: str, *, file_size: Optional[int] = None) -> DetectionResults:
    """Flatten the content of a result pickle.

    Args:
        content: One entry per image.
        source: The name in messages.
        file_size: Refuse more boxes than a file of this size can hold, before they are copied.

    Example:
        >>> one_class = [np.array([[0, 0, 9, 9, 0.5]])]
        >>> results_from_images([one_class, one_class], "results.pkl").dialect
        'mmdet 2'
    """
    if not isinstance(content, list) or not content:
        what = "an empty list" if isinstance(content, list) else f"a {type(content).__name__}"
        raise ResultFileError(f"{source}: must be a list with one entry per image (found {what})")
    first = content[0]
    most_boxes = None if file_size is None else file_size // LEAST_BYTES_PER_BOX
    if isinstance(first, dict):
        return replace(_Images(content, source, most_boxes).read(), file_size=file_size)
    if isinstance(first, (list, tuple)):
        return replace(_read_mmdet_2(content, source, most_boxes), file_size=file_size)
    raise ResultFileError(
        f"{source}: image number 0 must be a dict (mmdet 3.x) or a list of arrays (mmdet 2.x) "
        f"(found {type(first).__name__})"
    )


class _Images:
    """A list of dicts, one per image, as mmdet 3.x and mmyolo write it."""

    def __init__(self, images: List[Any], source: str, most_boxes: Optional[int]) -> None:
        self.images = images
        self.source = source
        self.most_boxes = most_boxes

    def read(self) -> DetectionResults:
        images, source = self.images, self.source
        for number, image in enumerate(images):
            if type(image) is not dict:
                raise ResultFileError(f"{source}: image number {number} must be a dict (found {type(image).__name__})")
        if "pred_instances" not in images[0]:
            hint = "; these are classification results" if "pred_score" in images[0] else ""
            raise ResultFileError(f"{source}: image number 0 has no 'pred_instances'{hint}")
        ids = [image.get("img_id") for image in images]
        ids = [int(one) if isinstance(one, np.integer) else one for one in ids]
        names = tuple(text_or_nothing(image.get("img_path")) for image in images)
        self.ids = distinct_ids(identities(ids, "img_id", source, "image"), names)
        rows = self._instances("pred_instances", ("bboxes", "scores", "labels"))
        detections = Detections(
            rows["image"], rows["bboxes"], rows["scores"], rows["labels"], precision=rows["precision"]
        )
        sizes = np.array([_size(image.get("ori_shape")) for image in images], dtype=np.int64)
        objects = self._ground_truths()
        ground_truth = None
        if objects is not None:
            swapped = has_swapped_corners(objects.boxes.array)
            row_counts = RowCounts.count(swapped, {SWAPPED: swapped})
            objects = objects.take(~swapped)
            ground_truth = GroundTruth(source, tuple(self.ids), names, sizes, objects, row_counts)
        return DetectionResults(
            source=source,
            dialect="mmdet",
            num_images=len(images),
            image_ids=tuple(self.ids),
            detections=detections,
            row_counts=RowCounts(len(detections), len(detections)),
            image_names=names,
            image_sizes=sizes,
            ground_truth=ground_truth,
            masks=sum(len(one["bboxes"]) for one in (image["pred_instances"] for image in images) if _has_masks(one)),
        )

    def _instances(self, key: str, fields: Sequence[str], optional: bool = False) -> Dict[str, np.ndarray]:
        """The arrays of one kind of instances of every image, one after the other, and the image of each row."""
        parts: List[Dict[str, Any]] = []
        for number, image in enumerate(self.images):
            part = image.get(key)
            if type(part) is not dict:
                if not (optional and part is None):
                    found = "nothing" if part is None else type(part).__name__
                    raise self._error(number, key, "must be a dict", found)
                part = {}
            parts.append(part)
        columns = {field: [part.get(field) for part in parts] for field in fields}
        if optional:  # an InstanceData without fields becomes an empty dict
            for field, values in columns.items():
                columns[field] = [_NOTHING[field] if not part else value for part, value in zip(parts, values)]
        lengths = self._lengths(columns[fields[0]], f"{key}.{fields[0]}")
        if self.most_boxes is not None and sum(lengths) > self.most_boxes:
            raise ResultFileError(f"{self.source}: {sum(lengths)} boxes are more than a file of this size can hold")
        flat = {"image": np.repeat(np.arange(len(lengths)), lengths)}
        for field, values in columns.items():
            arrays = self._arrays(values, key, field)
            flat[field] = self._flat(arrays, lengths, key, field)
            if field == "scores":
                codes = np.array([score_precision(value) for value in arrays], dtype=np.uint8)
                flat["precision"] = np.repeat(codes, lengths)
        return flat

    def _arrays(self, values: List[Any], key: str, field: str) -> List[np.ndarray]:
        if set(map(type, values)) == {np.ndarray} and all(value.ndim and value.dtype.isnative for value in values):
            return values
        return [self._array(value, number, f"{key}.{field}") for number, value in enumerate(values)]

    def _lengths(self, values: List[Any], field: str) -> List[int]:
        try:
            return [len(value) for value in values]
        except TypeError:
            for number, value in enumerate(values):
                if not hasattr(value, "__len__") or getattr(value, "shape", None) == ():
                    found = "nothing" if value is None else type(value).__name__
                    raise self._error(number, field, "must be an array", found) from None
            raise

    def _flat(self, values: List[np.ndarray], lengths: List[int], key: str, field: str) -> np.ndarray:
        width = (4,) if field == "bboxes" else ()
        filled = [value for value in values if value.size]
        if [len(value) for value in values] != lengths or any(
            len(value) and value.shape[1:] != width for value in values
        ):
            self._refuse_shapes(values, lengths, key, field)
        if not filled:
            return np.empty((0, *width), np.int64 if field == "labels" else np.float32)
        kinds, expected = ("iu", "must be whole numbers") if field == "labels" else ("fiu", "must be numbers")
        if any(dtype.kind not in kinds for dtype in {value.dtype for value in filled}):
            for number, value in enumerate(values):
                if value.size and value.dtype.kind not in kinds:
                    raise self._error(number, f"{key}.{field}", expected, value.dtype)
        if field == "labels" and np.result_type(*{value.dtype for value in filled}).kind == "f":
            # No integer dtype holds both; labels this large are refused later, by the number of classes.
            filled = [np.minimum(value, np.iinfo(np.int64).max).astype(np.int64) for value in filled]
        return np.asarray(np.concatenate(filled))

    def _array(self, value: Any, number: int, field: str) -> np.ndarray:
        if isinstance(value, (np.ndarray, list, tuple)) or hasattr(value, "__array__"):
            try:
                array = to_array(value)
            except (TypeError, ValueError, RuntimeError, OverflowError) as error:
                raise self._error(number, field, "must be an array", str(error)[:80]) from None
            if array.ndim:
                return array
        raise self._error(number, field, "must be an array", "nothing" if value is None else type(value).__name__)

    def _refuse_shapes(self, values: List[np.ndarray], lengths: List[int], key: str, field: str) -> None:
        for number, (value, length) in enumerate(zip(values, lengths)):
            name = f"{key}.{field}"
            if field == "bboxes" and value.ndim == 2 and value.shape[1] in (5, 8) and value.size:
                raise self._error(
                    number, name, "must have shape (N, 4); rotated boxes are not supported by this report", value.shape
                )
            shape = (length, 4) if field == "bboxes" else (length,)
            if len(value) != length or (len(value) and value.shape != shape):
                raise self._error(number, name, f"must have shape {shape}", value.shape)

    def _error(self, number: int, field: str, expected: str, found: Any) -> ResultFileError:
        ids = getattr(self, "ids", None)
        name = ascii(ids[number]) if ids is not None else f"number {number}"
        return ResultFileError(f"{self.source}: '{field}' of image {name} {expected} (found {found})")

    def _ground_truths(self) -> Optional[GroundTruths]:
        images = self.images
        if any(type(image.get("gt_instances")) is dict and image["gt_instances"] for image in images):
            objects = self._instances("gt_instances", ("bboxes", "labels"), optional=True)
            ignored = self._instances("ignored_instances", ("bboxes", "labels"), optional=True)
            crowd = np.repeat([False, True], [len(objects["image"]), len(ignored["image"])])
            both = {field: np.concatenate([objects[field], ignored[field]]) for field in objects}
            return GroundTruths(both["image"], both["bboxes"], both["labels"], crowd=crowd)
        if any(type(image.get("instances")) is list for image in images):
            return self._ground_truths_of_instances()
        return None

    def _ground_truths_of_instances(self) -> GroundTruths:
        for number, image in enumerate(self.images):
            if type(image.get("instances")) is not list:
                raise self._error(number, "instances", "must be a list", type(image.get("instances")).__name__)
        lists = [image["instances"] for image in self.images]
        rows = list(chain.from_iterable(lists))
        what = "object"
        boxes = numbers(column(rows, "bbox", self.source, what), "bbox", self.source, what, 4)
        labels = numbers(column(rows, "bbox_label", self.source, what), "bbox_label", self.source, what)
        if (labels % 1).any() or (abs(labels) > 1 << 40).any():
            raise ResultFileError(f"{self.source}: 'bbox_label' of every object must be a whole number")
        # OpenImages' group of objects in one box is COCO's crowd.
        crowd = np.array([_is_set(row, "ignore_flag") or _is_set(row, "is_group_of") for row in rows], dtype=bool)
        return GroundTruths(np.repeat(np.arange(len(lists)), list(map(len, lists))), boxes, labels, crowd=crowd)


def _has_masks(instances: Dict[str, Any]) -> bool:
    return instances.get("masks") is not None


def _is_set(row: Dict[str, Any], flag: str) -> bool:
    value = row.get(flag)
    return isinstance(value, (int, np.integer, np.bool_)) and bool(value)


_NOTHING = {"bboxes": np.empty((0, 4), np.float32), "labels": np.empty(0, np.int64)}


def text_or_nothing(value: Any) -> str:
    """Text, and "" for anything else.

    Example:
        >>> text_or_nothing("a.jpg"), text_or_nothing(None)
        ('a.jpg', '')
    """
    return value if isinstance(value, str) else ""


def _size(shape: Any) -> Tuple[int, int]:
    """Height and width; 0 where unknown."""
    if (
        isinstance(shape, (tuple, list))
        and len(shape) >= 2
        and all(isinstance(side, (int, np.integer)) for side in shape)
    ):
        return min(int(shape[0]), 1 << 40), min(int(shape[1]), 1 << 40)
    return 0, 0


def _read_mmdet_2(content: List[Any], source: str, most_boxes: Optional[int]) -> DetectionResults:
    per_image = [image[0] if type(image) is tuple and image else image for image in content]
    num_classes = len(per_image[0]) if isinstance(per_image[0], list) else 0
    for number, image in enumerate(per_image):
        if type(image) is not list or len(image) != num_classes:
            found = f"{len(image)} of them" if type(image) is list else type(image).__name__
            raise ResultFileError(
                f"{source}: image number {number} must be a list of {num_classes} arrays, one per class (found {found})"
            )
    arrays = list(chain.from_iterable(per_image))
    for number, array in enumerate(arrays):
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.shape[1] != 5 or array.dtype.kind != "f":
            image, label = divmod(number, num_classes)
            found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            rotated = isinstance(array, np.ndarray) and array.ndim == 2 and array.shape[1] in (6, 9)
            hint = "; rotated boxes are not supported by this report" if rotated else ""
            raise ResultFileError(
                f"{source}: class {label} of image number {image} must be an array of numbers of shape (n, 5){hint} "
                f"(found {found})"
            )
    lengths = np.array([len(array) for array in arrays], dtype=np.int64)
    count = int(lengths.sum())
    if most_boxes is not None and count > most_boxes:
        raise ResultFileError(f"{source}: {count} boxes are more than a file of this size can hold")
    rows = np.asarray(np.concatenate(arrays)) if arrays else np.empty((0, 5), np.float32)
    precision = np.repeat(np.array([score_precision(array) for array in arrays], dtype=np.uint8), lengths)
    labels = np.tile(np.arange(num_classes), len(per_image))
    images = np.repeat(np.arange(len(per_image)), num_classes)
    return DetectionResults(
        source=source,
        dialect="mmdet 2",
        num_images=len(per_image),
        image_ids=None,
        detections=Detections(
            np.repeat(images, lengths), rows[:, :4], rows[:, 4], np.repeat(labels, lengths), precision=precision
        ),
        row_counts=RowCounts(count, count),
        image_names=("",) * len(per_image),
        image_sizes=np.zeros((len(per_image), 2), np.int64),
        num_classes=num_classes,
        masks=sum(map(len, chain.from_iterable(image[0] for image in content if _is_pair(image)))),
    )


def _is_pair(image: Any) -> bool:
    """Whether mmdet 2 wrote masks beside the boxes of an image."""
    return type(image) is tuple and len(image) > 1


def _read_coco(content: Any, source: str) -> DetectionResults:
    if not isinstance(content, list):
        is_ground_truth = isinstance(content, dict) and "annotations" in content
        hint = "; this is an annotation file, and GROUND_TRUTH comes first" if is_ground_truth else ""
        raise ResultFileError(
            f"{source}: COCO results are a list of detections (found a {type(content).__name__}{hint})"
        )
    what = "detection"
    image_ids, image = _numbered(identities(column(content, "image_id", source, what), "image_id", source, what))
    categories = identities(column(content, "category_id", source, what), "category_id", source, what)
    category_ids, labels = _numbered(categories)
    boxes = numbers(column(content, "bbox", source, what), "bbox", source, what, 4)
    scores = numbers(column(content, "score", source, what), "score", source, what)
    return DetectionResults(
        source=source,
        dialect="coco",
        num_images=len(image_ids),
        image_ids=tuple(image_ids),
        detections=Detections(image, Boxes(boxes, "xywh"), scores, labels),
        row_counts=RowCounts(len(boxes), len(boxes)),
        image_names=("",) * len(image_ids),
        image_sizes=np.zeros((len(image_ids), 2), np.int64),
        category_ids=tuple(category_ids),
        masks=sum(one.get("segmentation") is not None for one in content),
    )


def _numbered(values: List[Any]) -> Tuple[List[Any], np.ndarray]:
    """The distinct values in order of appearance, and the index of each value among them."""
    different = list(dict.fromkeys(values))
    number = {value: at for at, value in enumerate(different)}
    return different, np.fromiter(map(number.__getitem__, values), np.int64, len(values))
