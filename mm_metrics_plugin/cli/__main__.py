"""``python -m mm_metrics_plugin.cli``: the ``mm-metrics`` command; imports torch if it is installed."""

import sys

from mm_metrics_plugin.cli import main

sys.exit(main())
