"""Trains a small classifier on real digits with SingleLabelAUC in its validation, and says what the number means."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the config imports demo.digits

from mmengine.config import Config  # noqa: E402  # after the path is set
from mmengine.runner import Runner  # noqa: E402


def main() -> None:
    """Runs the demonstration."""
    config = ROOT / "configs" / "digits.py"
    runner = Runner.from_cfg(Config.fromfile(str(config)))
    runner.train()
    found = runner.message_hub.get_scalar("val/single-label/auc").current()
    binned = runner.message_hub.get_scalar("val/binned/auc").current()
    bound = runner.message_hub.get_scalar("val/binned/auc_error").current()
    print(
        f"""
What was run: {config.relative_to(ROOT)} trained a classifier of two layers on {len(runner.train_dataloader.dataset)} of
scikit-learn's handwritten digits and validated it on {len(runner.val_dataloader.dataset)} others after every epoch.

What the number means: single-label/auc = {found:.6f} is the chance that a picture of a digit gets a higher score for
that digit than a picture of another one does, averaged over the ten digits; 0.5 would be guessing. binned/auc =
{binned:.6f} is the same from histograms, in constant memory, and certified to lie within {bound:.1e} of it.

What to do next: put these lines into a config of yours, and read README.md for the other metrics:

    custom_imports = dict(imports=['mm_metrics_plugin'], allow_failed_imports=False)
    val_evaluator = [dict(type='SingleLabelAUC')]
"""
    )


if __name__ == "__main__":
    main()
