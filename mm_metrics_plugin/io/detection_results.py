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

from mm_metrics_plugin.exceptions import ResultFileError, pluralize, shortened
from mm_metrics_plugin.functional._inputs import score_precision
from mm_metrics_plugin.functional.detection.data import Detections, GroundTruths, ImageId
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.io.arrays import JsonRows, to_array
from mm_metrics_plugin.io.contents import read_file
from mm_metrics_plugin.io.files import PathLike, check_num_boxes, trim_memory
from mm_metrics_plugin.io.formats import (
    COCO_RESULTS,
    DETECTIONS,
    MMDET,
    MMDET_2,
    NOTHING,
    plain_content,
    recognize,
    refusal,
)
from mm_metrics_plugin.io.ground_truth import SWAPPED, GroundTruth, distinct_ids, has_swapped_corners
from mm_metrics_plugin.row_counts import RowCounts


@dataclass(frozen=True, eq=False)
class DetectionResults:
    """The detections of many images, flattened.

    Args:
        source: Name of the file.
        num_images: Images in the file.
        image_ids: Id of each image; None in files of mmdet 2.x, which have only an order.
        detections: ``image`` counts images in the order of the file. Labels are class indices or, if there are
            ``category_ids``, positions in these.
        row_counts: Detections read, used and dropped.
        image_names: Path of each image, "" if unknown.
        image_sizes: (images, 2) height and width, 0 if unknown.
        category_ids: The category ids of a file that has no labels, such as COCO results.
        lists_all_images: Whether the file also lists images without detections; COCO results do not.
        num_classes: Number of classes, if the file has it.
        ground_truth: The ground truth in the file, if it has one.
        file_size: In bytes; None if the content comes from no file.
        masks: Detections that have a mask, which is not read.
        sha256: Of the file; None if the content comes from no file.
    """

    source: str
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
    lists_all_images: bool = True
    sha256: Optional[str] = None


def read_results(
    path: PathLike, *, trust: bool = False, on_progress: Optional[Callable[[float], None]] = None
) -> DetectionResults:
    """Read the detections in a pickle or a JSON file.

    Args:
        path: The file.
        trust: Read a pickle with plain pickle, which runs any code in it.
        on_progress: Receives the fraction of a pickle that was read.
    """
    path = Path(path)
    content, _, digest = read_file(path, DETECTIONS, trust=trust, on_progress=on_progress)
    results = results_from_content(content, path.name, file_size=path.stat().st_size)
    del content
    trim_memory()
    return replace(results, sha256=digest)


def results_from_content(content: Any, source: str, *, file_size: Optional[int] = None) -> DetectionResults:
    """Flatten the detections that a file holds, or in memory, in any of the formats of ``READERS``.

    An empty list is COCO results without detections. More boxes than a file of ``file_size`` bytes can hold are refused
    before they are copied.
    """
    content = plain_content(content, source)
    form = recognize(content)
    if form not in READERS:
        raise refusal(source, content, DETECTIONS)
    return READERS[form](list(content), source, file_size)


