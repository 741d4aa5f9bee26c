"""Arguments of the command line."""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any, Callable, List, NoReturn, Optional, Sequence, Tuple

from mm_metrics_plugin.cli.streams import write_error, write_output
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.settings import DetectionSettings

FORMATS = ("text", "json", "csv", "md")
# The default of --score-thr, one for each task, whatever the command.
DETECTION_SCORE_THR = 0.3
MULTI_LABEL_SCORE_THR = 0.5


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line, and takes positional arguments anywhere."""

    _splitting = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the options first, wherever they stand, and what is left as positional arguments."""
        if self._subparsers is not None or self._splitting:
            return super().parse_known_args(args, namespace)
        self._splitting = True
        try:
            words = _pairs_only(sys.argv[1:] if args is None else list(args), "--cfg-options")
            namespace, rest = self.parse_known_intermixed_args(words, namespace)
        finally:
            self._splitting = False
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}{_hint(namespace)}")
        if vars(namespace).get("out") is not None:
            if namespace.out_dir is not None:
                self.error(f"OUT_DIR is given twice: {namespace.out_dir} and --out {namespace.out}")
            namespace.out_dir = namespace.out
        return namespace, rest

    def error(self, message: str) -> NoReturn:
        """Say it and leave with exit code 2."""
        write_error(f"{self.prog}: {one_line(message)} (see {self.prog} --help)")
        sys.exit(2)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Help and version go to standard output, whatever its encoding, and nowhere if it is closed."""
        if file is not None and file is sys.stderr:
            write_error(message.rstrip("\n"))
        else:
            write_output(message)


def _pairs_only(words: List[str], option: str) -> List[str]:
    """Words, with those that are no KEY=VALUE pairs moved from behind an option to before it.

    Example:
        >>> _pairs_only(["a.py", "--cfg-options", "x=1", "report/", "y=2", "--html"], "--cfg-options")
        ['a.py', 'report/', '--cfg-options', 'x=1', 'y=2', '--html']
    """
    start = next((at for at, word in enumerate(words) if word[:4] == option[:4] and option.startswith(word)), None)
    if start is None:
        return words
    end = next((at for at in range(start + 1, len(words)) if words[at].startswith("-")), len(words))
    behind = words[start + 1 : end]
    pairs = [word for word in behind if "=" in word]
    others = [word for word in behind if "=" not in word]
    return [*words[:start], *others, words[start], *pairs, *_pairs_only(words[end:], option)]


def one_line(text: str) -> str:
    r"""Text without line breaks, or anything else that moves the cursor.

    Example:
        >>> print(one_line("a\n   b\x1b[2J"))
        a b\x1b[2J
    """
    text = " ".join(text.split())
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


class FilesAndFolder(argparse.Action):
    """Files of known kinds, optionally followed by the folder for the report."""

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
            parser.error(f"one folder, OUT_DIR, may follow the files (found {' '.join(rest)}){_hint(namespace)}")
        setattr(namespace, self.dest, files)
        namespace.out_dir = rest[0] if rest else None


def _hint(namespace: Any) -> str:
    """What may be wrong where words are left over."""
    given = vars(namespace).get("classes") is not None
    return "; --classes takes one value: names separated by commas, or a file" if given else ""


class ResultsAndFolder(FilesAndFolder):
    """Files of results, and the folder."""

    suffixes = (".pkl", ".pickle", ".json")


class StatesAndFolder(FilesAndFolder):
    """Saved states, and the folder."""

    suffixes = (".npz",)


def add_output_arguments(parser: argparse.ArgumentParser, *, verbose: bool = True) -> argparse._ArgumentGroup:
    """Options about what comes out, which all reports share.

    Args:
        parser: Receives them.
        verbose: Whether the report has more to print than it prints by default.
    """
    group = parser.add_argument_group("output")
    group.add_argument("--format", choices=FORMATS, default="text", help="what is printed (default: text)")
    group.add_argument("--out", metavar="DIR", help="write the files of the report to DIR; the same as OUT_DIR")
    if verbose:
        group.add_argument("--verbose", action="store_true", help="print everything, not only one screen")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors, no warnings either")
    group.add_argument("--color-theme", default="plasma", metavar="NAME", help="color map (default: plasma)")
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
    """Options about the images on the page."""
    group.add_argument(
        "--images", metavar="DIR", help="folder of the images, for --html (default: where the config has them)"
    )
    group.add_argument(
        "--gallery",
        type=amount,
        default=48,
        metavar="N",
        help="show at most N of the worst images on the page (default: 48; 0: none)",
    )
    return group


def add_input_arguments(parser: argparse.ArgumentParser, *, detectors: bool = True) -> argparse._ArgumentGroup:
    """Options about what goes in, which all reports share.

    Args:
        parser: Receives them.
        detectors: Whether the command reads results of detectors.
    """
    group = parser.add_argument_group("input")
    group.add_argument(
        "--classes",
        metavar="A,B,...",
        help="class names in the order of the labels, separated by commas, or a text file with one name per line"
        + ("; a folder of VOC files needs them" if detectors else ""),
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


def add_task_argument(group: argparse._ArgumentGroup) -> None:
    """The option that says what the results of a classifier are."""
    group.add_argument(
        "--task",
        choices=("single-label", "multi-label"),
        help="task of a classifier: single-label if a sample has exactly one class, multi-label if it has any number "
        "of them (default: inferred from the results, and printed)",
    )


def add_truth_arguments(group: argparse._ArgumentGroup) -> argparse._ArgumentGroup:
    """Options about the ground truth of detectors, in the group about what goes in."""
    group.add_argument(
        "--allow-missing", action="store_true", help="count images without results as without detections"
    )
    group.add_argument(
        "--class-order",
        choices=("annotations", "classes"),
        help="which order the labels in RESULTS follow, where the annotation file and --classes (or the config's "
        "metainfo) differ: that of the file's categories, as mmdet's CocoDataset numbers them, or that of the class "
        "names (default: stop and show both for --classes; warn and follow the file for the config's metainfo)",
    )
    group.add_argument(
        "--image-set",
        metavar="FILE.txt",
        help="list of the test images of a folder of VOC files, one id per line, such as ImageSets/Main/test.txt; "
        "results of mmdet 2.x, which hold no image ids, need it",
    )
    return group


def add_threshold_arguments(parser: argparse.ArgumentParser, *, classifiers: bool = False) -> argparse._ArgumentGroup:
    """Options about which detections count, and when one is right."""
    group = parser.add_argument_group("matching")
    others = f", {MULTI_LABEL_SCORE_THR} for multi-label classifiers" if classifiers else ""
    group.add_argument(
        "--score-thr",
        type=number,
        default=None if classifiers else DETECTION_SCORE_THR,
        metavar="X",
        help=f"score threshold: detections below it are not counted (default: {DETECTION_SCORE_THR}{others})",
    )
    group.add_argument(
        "--iou-thr",
        "--tp-iou-thr",
        type=setting("iou_thr", number),
        default=0.5,
        metavar="X",
        help="IoU threshold: a match needs at least this IoU (default: 0.5)",
    )
    group.add_argument(
        "--nms-iou-thr",
        type=setting("nms_iou_thr", number),
        metavar="X",
        help="first apply NMS per class: remove detections whose IoU with one of a higher score is above X",
    )
    group.add_argument(
        "--max-dets",
        type=setting("max_dets", whole),
        default=100,
        metavar="N",
        help="detections per class and image that average precision uses, those with the highest scores; everything "
        "else uses all (default: 100, as COCO)",
    )
    return group


def add_interval_arguments(
    parser: argparse.ArgumentParser, *, level: Optional[float] = None, drawn: str = "resamples"
) -> argparse._ArgumentGroup:
    """Options about confidence intervals.

    Args:
        parser: Receives them.
        level: The default confidence level; None: no intervals.
        drawn: What the command draws at random: ``'resamples'``, ``'permutations'``, or nothing. Other options are
            accepted and have no effect.
    """
    group = parser.add_argument_group("confidence intervals")
    default = "none" if level is None else f"{level:g}"
    group.add_argument(
        "--ci",
        type=setting("ci", number),
        default=level,
        metavar="X",
        help=f"confidence level of the intervals (default: {default})",
    )
    resamples = "bootstrap resamples over images, for average precision (default: 1000)"
    group.add_argument(
        "--resamples",
        type=setting("resamples", whole),
        default=1000,
        metavar="N",
        help=resamples if drawn == "resamples" else argparse.SUPPRESS,
    )
    group.add_argument(
        "--seed",
        type=setting("seed", whole),
        default=0,
        metavar="N",
        help=f"random seed of the {drawn} (default: 0)" if drawn else argparse.SUPPRESS,
    )
    return group


def detection_settings(arguments: argparse.Namespace, *, matching: Sequence[str]) -> DetectionSettings:
    """The settings that the flags of a command give; a flag is named like its field."""
    given = {one.name: getattr(arguments, one.name) for one in fields(DetectionSettings) if one.name in vars(arguments)}
    return DetectionSettings(**{**given, "matching": tuple(dict.fromkeys(matching))})


def setting(
    name: str, convert: Callable[[str], Any], settings: Callable[..., Any] = DetectionSettings
) -> Callable[[str], Any]:
    """The argparse type of a flag that gives one setting. The settings check it, so flags need no checks of their own.

    Example:
        >>> setting("iou_thr", number)("0.75"), setting("area_edges", numbers)("1024,9216")
        (0.75, (1024.0, 9216.0))
    """

    def read(text: str) -> Any:
        value = convert(text)
        try:
            settings(**{name: value})
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return value

    return read


def amount(text: str) -> int:
    """A whole number from 0 on, of things that fit one page.

    Example:
        >>> amount("48")
        48
    """
    value = whole(text)
    if not 0 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 1000 (found {text!r})")
    return value


def whole(text: str) -> int:
    """A whole number.

    Example:
        >>> whole("20")
        20
    """
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number (found {text!r})") from None


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


def numbers(text: str) -> Tuple[float, ...]:
    """Numbers separated by commas.

    Example:
        >>> numbers("1024,9216")
        (1024.0, 9216.0)
    """
    return tuple(number(part) for part in text.split(","))


def state_file(text: str) -> str:
    """The name of a file for a state.

    Example:
        >>> state_file("part1.npz")
        'part1.npz'
    """
    if not text.endswith(".npz"):
        raise argparse.ArgumentTypeError(f"must end in .npz (found {text!r})")
    return text


def class_names(text: Optional[str]) -> Optional[List[str]]:
    """The names that ``--classes`` gives.

    Args:
        text: Names separated by commas, or the path of a file with one name per line.

    Raises:
        ResultFileError: There are no names, a name comes twice, or the file cannot be read.

    Example:
        >>> class_names("cat,dog"), class_names("traffic light, cat"), class_names("cat")
        (['cat', 'dog'], ['traffic light', 'cat'], ['cat'])
    """
    if text is None:
        return None
    if _is_file(text):
        try:
            names = Path(text).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ResultFileError(f"--classes: {text} cannot be read as text ({error})") from None
    elif "," not in text and Path(text).suffix == ".txt":
        raise ResultFileError(f"--classes: {text} does not exist")
    else:
        names = text.split(",")
    names = [name.strip() for name in names if name.strip()]
    if not names:
        raise ResultFileError("--classes: names no class")
    counts = Counter(names)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise ResultFileError(f"--classes: {twice[0]!a} comes {counts[twice[0]]} times")
    return names


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # longer than a path can be, or with a NUL character
        return False
