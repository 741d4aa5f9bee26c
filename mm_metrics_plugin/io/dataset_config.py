"""The test data set of a config of the OpenMMLab family.

A config is a program of the user's own, run by mmengine as by every tool of that family; never take one from
strangers. mmengine is imported only when one is read, mmdet and mmpretrain only when they are needed.
"""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from mm_metrics_plugin import register_metrics
from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError
from mm_metrics_plugin.functional.detection.data import GroundTruths
from mm_metrics_plugin.io.annotation_files import complete_from_annotation_files
from mm_metrics_plugin.io.class_order import (
    ANNOTATIONS,
    CLASSES,
    METAINFO,
    Categories,
    describe_orders,
    read_categories,
    same_labels,
)
from mm_metrics_plugin.io.ground_truth import SWAPPED, GroundTruth, distinct_ids, has_swapped_corners

PathLike = Union[str, "os.PathLike[str]"]
Track = Callable[[Sequence[int]], Iterable[int]]


@contextmanager
def _silent_stdout() -> Iterator[None]:
    """Drop what configs, mmdet and pycocotools print: standard output is for the report."""
    with redirect_stdout(StringIO()):
        yield


@_silent_stdout()
def read_test_set(
    path: PathLike,
    *,
    classes: Optional[Sequence[str]] = None,
    class_order: Optional[str] = None,
    options: Optional[Sequence[str]] = None,
    track: Track = lambda numbers: numbers,
) -> GroundTruth:
    """Read the ground-truth objects of the test dataset of an mmdet config.

    mmdet builds the data set, which takes seconds; its annotation file is read much faster. mmdet's datasets keep
    neither the ``area`` of an annotation nor objects thinner than a pixel. Where the dataset names a COCO annotation
    file, both are read from that file, so the numbers do not depend on how the ground truth is given.

    Labels mean what they mean in mmdet: those of a ``CocoDataset`` follow the order of the annotation file's
    categories, whatever the order of ``metainfo.classes``; those of other data sets follow ``metainfo.classes``. If the
    two orders of a ``CocoDataset`` hold the same classes and differ, a warning shows both.

    Args:
        path: The config, in either style.
        classes: Takes the place of the data set's ``metainfo.classes``.
        class_order: ``'annotations'`` or ``'classes'``: which order labels follow where that of the
            annotation file and that of ``metainfo.classes`` (or ``classes``) differ.
        options: ``key=value`` settings that override the config's, as ``--cfg-options``.
        track: Wraps the image indices to show progress.

    Raises:
        ResultFileError: The config or its data set cannot be read.
    """
    path = Path(path)
    config = _read_config(path, options)
    own = (((config.get("test_dataloader") or {}).get("dataset") or {}).get("metainfo") or {}).get("classes")
    own = own if isinstance(own, (list, tuple)) else ()
    dataset = _build(path, config, "mmdet", classes=classes)
    own = own or getattr(type(dataset), "METAINFO", {}).get("classes") or ()
    numbering = _numbering(path, dataset, own=tuple(map(str, own)), classes=classes, class_order=class_order)
    ids: List[Any] = []
    paths: List[str] = []
    sizes: List[Tuple[int, int]] = []
    rows: List[Tuple[int, Dict[str, Any]]] = []
    for number in track(range(len(dataset))):
        info = dataset.get_data_info(number)
        ids.append(info["img_id"])
        paths.append(str(info.get("img_path", "")))
        sizes.append((int(info.get("height") or 0), int(info.get("width") or 0)))
        rows += [(number, instance) for instance in info.get("instances", ())]
    names = distinct_ids(ids, paths)
    if len(set(names)) < len(names):
        raise ResultFileError(
            f"{path.name}: image ids of its test data set are repeated, and so are their paths; results cannot be "
            "joined to it. Give each part an annotation file of its own ids, or test the parts one by one"
        )
    objects = GroundTruths(
        np.array([number for number, _ in rows], dtype=np.int64),
        np.array([one["bbox"] for _, one in rows], dtype=np.float64).reshape(-1, 4),
        np.array([one["bbox_label"] for _, one in rows], dtype=np.int64),
        crowd=np.array([bool(one.get("ignore_flag")) for _, one in rows], dtype=bool),
    )
    objects, row_counts = complete_from_annotation_files(dataset, ids, objects)
    objects = replace(objects, labels=numbering.label_of(objects.labels))
    swapped = has_swapped_corners(objects.boxes.array)
    return GroundTruth(
        source=path.name,
        image_ids=tuple(names),
        image_names=tuple(paths),
        image_sizes=np.array(sizes, dtype=np.int64).reshape(-1, 2),
        objects=objects.take(~swapped),
        row_counts=row_counts.drop(SWAPPED, int(np.count_nonzero(swapped))),
        classes=numbering.names,
        class_order=numbering.order,
        class_conflict=numbering.conflict,
        image_folders=tuple(dict.fromkeys(_image_folders(dataset))),
    )


