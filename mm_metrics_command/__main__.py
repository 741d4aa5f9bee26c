"""``python -m mm_metrics_command``: the ``mm-metrics`` command if the script is not on the PATH."""

import sys

from mm_metrics_command import main

if __name__ == "__main__":
    sys.exit(main())
