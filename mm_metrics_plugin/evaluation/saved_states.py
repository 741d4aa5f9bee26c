"""Saved evaluators: their state and their header in one ``.npz`` file, read without pickle.

The header is JSON: what an evaluator knows besides its arrays, such as the classes, settings and image ids.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, Mapping, Sequence, Union

import numpy as np

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.files import PathLike, check_is_file, check_num_classes
from mm_metrics_plugin.io.writing import write_all
from mm_metrics_plugin.reports.base import Report
from mm_metrics_plugin.reports.classification import ClassificationReport
from mm_metrics_plugin.reports.classification_evaluator import ClassificationEvaluator
from mm_metrics_plugin.reports.detection import DetectionReport
from mm_metrics_plugin.reports.detection_evaluator import DetectionEvaluator
from mm_metrics_plugin.reports.detection_reports import DetectionReports

SCHEMA_VERSION = 7
# What a damaged zip file, header or JSON can raise; a RuntimeError is a feature of zip files that is not supported.
_DAMAGED: Any = (ValueError, KeyError, TypeError, EOFError, MemoryError, RuntimeError, SyntaxError)
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
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ResultFileError(
            f"{path.name}: is not a state file, which save_state=... writes ({type(error).__name__}: {error})"
        ) from None


def _evaluator(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], path: Path) -> Evaluator:
    if header["kind"] == "detection" and not header["image_ids"]:  # else the matrices are in the file
        check_num_classes(len(header["classes"]), path.name, path.stat().st_size, labels_only=False)
    evaluator: Any = KINDS[header["kind"]].from_header(header)
    evaluator.state = evaluator.state.with_arrays({name: arrays.get(name) for name in evaluator.state.reductions})
    if isinstance(evaluator, DetectionEvaluator):
        evaluator.provenance = replace(evaluator.provenance, saved_as=path.name)
    return evaluator  # type: ignore[no-any-return]


# -- the file ----------------------------------------------------------------------------------------------------------


def write_state(path: PathLike, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray | None]) -> None:
    """Write a header and arrays, whole or not at all. Arrays that are None are left out."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **header}, ensure_ascii=True, allow_nan=False)
    content: dict[str, Any] = {"header": np.frombuffer(text.encode("ascii"), dtype=np.uint8)}
    content.update({name: np.ascontiguousarray(value) for name, value in arrays.items() if value is not None})
    archive = BytesIO()
    np.savez(archive, **content, sha256=_sha256(content))
    write_all({str(path): archive.getvalue()})


def read_state(path: PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what :func:`write_state` wrote. Nothing in the file is run, and its arrays take no more than its size.

    Raises:
        ResultFileError: The file is damaged or is not a state file.
    """
    path = Path(path)
    check_is_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            _check_entries(archive, path.stat().st_size)
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        checksum = arrays.pop("sha256", None)
        header = json.loads(arrays["header"].tobytes())
        version = header["schema_version"]
        if version == SCHEMA_VERSION and not np.array_equal(checksum, _sha256(arrays)):
            raise ValueError("its content was changed")
        del arrays["header"]
    except OSError as error:
        raise ResultFileError(f"{path.name}: cannot be read ({error.strerror or error})") from None
    except (*_DAMAGED, zipfile.BadZipFile, zlib.error) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ResultFileError(f"{path.name}: is not a state file, which save_state=... writes ({reason})") from None
    if version != SCHEMA_VERSION:
        raise ResultFileError(
            f"{path.name}: is a state of format version {version!a}, and this version of the package reads version "
            f"{SCHEMA_VERSION}; save it again with save_state=..."
        )
    return header, arrays


def _check_entries(archive: zipfile.ZipFile, file_size: int) -> None:
    """Raises a ValueError unless the entries are not compressed or repeated and do not overlap."""
    entries = archive.infolist()
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or not entry.filename.endswith(".npy"):
            raise ValueError(f"{entry.filename!a} is not a plain array")
    if len({entry.filename for entry in entries}) < len(entries):
        raise ValueError("an array is repeated")
    total = sum(entry.file_size for entry in entries)
    if total > file_size:
        raise ValueError(f"its arrays take {total} bytes in total, and the file has {file_size}")


def _sha256(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The checksum of all arrays with their names, dtypes and shapes."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)
