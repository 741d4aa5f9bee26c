"""Arguments of the command line."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any, List, NoReturn, Optional, Sequence, Tuple

from mm_metrics_plugin.exceptions import ResultFileError

FORMATS = ("text", "json", "csv", "md")


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Say it and leave with exit code 2."""
        print(f"{self.prog}: {one_line(message)} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


def one_line(text: str) -> str:
    r"""Text without line breaks, or anything else that moves the cursor.

    Example:
        >>> print(one_line("a\n   b\x1b[2J"))
        a b\x1b[2J
    """
    text = " ".join(text.split())
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


class FilesAndFolder(argparse.Action):
    """Files of known kinds, and behind them the folder for the report, if it is given."""

    suffixes: Tuple[str, ...] = ()

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Optional[str] = None) -> None:
        """Tell the folder from the files by its name."""
        files = [values[0]]
        for value in values[1:]:
            if not value.lower().endswith(self.suffixes):
                break
            files.append(value)
        rest = values[len(files) :]
        if len(rest) > 1:
            parser.error(f"unrecognized arguments: {' '.join(rest[1:])}")
        setattr(namespace, self.dest, files)
        namespace.out_dir = rest[0] if rest else None


class ResultsAndFolder(FilesAndFolder):
    """Files of results, and the folder."""

    suffixes = (".pkl", ".pickle", ".json")


class StatesAndFolder(FilesAndFolder):
    """Saved states, and the folder."""

    suffixes = (".npz",)


def add_output_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Options about what comes out, which all reports share."""
    group = parser.add_argument_group("output")
    group.add_argument("--format", choices=FORMATS, default="text", help="what is printed (default: text)")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")
    group.add_argument("--color-theme", default="plasma", metavar="NAME", help="colour map (default: plasma)")
    group.add_argument("--show", action="store_true", help="open the figures in windows")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return group


def add_page_arguments(group: argparse._ArgumentGroup) -> argparse._ArgumentGroup:
    """The option for a page to look at, in the group about what comes out."""
    group.add_argument(
        "--html",
        action="store_true",
        help="also write report.html to OUT_DIR: one page to look at, which works offline "
        "(pip install mm_metrics_plugin[report])",
    )
    return group


def add_gallery_arguments(group: argparse._ArgumentGroup) -> argparse._ArgumentGroup:
    """Options about the pictures on the page."""
    group.add_argument(
        "--images", metavar="DIR", help="folder of the pictures, for --html (default: where the config has them)"
    )
    group.add_argument(
        "--gallery",
        type=amount,
        default=48,
        metavar="N",
        help="show at most so many of the worst pictures on the page (default: 48; 0: none)",
    )
    return group


def add_input_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Options about what goes in, which all reports share."""
    group = parser.add_argument_group("input")
    group.add_argument(
        "--classes",
        nargs="+",
        metavar="NAME",
        help="class names, separated by commas or spaces, or a text file with one name a line",
    )
    group.add_argument(
        "--cfg-options",
        nargs="+",
        metavar="KEY=VALUE",
        help="override settings of the config, as in OpenMMLab's tools",
    )
    group.add_argument(
        "--trust",
        action="store_true",
        help="read RESULTS with plain pickle, which runs whatever was put in it; only for files of your own that the "
        "safe reader refuses",
    )
    return group


