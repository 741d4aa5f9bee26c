"""Builds the English and the Chinese site, with warnings as errors.

    python -m docs.build build/site

writes ``build/site/en``, ``build/site/zh_cn`` and an ``index.html`` that leads to the first. With ``--linkcheck`` it
checks the links to other sites instead and writes nothing but a report.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LANGUAGES = ("en", "zh_cn")
INDEX = '<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=en/index.html">\n'


def build(folder: Path, *, builder: str = "html") -> int:
    """Run Sphinx for each language.

    Args:
        folder: The folder to write to, one folder per language.
        builder: Sphinx' builder, ``html`` or ``linkcheck``.

    Returns:
        0, or the exit code of the first build that failed.
    """
    for language in LANGUAGES:
        caches = folder.parent / ".doctrees" / folder.name / language
        options = ["-W", "--keep-going", "-q", "-b", builder, "-d", str(caches)]
        command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs" / language), str(folder / language)]
        code = subprocess.run(command, cwd=ROOT).returncode
        if code:
            return code
    if builder == "html":
        (folder / "index.html").write_text(INDEX, encoding="utf-8")
        (folder / ".nojekyll").touch()
    return 0


def main() -> int:
    """Parse the arguments and build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder to write to")
    parser.add_argument("--linkcheck", action="store_true", help="check the links to other sites")
    arguments = parser.parse_args()
    return build(arguments.folder.resolve(), builder="linkcheck" if arguments.linkcheck else "html")


if __name__ == "__main__":
    sys.exit(main())
