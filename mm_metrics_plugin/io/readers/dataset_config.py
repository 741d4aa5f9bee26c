"""The test dataset of a config of an OpenMMLab library.

A config is a program of the user, which mmengine runs, as in every tool of these libraries; never use a config from
strangers. mmengine is imported only when a config is read, mmdet and mmpretrain only when they are needed.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import numpy as np

from mm_metrics_plugin import register_metrics
from mm_metrics_plugin.conventions import DEFAULT_IOU_TYPE
from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError
from mm_metrics_plugin.functional.detection.data import GroundTruths, ImageId
from mm_metrics_plugin.functional.detection.geometry import geometry_of
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.functional.detection.geometry.rotated_boxes import RotatedBoxes
from mm_metrics_plugin.io.class_order import LabelNames, label_names_of_dataset, leaf_datasets
from mm_metrics_plugin.io.detection_data import AnnotationSet, distinct_ids
from mm_metrics_plugin.io.file_heads import named
from mm_metrics_plugin.io.files import PathLike, check_is_file, read_json
from mm_metrics_plugin.io.formats import GROUND_TRUTH, Format, ReadOptions
from mm_metrics_plugin.io.readers.coco import read_annotations
from mm_metrics_plugin.io.readers.shapes import SWAPPED, has_swapped_corners
from mm_metrics_plugin.row_counts import RowCounts


@contextmanager
def _silent_stdout() -> Iterator[None]:
    """Suppress what configs, mmdet and pycocotools print: standard output is for the report."""
    with redirect_stdout(StringIO()):
        yield


@dataclass(frozen=True, eq=False)
class _TestSet:
    """The test dataset of a config: its class names, and its images and instances."""

    dataset: Any
    labels: LabelNames
    ids: list[Any]
    paths: list[str]
    sizes: np.ndarray  # (images, 2) height and width
    instances: list[tuple[int, dict[str, Any]]]  # with the index of their image


@_silent_stdout()
def _load_test_set(path: Path, options: ReadOptions) -> _TestSet:
    """Build the test dataset of an mmdet config.

    Labels have the meaning they have in mmdet: in a ``CocoDataset`` they follow the order of the annotation file's
    categories, for any order of ``metainfo.classes``, which ``classes`` replaces; in other datasets they follow
    ``metainfo.classes``. If the two orders of a ``CocoDataset`` contain the same classes and differ, a warning shows
    both, and ``class_order`` chooses one.
    """
    classes, class_order = options.classes, options.class_order
    config = _read_config(path, options.cfg_options)
    metainfo = _test_dataset(config).get("metainfo")
    own = metainfo.get("classes") if isinstance(metainfo, dict) else ()
    own = own if isinstance(own, (list, tuple)) else ()
    dataset = _build(path, config, "mmdet", classes=classes)
    own = own or getattr(type(dataset), "METAINFO", {}).get("classes") or ()
    labels = label_names_of_dataset(
        dataset, path.name, own=tuple(map(str, own)), classes=classes, class_order=class_order
    )
    ids: list[Any] = []
    paths: list[str] = []
    sizes: list[tuple[int, int]] = []
    rows: list[tuple[int, dict[str, Any]]] = []
    for number in options.track(range(len(dataset))):
        info = dataset.get_data_info(number)
        ids.append(info["img_id"])
        paths.append(str(info.get("img_path", "")))
        sizes.append((int(info.get("height") or 0), int(info.get("width") or 0)))
        rows += [(number, instance) for instance in info.get("instances", ())]
    names = distinct_ids(ids, paths)
    if len(set(names)) < len(names):
        raise ResultFileError(
            f"{path.name}: image ids of its test dataset are repeated, and so are their paths; results cannot be "
            "joined to it. Give each part an annotation file with other ids, or test the parts one by one"
        )
    return _TestSet(dataset, labels, ids, paths, np.array(sizes, dtype=np.int64).reshape(-1, 2), rows)


@_silent_stdout()
def _read_test_set(test_set: _TestSet, options: ReadOptions) -> AnnotationSet:
    """The ground-truth objects of a test dataset.

    mmdet builds the dataset, which takes seconds; its annotation file is read much faster. mmdet's datasets keep
    neither the ``area`` of an annotation nor objects thinner than a pixel. If the dataset has a COCO annotation file,
    both are read from that file, so the numbers do not depend on the form of the ground truth.
    """
    dataset, labels = test_set.dataset, test_set.labels
    files = _annotation_files(test_set)
    objects, row_counts = _complete_from_annotation_files(test_set, files, options)
    columns, frequency = _judged_classes(files, labels)
    if labels.labels is not None:
        objects = replace(objects, labels=np.array(labels.labels, dtype=np.int64)[objects.labels])
    swapped = has_swapped_corners(objects.geometry)
    return AnnotationSet(
        source=options.source,
        image_ids=tuple(distinct_ids(test_set.ids, test_set.paths)),
        image_names=tuple(test_set.paths),
        image_sizes=test_set.sizes,
        objects=objects.take(~swapped),
        row_counts=row_counts.drop(SWAPPED, int(np.count_nonzero(swapped))),
        classes=labels.names,
        class_order=labels.order,
        class_conflict=labels.conflict,
        image_folders=_image_folders(dataset),
        image_columns=columns,
        frequency=frequency,
        libraries=("mmengine", "mmdet"),
    )


def _objects(test_set: _TestSet, options: ReadOptions) -> GroundTruths:
    """The instances of a dataset."""
    image = np.array([number for number, _ in test_set.instances], dtype=np.int64)
    rows = [row for _, row in test_set.instances]
    return GroundTruths(
        image,
        _GEOMETRIES[options.iou_type](rows, image, test_set, options),
        np.array([row["bbox_label"] for row in rows], dtype=np.int64),
        crowd=np.array([bool(row.get("ignore_flag")) for row in rows], dtype=bool),
    )


def _boxes(rows: list[dict[str, Any]], image: np.ndarray, test_set: _TestSet, options: ReadOptions) -> Any:
    return Boxes(np.array([row["bbox"] for row in rows], dtype=np.float64).reshape(-1, 4))


def _rotated_boxes(rows: list[dict[str, Any]], image: np.ndarray, test_set: _TestSet, options: ReadOptions) -> Any:
    """Quadrilaterals, or boxes of five numbers."""
    boxes = np.array([row["bbox"] for row in rows], dtype=np.float64)
    if rows and boxes.shape[1:] not in ((5,), (8,)):
        raise ResultFileError(f"{options.source}: its test dataset has no rotated boxes (found {boxes.shape[1:]})")
    return RotatedBoxes(boxes)


def _masks(rows: list[dict[str, Any]], image: np.ndarray, test_set: _TestSet, options: ReadOptions) -> Any:
    without = sum("mask" not in row for row in rows)
    if without:
        raise ResultFileError(
            f"{options.source}: {without} of {len(rows)} objects of its test dataset have no 'mask', which "
            f"iou_type={options.iou_type!r} needs"
        )
    names = [test_set.ids[index] for index in image]
    geometry = geometry_of(options.iou_type)
    return geometry.from_segmentations([row["mask"] for row in rows], test_set.sizes[image], names=names)


_GEOMETRIES: dict[str, Any] = {"bbox": _boxes, "rbox": _rotated_boxes, "segm": _masks, "boundary": _masks}


def _image_folders(dataset: Any) -> tuple[str, ...]:
    """The folders that a dataset takes its images from."""
    prefixes = [getattr(leaf, "data_prefix", None) for leaf in leaf_datasets(dataset)]
    folders = [folder for prefix in prefixes if isinstance(prefix, dict) for folder in prefix.values()]
    return tuple(dict.fromkeys(folder for folder in folders if isinstance(folder, str) and folder))


def _annotation_files(test_set: _TestSet) -> list[_AnnotationFile | None]:
    """The COCO file of each part of a dataset; None of a part that has none."""
    return [_AnnotationFile.of(part, test_set.ids[start:end]) for part, start, end in _parts_of(test_set)]


def _judged_classes(
    files: Sequence[_AnnotationFile | None], labels: LabelNames
) -> tuple[dict[str, np.ndarray], tuple[str, ...] | None]:
    """The columns of the images and the frequencies of the classes in LVIS files; none unless all files have them."""
    order = np.arange(len(labels.names)) if labels.labels is None else np.array(labels.labels, dtype=np.int64)
    parts = [{} if file is None else file.image_columns(order) for file in files]
    names = [name for name in parts[0] if all(name in part for part in parts)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in names}
    return columns, None if files[0] is None else files[0].frequency(order)


def _complete_from_annotation_files(
    test_set: _TestSet, files: Sequence[_AnnotationFile | None], options: ReadOptions
) -> tuple[GroundTruths, RowCounts]:
    """The objects with the areas of the annotations, and with those that mmdet drops because they are thin.

    mmdet's ``CocoDataset`` drops annotations whose width or height is below 1 or whose area is 0. pycocotools, and so
    mmdet's ``CocoMetric``, counts them. The parts of a ``ConcatDataset`` are completed one by one.
    """
    objects: dict[str, GroundTruths] = {}

    def own(iou_type: str) -> GroundTruths:
        """The instances of the current part."""
        if iou_type not in objects:
            objects[iou_type] = _objects(test_set, replace(options, iou_type=iou_type))
        return objects[iou_type].images(start, end)

    completed: list[GroundTruths] = []
    counts: list[RowCounts] = []
    for file, (_, *images) in zip(files, _parts_of(test_set)):
        start, end = images
        if file is not None:
            result = _complete(own, file, options.iou_type)
        else:
            result = own(options.iou_type), RowCounts(len(own(options.iou_type)), len(own(options.iou_type)))
        completed.append(replace(result[0], image=result[0].image + start))
        counts.append(result[1])
    if any(part.area is not None for part in completed):
        completed = [replace(part, area=part.areas()) for part in completed]
    return GroundTruths.concatenate(completed), RowCounts.total(counts)


def _parts_of(test_set: _TestSet) -> list[tuple[Any, int, int]]:
    """The parts of the dataset, each with the range of its images."""
    parts = _parts(test_set.dataset)
    ends = np.cumsum([len(part) for part in parts]).tolist() if len(parts) > 1 else [len(test_set.ids)]
    return list(zip(parts, [0, *ends], ends))


def _parts(dataset: Any) -> list[Any]:
    """The parts of a ``ConcatDataset`` in the order of its images; any other dataset by itself."""
    if not hasattr(dataset, "cumulative_sizes"):
        return [dataset]
    return [part for inner in dataset.datasets for part in _parts(inner)]


class _AnnotationFile(NamedTuple):
    """The COCO file of a dataset."""

    content: Any
    name: str
    boxes: AnnotationSet
    label_of: dict[Any, int]  # by category id
    image_ids: Sequence[ImageId]  # of the dataset

    @classmethod
    def of(cls, dataset: Any, image_ids: Sequence[ImageId]) -> _AnnotationFile | None:
        """The file; None if the dataset has none."""
        path = getattr(dataset, "ann_file", None)
        # Only datasets of COCO files have category ids.
        if not isinstance(path, str) or not hasattr(dataset, "cat_ids") or not hasattr(dataset, "cat2label"):
            return None
        from mmengine.fileio import get_local_path

        try:
            with get_local_path(path, backend_args=getattr(dataset, "backend_args", None)) as local:
                content, name = read_json(local)[0], Path(local).name
                boxes = read_annotations(content, ReadOptions(name))
                return cls(content, name, boxes, dataset.cat2label, image_ids)
        except (ResultFileError, OSError) as error:
            warnings.warn(
                f"{path}: cannot be read for the areas of the objects; the areas of their boxes are used ({error})",
                MetricWarning,
                stacklevel=2,
            )
            return None

    @property
    def _numbers(self) -> np.ndarray:
        """The index in the dataset of each image of the file, or -1."""
        number = {image_id: at for at, image_id in enumerate(self.image_ids)}
        return np.array([number.get(image_id, -1) for image_id in self.boxes.image_ids], dtype=np.int64)

    @property
    def _labels(self) -> np.ndarray:
        """The label in the dataset of each category of the file, or -1."""
        return np.array([self.label_of.get(key, -1) for key in self.boxes.category_ids or ()], dtype=np.int64)

    def image_columns(self, order: np.ndarray) -> dict[str, np.ndarray]:
        """The columns of the images of the dataset; ``order`` has the final label of each label of the dataset."""
        images, labels = self._numbers, self._labels
        rows, classes = np.flatnonzero(images >= 0), np.flatnonzero(labels >= 0)
        columns = {}
        for name, column in self.boxes.image_columns.items():
            columns[name] = np.zeros((len(self.image_ids), len(order)), dtype=column.dtype)
            columns[name][np.ix_(images[rows], order[labels[classes]])] = column[np.ix_(rows, classes)]
        return columns

    def frequency(self, order: np.ndarray) -> tuple[str, ...] | None:
        """The frequencies of the classes of the dataset."""
        if self.boxes.frequency is None:
            return None
        result = [""] * len(order)
        for label, value in zip(self._labels.tolist(), self.boxes.frequency):
            if label >= 0:
                result[order[label]] = value
        return tuple(result)

    def objects(self, iou_type: str) -> tuple[GroundTruths, RowCounts]:
        """The objects in the images and classes of the dataset."""
        file = self.boxes
        if iou_type != DEFAULT_IOU_TYPE:
            file = read_annotations(self.content, ReadOptions(self.name, iou_type=iou_type))
        image, labels = self._numbers[file.objects.image], self._labels[file.objects.labels]
        chosen = (image >= 0) & (labels >= 0)
        row_counts = file.row_counts.drop("class not chosen", int(np.count_nonzero(labels < 0)))
        row_counts = row_counts.drop("image not in the test set", int(np.count_nonzero((labels >= 0) & (image < 0))))
        rows = np.flatnonzero(chosen)[np.argsort(image[chosen], kind="stable")]
        return replace(file.objects.take(rows), image=image[rows], labels=labels[rows]), row_counts


def _complete(
    own: Callable[[str], GroundTruths], file: _AnnotationFile, iou_type: str
) -> tuple[GroundTruths, RowCounts]:
    """The objects of an annotation file; those of the dataset if it has other rules than to drop thin objects."""
    boxes, row_counts = file.objects(DEFAULT_IOU_TYPE)
    width, height = boxes.boxes.array[:, 2:].T
    boxes = replace(boxes, geometry=Boxes(boxes.boxes.to_format("xyxy")))  # mmdet's corners, to the last bit
    kept = (width >= 1) & (height >= 1) & (boxes.areas() > 0)
    if np.array_equal(_table(boxes)[kept], _table(own(DEFAULT_IOU_TYPE))):
        return (boxes, row_counts) if iou_type == DEFAULT_IOU_TYPE else file.objects(iou_type)
    return _matched(own(iou_type), own(DEFAULT_IOU_TYPE), boxes, row_counts)


def _matched(
    own: GroundTruths, own_boxes: GroundTruths, known: GroundTruths, row_counts: RowCounts
) -> tuple[GroundTruths, RowCounts]:
    """The objects of a dataset with other rules, with the areas of the annotations that are equal to them."""
    areas_of: dict[tuple[float, ...], list[float]] = {}
    areas: np.ndarray = known.area  # type: ignore[assignment]
    for key, known_area in zip(map(tuple, _table(known)[::-1].tolist()), areas[::-1].tolist()):
        areas_of.setdefault(key, []).append(known_area)
    area = np.array(
        [areas_of[key].pop() if areas_of.get(key) else np.nan for key in map(tuple, _table(own_boxes).tolist())]
    )
    unknown = np.isnan(area)
    matched = replace(own, area=np.where(unknown, own.areas(), area))
    if unknown.any():
        warnings.warn(
            f"{int(unknown.sum())} of {len(own)} objects of the test dataset are not in its annotation file; the areas "
            f"of their {own.geometry.field} are used",
            MetricWarning,
            stacklevel=2,
        )
        return matched, RowCounts(len(own), len(own))
    return matched, row_counts.drop("left out by the dataset", row_counts.used - len(own))


def _table(objects: GroundTruths) -> np.ndarray:
    return np.column_stack([objects.image, objects.labels, objects.crowd, objects.boxes.array])


@_silent_stdout()
def read_class_names(path: PathLike, *, options: Sequence[str] | None = None) -> tuple[str, ...]:
    """The class names of the test dataset of an mmpretrain config, which ``options`` override as in --cfg-options."""
    path = Path(path)
    dataset = _build(path, _read_config(path, options), "mmpretrain", lazy=True)
    if not dataset.metainfo.get("classes"):
        with _errors_name(path, "its test dataset cannot be built"):
            dataset.full_init()  # datasets of folders know their classes only after this
    names = dataset.metainfo.get("classes")
    if not names:
        raise ResultFileError(f"{path.name}: its test dataset names no classes (give them with classes=[...])")
    return tuple(map(str, names))


def _read_config(path: Path, options: Sequence[str] | None) -> Any:
    """The config with its overrides; its custom imports are not imported yet."""
    check_is_file(path)
    try:
        from mmengine.config import Config
    except ImportError as error:
        raise ResultFileError(f"{path.name}: reading a config needs mmengine ({error})") from error
    with _errors_name(path, "cannot be read as a config"):
        config = Config.fromfile(str(path), import_custom_modules=False)
        if options:
            config.merge_from_dict(_parsed(options))
    return config


def _test_dataset(config: Any) -> Any:
    """The settings of the test dataset; empty if the config has none."""
    dataloader = config.get("test_dataloader")
    dataset = dataloader.get("dataset") if isinstance(dataloader, dict) else None
    return dataset if isinstance(dataset, dict) else {}


def _build(path: Path, config: Any, library: str, *, classes: Sequence[str] | None = None, lazy: bool = False) -> Any:
    """The test dataset, without its pipeline: images are not loaded."""
    try:
        from mmengine.registry import DATASETS, init_default_scope
        from mmengine.utils import import_modules_from_strings

        __import__(library)
    except ImportError as error:
        instead = "the annotation file as ground truth" if library == "mmdet" else "the class names with classes=[...]"
        raise ResultFileError(f"{path.name}: reading a config needs {library} ({error}); or give {instead}") from error
    with _errors_name(path, "cannot be read as a config"):
        register_metrics()  # the user's code may need them
        if config.get("custom_imports"):
            import_modules_from_strings(**config["custom_imports"])
        if library == "mmdet":
            from mmdet.utils import replace_cfg_vals, update_data_root

            config = replace_cfg_vals(config)
            update_data_root(config)
    settings = _test_dataset(config)
    if not settings:
        raise ResultFileError(f"{path.name}: has no test_dataloader.dataset")
    if classes is not None:
        settings["metainfo"] = dict(settings.get("metainfo") or {}, classes=tuple(classes))
    if "pipeline" in settings:
        settings["pipeline"] = []
    if lazy:
        settings["lazy_init"] = True
    init_default_scope(config.get("default_scope") or library)
    with _errors_name(path, "its test dataset cannot be built"):
        return DATASETS.build(settings)


@contextmanager
def _errors_name(path: Path, problem: str) -> Iterator[None]:
    """Turn any error of a config, which is a program, into one that names the config."""
    try:
        yield
    except ResultFileError:
        raise
    except Exception as error:
        # mmengine 0.10 imports pkg_resources for the base configs of other libraries.
        hint = "; pip install 'setuptools<81'" if "pkg_resources" in str(error) else ""
        raise ResultFileError(f"{path.name}: {problem} ({type(error).__name__}: {error}){hint}") from error


def _parsed(options: Sequence[str]) -> dict[str, Any]:
    """Options of the form ``key=value``, parsed as in mmengine's tools."""
    from argparse import ArgumentParser

    from mmengine.config import DictAction

    for option in options:
        if "=" not in option:
            raise ResultFileError(f"cfg_options=[...] must be KEY=VALUE (found {option!a})")
    parser = ArgumentParser()
    parser.add_argument("--options", nargs="+", action=DictAction)
    return dict(parser.parse_args(["--options", *options]).options)


FORMATS = (
    Format(
        "a config",
        named(".py"),
        GROUND_TRUTH,
        _read_test_set,
        on_disk=True,
        options=("class_order", "cfg_options"),
        iou_types=tuple(_GEOMETRIES),
        load=_load_test_set,
    ),
)
