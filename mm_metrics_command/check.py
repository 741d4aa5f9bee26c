"""``python -m mm_metrics_command.check``: the environment check without importing torch."""

import sys

from mm_metrics_command import load

if __name__ == "__main__":
    sys.exit(load("mm_metrics_plugin.cli.environment").main())
