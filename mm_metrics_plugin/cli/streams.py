"""Standard output and standard error of the command: closed streams, encodings, control characters, warnings."""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
import warnings
from contextlib import contextmanager, suppress
from typing import Any, Callable, Iterator, Mapping

from mm_metrics_plugin.exceptions import MetricWarning

# Replacements of characters of a report that the encoding of the output lacks.
ASCII = {"→": "->", "–": "-", "─": "-", "±": "+/-", "…": "..."}
MISSING_GLYPHS = (
    "no font of the figures has some characters of the names, which are drawn as boxes; for Chinese, install the font "
    "Noto Sans CJK"
)
# An argument as messages name it: allow_missing=True, class_order='classes', classes=[...], the option config=...
_ARGUMENT = re.compile(r"\b(?:the option )?(\w+)=(\.\.\.|\[\.\.\.\]|'[^']*'|[\w.]*\w)")


def write_output(text: str, *, kind: str = "text") -> None:
    """Write to standard output, or nowhere if it is closed.

    Characters that the encoding lacks become JSON escapes in ``'json'``, else similar characters or Python escapes.
    JSON is ASCII in encodings that JSON readers do not detect. On a terminal, control characters are escaped, except in
    ``'text'``, which contains colors and has escaped them in names.

    Raises:
        BrokenPipeError: The reader has closed the pipe.
        OSError: The output cannot be written.
    """
    stream = sys.stdout
    if stream is None or getattr(stream, "closed", False):
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if kind != "text" and is_terminal(stream):
        text = escape_control_characters(text, kind=kind)
    if kind == "json":
        is_detected = codecs.lookup(encoding).name.startswith(("utf-8", "utf-16", "utf-32"))
        text = re.sub(r"[\ud800-\udfff]" if is_detected else r"[^\0-\x7f]", lambda match: _json_escape(match[0]), text)
    elif kind == "text":
        for character, similar in ASCII.items():
            if not character.encode(encoding, "ignore"):
                text = text.replace(character, similar)
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise OSError(error.errno, error.strerror, "standard output") from error


def discard_output() -> None:
    """Redirect standard output to the null device, so that flushing it at exit does not fail again."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_error(line: str) -> None:
    """Write a line to standard error, if that is possible."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)


def is_terminal(stream: Any) -> bool:
    """Whether a stream is an open terminal."""
    return stream is not None and not getattr(stream, "closed", False) and stream.isatty()


def with_flags(message: str, flags: Mapping[str, str]) -> str:
    """A message in which arguments are named as in the command, not as in Python; ``flags`` has the names.

    Example:
        >>> with_flags("give classes=[...], or class_order='classes'", {"classes": "--classes", "class_order": "-o"})
        'give --classes, or -o classes'
        >>> with_flags("use the option iou_type='segm'", {"iou_type": "--iou-type"})
        'use --iou-type segm'
    """

    def flag(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in flags:
            return match[0]
        text = {"True": "", "...": "", "[...]": "", "None": "-"}.get(value, value.strip("'"))
        return f"{flags[name]} {text}".rstrip()

    return _ARGUMENT.sub(flag, message)


def one_line(text: str) -> str:
    """Text without line breaks and control characters."""
    return escape_control_characters(" ".join(text.split()))


def escape_control_characters(text: str, *, kind: str = "text") -> str:
    """Text in which only line breaks can move the cursor of a terminal; JSON keeps its meaning."""
    if text.replace("\n", "").isprintable():
        return text
    escape = _json_escape if kind == "json" else lambda character: ascii(character)[1:-1]
    return "".join(
        character if character == "\n" or character.isprintable() else escape(character) for character in text
    )


def _json_escape(characters: str) -> str:
    return json.dumps(characters)[1:-1]


@contextmanager
def warnings_shown_by(show: Callable[[str], None] | None) -> Iterator[None]:
    """Pass the warnings of this package to a function while the block runs; None hides all warnings.

    Warnings of other libraries are shown as Python shows them. Characters that the font of the figures lacks are
    reported once.
    """
    reported = False

    def show_warning(message: Any, category: Any, *place: Any, **more: Any) -> None:
        nonlocal reported
        if show is None:
            return
        if "missing from font" in str(message):
            if not reported:
                show(MISSING_GLYPHS)
            reported = True
        elif issubclass(category, MetricWarning):
            show(str(message))
        else:
            show_others(message, category, *place, **more)

    with warnings.catch_warnings():  # also forgets which warnings were shown before
        show_others = warnings.showwarning
        warnings.showwarning = show_warning
        yield
