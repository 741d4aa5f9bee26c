"""Saved evaluators: the state and the provenance of images or samples in one ``.npz`` file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Mapping, Union

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.files import PathLike, check_num_classes
from mm_metrics_plugin.io.state_file import read_state, write_state
from mm_metrics_plugin.reports.base import Report
from mm_metrics_plugin.reports.classification import ClassificationReport
from mm_metrics_plugin.reports.classification_evaluator import ClassificationEvaluator
from mm_metrics_plugin.reports.detection import DetectionReport
from mm_metrics_plugin.reports.detection_evaluator import DetectionEvaluator

KINDS: Mapping[str, Any] = {"detection": DetectionEvaluator, "classification": ClassificationEvaluator}
Evaluator = Union[DetectionEvaluator, ClassificationEvaluator]


def save_evaluator(path: PathLike, evaluator: Evaluator) -> None:
    """Write an evaluator to a ``.npz`` file."""
    kind = next(name for name, kind in KINDS.items() if isinstance(evaluator, kind))
    write_state(path, {"kind": kind, **evaluator.header()}, evaluator.state.arrays())


def save_report(path: PathLike, report: Report) -> None:
    """Write the evaluator that a report was computed from."""
    if not str(path).endswith(".npz"):
        raise ResultFileError(f"the name of a saved state must end in .npz (found {str(path)!r})")
    if isinstance(report, DetectionReport):
        save_evaluator(path, DetectionEvaluator.of_report(report))
    elif isinstance(report, ClassificationReport):
        save_evaluator(path, ClassificationEvaluator.of_report(report))
    else:
        raise ResultFileError(f"a {type(report).__name__} cannot be saved; save the reports of its runs")


def read_evaluator(path: PathLike) -> Evaluator:
    """Read an evaluator that :func:`save_evaluator` wrote.

    Raises:
        ResultFileError: The file is damaged.
    """
    path = Path(path)
    header, arrays = read_state(path)
    try:
        if header["kind"] == "detection" and not header["image_ids"]:  # else the matrices are in the file
            check_num_classes(len(header["classes"]), path.name, path.stat().st_size, labels_only=False)
        evaluator: Any = KINDS[header["kind"]].from_header(header)
        evaluator.state = evaluator.state.with_arrays({name: arrays.get(name) for name in evaluator.state.reductions})
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # written by something else
        raise ResultFileError(
            f"{path.name}: is not a state file, which save_state=... writes ({type(error).__name__}: {error})"
        ) from None
    if isinstance(evaluator, DetectionEvaluator):
        evaluator.provenance = replace(evaluator.provenance, saved_as=path.name)
    return evaluator  # type: ignore[no-any-return]