class _Images:
    """A list of dicts, one per image, as mmdet 3.x and mmyolo write it."""

    def __init__(self, images: List[Any], source: str, file_size: Optional[int]) -> None:
        self.images = images
        self.source = source
        self.file_size = file_size
        for number, image in enumerate(images):
            if type(image) is not dict:
                raise ResultFileError(f"{source}: image number {number} must be a dict (found {type(image).__name__})")
        ids = [int(key) if isinstance(key, np.integer) else key for key in (image.get("img_id") for image in images)]
        self.names = tuple(text_or_empty(image.get("img_path")) for image in images)
        self.ids = tuple(distinct_ids(JsonRows(images, source, "image").ids("img_id", ids), self.names))

    def read(self) -> DetectionResults:
        images, source = self.images, self.source
        rows = self._instances("pred_instances", ("bboxes", "scores", "labels"))
        detections = Detections(
            rows["image"], rows["bboxes"], rows["scores"], rows["labels"], precision=rows["precision"]
        )
        sizes = np.array([_size(image.get("ori_shape")) for image in images], dtype=np.int64)
        objects = self._ground_truths()
        ground_truth = None
        if objects is not None:
            keep, row_counts = RowCounts.select({SWAPPED: has_swapped_corners(objects.boxes.array)})
            ground_truth = GroundTruth(source, self.ids, self.names, sizes, objects.take(keep), row_counts)
        predicted = (image["pred_instances"] for image in images)
        return DetectionResults(
            source=source,
            num_images=len(images),
            image_ids=self.ids,
            detections=detections,
            row_counts=RowCounts(len(detections), len(detections)),
            image_names=self.names,
            image_sizes=sizes,
            ground_truth=ground_truth,
            file_size=self.file_size,
            masks=sum(len(part["bboxes"]) for part in predicted if part.get("masks") is not None),
        )

    def _instances(self, key: str, fields: Sequence[str], optional: bool = False) -> Dict[str, np.ndarray]:
        """The concatenated arrays of one kind of instances of every image, and the image of each row."""
        columns: Dict[str, List[np.ndarray]] = {field: [] for field in fields}
        lengths: List[int] = []
        for number, image in enumerate(self.images):
            part = image.get(key)
            if optional and (part is None or (type(part) is dict and not part)):
                part = _NO_OBJECTS  # an InstanceData without fields becomes an empty dict
            if type(part) is not dict:
                raise self._error(number, key, "must be a dict", "nothing" if part is None else type(part).__name__)
            for field, column in columns.items():
                array = self._array(part.get(field), number, f"{key}.{field}")
                if len(lengths) == number:
                    lengths.append(len(array))
                self._check(array, lengths[number], number, key, field)
                column.append(array)
        check_num_boxes(sum(lengths), self.source, self.file_size)
        flat = {field: _concatenated(column, field) for field, column in columns.items()}
        flat["image"] = np.repeat(np.arange(len(lengths)), lengths)
        if "scores" in columns:
            codes = np.array([score_precision(array) for array in columns["scores"]], dtype=np.uint8)
            flat["precision"] = np.repeat(codes, lengths)
        return flat

    def _array(self, value: Any, number: int, field: str) -> np.ndarray:
        if type(value) is np.ndarray and value.ndim and value.dtype.isnative:
            return value  # the usual case needs no conversion
        if isinstance(value, (np.ndarray, list, tuple)) or hasattr(value, "__array__"):
            try:
                array = to_array(value)
            except (TypeError, ValueError, RuntimeError, OverflowError):
                raise self._error(number, field, "must be an array of numbers", shortened(value)) from None
            if array.ndim:
                return array
        raise self._error(number, field, "must be an array", "nothing" if value is None else type(value).__name__)

    def _check(self, array: np.ndarray, length: int, number: int, key: str, field: str) -> None:
        """Check shape and dtype. Arrays without rows may have any."""
        shape = (length, 4) if field == "bboxes" else (length,)
        if len(array) != length or (length and array.shape != shape):
            expected = f"must have shape {shape}"
            if field == "bboxes" and array.ndim == 2 and array.shape[1] in (5, 8) and array.size:
                expected = "must have shape (N, 4); rotated boxes are not supported by this report"
            raise self._error(number, f"{key}.{field}", expected, array.shape)
        if array.size and array.dtype.kind not in ("iu" if field == "labels" else "fiu"):
            expected = "must be whole numbers" if field == "labels" else "must be numbers"
            raise self._error(number, f"{key}.{field}", expected, array.dtype)

    def _error(self, number: int, field: str, expected: str, found: Any) -> ResultFileError:
        return ResultFileError(f"{self.source}: '{field}' of image {self.ids[number]!a} {expected} (found {found})")

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
        objects = JsonRows(list(chain.from_iterable(lists)), self.source, "object")
        boxes, labels = objects.numbers("bbox", 4), objects.numbers("bbox_label")
        if (labels % 1).any() or (abs(labels) > 1 << 40).any():
            raise ResultFileError(f"{self.source}: 'bbox_label' of every object must be a whole number")
        crowd = objects.flags("ignore_flag") | objects.flags("is_group_of")  # a group in OpenImages is a crowd in COCO
        return GroundTruths(np.repeat(np.arange(len(lists)), list(map(len, lists))), boxes, labels, crowd=crowd)


_NO_OBJECTS = {"bboxes": np.empty((0, 4), np.float32), "labels": np.empty(0, np.int64)}


