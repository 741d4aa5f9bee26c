"""The test dataset of a config of an OpenMMLab library.

A config is a program of the user, which mmengine runs, as in every tool of these libraries; never use a config from
strangers. mmengine is imported only when a config is read, mmdet and mmpretrain only when they are needed.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, Iterator, Sequence

import numpy as np

from mm_metrics_plugin import register_metrics
from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError
from mm_metrics_plugin.functional.detection.data import GroundTruths, ImageId
from mm_metrics_plugin.io.class_order import label_names_of_dataset, leaf_datasets
from mm_metrics_plugin.io.detection_data import SWAPPED, AnnotationSet, distinct_ids, has_swapped_corners
from mm_metrics_plugin.io.file_formats import named
from mm_metrics_plugin.io.files import PathLike, check_is_file, read_json
from mm_metrics_plugin.io.formats import GROUND_TRUTH, Format, ReadOptions
from mm_metrics_plugin.io.readers.coco import read_annotations
from mm_metrics_plugin.row_counts import RowCounts


@contextmanager
def _silent_stdout() -> Iterator[None]:
    """Suppress what configs, mmdet and pycocotools print: standard output is for the report."""
    with redirect_stdout(StringIO()):
        yield


@_silent_stdout()
def _read_test_set(path: Path, options: ReadOptions) -> AnnotationSet:
    """Read the ground-truth objects of the test dataset of an mmdet config.

    mmdet builds the dataset, which takes seconds; its annotation file is read much faster. mmdet's datasets keep
    neither the ``area`` of an annotation nor objects thinner than a pixel. If the dataset has a COCO annotation file,
    both are read from that file, so the numbers do not depend on the form of the ground truth.

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
    objects = GroundTruths(
        np.array([number for number, _ in rows], dtype=np.int64),
        np.array([row["bbox"] for _, row in rows], dtype=np.float64).reshape(-1, 4),
        np.array([row["bbox_label"] for _, row in rows], dtype=np.int64),
        crowd=np.array([bool(row.get("ignore_flag")) for _, row in rows], dtype=bool),
    )
    objects, row_counts = _complete_from_annotation_files(dataset, ids, objects)
    if labels.labels is not None:
        objects = replace(objects, labels=np.array(labels.labels, dtype=np.int64)[objects.labels])
    swapped = has_swapped_corners(objects.boxes.array)
    return AnnotationSet(
        source=path.name,
        image_ids=tuple(names),
        image_names=tuple(paths),
        image_sizes=np.array(sizes, dtype=np.int64).reshape(-1, 2),
        objects=objects.take(~swapped),
        row_counts=row_counts.drop(SWAPPED, int(np.count_nonzero(swapped))),
        classes=labels.names,
        class_order=labels.order,
        class_conflict=labels.conflict,
        image_folders=_image_folders(dataset),
        libraries=("mmengine", "mmdet"),
    )


def _image_folders(dataset: Any) -> tuple[str, ...]:
    """The folders that a dataset takes its images from."""
    prefixes = [getattr(leaf, "data_prefix", None) for leaf in leaf_datasets(dataset)]
    folders = [folder for prefix in prefixes if isinstance(prefix, dict) for folder in prefix.values()]
    return tuple(dict.fromkeys(folder for folder in folders if isinstance(folder, str) and folder))


def _complete_from_annotation_files(
    dataset: Any, image_ids: Sequence[ImageId], objects: GroundTruths
) -> tuple[GroundTruths, RowCounts]:
    """Add the areas of the annotations, and the objects that mmdet drops because they are thin.

    mmdet's ``CocoDataset`` drops annotations whose width or height is below 1 or whose area is 0. pycocotools, and so
    mmdet's ``CocoMetric``, counts them. The parts of a ``ConcatDataset`` are completed one by one.
    """
    parts = _parts(dataset)
    ends = np.cumsum([len(part) for part in parts]).tolist() if len(parts) > 1 else [len(image_ids)]
    completed: list[GroundTruths] = []
    counts: list[RowCounts] = []
    for part, start, end in zip(parts, [0, *ends], ends):
        own = objects.images(start, end)
        file = _annotation_file(part)
        result = (own, RowCounts(len(own), len(own)))
        if file is not None:
            result = _complete(own, file, part.cat2label, image_ids[start:end])
        completed.append(replace(result[0], image=result[0].image + start))
        counts.append(result[1])
    if any(part.area is not None for part in completed):
        completed = [replace(part, area=part.areas()) for part in completed]
    return GroundTruths.concatenate(completed), RowCounts.total(counts)


