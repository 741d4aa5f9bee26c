"""The environment check: which versions are installed, what works with them, and how to fix what does not."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from mm_metrics_plugin.cli.probes import MARK
from mm_metrics_plugin.cli.streams import write_output
from mm_metrics_plugin.version import __version__

# By the name they are imported under: the least version that works, the one the tests run on, and the names to install
# it by; those behind the first are forks that keep the import name.
KNOWN: Dict[str, Tuple[str, str, Tuple[str, ...]]] = {
    "numpy": ("1.20", "2.4.6", ("numpy",)),
    "scipy": ("1.6", "1.17.1", ("scipy",)),
    "matplotlib": ("3.5", "3.11.2", ("matplotlib",)),
    "rich": ("10.0", "15.0.0", ("rich",)),
    "jinja2": ("3.0", "3.1.6", ("jinja2",)),
    "plotly": ("5.0", "7.1.0", ("plotly",)),
    "PIL": ("8.0", "13.0.0", ("pillow",)),
    "torch": ("1.8", "2.13.0", ("torch",)),
    "torchvision": ("0.9", "0.15.2", ("torchvision",)),
    "mmengine": ("0.8", "0.10.7", ("mmengine", "mmengine-lite", "onedl-mmengine")),
    "mmcv": ("2.0.0", "2.1.0", ("mmcv", "mmcv-lite", "mmcv-full", "onedl-mmcv")),
    "mmdet": ("3.0", "3.3.0", ("mmdet", "onedl-mmdetection")),
    "mmpretrain": ("1.0", "1.2.0", ("mmpretrain", "onedl-mmpretrain")),
    "mmseg": ("1.0", "1.2.2", ("mmsegmentation", "onedl-mmsegmentation")),
}
# Other libraries' packages that are not installed by the name they are imported under.
INSTALLED_AS = {"cv2": "opencv-python", "sklearn": "scikit-learn", "yaml": "pyyaml"}
OPTIONAL = {
    "page": ("the page of --html", ("jinja2", "plotly", "PIL"), "pip install 'mm_metrics_plugin[report]'"),
    "mmdet": ("metrics in mmdet", ("mmdet",), "pip install mmdet"),
    "mmpretrain": ("metrics in mmpretrain", ("mmpretrain",), "pip install mmpretrain"),
    "mmseg": ("metrics in mmseg", ("mmseg",), "pip install mmsegmentation ftfy regex"),
}
MMCV = "install openmim, then: mim install 'mmcv>=2.0.0,<2.2.0' (where it finds no wheel, it compiles it)"
# What an error says, and what helps; the first that fits. Groups of the pattern may stand in the advice.
ADVICE = (
    (r"No module named 'mmcv(\._ext|\.ops)?'", f"mmcv is not here, or without its operators: {MMCV}"),
    (r"MMCV==(\S+) is used but incompatible", f"the library does not take mmcv {{0}}: {MMCV}"),
    (r"MMEngine==(\S+) is used but incompatible. Please install (\S+), (<[\d.]+\d)", "pip install '{1},{2}'"),
    (
        r"torchvision::nms does not exist",
        "install the torchvision made for this torch; on one without CUDA: pip install --no-deps torchvision==0.15.2",
    ),
    (
        r"undefined symbol|libtorch|libc10|DLL load failed",
        "a compiled package was made for another torch: install mmcv and torchvision again, with pip's --no-cache-dir",
    ),
    (
        r"compiled using NumPy 1|numpy\.core\.multiarray failed|_ARRAY_API",
        "a compiled package was made for NumPy 1: pip install 'numpy<2'",
    ),
    (r"No module named '([^'.]+)", "pip install {0}"),
)
TIMEOUT = 300


class Finding(NamedTuple):
    """One line of the check.

    Attributes:
        status: ``'ok'``, ``'absent'`` (not installed, and nobody needs it), ``'warning'`` or ``'wrong'``.
        subject: What was looked at.
        said: What was found.
        fix: What to do about it.
    """

    status: str
    subject: str
    said: str
    fix: str = ""


def installed(name: str) -> Optional[str]:
    """The version of an importable module, ``'?'`` where it does not say, or None.

    Example:
        >>> installed("numpy") is None, installed("no_such_module")
        (False, None)
    """
    if find_spec(name) is None:
        return None
    for distribution in KNOWN[name][2] if name in KNOWN else (name,):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return "?"


def older(found: str, least: str) -> bool:
    """Whether a version is below another, by its leading numbers.

    Example:
        >>> older("0.7.4", "0.8"), older("0.10.7", "0.8"), older("2.0.0rc4", "2.0.0"), older("?", "1.0")
        (True, False, False, False)
    """

    def numbers(text: str) -> List[int]:
        leading = re.match(r"\d+(\.\d+)*", text)
        return [int(part) for part in leading.group().split(".")] if leading else [sys.maxsize]

    return numbers(found) < numbers(least)


def advice(error: str) -> str:
    """What helps against an error.

    Example:
        >>> advice("ModuleNotFoundError: No module named 'ftfy'")
        'pip install ftfy'
    """
    for pattern, text in ADVICE:
        match = re.search(pattern, error)
        if match:
            named = [
                KNOWN[name][2][0] if name in KNOWN else INSTALLED_AS.get(name, name) for name in match.groups() if name
            ]
            return text.format(*named)
    return ""


def try_out(probes: Sequence[str]) -> Dict[str, Dict[str, str]]:
    """Runs probes in another process and returns what each found: ``works`` or ``error``."""
    answers: Dict[str, Dict[str, str]] = {}
    waiting = list(probes)
    while waiting:
        output, reason = _run_probes(waiting)
        found = [json.loads(line[len(MARK) :]) for line in output.splitlines() if line.startswith(MARK)]
        answers.update(zip(waiting, found))
        waiting = waiting[len(found) :]
        if waiting:  # the process died of this one; the others have another chance
            answers[waiting.pop(0)] = {"error": reason}
    return answers


def _run_probes(probes: Sequence[str]) -> Tuple[str, str]:
    """What the probes printed, and why they stopped if they did."""
    # Through the launcher: where torch cannot be imported, reports must be tried out all the same.
    start = "import sys, mm_metrics_command as m; m.load('mm_metrics_plugin.cli.probes').main(sys.argv[1:])"
    command = [sys.executable, "-c", start, *probes]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        try:
            done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, timeout=TIMEOUT)
            last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["nothing was said"])[-1]
            reason = f"the process ended with exit code {done.returncode} ({last})"
        except subprocess.TimeoutExpired:
            reason = f"there was no answer within {TIMEOUT} s"
        output.seek(0)
        return output.read(), reason


def findings(versions: Dict[str, Optional[str]]) -> List[Finding]:
    """Everything the check has to say, given the versions of what is installed."""
    found: List[Finding] = []
    for name, have in versions.items():
        least, _, names = KNOWN[name]
        if have is not None and older(have, least):
            fix = f"pip install '{names[0]}>={least}'" if name != "mmcv" else MMCV
            found.append(Finding("wrong", name, f"{have} is too old; {least} is the least that works", fix))
    probes = {"reports": "the mm-metrics command"}
    missing = [name for name in ("torch", "mmengine") if versions[name] is None]
    if missing:
        needed = any(versions[name] is not None for name in ("mmdet", "mmpretrain", "mmseg"))
        status = "warning" if needed else "absent"  # what is not installed cannot fail, and reports work without it
        fix = f"pip install {' '.join(missing)} (only metrics in training runs need it)"
        said = f"{' and '.join(missing)} not installed, so no metric is registered; reports work without"
        found.append(Finding(status, "metrics in mmengine", said, fix))
    else:
        probes.update(mmengine="metrics in mmengine", checkpoints="checkpoints")
    for probe, (subject, modules, fix) in OPTIONAL.items():
        lacking = [name for name in modules if versions[name] is None]
        if lacking:
            found.append(Finding("absent", subject, f"{' and '.join(lacking)} not installed", f"to have it: {fix}"))
        elif probe == "page" or not missing:
            probes[probe] = subject
    tried = [_judge(probe, probes[probe], answer) for probe, answer in try_out(list(probes)).items()]
    if shutil.which("mm-metrics") is None:
        said, fix = (
            "mm-metrics is not on the PATH",
            "write python -m mm_metrics_command instead, or activate the environment",
        )
        found.append(Finding("warning", "the mm-metrics command", said, fix))
    return tried + found


def _judge(probe: str, subject: str, answer: Dict[str, str]) -> Finding:
    if "works" in answer:
        return Finding("ok", subject, answer["works"])
    error = " ".join(answer["error"].split())
    if probe == "checkpoints" and "weights_only" in error:
        return Finding(
            "warning",
            subject,
            "mmengine cannot load its own checkpoints here: this torch loads nothing but weights unless told otherwise",
            "for checkpoints you made yourself: export TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 before tools/test.py and "
            "before --resume",
        )
    said = error if len(error) <= 300 else error[:300] + " ..."
    return Finding("wrong", subject, said, advice(error) or f"try it alone: python -c 'import {probe}'")


def report(versions: Dict[str, Optional[str]], found: List[Finding]) -> str:
    """The check as text."""
    lines = [f"mm_metrics_plugin {__version__}, Python {platform.python_version()}, {platform.platform()}", ""]
    lines.append(f"{'':<12}  {'installed':<14}  tested with")
    lines += [f"{name:<12}  {have or '-':<14}  {KNOWN[name][1]}" for name, have in versions.items()]
    lines.append("")
    for status, subject, said, fix in found:
        lines.append(f"{status:<8} {subject}: {said}")
        if fix:
            lines.append(f"{'':<8} -> {fix}")
    wrong = sum(one.status == "wrong" for one in found)
    lines += ["", "Everything that was tried works." if not wrong else f"{wrong} of these are wrong."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the check.

    Returns:
        0 if everything that was tried works, else 1. What is not installed is not tried.
    """
    versions = {name: installed(name) for name in KNOWN}
    found = findings(versions)
    text = report(versions, found)
    write_output(text)
    return int(any(one.status == "wrong" for one in found))
