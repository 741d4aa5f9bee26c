"""What images and samples are called on a page."""

from __future__ import annotations

import os
from typing import List, Sequence

from mm_metrics_plugin.evaluation.report import common_folder


def without_common_folder(names: Sequence[str]) -> List[str]:
    """Names without the folder that all of them are in. Empty ones stay empty.

    Example:
        >>> without_common_folder(["data/val/a/1.png", "", "data/val/b/1.png"]), without_common_folder(["1.png"])
        (['a/1.png', '', 'b/1.png'], ['1.png'])
    """
    common = common_folder(names)
    return [os.path.relpath(name, common) if common and name else name for name in names]