def _concatenated(arrays: List[np.ndarray], field: str) -> np.ndarray:
    arrays = [array for array in arrays if array.size]
    if not arrays:
        return np.empty((0, 4) if field == "bboxes" else 0, np.int64 if field == "labels" else np.float32)
    if field == "labels" and np.result_type(*{array.dtype for array in arrays}).kind == "f":
        # No integer dtype holds both int64 and uint64. Labels this large are refused later, by the number of classes.
        arrays = [np.minimum(array, np.iinfo(np.int64).max).astype(np.int64) for array in arrays]
    return np.asarray(np.concatenate(arrays))


def text_or_empty(value: Any) -> str:
    """The value if it is text, else ""."""
    return value if isinstance(value, str) else ""


def _size(shape: Any) -> Tuple[int, int]:
    """Height and width; 0 if unknown."""
    if (
        isinstance(shape, (tuple, list))
        and len(shape) >= 2
        and all(isinstance(side, (int, np.integer)) for side in shape)
    ):
        return min(int(shape[0]), 1 << 40), min(int(shape[1]), 1 << 40)
    return 0, 0


def _read_mmdet_2(content: List[Any], source: str, file_size: Optional[int]) -> DetectionResults:
    per_image = [image[0] if type(image) is tuple and image else image for image in content]
    num_classes = len(per_image[0]) if isinstance(per_image[0], list) else 0
    for number, image in enumerate(per_image):
        if type(image) is not list or len(image) != num_classes:
            found = len(image) if type(image) is list else type(image).__name__
            expected = f"a list of {pluralize(num_classes, 'array')}, one per class"
            raise ResultFileError(f"{source}: image number {number} must be {expected} (found {found})")
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
    check_num_boxes(count, source, file_size)
    rows = np.asarray(np.concatenate(arrays)) if arrays else np.empty((0, 5), np.float32)
    precision = np.repeat(np.array([score_precision(array) for array in arrays], dtype=np.uint8), lengths)
    labels = np.tile(np.arange(num_classes), len(per_image))
    images = np.repeat(np.arange(len(per_image)), num_classes)
    return DetectionResults(
        source=source,
        num_images=len(per_image),
        image_ids=None,
        detections=Detections(
            np.repeat(images, lengths), rows[:, :4], rows[:, 4], np.repeat(labels, lengths), precision=precision
        ),
        row_counts=RowCounts(count, count),
        image_names=("",) * len(per_image),
        image_sizes=np.zeros((len(per_image), 2), np.int64),
        num_classes=num_classes,
        file_size=file_size,
        # Tuples of boxes and masks
        masks=sum(len(array) for image in content if type(image) is tuple and len(image) > 1 for array in image[0]),
    )


def _read_coco(content: List[Any], source: str, file_size: Optional[int]) -> DetectionResults:
    rows = JsonRows(content, source, "detection")
    image_ids, image = _numbered(rows.ids("image_id"))
    category_ids, labels = _numbered(rows.ids("category_id"))
    boxes, scores = rows.numbers("bbox", 4), rows.numbers("score")
    return DetectionResults(
        source=source,
        lists_all_images=False,
        num_images=len(image_ids),
        image_ids=tuple(image_ids),
        detections=Detections(image, Boxes(boxes, "xywh"), scores, labels),
        row_counts=RowCounts(len(boxes), len(boxes)),
        image_names=("",) * len(image_ids),
        image_sizes=np.zeros((len(image_ids), 2), np.int64),
        category_ids=tuple(category_ids),
        file_size=file_size,
        masks=sum(row.get("segmentation") is not None for row in content),
    )


def _numbered(values: List[Any]) -> Tuple[List[Any], np.ndarray]:
    """The distinct values in order of appearance, and the index of each value among them."""
    different = list(dict.fromkeys(values))
    number = {value: at for at, value in enumerate(different)}
    return different, np.fromiter(map(number.__getitem__, values), np.int64, len(values))


def _read_images(content: List[Any], source: str, file_size: Optional[int]) -> DetectionResults:
    return _Images(content, source, file_size).read()


# The function that reads each format. An empty list is COCO results without detections.
READERS: Dict[Any, Callable[[List[Any], str, Optional[int]], DetectionResults]] = {
    MMDET: _read_images,
    MMDET_2: _read_mmdet_2,
    COCO_RESULTS: _read_coco,
    NOTHING: _read_coco,
}
