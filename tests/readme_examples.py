"""Run the examples of README.md that need neither torch nor make: ``python -m tests.readme_examples``.

``nox -s wheel`` calls it in a clean environment. The examples run in a temporary folder, so that they use the installed
package and not the repository. tests/test_docs_blocks.py runs all examples where the whole stack is installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.helpers.documents import ROOT, blocks

COMMANDS = (["mm-metrics"], ["python", "-m", "mm_metrics_plugin"])


def commands(text):
    """The commands of a shell block, as lists of words without comments."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def run(words, folder):
    print("+", *words, flush=True)
    program = shutil.which(words[0], path=os.path.dirname(sys.executable)) or sys.executable
    done = subprocess.run([program, *words[1:]], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    message = done.stderr.decode("utf-8", "replace")
    assert done.returncode == 0 and "Traceback" not in message, message


def runnable(block, folder):
    """The commands of a block that need neither torch nor make."""
    if block.language == "bash":
        return [words for words in commands(block.text) if any(words[: len(start)] == start for start in COMMANDS)]
    if block.language == "python" and "custom_imports" not in block.text:
        Path(folder, "example.py").write_text(block.text, encoding="utf-8")
        return [["python", "example.py"]]
    return []


def main():
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "demo", Path(folder, "demo"))
        for block in blocks(ROOT / "README.md"):
            for words in [] if block.not_run else runnable(block, folder):
                run(words, folder)
                count += 1
    print(f"{count} examples of README.md ran")
    assert count, "README.md has no example that runs without torch"


if __name__ == "__main__":
    main()
