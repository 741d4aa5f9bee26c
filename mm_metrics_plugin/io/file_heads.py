"""What a file or folder is, by its name and first bytes."""

from __future__ import annotations

import zipfile
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.files import PathLike, check_is_file
from mm_metrics_plugin.io.formats import Format

_PICKLE = b"\x80"  # the first byte of a pickle of protocol 2 and later
_HEAD_BYTES = 512
_FILES_TRIED = 20  # of a folder


class FileHead(NamedTuple):
    """What tells the format of a file or folder."""

    path: Path
    data: bytes = b""  # the first bytes; of a folder none
    is_folder: bool = False

    @property
    def suffix(self) -> str:
        """In lower case; of a folder ""."""
        return "" if self.is_folder else self.path.suffix.lower()


def file_head(path: PathLike) -> FileHead:
    """The name and the first bytes of a file or folder.

    Raises:
        ResultFileError: There is no such file, or it cannot be read.
    """
    path = Path(path)
    try:
        if path.is_dir():
            return FileHead(path, is_folder=True)
        check_is_file(path)
        with open(path, "rb") as file:
            return FileHead(path, file.read(_HEAD_BYTES))
    except OSError as error:
        raise ResultFileError(f"{path.name:.255}: cannot be read ({error.strerror})") from None


def recognize_bytes(data: Any) -> Format:
    """The format of a file by its bytes alone."""
    head = FileHead(Path(), bytes(data[:_HEAD_BYTES]))
    return next(form for form in FILE_FORMATS if form.detect(head))


def _begins(*starts: bytes) -> Callable[[FileHead], bool]:
    return lambda head: head.data.startswith(starts)


def named(*suffixes: str) -> Callable[[FileHead], bool]:
    """A file with one of these suffixes."""
    return lambda head: head.suffix in suffixes


def holds(*patterns: str) -> Callable[[FileHead], bool]:
    """A folder with a file of one of these names."""

    def detect(head: FileHead) -> bool:
        with suppress(OSError):
            return head.is_folder and any(True for pattern in patterns for _ in head.path.glob(pattern))
        return False

    return detect


def _is_json(head: FileHead) -> bool:
    return head.data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def _is_json_lines(head: FileHead) -> bool:
    return _is_json(head) and (head.suffix in (".jsonl", ".ndjson", ".odgt") or b"}\n{" in head.data)


def _is_state(head: FileHead) -> bool:
    if head.suffix == ".npz":
        with suppress(OSError, ValueError, RuntimeError, zipfile.BadZipFile), zipfile.ZipFile(head.path) as archive:
            return "header.npy" in archive.namelist()
    return False


def _is_text(head: FileHead) -> bool:
    return not any(byte < 32 and byte not in b"\t\n\r" for byte in head.data)


def _heads(head: FileHead, pattern: str) -> Iterator[bytes]:
    """The first bytes of some files of a folder and its subfolders."""
    if head.is_folder:
        with suppress(OSError):
            for path in islice((path for path in head.path.rglob(pattern) if path.is_file()), _FILES_TRIED):
                with open(path, "rb") as file:
                    yield file.read(_HEAD_BYTES)


def _first_words(head: FileHead) -> Iterator[list[str]]:
    """The words of the first line of some text files of a folder."""
    return (data.partition(b"\n")[0].decode("utf-8", "replace").split() for data in _heads(head, "*.txt"))


def _leading_numbers(words: list[str]) -> list[float]:
    """The words up to the first one that is not a number."""
    numbers: list[float] = []
    with suppress(ValueError):
        for word in words:
            numbers.append(float(word))
    return numbers


def _is_yolo(head: FileHead) -> bool:
    """A class index and at least four numbers from 0 to 1."""
    for words in _first_words(head):
        numbers = _leading_numbers(words)
        if 5 <= len(numbers) == len(words) and words[0].isdigit() and all(0 <= number <= 1 for number in numbers[1:]):
            return True
    return False


def is_dota(head: FileHead) -> bool:
    """Eight coordinates, a class name and a difficulty, maybe after two lines about the image."""
    return any(
        (len(words) == 10 and len(_leading_numbers(words)) == 8) or words[:1][0].startswith(("imagesource:", "gsd:"))
        for words in _first_words(head)
        if words
    )


PICKLE = Format("a pickle", lambda head: head.data[:1] == _PICKLE or head.suffix in (".pkl", ".pickle"))
JSON = Format(
    "a JSON file", lambda head: _is_json(head) or (head.suffix == ".json" and not head.data.startswith(_PICKLE))
)
# Files whose content is read first, and files that are not read. Readers of files and folders come before these.
FILE_FORMATS = (
    Format("an empty file", lambda head: not head.data and not head.is_folder),
    Format("a state that save_state wrote", _is_state, remedy="merge_states and mm-metrics merge read it"),
    Format("a file of NumPy arrays", lambda head: head.suffix == ".npz" or head.data.startswith(b"\x93NUMPY")),
    Format("an Excel file", named(".xlsx", ".xls")),
    Format("a zip archive, as torch.save writes", _begins(b"PK\x03\x04")),
    Format("a compressed file", _begins(b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00"), remedy="decompress it first"),
    Format("an HDF5 file", _begins(b"\x89HDF\r\n")),
    Format("a Parquet file", _begins(b"PAR1")),
    Format("an image", _begins(b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"BM", b"II*\x00", b"MM\x00*")),
    Format("a CSV file", named(".csv", ".tsv")),
    Format("JSON Lines", _is_json_lines, remedy="write the objects as one JSON list"),
    JSON,
    PICKLE,
    Format("a YAML file", named(".yml", ".yaml")),
    Format("a single XML file", named(".xml"), remedy="of VOC annotations, give the folder"),
    Format("a folder of YOLO label files", _is_yolo),
    Format("a folder of LabelMe files", lambda head: any(b'"shapes"' in data for data in _heads(head, "*.json"))),
    Format("a folder of JSON files", holds("*.json", "annotations/*.json"), remedy="give a file, not the folder"),
    Format("a folder of text files", holds("*.txt")),
    Format("a folder of images", holds("*.jpg", "*.png", "*/*.jpg", "*/*.png")),
    Format("a folder without annotations", lambda head: head.is_folder),
    Format("a text file", _is_text),
    Format("a file of an unknown format", lambda head: True),
)
