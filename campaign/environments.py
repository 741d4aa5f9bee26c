"""The project as it stands, other Pythons of this machine, and environments of their own."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import List, Optional

ROOT = Path(__file__).resolve().parent.parent


@lru_cache(maxsize=None)
def fingerprint() -> str:
    """Of the package and its tests, so that no result of other code is taken for theirs."""
    found = hashlib.sha256()
    for folder in ("mm_metrics_command", "mm_metrics_plugin", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return found.hexdigest()


def interpreters(name: str) -> List[Path]:
    """The Pythons there are of a release such as ``3.8``: on the PATH, then under pyenv's folder."""
    pyenv = Path(os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv")))
    on_path = shutil.which(f"python{name}")
    candidates = [Path(on_path)] if on_path else []
    candidates += sorted(pyenv.glob(f"versions/{name}.*/bin/python"), reverse=True)
    return [path for path in candidates if _release(path) == name]


def interpreter(name: str) -> Optional[Path]:
    """One of them, or None. A shim on the PATH may name a Python that does not start, so each is tried."""
    return next(iter(interpreters(name)), None)


def newest(above: int = 9) -> Optional[Path]:
    """The Python of the highest release there is."""
    for minor in range(30, above, -1):
        found = interpreter(f"3.{minor}")
        if found:
            return found
    return None


def _release(path: Path) -> str:
    done = subprocess.run([str(path), "--version"], capture_output=True, text=True)
    found = re.match(r"Python (\d+\.\d+)\.\d+$", done.stdout.strip())  # a final release
    return found.group(1) if done.returncode == 0 and found else ""


def environment(name: str, python: Path, requirements: List[str]) -> Path:
    """The Python of the environment ``.venv-<name>`` with these packages; made once, and again when they change.

    With ``--upgrade`` among them, newer ones are looked for every time.
    """
    folder = ROOT / f".venv-{name}"
    stamp = folder / ".made"
    wanted = hashlib.sha256("\n".join([str(python), *requirements]).encode()).hexdigest()
    inside = folder / "bin" / "python"
    made = stamp.exists() and stamp.read_text() == wanted
    if not made:
        print(f"  setting up {folder.name}: {', '.join(requirements)}", flush=True)
        subprocess.run([str(python), "-m", "venv", "--clear", str(folder)], check=True)
    if not made or "--upgrade" in requirements:
        pip = [str(inside), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        done = subprocess.run([*pip, *requirements], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{folder.name} could not be set up:\n{done.stderr}")
        stamp.write_text(wanted)
    return inside