def _image_folders(dataset: Any) -> List[str]:
    """The folders that a dataset takes its images from, and those of the datasets it is made of."""
    prefixes = getattr(dataset, "data_prefix", None)
    folders = [one for one in prefixes.values() if isinstance(one, str) and one] if isinstance(prefixes, dict) else []
    inner = [getattr(dataset, "dataset", None), *(getattr(dataset, "datasets", None) or ())]
    return folders + [folder for one in inner if one is not None for folder in _image_folders(one)]


class _Numbering(NamedTuple):
    """Which class each label stands for."""

    names: Tuple[str, ...]
    order: str
    conflict: str = ""
    places: Optional[np.ndarray] = None  # the label in the chosen order of each label of the data set

    def label_of(self, labels: np.ndarray) -> np.ndarray:
        """Labels of the data set in the chosen order."""
        return labels if self.places is None else self.places[labels]


def _numbering(
    path: Path,
    dataset: Any,
    *,
    own: Tuple[str, ...],
    classes: Optional[Sequence[str]],
    class_order: Optional[str],
) -> _Numbering:
    """The classes of the labels: as the data set numbers them, unless another order is chosen.

    Args:
        path: Of the config.
        dataset: As built, with ``classes`` in place of its own.
        own: The classes that the config itself names.
        classes: The given class names.
        class_order: The chosen order.
    """
    names = tuple(map(str, dataset.metainfo.get("classes") or ()))
    if not names:
        raise ResultFileError(f"{path.name}: its test data set names no classes (give them with --classes)")
    named_by = "metainfo" if classes is None else "--classes"
    choice = "--class-order annotations (mmdet's CocoDataset numbers them so) or --class-order classes"
    found = _numbered_by_file(path, dataset, names)
    if found is None:
        if class_order == ANNOTATIONS:
            raise ResultFileError(
                f"{path.name}: --class-order annotations: the annotations of its test set ({type(dataset).__name__}) "
                "have no order of classes"
            )
        conflict = ""
        if class_order is None and set(names) <= set(own) and not same_labels(names, own):
            orders = describe_orders(own, path.name, names, named_by)
            conflict = f"{orders}. Leave out --classes, or give --class-order classes"
        return _Numbering(names, METAINFO if classes is None else CLASSES, conflict)
    file, categories, listed = found
    if class_order == CLASSES:
        return _Numbering(names, CLASSES, places=np.array([names.index(name) for name in listed], dtype=np.int64))
    if class_order == ANNOTATIONS:
        return _Numbering(listed, ANNOTATIONS)
    both = describe_orders(listed, file, names, named_by)
    if same_labels(listed, names):
        mine = categories.numbered(own)
        if classes is None or not set(names) <= set(mine) or same_labels(names, mine):
            return _Numbering(names, ANNOTATIONS)
        both = describe_orders(mine, f"{file} with the classes of {path.name}", names, named_by)
    elif classes is None and sorted(listed) == sorted(names):
        warnings.warn(
            f"{path.name}: {both}. mmdet's CocoDataset numbers labels in the order of {file}, and so does this report. "
            "List metainfo.classes in that order to make them agree; if the labels of your model follow metainfo, give "
            "--class-order classes",
            MetricWarning,
        )
        return _Numbering(listed, ANNOTATIONS)
    return _Numbering(listed, ANNOTATIONS, f"{both}. Say which order the labels follow: {choice}")


def _numbered_by_file(
    path: Path, dataset: Any, names: Tuple[str, ...]
) -> Optional[Tuple[str, Categories, Tuple[str, ...]]]:
    """The annotation file that numbers the classes, its categories, and the names of labels 0, 1, ...; None if none."""
    found: Dict[str, Tuple[Categories, Tuple[str, ...]]] = {}
    for leaf in _leaves(dataset):
        category_ids, file = getattr(leaf, "cat_ids", None), getattr(leaf, "ann_file", None)
        if not category_ids or not isinstance(file, str) or not file.endswith(".json"):
            return None
        try:
            categories = read_categories(file)
        except ResultFileError:  # it is stored where only mmdet can read it
            return None
        name_of = dict(zip(categories.ids, categories.names))
        listed = tuple(name_of.get(one, "") for one in category_ids)
        if not set(listed) <= set(names):  # the dataset renames the categories
            return None
        found[Path(file).name] = categories, listed
    files = list(found)
    for other in files[1:]:
        if found[other][1] != found[files[0]][1]:
            orders = describe_orders(found[files[0]][1], files[0], found[other][1], other)
            raise ResultFileError(f"{path.name}: its annotation files number the classes differently: {orders}")
    return (files[0], *found[files[0]]) if files else None


