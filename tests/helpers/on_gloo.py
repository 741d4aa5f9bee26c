"""Run a tool on every process of a gloo group: ``torchrun on_gloo.py TOOL ARGUMENTS``.

mmengine's launcher needs CUDA for every backend, so the group is created before the tool starts. Every process writes
the values of a test to the same file, so each gets its own folder.
"""

import os
import runpy
import sys
from pathlib import Path

from torch import distributed

if __name__ == "__main__":
    distributed.init_process_group("gloo")
    sys.argv = sys.argv[1:]
    index = sys.argv.index("--work-dir") + 1
    sys.argv[index] = str(Path(sys.argv[index], f"rank{distributed.get_rank()}"))
    runpy.run_path(sys.argv[0], run_name="__main__")
    distributed.barrier()
    # The wrapped model keeps threads of the group alive after destroy_process_group, and such a thread can abort the
    # process when the interpreter exits, so exit without finalization.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
