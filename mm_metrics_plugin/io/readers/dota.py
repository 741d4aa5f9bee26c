"""DOTA annotations: a folder of text files, one per image, one object per line: x1 y1 ... x4 y4 class difficult."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import numpy as np

from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError, first_ten, pluralize, shortened
from mm_metrics_plugin.functional.detection.data import GroundTruths
from mm_metrics_plugin.functional.detection.geometry.rotated_boxes import RotatedBoxes
from mm_metrics_plugin.io.class_order import ALPHABETICAL, CLASSES
from mm_metrics_plugin.io.detection_data import AnnotationSet
from mm_metrics_plugin.io.file_heads import is_dota
from mm_metrics_plugin.io.files import read_bytes
from mm_metrics_plugin.io.formats import GROUND_TRUTH, Format, ReadOptions
from mm_metrics_plugin.io.readers.coco import lookup
from mm_metrics_plugin.io.readers.voc import annotation_files
from mm_metrics_plugin.row_counts import RowCounts

_HEADERS = ("imagesource", "gsd")


def _read(folder: Path, options: ReadOptions) -> AnnotationSet:
    """The ground truth in a folder, or in its folder ``labelTxt``.

    Image ids are the names of the files without ``.txt``. Objects with a difficulty above 0 are neither TP nor FN.
    Without ``classes``, labels follow the names of the classes in alphabetical order. ``image_set`` lists the test
    images, one per line, in their order.
    """
    if (folder / "labelTxt").is_dir():
        folder = folder / "labelTxt"
    files, image_set_sha256 = annotation_files(folder, ".txt", options.image_set)
    corners, names, difficult, image, digests = [], [], [], [], []
    for number, path in enumerate(files):
        data = read_bytes(path)
        digests.append(f"{hashlib.sha256(data).hexdigest()}  {path.name}\n")
        for line_number, line in enumerate(data.decode("utf-8-sig", "replace").splitlines(), start=1):
            words = line.split()
            if not words or words[0].lower().startswith(_HEADERS):
                continue
            try:
                row, level = [float(word) for word in words[:8]], int(words[9]) if len(words) > 9 else 0
                name = words[8]
            except (ValueError, IndexError):
                raise ResultFileError(
                    f"{path.name}: line {line_number} must be eight coordinates, a class and a difficulty "
                    f"(found {shortened(line)})"
                ) from None
            corners.append(row)
            names.append(name)
            difficult.append(level > 0)
            image.append(number)
    classes = options.classes
    if classes is None:
        classes = sorted(set(names))
        warnings.warn(
            f"{folder.name}: DOTA annotations do not define the label of a class; labels follow the names in "
            f"alphabetical order ({first_ten(classes)}); give the order of the model with classes=[...]",
            MetricWarning,
        )
    labels = lookup(names, {name: label for label, name in enumerate(classes)})
    boxes, changed = _convex(np.array(corners, dtype=np.float64).reshape(-1, 8))
    if changed.any():
        first = files[image[int(np.argmax(changed))]].stem
        warnings.warn(
            f"{folder.name}: {pluralize(int(changed.sum()), 'quadrilateral')} not convex, first in image {first!a}; "
            "the convex hull is used",
            MetricWarning,
        )
    objects = GroundTruths(np.array(image, dtype=np.int64), boxes, labels, ignore=np.array(difficult, dtype=bool))
    keep, row_counts = RowCounts.select({"class not chosen": labels < 0})
    stems = tuple(path.stem for path in files)
    return AnnotationSet(
        source=folder.name,
        image_ids=stems,
        image_names=tuple(f"{stem}.png" for stem in stems),
        image_sizes=np.zeros((len(files), 2), dtype=np.int64),
        objects=objects.take(keep),
        row_counts=row_counts,
        classes=tuple(classes),
        class_order=ALPHABETICAL if options.classes is None else CLASSES,
        images_ordered=image_set_sha256 is not None,  # mmrotate 0.x tests them in the order of the file system
        image_set_sha256=image_set_sha256,
        sha256=hashlib.sha256("".join(digests).encode()).hexdigest(),
    )


# Orders of four points, and triangles: the largest is the convex hull.
_ORDERS = np.array([[0, 1, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2], [0, 1, 2, 2], [0, 1, 3, 3], [0, 2, 3, 3], [1, 2, 3, 3]])
_ROUNDING = 1e-9


def _convex(corners: np.ndarray) -> tuple[RotatedBoxes, np.ndarray]:
    """The quadrilaterals (N, 8) or, of those that are not convex, the convex hulls, and which these are.

    Example:
        >>> boxes, changed = _convex(np.array([[0.0, 0, 4, 4, 4, 0, 0, 4], [0, 0, 4, 0, 4, 4, 0, 4]]))
        >>> boxes.areas(), changed
        (array([16., 16.]), array([ True, False]))
    """
    candidates = corners.reshape(-1, 4, 2)[:, _ORDERS].reshape(-1, 8)
    areas = RotatedBoxes(candidates).areas().reshape(-1, len(_ORDERS))
    best = areas.argmax(axis=1)
    changed = areas[:, 0] < areas.max(axis=1, initial=0) * (1 - _ROUNDING)
    hulls = candidates.reshape(-1, len(_ORDERS), 8)[np.arange(len(corners)), np.where(changed, best, 0)]
    return RotatedBoxes(hulls), changed


FORMATS = (
    Format(
        "a folder of DOTA annotations",
        is_dota,
        GROUND_TRUTH,
        _read,
        on_disk=True,
        options=("image_set",),
        iou_types=("rbox",),
    ),
)
