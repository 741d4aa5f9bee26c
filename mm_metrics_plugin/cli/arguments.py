"""Arguments of the command line."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import fields, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Iterable, NoReturn, Sequence

from mm_metrics_plugin.cli.streams import one_line, write_error, write_output
from mm_metrics_plugin.conventions import CONVENTIONS, DEFAULT_CONVENTION, DEFAULT_IOU_TYPE, IOU_TYPES
from mm_metrics_plugin.exceptions import ResultFileError, listing
from mm_metrics_plugin.settings import (
    DETECTION_SCORE_THR,
    MULTI_LABEL_SCORE_THR,
    ClassificationSettings,
    ComparisonSettings,
    DetectionSettings,
    nearest_name,
)

IN_RESULTS = "-"  # GROUND_TRUTH if the results contain it
RESULTS = (".pkl", ".pickle", ".json")
FORMATS = ("text", "json", "csv", "md")


class Parser(argparse.ArgumentParser):
    """A parser with errors of one line and positional arguments anywhere."""

    _is_intermixed = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the options first, then the other arguments as positional ones."""
        if self._is_intermixed:
            return super().parse_known_args(args, namespace)
        words = sys.argv[1:] if args is None else list(args)
        if self._subparsers is not None:
            namespace, rest = super().parse_known_args(words, namespace)
            self._check_known(rest)
            return namespace, rest
        self._check_known(words)
        self._is_intermixed = True
        try:
            namespace, rest = self.parse_known_intermixed_args(_pairs_last(words, "--cfg-options"), namespace)
        finally:
            self._is_intermixed = False
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}{classes_hint(namespace)}")
        if vars(namespace).get("out") is not None:
            if namespace.out_dir is not None:
                self.error(f"OUT_DIR is given twice: {namespace.out_dir} and --out {namespace.out}")
            namespace.out_dir = namespace.out
        if vars(namespace).get("out_dir") == "":
            self.error("OUT_DIR must be the name of a folder (found an empty name)")
        self._check_options(namespace)
        missing = _missing_input(namespace)
        if missing is not None:
            self.error(f"{missing}: does not exist{classes_hint(namespace)}")
        return namespace, rest

    @property
    def flags(self) -> dict[str, str]:
        """What users type for each argument, by the name that Python callers give it: a flag or the metavar."""
        return {action.dest: (action.option_strings or [str(action.metavar)])[0] for action in self._actions}

    def _check_known(self, words: list[str]) -> None:
        """Name the nearest option for one that does not exist, before its value is taken for a file."""
        for word in takewhile(lambda word: word != "--", words):
            name, options = word.partition("=")[0], self._option_string_actions
            if word.startswith("--") and not any(option.startswith(name) for option in options):
                self.error(f"unrecognized arguments: {name}{did_you_mean(name, options)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise argparse's error with the nearest choice."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += did_you_mean(str(value), map(str, action.choices or ()))
            raise

    def _check_options(self, namespace: argparse.Namespace) -> None:
        """Let the settings check the values of their options before anything is read."""
        defaults: Any = (DetectionSettings(), ClassificationSettings(), ComparisonSettings(DetectionSettings()))
        for default in defaults:
            given = given_options(namespace, default)
            types = given.get("iou_type", DEFAULT_IOU_TYPE)
            types = types if isinstance(types, tuple) else (types,)
            for name, value in given.items():
                if name == "convention":  # which is defined for some types
                    checked = [{"iou_type": iou_type, name: value} for iou_type in types]
                else:
                    checked = [{name: tuple(each) if isinstance(each, list) else each} for each in _each(name, value)]
                for options in checked:
                    try:
                        replace(default, **options)
                    except (ValueError, TypeError) as error:
                        if value is not None:
                            self.error(f"argument {self.flags[name]}: {str(error).replace(f'{name} ', '', 1)}")

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with code 2."""
        write_error(f"{self.prog}: {one_line(message)} (see {self.prog} --help)")
        sys.exit(2)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help and version to standard output, if it is open, in any encoding."""
        if file is not None and file is sys.stderr:
            write_error(message.rstrip("\n"))
        else:
            write_output(message)


def _each(name: str, value: Any) -> Sequence[Any]:
    """The values of an option, each of which settings can have."""
    return value if name == "iou_type" and isinstance(value, tuple) else (value,)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """The nearest of some words, as the end of a message; empty if none is near."""
    nearest = nearest_name(word, words)
    return "" if nearest is None else f"; did you mean {nearest}?"


def _pairs_last(words: list[str], option: str) -> list[str]:
    """Words, with the arguments of an option that are not KEY=VALUE pairs moved before it."""
    start = next((at for at, word in enumerate(words) if word[:4] == option[:4] and option.startswith(word)), None)
    if start is None:
        return words
    end = next((at for at in range(start + 1, len(words)) if words[at].startswith("-")), len(words))
    arguments = words[start + 1 : end]
    pairs = [word for word in arguments if "=" in word]
    others = [word for word in arguments if "=" not in word]
    return [*words[:start], *others, words[start], *pairs, *_pairs_last(words[end:], option)]


class FilesAndFolder(argparse.Action):
    """Files with known suffixes, optionally followed by the folder for the report."""

    def __init__(self, *arguments: Any, suffixes: tuple[str, ...] = RESULTS, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.suffixes = suffixes

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Separate the folder from the files by its name."""
        files = [values[0], *takewhile(lambda value: value.lower().endswith(self.suffixes), values[1:])]
        rest = values[len(files) :]
        if len(rest) > 1:
            parser.error(f"one folder, OUT_DIR, may follow the files (found {' '.join(rest)}){classes_hint(namespace)}")
        setattr(namespace, self.dest, files)
        namespace.out_dir = rest[0] if rest else None


class StoreForPage(argparse.Action):
    """Stores an option of the page, and asks for the page."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Store the value."""
        setattr(namespace, self.dest, values)
        namespace.html = option_string or True


def classes_hint(namespace: argparse.Namespace) -> str:
    """How ``--classes`` was parsed, for errors that a blank between class names may have caused."""
    text = vars(namespace).get("classes")
    if text is None or _is_file(text):
        return ""
    names = listing("class", [name.strip() for name in text.split(",") if name.strip()])
    folder = vars(namespace).get("out_dir")
    out_dir = "" if folder is None else f", and {folder!a} as OUT_DIR"
    return f"; --classes was read as {names}{out_dir}: separate class names by commas (--classes a,b)"


def _missing_input(namespace: argparse.Namespace) -> str | None:
    """An input that looks like a class name: it does not exist and has no suffix, and ``--classes`` is given."""
    values = vars(namespace)
    if values.get("classes") is None:
        return None
    results = [values["results"]] if isinstance(values["results"], str) else values["results"]
    paths = [path for path in (values.get("ground_truth", IN_RESULTS), *results) if path != IN_RESULTS]
    return next((path for path in paths if not Path(path).suffix and not os.path.exists(path)), None)


def add_output_arguments(
    parser: argparse.ArgumentParser, *, verbose: bool = True, gallery: bool = True
) -> argparse._ArgumentGroup:
    """Output options of all reports; ``verbose`` if a report has a longer form, ``gallery`` if its page has images."""
    group = parser.add_argument_group("output")
    group.add_argument("--format", choices=FORMATS, default="text", help="format of the printed report (default: text)")
    group.add_argument("--out", metavar="DIR", help="write the files of the report to DIR; the same as OUT_DIR")
    if verbose:
        group.add_argument("--verbose", action="store_true", help="print everything, not only one screen")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors, no warnings either")
    group.add_argument("--color-theme", default="plasma", metavar="NAME", help="color map (default: plasma)")
    group.add_argument("--show", action="store_true", help="open the figures in windows")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
    group.add_argument(
        "--html",
        action="store_true",
        help="also write report.html to OUT_DIR, an HTML page that works offline (pip install jinja2 plotly pillow)",
    )
    if gallery:
        group.add_argument(
            "--images",
            metavar="DIR",
            action=StoreForPage,
            help="folder of the images on the page (default: where the config has them); implies --html",
        )
        group.add_argument(
            "--gallery",
            type=gallery_size,
            default=48,
            metavar="N",
            action=StoreForPage,
            help="show at most N of the worst images on the page (default: 48; 0: none); implies --html",
        )
    return group


def add_input_arguments(parser: argparse.ArgumentParser, *, detectors: bool = True) -> argparse._ArgumentGroup:
    """Input options of all reports, and those about the ground truth of detectors."""
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
        help="read RESULTS with plain pickle, which runs any code in it; only for your own files, if the safe "
        "reader refuses them",
    )
    if detectors:
        group.add_argument(
            "--allow-missing", action="store_true", help="evaluate images without results as images without detections"
        )
        group.add_argument(
            "--class-order",
            choices=("annotations", "classes"),
            help="which order the labels in RESULTS follow, where the annotation file and --classes (or the config's "
            "metainfo) differ: that of the file's categories, as mmdet's CocoDataset numbers them, or that of the "
            "class names (default: stop and show both for --classes; warn and follow the file for the config's "
            "metainfo)",
        )
        group.add_argument(
            "--image-set",
            metavar="FILE.txt",
            help="list of the test images of a folder of VOC or DOTA files, one id per line, such as "
            "ImageSets/Main/test.txt; results of mmdet 2.x, which hold no image ids, need it",
        )
    return group


def add_task_argument(group: argparse._ArgumentGroup) -> None:
    """The option ``--task``."""
    add_option(
        group,
        "--task",
        metavar="TASK",
        choices=("single-label", "multi-label"),
        help="task of a classifier: single-label if a sample has exactly one class, multi-label if it has any number "
        "of them (default: inferred from the results, and printed)",
    )


def add_threshold_arguments(parser: argparse.ArgumentParser, *, classifiers: bool = False) -> argparse._ArgumentGroup:
    """Options of matching. The settings check their values."""
    group = parser.add_argument_group("matching")
    others = f", {MULTI_LABEL_SCORE_THR} for multi-label classifiers" if classifiers else ""
    add_option(
        group,
        "--score-thr",
        type=float,
        help=f"score threshold: detections below it are not counted (default: {DETECTION_SCORE_THR}{others})",
    )
    add_option(
        group,
        "--iou-thr",
        "--tp-iou-thr",
        type=float,
        help="IoU threshold: a match needs at least this IoU (default: 0.5)",
    )
    add_option(
        group,
        "--nms-iou-thr",
        type=float,
        help="first apply NMS per class: remove detections whose IoU with one of a higher score is above X",
    )
    add_option(
        group,
        "--max-dets",
        type=int,
        help="detections per class and image that average precision uses, those with the highest scores; everything "
        "else uses all (default: that of the convention, of coco 100, and 20 of key points)",
    )
    conventions = "; ".join(f"{each.name}: {each.description}" for each in CONVENTIONS.values())
    add_option(
        group,
        "--convention",
        metavar="NAME",
        choices=list(CONVENTIONS),
        help=f"convention of average precision (default: {DEFAULT_CONVENTION}). {conventions}",
    )
    add_option(
        group,
        "--iou-thrs",
        type=numbers,
        metavar="A,B,...",
        help="IoU thresholds of average precision, ascending (default: those of the convention)",
    )
    return group


def add_operating_point_argument(group: Any, text: str) -> None:
    """The option ``--operating-point``; its help contains ``{rules}``."""
    rules = "f1, f2, precision=0.9 (highest recall with at least that precision) or recall=0.95"
    add_option(group, "--operating-point", metavar="RULE", help=text.format(rules=rules))


def add_option(group: Any, *names: str, **options: Any) -> None:
    """Add an option that is a field of a settings dataclass, which has its default and checks its value."""
    options.setdefault("metavar", "N" if options.get("type") is int else "X")
    group.add_argument(*names, default=argparse.SUPPRESS, **options)


def add_interval_arguments(
    parser: argparse.ArgumentParser, *, ci: str = "none", drawn: str = ""
) -> argparse._ArgumentGroup:
    """Options about confidence intervals; ``drawn`` at random are ``'resamples'``, ``'permutations'``, or nothing."""
    group = parser.add_argument_group("confidence intervals")
    add_option(group, "--ci", type=float, help=f"confidence level of the intervals (default: {ci})")
    if drawn == "resamples":
        add_option(
            group,
            "--resamples",
            type=int,
            help="bootstrap resamples over images, for average precision (default: 1000)",
        )
    else:  # accepted, as by `mm-metrics detection`
        group.add_argument("--resamples", dest="unused_resamples", type=int, help=argparse.SUPPRESS)
    if drawn:
        add_option(group, "--seed", type=int, help=f"random seed of the {drawn} (default: 0)")
    else:
        group.add_argument("--seed", dest="unused_seed", type=int, help=argparse.SUPPRESS)
    return group


def add_shape_arguments(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Options about what is matched; ``several`` types may be given."""
    group = parser.add_argument_group("boxes, masks, key points")
    both = "; several, such as bbox,segm, make one report with all" if several else ""
    types = "; ".join(f"{name}: {iou_type.description}" for name, iou_type in IOU_TYPES.items())
    add_option(
        group,
        "--iou-type",
        type=_iou_types,
        metavar="TYPE",
        help=f"what is matched: {types}{both} (default: {DEFAULT_IOU_TYPE})",
    )
    add_option(
        group,
        "--sigmas",
        type=numbers,
        metavar="A,B,...",
        help="standard deviation of each key point relative to the size of the object, as in the dataset's meta "
        "information (default: those of COCO's 17 key points)",
    )
    group.add_argument(
        "--score-mode",
        choices=("bbox", "keypoint", "bbox_keypoint", "bbox_rle"),
        help="score of mmpose's key points, as in its CocoMetric (default: bbox_keypoint). Their NMS by OKS has the "
        "threshold --nms-iou-thr (default: 0.9; 1 disables it)",
    )


def _iou_types(text: str) -> str | tuple[str, ...]:
    names = tuple(text.split(","))
    return names if len(names) > 1 else text


def numbers(text: str) -> tuple[float, ...]:
    """Parse numbers separated by commas."""
    return tuple(float(part) for part in text.split(","))


def named_areas(text: str) -> dict[str, tuple[float, ...]]:
    """Parse named area ranges, such as ``tiny=0-400``."""
    areas = {}
    for part in text.split(","):
        name, _, ends = (word.strip() for word in part.partition("="))
        if name in areas:
            raise argparse.ArgumentTypeError(f"{name} is given twice")
        areas[name] = tuple(float(end) for end in ends.split("-"))
    return areas


def whole_numbers(text: str) -> tuple[int, ...]:
    """Parse whole numbers separated by commas."""
    return tuple(int(part) for part in text.split(","))


def given_options(arguments: argparse.Namespace, settings: Any) -> dict[str, Any]:
    """The fields of a settings dataclass that the command line sets; a flag is named like its field."""
    values = vars(arguments)
    return {field.name: values[field.name] for field in fields(settings) if field.name in values}


def reading_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The input options, as arguments of the evaluation functions."""
    names = (
        "ground_truth",
        "class_order",
        "image_set",
        "config",
        "cfg_options",
        "trust",
        "allow_missing",
        "score_mode",
    )
    options = {name: value for name, value in vars(arguments).items() if name in names}
    if options.get("ground_truth") == IN_RESULTS:
        options["ground_truth"] = None
    return {**options, "classes": class_names(arguments.classes)}


def gallery_size(text: str) -> int:
    """Parse the number of images on a page."""
    if not text.isdigit() or int(text) > 1000:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 1000 (found {text!r})")
    return int(text)


def class_names(text: str | None) -> list[str] | None:
    """The names of ``--classes``: separated by commas, or in a file with one name per line.

    Raises:
        ResultFileError: There are no names, or the file cannot be read.
    """
    if text is None:
        return None
    if _is_file(text):
        try:
            names = Path(text).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ResultFileError(f"--classes: {text} cannot be read as text ({error}); save it as UTF-8") from None
    elif "," not in text and Path(text).suffix == ".txt":
        raise ResultFileError(f"--classes: {text} does not exist")
    else:
        names = text.split(",")
    names = [name.strip() for name in names if name.strip()]
    if not names:
        raise ResultFileError("--classes: names no class")
    return names


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # longer than a path can be, or with a NUL character
        return False
