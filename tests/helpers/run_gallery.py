"""Build the configs of the gallery: ``python -m tests.helpers.run_gallery CONFIG ...``.

A config with ``+`` before its name is also trained. Prints one line of JSON per config.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mmengine.config import Config
from mmengine.runner import Runner

from mm_metrics_plugin import StreamingMetric

CONFIGS = Path(__file__).resolve().parent.parent.parent / "configs"


def metrics_of(runner):
    """The metrics of the validation, including those of MultiTasksMetric."""
    for metric in runner.val_loop.evaluator.metrics:
        yield metric
        for task in getattr(metric, "_metrics", {}).values():
            yield from task


def main(name: str) -> None:
    config = Config.fromfile(str(CONFIGS / name.lstrip("+")))
    config.work_dir = f"work_dirs/{Path(name.lstrip('+')).stem}"
    if name.startswith("+mmpretrain"):  # one epoch is enough
        config.train_cfg.max_epochs = 1
    runner = Runner.from_cfg(config)
    summary = dict(
        config=name.lstrip("+"),
        train=len(runner.build_train_loop(config.train_cfg).dataloader.dataset),
        val=len(runner.val_loop.dataloader.dataset),
        parameters=sum(parameter.numel() for parameter in runner.model.parameters()),
        ours=[type(metric).__name__ for metric in metrics_of(runner) if isinstance(metric, StreamingMetric)],
        hooks=[type(hook).__name__ for hook in runner.hooks],
    )
    if name.startswith("+"):
        runner.train()
        hub = runner.message_hub
        summary["scalars"] = {
            key[4:]: hub.get_scalar(key).current() for key in hub.log_scalars if key.startswith("val/")
        }
        summary["epochs"] = runner.epoch
        summary["kept"] = sorted(path.name for path in Path(config.work_dir).glob("best_*"))
    print("\ngallery: " + json.dumps(summary), flush=True)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        main(argument)