def _parts(dataset: Any) -> list[Any]:
    """The parts of a ``ConcatDataset`` in the order of its images; any other dataset by itself."""
    if not hasattr(dataset, "cumulative_sizes"):
        return [dataset]
    return [part for inner in dataset.datasets for part in _parts(inner)]


def _annotation_file(dataset: Any) -> AnnotationSet | None:
    """The COCO file of a dataset, with all classes; None if it has none."""
    path = getattr(dataset, "ann_file", None)
    # Only datasets of COCO files have category ids.
    if not isinstance(path, str) or not hasattr(dataset, "cat_ids") or not hasattr(dataset, "cat2label"):
        return None
    from mmengine.fileio import get_local_path

    try:
        with get_local_path(path, backend_args=getattr(dataset, "backend_args", None)) as local:
            return read_annotations(read_json(local)[0], ReadOptions(Path(local).name))
    except (ResultFileError, OSError) as error:
        warnings.warn(
            f"{path}: cannot be read for the areas of the objects; the areas of their boxes are used ({error})",
            MetricWarning,
            stacklevel=2,
        )
        return None


def _complete(
    own: GroundTruths, file: AnnotationSet, label_of: dict[Any, int], image_ids: Sequence[ImageId]
) -> tuple[GroundTruths, RowCounts]:
    number = {image_id: at for at, image_id in enumerate(image_ids)}
    image = np.array([number.get(image_id, -1) for image_id in file.image_ids], dtype=np.int64)[file.objects.image]
    labels = np.array([label_of.get(key, -1) for key in file.category_ids or ()], dtype=np.int64)[file.objects.labels]
    chosen = (image >= 0) & (labels >= 0)
    row_counts = file.row_counts.drop("class not chosen", int(np.count_nonzero(labels < 0)))
    row_counts = row_counts.drop("image not in the test set", int(np.count_nonzero((labels >= 0) & (image < 0))))
    rows = np.flatnonzero(chosen)[np.argsort(image[chosen], kind="stable")]
    shapes = file.objects.boxes.take(rows)
    width, height = shapes.array[:, 2:].T
    boxes = shapes.to_format("xyxy")  # mmdet's corners, to the last bit
    area = file.objects.area[rows]  # type: ignore[index]
    known = GroundTruths(image[rows], boxes, labels[rows], crowd=file.objects.crowd[rows], area=area)
    if np.array_equal(_table(known)[(width >= 1) & (height >= 1) & (area > 0)], _table(own)):
        return known, row_counts
    return _matched(own, known, row_counts)


def _matched(own: GroundTruths, known: GroundTruths, row_counts: RowCounts) -> tuple[GroundTruths, RowCounts]:
    """The objects of a dataset with other rules, with the areas of the annotations that are equal to them."""
    areas_of: dict[tuple[float, ...], list[float]] = {}
    areas: np.ndarray = known.area  # type: ignore[assignment]
    for key, known_area in zip(map(tuple, _table(known)[::-1].tolist()), areas[::-1].tolist()):
        areas_of.setdefault(key, []).append(known_area)
    area = np.array([areas_of[key].pop() if areas_of.get(key) else np.nan for key in map(tuple, _table(own).tolist())])
    unknown = np.isnan(area)
    matched = replace(own, area=np.where(unknown, own.areas(), area))
    if unknown.any():
        warnings.warn(
            f"{int(unknown.sum())} of {len(own)} objects of the test dataset are not in its annotation file; the areas "
            "of their boxes are used",
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
    ),
)