def add_threshold_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Options about which detections count, and when one is right."""
    group = parser.add_argument_group("matching")
    group.add_argument(
        "--score-thr", type=number, default=0.3, metavar="X", help="least score of a detection (default: 0.3)"
    )
    group.add_argument(
        "--tp-iou-thr", type=positive_fraction, default=0.5, metavar="X", help="least IoU of a match (default: 0.5)"
    )
    group.add_argument(
        "--nms-iou-thr", type=fraction, metavar="X", help="first remove detections that overlap a better one by more"
    )
    return group


def add_interval_arguments(
    parser: argparse.ArgumentParser, *, level: Optional[float] = None
) -> argparse._ArgumentGroup:
    """Options about how sure the numbers are."""
    group = parser.add_argument_group("how sure")
    default = "none" if level is None else f"{level:g}"
    group.add_argument(
        "--ci",
        type=inner_fraction,
        default=level,
        metavar="X",
        help=f"how often intervals hold the truth (default: {default})",
    )
    group.add_argument(
        "--resamples",
        type=whole_number,
        default=1000,
        metavar="N",
        help="how many times the images are drawn (default: 1000)",
    )
    group.add_argument("--seed", type=seed, default=0, metavar="N", help="of the draws (default: 0)")
    return group


def rule(text: str) -> str:
    """A rule by which a threshold is the best.

    Example:
        >>> rule("precision=0.9")
        'precision=0.9'
    """
    from mm_metrics_plugin.functional.operating_points import Rule

    try:
        Rule.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def areas(text: str) -> List[float]:
    """Ascending areas.

    Example:
        >>> areas("1024,9216")
        [1024.0, 9216.0]
    """
    found = [number(part) for part in text.split(",")]
    if any(low >= high for low, high in zip([0.0, *found], [*found, 1e10])):
        raise argparse.ArgumentTypeError(f"must be positive, ascending areas (found {text!r})")
    return found


def whole_number(text: str) -> int:
    """A whole number from 1 on.

    Example:
        >>> whole_number("20")
        20
    """
    if not text.isdigit() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to 1000000 (found {text!r})")
    return int(text)


def amount(text: str) -> int:
    """A whole number from 0 on, of things that fit one page.

    Example:
        >>> amount("48")
        48
    """
    if not text.isdigit() or int(text) > 1000:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 1000 (found {text!r})")
    return int(text)


def seed(text: str) -> int:
    """A whole number from 0 on.

    Example:
        >>> seed("0")
        0
    """
    if not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 999999999 (found {text!r})")
    return int(text)


def inner_fraction(text: str) -> float:
    """A number above 0 and below 1.

    Example:
        >>> inner_fraction("0.95")
        0.95
    """
    value = fraction(text)
    if value in (0, 1):
        raise argparse.ArgumentTypeError(f"must be above 0 and below 1 (found {text!r})")
    return value


def fraction(text: str) -> float:
    """A number from 0 to 1.

    Example:
        >>> fraction("0.5")
        0.5
    """
    value = number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1 (found {text!r})")
    return value


def number(text: str) -> float:
    """A number that is neither NaN nor infinite.

    Example:
        >>> number("-2.5")
        -2.5
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a number (found {text!r})")
    return value


def positive_fraction(text: str) -> float:
    """A number above 0 and at most 1.

    Example:
        >>> positive_fraction("1")
        1.0
    """
    value = fraction(text)
    if value == 0:
        raise argparse.ArgumentTypeError("must be above 0 and at most 1 (found 0)")
    return value


def state_file(text: str) -> str:
    """The name of a file for a state.

    Example:
        >>> state_file("part1.npz")
        'part1.npz'
    """
    if not text.endswith(".npz"):
        raise argparse.ArgumentTypeError(f"must end in .npz (found {text!r})")
    return text


def class_names(words: Optional[Sequence[str]]) -> Optional[List[str]]:
    """The names that stand behind ``--classes``.

    Args:
        words: As the shell split them. One word alone may be a file with a name a line. Where there is a comma,
            commas separate the names, which may then hold spaces.

    Raises:
        ResultFileError: There are no names, a name comes twice, or the file cannot be read.

    Example:
        >>> class_names(["cat", "dog"]), class_names(["traffic light,cat"]), class_names(["cat dog"])
        (['cat', 'dog'], ['traffic light', 'cat'], ['cat', 'dog'])
    """
    if words is None:
        return None
    if len(words) == 1 and Path(words[0]).is_file():
        try:
            names = Path(words[0]).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ResultFileError(f"--classes: {words[0]} cannot be read as text ({error})") from None
    elif any("," in word for word in words):
        names = " ".join(words).split(",")
    else:
        names = words[0].split() if len(words) == 1 else list(words)
    names = [name.strip() for name in names if name.strip()]
    if not names:
        raise ResultFileError("--classes: names no class")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ResultFileError(f"--classes: {twice[0]!a} comes {names.count(twice[0])} times")
    return names
