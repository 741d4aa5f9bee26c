"""Train a config that needs only mmengine: ``python tools/train.py CONFIG``.

mmdet, mmpretrain and mmseg have such a tool, mmengine has none.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # configs import demo.digits

from mmengine.config import Config, DictAction  # after the path is set
from mmengine.runner import Runner


def main() -> None:
    """Parse the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="an mmengine config")
    parser.add_argument("--work-dir", help="folder for logs and checkpoints (default: that of the config)")
    parser.add_argument("--cfg-options", nargs="+", action=DictAction, help="key=value pairs that override the config")
    arguments = parser.parse_args()
    config = Config.fromfile(arguments.config)
    config.merge_from_dict(arguments.cfg_options or {})
    if arguments.work_dir is not None:
        config.work_dir = arguments.work_dir
    Runner.from_cfg(config).train()


if __name__ == "__main__":
    main()
