"""Runs a stock tool on every process of a gloo group: ``torchrun on_gloo.py TOOL ARGUMENTS``.

mmengine's own launcher asks for a CUDA device whatever the backend; on a CPU the group is made before the tool starts.
"""

import runpy
import sys

from torch import distributed

if __name__ == "__main__":
    distributed.init_process_group("gloo")
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
    distributed.barrier()
    distributed.destroy_process_group()
