"""PCK: objects without a size, joints without labels, names of joints, and weights of mmpose."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mm_metrics_plugin import PCK
from mm_metrics_plugin.exceptions import UndefinedMetricWarning
from mm_metrics_plugin.testing import evaluate
from tests.helpers.cases_keypoints import JOINTS, by_box, by_neck, counted, skeletons

META = {"keypoint_id2name": dict(enumerate(JOINTS))}


@pytest.mark.parametrize(("norm", "size"), [("bbox", by_box), ((0, 1), by_neck)])
def test_objects_without_a_size_are_left_out_and_counted(norm, size):
    samples = skeletons(np.random.default_rng(0), 40, sized=False)
    metric = PCK(thr=0.2, norm=norm, classwise=True)
    metric.dataset_meta = META
    with pytest.warns(UndefinedMetricWarning, match="object") as caught:
        for sample in samples:
            metric.process(None, [sample])
        values = metric.evaluate(len(samples))
    expected, shares, without_size = counted(samples, 0.2, size)
    expected.update({f"PCK/{name}": share for name, share in zip(JOINTS, shares)}, objects_without_size=without_size)
    assert without_size > 3 and len(caught) == 1
    assert values == pytest.approx({f"keypoints/{key}": value for key, value in expected.items()}, abs=1e-12)


def test_joints_without_labels_are_left_out_of_the_mean():
    samples = skeletons(np.random.default_rng(0), 9)
    for sample in samples:
        truth = sample["gt_instances"]
        truth["keypoints_visible"][:, 2] = 0
        weights = torch.ones_like(truth["keypoints_visible"])
        truth["keypoints_visible"] = torch.stack([truth["keypoints_visible"], weights], dim=2)
    metric = PCK(thr=0.1, classwise=True)
    metric.dataset_meta = META
    with pytest.warns(UndefinedMetricWarning, match="hand"):
        for sample in samples:
            metric.process(None, [sample])
        values = metric.evaluate(len(samples))
    assert np.isnan(values["keypoints/PCK/hand"]) and values["keypoints/joints_averaged"] == 3
    assert values["keypoints/PCK"] == np.nanmean([values[f"keypoints/PCK/{name}"] for name in JOINTS])


def test_names_of_another_number_of_joints_are_not_used():
    metric = PCK(classwise=True)
    metric.dataset_meta = {"keypoint_id2name": {0: "head"}}
    assert [key for key in evaluate(metric, skeletons(np.random.default_rng(0), 5)) if "PCK/" in key] == [
        f"keypoints/PCK/{index}" for index in range(4)
    ]
