"""Standard output and standard error of the command: closed streams, limited encodings, warnings, several processes."""

from __future__ import annotations

import codecs
import os
import sys
import threading
import warnings
from contextlib import contextmanager, suppress
from typing import Any, Callable, Dict, Iterator, List, Tuple

from mm_metrics_plugin.exceptions import MetricWarning

# What stands for a character of a report that the encoding of the output lacks. Names have the same written out.
ASCII = {"→": "->", "–": "-", "─": "-", "±": "+/-", "…": "..."}


def write_output(text: str, *, kind: str = "text") -> None:
    """Write to standard output. Nothing is written where it is closed.

    On a terminal, control characters in CSV, JSON and Markdown are written out. Those of ``'text'`` are colors of the
    report itself: it writes out those in names.

    Args:
        text: What is written.
        kind: ``'json'``: unless the encoding is UTF-8, UTF-16 or UTF-32, which JSON readers detect, all characters
            that are not ASCII become JSON escapes. ``'text'``: characters that the encoding lacks become similar ones
            or escapes. Other kinds: they become escapes.

    Raises:
        BrokenPipeError: The reader has closed the pipe.
        OSError: The output cannot be written.
    """
    stream = sys.stdout
    if stream is None or getattr(stream, "closed", False):
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if kind != "text" and is_terminal(stream):
        text = without_control_characters(text, kind=kind)
    if kind == "json" and not codecs.lookup(encoding).name.startswith(("utf-8", "utf-16", "utf-32")):
        text = text.encode("ascii", _JSON_ESCAPES).decode("ascii")
    handler = {"json": _JSON_ESCAPES, "text": _SIMILAR}.get(kind, "backslashreplace")
    try:
        stream.write(text.encode(encoding, handler).decode(encoding))
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise OSError(error.errno, error.strerror, "standard output") from error


def discard_output() -> None:
    """Let what standard output still holds go nowhere: written at the end, it would fail again."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_error(line: str) -> None:
    """Write a line to standard error. Where that is not possible there is nobody to tell."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)


def is_terminal(stream: Any) -> bool:
    """Whether somebody looks at a stream; not if it is closed.

    Example:
        >>> is_terminal(None)
        False
    """
    return stream is not None and not getattr(stream, "closed", False) and stream.isatty()


def without_control_characters(text: str, *, kind: str = "text") -> str:
    r"""Text in which nothing but line breaks can move the cursor of a terminal.

    Args:
        text: What is written.
        kind: ``'json'``: control characters become JSON escapes, so that it stays the same JSON.

    Example:
        >>> print(without_control_characters("cat\x1b[2J\x9b"), without_control_characters("\x9b", kind="json"))
        cat\x1b[2J\x9b \u009b
    """
    if text.replace("\n", "").isprintable():
        return text
    escape = _escaped_for_json if kind == "json" else _escaped
    return "".join(sign if sign == "\n" or sign.isprintable() else escape(sign) for sign in text)


def _escaped(characters: str) -> str:
    return ascii(characters)[1:-1]


def _escaped_for_json(characters: str) -> str:
    data = characters.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(data[::2], data[1::2]))


def _characters(error: UnicodeError) -> Tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return error.object[error.start : error.end], error.end


def _json_escapes(error: UnicodeError) -> Tuple[str, int]:
    characters, end = _characters(error)
    return _escaped_for_json(characters), end


def _similar(error: UnicodeError) -> Tuple[str, int]:
    characters, end = _characters(error)
    return "".join(ASCII.get(one, one.encode("ascii", "backslashreplace").decode()) for one in characters), end


_JSON_ESCAPES, _SIMILAR = "mm_metrics_plugin.json_escapes", "mm_metrics_plugin.similar"
codecs.register_error(_JSON_ESCAPES, _json_escapes)
codecs.register_error(_SIMILAR, _similar)


_MISSING_GLYPH = "missing from font"
FONT = (
    "no font of the figures has some characters of the names, which are drawn as boxes; for Chinese, install the font "
    "Noto Sans CJK"
)


class _Shown:
    """Passes warnings of this package on.

    Args:
        show: Receives the text of a warning.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._said_font = False

    def __call__(self, message: str, category: Any) -> bool:
        """Show a warning, and tell whether it was for this function to show."""
        if _MISSING_GLYPH in message:
            if not self._said_font:
                self._show(FONT)
            self._said_font = True
        elif issubclass(category, MetricWarning):
            self._show(message)
        else:
            return self._show is ignore
        return True


_lock = threading.Lock()
_showing: Dict[int, List[_Shown]] = {}  # by thread
_before: Any = None  # what showed warnings before the first thread came


@contextmanager
def warnings_shown_by(show: Callable[[str], None]) -> Iterator[None]:
    """Pass this package's warnings of this thread to a function while the block runs. Other threads keep their own way.

    Warnings of other libraries are shown as Python shows them, or not at all where the function is :func:`ignore`.
    Characters that the font of the figures lacks are reported once.

    ``warnings.catch_warnings`` alone would not do: of two threads that end in another order than they began, one would
    leave its function behind.
    """
    global _before
    thread = threading.get_ident()
    with _lock:
        with warnings.catch_warnings():  # forgets which warnings were shown before: each call shows its own
            pass
        if not _showing:
            _before = warnings.showwarning
            warnings.showwarning = _show_warning
        _showing.setdefault(thread, []).append(_Shown(show))
    try:
        yield
    finally:
        with _lock:
            _showing[thread].pop()
            if not _showing[thread]:
                del _showing[thread]
            if not _showing:
                warnings.showwarning, _before = _before, None


def ignore(message: str) -> None:
    """Show nothing, as --quiet asks."""


def _show_warning(message: Any, category: Any, *place: Any, **more: Any) -> None:
    own, before = _showing.get(threading.get_ident()), _before
    if own and own[-1](str(message), category):
        return
    if before is not None:
        before(message, category, *place, **more)
