"""``python -m mm_metrics_plugin.cli``."""

import sys

from mm_metrics_plugin.cli import main

sys.exit(main())