def _leaves(dataset: Any) -> List[Any]:
    """The data sets inside wrappers such as ``ConcatDataset``."""
    parts = getattr(dataset, "datasets", None) or ([dataset.dataset] if hasattr(dataset, "dataset") else None)
    return [dataset] if parts is None else [leaf for part in parts for leaf in _leaves(part)]


@_silent_stdout()
def read_class_names(path: PathLike, *, options: Optional[Sequence[str]] = None) -> Tuple[str, ...]:
    """The class names of the test data set of an mmpretrain config.

    Args:
        path: The config, in either style.
        options: ``key=value`` settings that override the config's.

    Raises:
        ResultFileError: The config or its data set cannot be read, or names no classes.
    """
    path = Path(path)
    dataset = _build(path, _read_config(path, options), "mmpretrain", lazy=True)
    names = dataset.metainfo.get("classes")
    if not names:
        # Datasets of folders know their classes only after they are initialized.
        try:
            dataset.full_init()
        except Exception as error:
            raise _data_set_error(path, error) from error
        names = dataset.metainfo.get("classes")
    if not names:
        raise ResultFileError(f"{path.name}: its test data set names no classes (give them with --classes)")
    return tuple(map(str, names))


def _read_config(path: Path, options: Optional[Sequence[str]]) -> Any:
    """The config with its overrides; its custom imports are not imported yet."""
    if not path.is_file():
        raise ResultFileError(f"{path.name}: cannot be read (No such file or directory)")
    try:
        from mmengine.config import Config
    except ImportError as error:
        raise ResultFileError(f"{path.name}: reading a config needs mmengine ({error})") from error
    try:
        config = Config.fromfile(str(path), import_custom_modules=False)
        if options:
            config.merge_from_dict(_parsed(options))
    except ResultFileError:
        raise
    except Exception as error:
        raise _config_error(path, error) from error
    return config


def _build(
    path: Path, config: Any, library: str, *, classes: Optional[Sequence[str]] = None, lazy: bool = False
) -> Any:
    """The test data set, without its pipeline: images are not loaded."""
    try:
        from mmengine.registry import DATASETS, init_default_scope
        from mmengine.utils import import_modules_from_strings

        __import__(library)
    except ImportError as error:
        instead = "the annotation file as ground truth" if library == "mmdet" else "the class names with --classes"
        raise ResultFileError(f"{path.name}: reading a config needs {library} ({error}); or give {instead}") from error
    try:
        register_metrics()  # the user's code may need them from here on
        if config.get("custom_imports"):
            import_modules_from_strings(**config["custom_imports"])
        if library == "mmdet":
            from mmdet.utils import replace_cfg_vals, update_data_root

            config = replace_cfg_vals(config)
            update_data_root(config)
    except Exception as error:
        raise _config_error(path, error) from error
    settings = config.get("test_dataloader", {}).get("dataset")
    if not settings:
        raise ResultFileError(f"{path.name}: has no test_dataloader.dataset")
    if classes is not None:
        settings["metainfo"] = dict(settings.get("metainfo") or {}, classes=tuple(classes))
    if "pipeline" in settings:
        settings["pipeline"] = []
    if lazy:
        settings["lazy_init"] = True
    init_default_scope(config.get("default_scope") or library)
    try:
        return DATASETS.build(settings)
    except Exception as error:  # the message names the config whatever is missing
        raise _data_set_error(path, error) from error


def _config_error(path: Path, error: Exception) -> ResultFileError:
    """A config is a program: anything can happen in it."""
    # mmengine 0.10 reads the base configs of other libraries with it.
    hint = "; pip install 'setuptools<81'" if "pkg_resources" in str(error) else ""
    return ResultFileError(f"{path.name}: cannot be read as a config ({type(error).__name__}: {error}){hint}")


def _data_set_error(path: Path, error: Exception) -> ResultFileError:
    return ResultFileError(f"{path.name}: its test data set cannot be built ({type(error).__name__}: {error})")


def _parsed(options: Sequence[str]) -> Dict[str, Any]:
    """``key=value`` as mmengine's tools read it."""
    from argparse import ArgumentParser

    from mmengine.config import DictAction

    for option in options:
        if "=" not in option:
            raise ResultFileError(f"--cfg-options: must be KEY=VALUE (found {option!a})")
    parser = ArgumentParser()
    parser.add_argument("--options", nargs="+", action=DictAction)
    return dict(parser.parse_args(["--options", *options]).options)
