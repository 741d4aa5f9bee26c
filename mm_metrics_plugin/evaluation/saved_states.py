"""Saved evaluators: the state and the provenance of images or samples in one ``.npz`` file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Mapping, Sequence, Union

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError, ResultFileError
from mm_metrics_plugin.io.files import PathLike, check_num_classes
from mm_metrics_plugin.io.state_file import read_state, write_state
from mm_metrics_plugin.reports.base import Report
from mm_metrics_plugin.reports.classification import ClassificationReport
from mm_metrics_plugin.reports.classification_evaluator import ClassificationEvaluator
from mm_metrics_plugin.reports.detection import DetectionReport
from mm_metrics_plugin.reports.detection_evaluator import DetectionEvaluator
from mm_metrics_plugin.reports.detection_reports import DetectionReports
from mm_metrics_plugin.states.detection_checks import check_detection_state

KINDS: Mapping[str, Any] = {"detection": DetectionEvaluator, "classification": ClassificationEvaluator}
Evaluator = Union[DetectionEvaluator, ClassificationEvaluator]


def save_evaluators(path: PathLike, evaluators: Sequence[Evaluator]) -> None:
    """Write an evaluator, or those of several IoU types, to a ``.npz`` file."""
    headers, arrays = [], {}
    for number, evaluator in enumerate(evaluators):
        kind = next(name for name, kind in KINDS.items() if isinstance(evaluator, kind))
        headers.append({"kind": kind, **evaluator.header()})
        prefix = f"{number}/" if len(evaluators) > 1 else ""
        arrays.update({f"{prefix}{name}": array for name, array in evaluator.state.arrays().items()})
    write_state(path, headers[0] if len(headers) == 1 else {"parts": headers}, arrays)


def save_report(path: PathLike, report: Report) -> None:
    """Write the evaluator that a report was computed from."""
    if not str(path).endswith(".npz"):
        raise ResultFileError(f"the name of a saved state must end in .npz (found {str(path)!r})")
    if isinstance(report, DetectionReports):
        save_evaluators(path, [DetectionEvaluator.of_report(each) for each in report.reports.values()])
    elif isinstance(report, DetectionReport):
        save_evaluators(path, [DetectionEvaluator.of_report(report)])
    elif isinstance(report, ClassificationReport):
        save_evaluators(path, [ClassificationEvaluator.of_report(report)])
    else:
        raise ResultFileError(f"a {type(report).__name__} cannot be saved; save each of its reports")


def read_evaluators(path: PathLike) -> list[Evaluator]:
    """Read the evaluators that :func:`save_evaluators` wrote.

    Raises:
        ResultFileError: The file is damaged.
    """
    path = Path(path)
    header, arrays = read_state(path)
    try:
        if "parts" not in header:
            return [_evaluator(header, arrays, path)]
        parts: list[dict[str, np.ndarray]] = [{} for _ in header["parts"]]
        for name, array in arrays.items():
            number, _, rest = name.partition("/")
            parts[int(number)][rest] = array
        return [_evaluator(part, own, path) for part, own in zip(header["parts"], parts)]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, MetricInputError) as error:
        raise ResultFileError(
            f"{path.name}: is not a state file, which save_state=... writes ({type(error).__name__}: {error})"
        ) from None


def _evaluator(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], path: Path) -> Evaluator:
    if header["kind"] not in KINDS:
        raise ValueError(f"'kind' must be {' or '.join(KINDS)} (found {header['kind']!a})")
    if header["kind"] == "detection":
        return _detection_evaluator(header, arrays, path)
    return _classification_evaluator(header, arrays)


def _with_arrays(state: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    unknown = set(arrays) - set(state.reductions)
    if unknown:
        raise ValueError(f"{min(unknown)!a} is not part of a state with these settings")
    return state.with_arrays({key: arrays.get(key) for key in state.reductions})


def _detection_evaluator(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], path: Path) -> DetectionEvaluator:
    _check_header(header)
    evaluator = DetectionEvaluator.from_header(header)
    evaluator.provenance = replace(evaluator.provenance, saved_as=path.name)
    ids = evaluator.provenance.image_ids
    if not ids:  # else the matrices are in the file
        check_num_classes(len(evaluator.classes), path.name, path.stat().st_size, labels_only=False)
    if len(set(ids)) < len(ids):
        raise ValueError("an image is repeated")
    state = _with_arrays(evaluator.state, arrays)
    if ids:
        check_detection_state(state, len(ids))
        evaluator.state = state
        counted, used = state.counts_by_name, evaluator.provenance.detections.used
        if used != counted["detections"] + counted["detections_suppressed"]:
            raise ValueError(f"the number of detections used must be {counted['detections']}")
    return evaluator


def _classification_evaluator(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ClassificationEvaluator:
    saved = ClassificationEvaluator.from_header(header)
    evaluator = ClassificationEvaluator(saved.classes, saved.settings)
    columns = {name: arrays[name] for name in evaluator.state.reductions}
    evaluator.update(  # which checks them
        columns["scores"],
        columns["labels"],
        names=[str(name) for name in saved.names],
        sample_idx=columns["sample_idx"],
        precision=columns["precision"],
    )
    if any(len(column) != len(saved.names) for column in columns.values()):
        raise ValueError(f"every column must have {len(saved.names)} rows, one per sample")
    evaluator.inputs, evaluator.row_counts = saved.inputs, saved.row_counts
    return evaluator


def _check_header(header: Mapping[str, Any]) -> None:
    """Raises a ValueError if a value is not of the type that :func:`header_of` writes."""
    ids, names, entries = header["image_ids"], header["image_names"], header["ground_truths"]
    is_valid = {
        "classes": all(isinstance(name, str) for name in header["classes"]),
        "image_ids": all(type(image_id) in (int, str) for image_id in ids),
        "image_names": len(names) == len(ids) and all(isinstance(name, str) for name in names),
        "allow_missing": isinstance(header["allow_missing"], bool),
        "ground_truth_in_results": isinstance(header["ground_truth_in_results"], bool),
        "worst_images": header["worst_images"] is None or type(header["worst_images"]) is int,
        "detections": _are_row_counts(header["detections"]),
        "missing_images": _is_count(header["missing_images"]) and header["missing_images"] <= len(ids),
        "results": _are_entries(header["results"]),
        "versions": _are_entries(header["versions"]),
        "ground_truths": _are_entries(entries)
        and all(_is_count(entry["images"]) and _are_row_counts(entry["ground_truths"]) for entry in entries),
    }
    for name, valid in is_valid.items():
        if not valid:
            raise ValueError(f"{name!a} has a value that save_state=... does not write")


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _are_row_counts(value: Any) -> bool:
    counts = [value["used"], *value["dropped"].values()]
    return all(map(_is_count, [value["read"], *counts])) and value["read"] == sum(counts)


def _are_entries(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, dict)
        and all(isinstance(entry.get(key, ""), str) for key in ("file", "class_order", "joined_by"))
        and isinstance(entry.get("sha256"), (str, type(None)))
        and set(entry.get("not_evaluated", ())) <= {"masks", "keypoints"}
        for entry in value
    )
