"""``python -m mm_metrics_plugin``: which versions are here, and whether this package works with them."""

import sys

from mm_metrics_plugin.cli.environment import main

sys.exit(main())
