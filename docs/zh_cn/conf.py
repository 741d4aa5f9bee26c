"""The Chinese site; see docs/conf_base.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from docs.conf_base import *  # noqa: F403

language = "zh_CN"
