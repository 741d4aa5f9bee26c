"""Running the stock tools that ship inside the OpenMMLab wheels, as their users do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Dict, List

ROOT = Path(__file__).resolve().parent.parent.parent


def tool(library: str, *parts: str) -> Path:
    """The path of a stock tool."""
    return Path(find_spec(library).origin).parent / ".mim" / "tools" / Path(*parts)


def environment() -> Dict[str, str]:
    """What the stock tools are run with: checkpoints of our own load, and only the installed package is found."""
    variables = {**os.environ, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "OMP_NUM_THREADS": "1"}
    variables.pop("PYTHONPATH", None)
    return variables


def run(script: Path, *arguments: Any, cwd: Path) -> str:
    """Runs a script in a process of its own and returns what it printed."""
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)], cwd=cwd, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, f"{script.name} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def scalars(work_dir: Path, key: str) -> List[Dict[str, float]]:
    """The lines of mmengine's scalar log of a run that hold the key, in order."""
    (log,) = sorted(work_dir.glob("*/vis_data/scalars.json"))
    return [row for row in map(json.loads, log.read_text().splitlines()) if key in row]


def score_of_test_tool(work_dir: Path, key: str) -> float:
    """The value a stock ``test.py`` wrote down under its work folder."""
    rows = [json.loads(path.read_text()) for path in work_dir.glob("*/*.json")]
    (value,) = [row[key] for row in rows if key in row]
    return value
