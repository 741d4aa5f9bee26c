"""Shows both halves of the package: a metric in the log of a training run, and the report on a detector's results."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the config imports demo.digits

from mmengine.config import Config  # noqa: E402  # after the path is set
from mmengine.runner import Runner  # noqa: E402

from demo.make_detections import redraw_pictures  # noqa: E402
from mm_metrics_plugin.cli import main as mm_metrics  # noqa: E402

DETECTIONS = ROOT / "demo" / "detections"


def train_on_digits() -> str:
    """Trains a small classifier with SingleLabelAUC in its validation; says what the numbers mean."""
    config = ROOT / "configs" / "digits.py"
    runner = Runner.from_cfg(Config.fromfile(str(config)))
    runner.train()
    found = runner.message_hub.get_scalar("val/single-label/auc").current()
    binned = runner.message_hub.get_scalar("val/binned/auc").current()
    bound = runner.message_hub.get_scalar("val/binned/auc_error").current()
    return f"""
1. {config.relative_to(ROOT)} trained a classifier of two layers on {len(runner.train_dataloader.dataset)} of
   scikit-learn's handwritten digits and validated it on {len(runner.val_dataloader.dataset)} others after every epoch.
   single-label/auc = {found:.6f} is the chance that a picture of a digit gets a higher score for that digit than a
   picture of another one does, averaged over the ten digits; 0.5 would be guessing. binned/auc = {binned:.6f} is the
   same from histograms, in constant memory, and certified to lie within {bound:.1e} of it."""


def report_on_detections(folder: Path) -> str:
    """Prints the report on the bundled results of a real detector and writes its files."""
    truth, results = DETECTIONS / "annotations.json", DETECTIONS / "results.pkl"
    print("\nThe report on the bundled results of a small detector:\n", flush=True)
    with tempfile.TemporaryDirectory() as pictures:
        options = ["--ci", "0.95", "--html", "--images", str(redraw_pictures(Path(pictures)))]
        status = mm_metrics(["detection", str(truth), str(results), str(folder), *options])
    if status:
        sys.exit(status)
    return f"""
2. mm-metrics detection reported on demo/detections/results.pkl, which mmdet's own tools/test.py wrote for a small
   detector of shapes. Its table, matrix and figures are in {folder}.
   Open {folder / "report.html"} in a browser: the same to look at, with the worst pictures."""


def main() -> None:
    """Runs the demonstration."""
    output = Path("demo_output").resolve()
    said = train_on_digits() + report_on_detections(output)
    print(
        f"""
What was run, and what the numbers mean
{said}

What to do next: put these lines into a config of yours,

    custom_imports = dict(imports=['mm_metrics_plugin'], allow_failed_imports=False)
    val_evaluator = [dict(type='SingleLabelAUC')]        # or dict(type='DetectionPRF') in mmdet

or ask about results you have: mm-metrics detection annotations.json results.pkl report/ --html
README.md has the rest."""
    )


if __name__ == "__main__":
    main()
