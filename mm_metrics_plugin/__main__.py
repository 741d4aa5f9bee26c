"""``python -m mm_metrics_plugin``: the environment check."""

import sys

from mm_metrics_plugin.cli.environment import main

sys.exit(main())
