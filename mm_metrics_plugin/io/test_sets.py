"""The test data set of a config of the OpenMMLab family.

A config is a program of the user's own, run by mmengine as by every tool of that family; never take one from
strangers. mmengine is imported only when one is read, mmdet and mmpretrain only when they are needed.
"""

from __future__ import annotations

import os
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.functional.detection_batch import Objects
from mm_metrics_plugin.io.ground_truth import GroundTruth
from mm_metrics_plugin.io.plain_coco import read_plain_coco
from mm_metrics_plugin.io.tally import Tally

PathLike = Union[str, "os.PathLike[str]"]
Track = Callable[[Sequence[int]], Iterable[int]]


def read_test_set(
    path: PathLike,
    *,
    classes: Optional[Sequence[str]] = None,
    options: Optional[Sequence[str]] = None,
    track: Track = lambda numbers: numbers,
) -> GroundTruth:
    """Take the objects out of the test data set of an mmdet config.

    A plain ``CocoDataset`` is read without mmdet, which takes seconds to import; any other is built with it.

    Args:
        path (str or PathLike): The config, in either style.
        classes (Sequence[str], optional): Takes the place of the data set's ``metainfo.classes``.
        options (Sequence[str], optional): ``key=value`` settings that override the config's, as ``--cfg-options``.
        track (Callable): Wraps the numbers of the images, to show how far it got.

    Raises:
        ResultFileError: The config or its data set cannot be read.
    """
    path = Path(path)
    config = _read_config(path, options)
    plain = read_plain_coco(path.name, config.to_dict(), classes)
    if plain is not None:
        return plain
    dataset = _build(path, config, "mmdet", classes=classes)
    names = dataset.metainfo.get("classes")
    if not names:
        raise ResultFileError(f"{path.name}: its test data set names no classes (give them with --classes)")
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
    if len(set(ids)) < len(ids):
        raise ResultFileError(f"{path.name}: image ids of its test data set come twice; results cannot be joined to it")
    objects = Objects(
        np.array([number for number, _ in rows], dtype=np.int64),
        np.array([one["bbox"] for _, one in rows], dtype=np.float64).reshape(-1, 4),
        np.array([one["bbox_label"] for _, one in rows], dtype=np.int64),
        crowd=np.array([bool(one.get("ignore_flag")) for _, one in rows], dtype=bool),
    )
    return GroundTruth(
        source=path.name,
        image_ids=tuple(ids),
        image_names=tuple(paths),
        image_sizes=np.array(sizes, dtype=np.int64).reshape(-1, 2),
        objects=objects,
        tally=Tally(len(rows), len(rows)),
        classes=tuple(map(str, names)),
    )


def read_class_names(path: PathLike, *, options: Optional[Sequence[str]] = None) -> Tuple[str, ...]:
    """The class names of the test data set of an mmpretrain config.

    Args:
        path (str or PathLike): The config, in either style.
        options (Sequence[str], optional): ``key=value`` settings that override the config's.

    Raises:
        ResultFileError: The config or its data set cannot be read, or names no classes.
    """
    path = Path(path)
    dataset = _build(path, _read_config(path, options), "mmpretrain", lazy=True)
    names = dataset.metainfo.get("classes")
    if not names:
        # Folders name their classes only once they were looked into.
        try:
            with redirect_stdout(StringIO()):
                dataset.full_init()
        except Exception as error:
            raise _data_set_error(path, error) from error
        names = dataset.metainfo.get("classes")
    if not names:
        raise ResultFileError(f"{path.name}: its test data set names no classes (give them with --classes)")
    return tuple(map(str, names))


def _read_config(path: Path, options: Optional[Sequence[str]]) -> Any:
    """The config with its overrides; what it asks to import is not imported yet."""
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
    """The test data set, without its pipeline: pictures are not looked at."""
    try:
        from mmengine.registry import DATASETS, init_default_scope
        from mmengine.utils import import_modules_from_strings

        __import__(library)
    except ImportError as error:
        raise ResultFileError(f"{path.name}: reading a config needs {library} ({error})") from error
    try:
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
        with redirect_stdout(StringIO()):  # pycocotools speaks there, where a report is to come out
            return DATASETS.build(settings)
    except Exception as error:  # whatever is missing, the reader wants to know which data set asked for it
        raise _data_set_error(path, error) from error


def _config_error(path: Path, error: Exception) -> ResultFileError:
    """A config is a program: anything can happen in it."""
    return ResultFileError(f"{path.name}: cannot be read as a config ({type(error).__name__}: {error})")


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
