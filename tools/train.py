"""Trains what a config describes, for configs that need nothing but mmengine: ``python tools/train.py CONFIG``.

mmengine has no such tool of its own; mmdet, mmpretrain and mmseg have theirs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # configs import demo.digits

from mmengine.config import Config, DictAction  # after the path is set
from mmengine.runner import Runner


def main() -> None:
    """Reads the arguments and trains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="an mmengine config")
    parser.add_argument("--work-dir", help="where logs and checkpoints go; the config's own by default")
    parser.add_argument("--cfg-options", nargs="+", action=DictAction, help="key=value pairs that override the config")
    arguments = parser.parse_args()
    config = Config.fromfile(arguments.config)
    config.merge_from_dict(arguments.cfg_options or {})
    if arguments.work_dir is not None:
        config.work_dir = arguments.work_dir
    Runner.from_cfg(config).train()


if __name__ == "__main__":
    main()
