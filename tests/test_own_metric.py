"""The metric of the tutorial passes every check of the package's metrics."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import torch
from mmengine.registry import METRICS
from scipy.spatial.transform import Rotation

from mm_metrics_plugin.testing import InvalidInput, MetricCase, check_metric

EXAMPLE = Path(__file__).resolve().parent.parent / "docs" / "own_metric_example.py"


def load_example():
    """The example as a module that other processes import by the same name."""
    name = "own_metric_example"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, EXAMPLE)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def build():
    load_example()
    return METRICS.build(dict(type="AngleError"))


def directions(generator, count):
    return [
        dict(pred_angle=torch.tensor([angle]), gt_angle=torch.tensor([angle + error]))
        for angle, error in zip(generator.uniform(-360, 360, count), generator.normal(0, 90, count))
    ]


def rotation_error(samples):
    """SciPy's angle of the rotation from the target to the prediction."""
    predicted, target = (
        Rotation.from_euler("z", [[float(sample[field])] for sample in samples], degrees=True)
        for field in ("pred_angle", "gt_angle")
    )
    return {"degrees": np.degrees((predicted * target.inv()).magnitude()).mean()}


CASE = MetricCase(
    "angle",
    build,
    directions,
    rotation_error,
    rules={"degrees": "less"},
    invalid_inputs=[
        InvalidInput("a NaN", lambda sample: sample["gt_angle"].fill_(np.nan), ["'gt_angle'", "nan"]),
        InvalidInput("no target", lambda sample: sample.pop("gt_angle"), ["'gt_angle'"]),
    ],
)


def test_the_example_passes_every_check():
    check_metric(CASE, world_sizes=(2,))
