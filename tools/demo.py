"""A metric in a training run, and the report on a detector's results."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the config imports demo.digits

from mmengine.config import Config  # noqa: E402  # after the path is set
from mmengine.hooks import Hook  # noqa: E402
from mmengine.runner import Runner  # noqa: E402

from demo.make_detections import redraw_images  # noqa: E402
from mm_metrics_plugin.cli import main as mm_metrics  # noqa: E402

DETECTIONS = ROOT / "demo" / "detections"


class ValidationLine(Hook):
    """Prints one line per validation instead of mmengine's log."""

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        """Called by the runner."""
        values = "   ".join(f"{key} {(metrics or {})[key]:.6f}" for key in ("single-label/auc", "binned/auc"))
        print(f"  epoch {runner.epoch}: {values}", flush=True)


def train_on_digits() -> None:
    """Train a small classifier with SingleLabelAUC in its validation, and explain the numbers."""
    config = Config.fromfile(str(ROOT / "configs" / "digits.py"))
    config.log_level = "ERROR"  # otherwise versions, config and hooks fill three screens
    runner = Runner.from_cfg(config)
    runner.register_hook(ValidationLine())
    samples = len(runner.build_dataloader(config.train_dataloader).dataset)
    print(f"\n1. Training configs/digits.py, a small classifier of {samples:,} handwritten digits. Validation:\n")
    runner.train()
    auc, binned, bound = (
        runner.message_hub.get_scalar(f"val/{key}").current()
        for key in ("single-label/auc", "binned/auc", "binned/auc_error")
    )
    print(f"""
   single-label/auc = {auc:.6f} is the probability that an image of a digit has a higher score for that digit than an
   image of another digit, averaged over the ten digits; 0.5 is guessing. binned/auc = {binned:.6f} is computed from
   histograms in constant memory and lies within {bound:.1e} of it.""")


def report_on_detections(folder: Path) -> None:
    """Print the report on the bundled results of a small detector, and write its files."""
    ground_truth, results = DETECTIONS / "annotations.json", DETECTIONS / "results.pkl"
    print("\n2. mm-metrics detection on the bundled results of a small detector, which mmdet's tools/test.py wrote:\n")
    with tempfile.TemporaryDirectory() as images:
        options = ["--html", "--images", str(redraw_images(Path(images)))]
        status = mm_metrics(["detection", str(ground_truth), str(results), str(folder), *options])
    if status:
        sys.exit(status)


def main() -> None:
    """Run the demonstration."""
    output = Path("demo_output").resolve()
    train_on_digits()
    report_on_detections(output)
    print(
        f"""
The same report as a page, with the worst images: open {output / "report.html"}

Three things to try next:
  1. In a config of yours:
       custom_imports = dict(imports=['mm_metrics_plugin'], allow_failed_imports=False)
       val_evaluator = [dict(type='SingleLabelAUC')]        # or dict(type='DetectionPRF') in mmdet
  2. On results you have: mm-metrics detection annotations.json results.pkl report/ --html
  3. On two runs:         mm-metrics compare annotations.json old.pkl new.pkl"""
    )


if __name__ == "__main__":
    argparse.ArgumentParser(description=f"{__doc__} Files go to demo_output/.").parse_args()
    main()
