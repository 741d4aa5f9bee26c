"""Run the tools inside the OpenMMLab wheels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def tool(library: str, *parts: str) -> Path:
    """The path of a tool of a library."""
    return Path(find_spec(library).origin).parent / ".mim" / "tools" / Path(*parts)


def environment() -> dict[str, str]:
    """Environment variables of the tools: checkpoints can be loaded, and only the installed package is imported."""
    variables = {**os.environ, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "OMP_NUM_THREADS": "1"}
    variables.pop("PYTHONPATH", None)
    return variables


def run(*arguments: Any, cwd: Path) -> str:
    """The output of Python with these arguments, such as a script, in a new process."""
    words = [sys.executable, *map(str, arguments)]
    done = subprocess.run(words, cwd=cwd, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments[0]} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def run_on_two_processes(script: Path, *arguments: Any, cwd: Path) -> None:
    """Run a tool on two processes, each with a folder in the one that follows ``--work-dir``."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    run(*launcher, ROOT / "tests" / "helpers" / "on_gloo.py", script, *arguments, cwd=cwd)


def scalars(work_dir: Path, key: str) -> list[dict[str, float]]:
    """The lines with the key in mmengine's log of scalars."""
    (log,) = sorted(work_dir.glob("*/vis_data/scalars.json"))
    return [row for row in map(json.loads, log.read_text().splitlines()) if key in row]


def score_of_test_tool(work_dir: Path, key: str) -> float:
    """The value that ``test.py`` wrote to its work folder."""
    rows = [json.loads(path.read_text()) for path in work_dir.glob("*/*.json")]
    (value,) = [row[key] for row in rows if key in row]
    return value
