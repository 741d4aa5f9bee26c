"""Test sets that are nothing but a COCO file: what mmdet's ``CocoDataset`` would hold, without importing mmdet.

Importing mmdet takes longer than the whole report. Whatever is unusual about a config is left to mmdet itself.
"""

from __future__ import annotations

import ast
import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.io.ground_truth import GroundTruth, read_ground_truth

TYPES = ("CocoDataset", "mmdet.CocoDataset", "mmdet.datasets.CocoDataset", "mmdet.datasets.coco.CocoDataset")
# The data set's own settings that say which objects there are, and those that do not matter for that.
READ = {"type", "ann_file", "data_root", "data_prefix", "metainfo", "test_mode"}
UNIMPORTANT = {"_scope_", "pipeline", "filter_cfg", "lazy_init", "serialize_data", "max_refetch", "return_classes"}


def read_plain_coco(
    source: str, config: Mapping[str, Any], classes: Optional[Sequence[str]] = None
) -> Optional[GroundTruth]:
    """The objects of a config's test set if it is a plain ``CocoDataset``, else None.

    Args:
        source (str): Name of the config.
        config (Mapping): The config as plain values, types as their names.
        classes (Sequence[str], optional): Takes the place of the data set's ``metainfo.classes``.

    Examples:
        >>> read_plain_coco("voc.py", {"test_dataloader": {"dataset": {"type": "VOCDataset"}}}) is None
        True
    """
    settings = config.get("test_dataloader", {}).get("dataset") or {}
    if not _is_plain(config, settings):
        return None
    own = (settings.get("metainfo") or {}).get("classes") or _default_classes()
    names = classes or own
    if not isinstance(names, (list, tuple)):  # a file of names, or none at all
        return None
    if tuple(names) != tuple(own or names):  # given names may number labels otherwise than the config's
        return None
    root = settings.get("data_root") or ""
    try:
        truth = read_ground_truth(os.path.join(root, settings["ann_file"]), classes=names)
    except ResultFileError:  # a class the file does not have is none to mmdet; for the rest, let it speak
        return None
    if truth.classes != tuple(names):  # mmdet takes labels from the file's order and names from the config's
        return None
    folder = os.path.join(root, settings["data_prefix"]["img"])
    boxes = truth.objects.boxes.to_format("xyxy")  # mmdet's corners, to the last bit
    return replace(
        truth,
        source=source,
        image_names=tuple(os.path.join(folder, name) for name in truth.image_names),
        objects=replace(truth.objects, geometry=Boxes(boxes)),
        image_folders=(folder,) if folder else (),
    )


def _is_plain(config: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    imports = (config.get("custom_imports") or {}).get("imports") or []
    return (
        settings.get("type") in TYPES
        and isinstance(settings.get("ann_file"), str)
        and isinstance((settings.get("data_prefix") or {}).get("img"), str)
        and (config.get("default_scope") or "mmdet") == (settings.get("_scope_") or "mmdet") == "mmdet"
        and ([imports] if isinstance(imports, str) else list(imports)) in ([], ["mm_metrics_plugin"])
        and bool(settings.get("test_mode") or not settings.get("filter_cfg"))
        and not {key for key, value in settings.items() if value is not None} - READ - UNIMPORTANT
        and "${" not in repr(config)  # mmdet fills these in
        and "MMDET_DATASETS" not in os.environ
    )


def _default_classes() -> Optional[Sequence[str]]:
    """The names that ``CocoDataset`` of the installed mmdet has of its own, taken from its source."""
    try:
        package = find_spec("mmdet")
        if package is None or package.origin is None:
            return None
        source = Path(package.origin).with_name("datasets") / "coco.py"
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "METAINFO":
                return ast.literal_eval(node.value)["classes"]
    except (OSError, SyntaxError, ValueError, KeyError):
        pass
    return None
