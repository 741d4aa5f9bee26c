"""``python -m mm_metrics_plugin.cli``: as ``python -m mm_metrics_command``, but it imports torch where it is."""

import sys

from mm_metrics_plugin.cli import main

sys.exit(main())
