"""Runs a stock tool on every process of a gloo group: ``torchrun on_gloo.py TOOL ARGUMENTS``.

mmengine's own launcher asks for a CUDA device whatever the backend; on a CPU the group is made before the tool starts.
Every process writes the numbers of a test to the same file, one over the other, so each is given a folder of its own.
"""

import os
import runpy
import sys
from pathlib import Path

from torch import distributed

if __name__ == "__main__":
    distributed.init_process_group("gloo")
    sys.argv = sys.argv[1:]
    at = sys.argv.index("--work-dir") + 1
    sys.argv[at] = str(Path(sys.argv[at], f"rank{distributed.get_rank()}"))
    runpy.run_path(sys.argv[0], run_name="__main__")
    distributed.barrier()
    # The tool's wrapped model keeps the group's threads alive even after destroy_process_group, and one that asks for
    # the interpreter while it is taken down aborts the process now and then. So it is not taken down.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
