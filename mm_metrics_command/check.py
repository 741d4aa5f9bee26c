"""``python -m mm_metrics_command.check``: the check of the environment, also where torch cannot be imported."""

import sys

from mm_metrics_command import load

if __name__ == "__main__":
    sys.exit(load("mm_metrics_plugin.cli.environment").main())
