"""What result and annotation files hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

from mm_metrics_plugin.io.file_formats import JSON, PICKLE, recognize_file
from mm_metrics_plugin.io.files import PathLike, read_json
from mm_metrics_plugin.io.formats import NOTHING, recognize, refusal
from mm_metrics_plugin.io.safe_pickle import read_hashed_pickle

JSON_EXPANSION = 4  # a number takes 8 bytes in an array, and at least 2 in JSON


class FileContent(NamedTuple):
    """What a file holds."""

    content: Any
    most_bytes: int  # how many bytes its numbers can take
    sha256: str


def read_file(
    path: PathLike, task: str, *, trust: bool = False, on_progress: Optional[Callable[[float], None]] = None
) -> FileContent:
    """Read a pickle or JSON file.

    Args:
        path: The file.
        task: What it is read as, for messages; see :mod:`mm_metrics_plugin.io.formats`.
        trust: Read a pickle with plain pickle, which runs any code in it.
        on_progress: Receives the fraction of a pickle that was read.
    """
    path = Path(path)
    form = recognize_file(path)
    if form is JSON:
        content, digest = read_json(path)
        return FileContent(content, JSON_EXPANSION * path.stat().st_size, digest)
    if form is PICKLE:
        content, digest = read_hashed_pickle(path, trust=trust, on_progress=on_progress)
        if recognize(content) is NOTHING:  # a pickle has an entry for every image or sample
            raise refusal(path.name, NOTHING, task)
        return FileContent(content, path.stat().st_size, digest)
    raise refusal(path.name, form, task)
