"""Invalid options are refused when the metric is built, with a message that names the option."""

from __future__ import annotations

import pytest

import mm_metrics_plugin

INVALID = {
    "SingleLabelAUC": [
        *(dict(average="mean"), dict(curve="det"), dict(multi_class="all"), dict(absent="zero"), dict(max_fpr=0.0)),
        *(dict(multi_class="ovo", average="micro"), dict(multi_class="ovo", curve="pr"), dict(max_fpr=0.5, curve="pr")),
        *(dict(num_thresholds=1), dict(num_thresholds=10, thrs=0.5), dict(num_thresholds=10, max_fpr=0.5)),
        *(dict(thrs=0.5, slide_steps=1), dict(thrs=(0.301, 0.302)), dict(ci=0), dict(ci=0.95, curve="pr")),
        *(dict(ci=0.95, multi_class="ovo"), dict(ci=0.95, average="micro"), dict(ci=0.95, max_fpr=0.5)),
        *(dict(ci=0.95, num_thresholds=100), dict(ci=0.95, thrs=0.5)),
    ],
    "MultiLabelAUC": [dict(max_fpr=0.5, curve="pr"), dict(num_thresholds=1)],
    "SingleLabelPRF": [
        *(dict(average="mean"), dict(convention="sklearn"), dict(beta=0), dict(topk=0), dict(thrs=())),
        *(dict(thrs=(0.301, 0.302)), dict(zero_division="warn"), dict(zero_division=0, convention="paddlerec")),
    ],
    "MultiLabelPRF": [dict(thr=0.5, topk=1), dict(topk=0), dict(zero_division=0.5)],
    "SingleLabelKS": [dict(positive_label=1, classwise=True), dict(num_thresholds=1), dict(absent="zero")],
    "RecallAtK": [dict(topk=()), dict(topk=0)],
    "CalibrationError": [dict(binning="quantile"), dict(num_bins=0), dict(floor=1), dict(num_thresholds=1)],
    "DetectionPRF": [
        *(dict(matching="best"), dict(average=None), dict(iou_thr=0.0), dict(iou_thr=1.5), dict(nms_iou_thr=2.0)),
        *(dict(max_dets=0), dict(zero_division=None), dict(ci=1.0), dict(ci=95), dict(ci=0.95, zero_division=0)),
        *(dict(ci=0.95, matching="mmdet"), dict(ci=0.95, average="weighted"), dict(resamples=0, ci=0.95)),
        *(dict(operating_point="best"), dict(operating_point="f1", matching="mmdet")),
    ],
    "PCK": [dict(thr=0), dict(norm="head"), dict(norm=(1, 1)), dict(norm=(0, 1, 2)), dict(joints=())],
    "MeanIoU": [dict(absent="zero")],
    "DiceScore": [
        *(dict(mode="medium"), dict(over="batch"), dict(activation="relu", mode="soft"), dict(activation="softmax")),
        *(
            dict(threshold=0.5),
            dict(empty="one"),
            dict(convention="keras"),
            dict(convention="mindspore", classwise=True),
        ),
    ],
    "RegressionError": [dict(percentage_floor=-1.0)],
    "FieldMean": [dict(key="loss_cls", field="x"), dict(prefix="time", field="x"), dict(prefix="loss", field="x")],
    "MetricFigureHook": [dict(interval=0), dict(max_classes=0), dict(dpi=0)],
}
for _metric in ("SingleLabelAUC", "SingleLabelPRF", "DetectionPRF", "MeanIoU", "DiceScore"):
    INVALID[_metric] += [dict(num_classes=number) for number in (0, -1, 2.5, "2")]


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, options) for name, rows in INVALID.items() for options in rows],
    ids=lambda value: value if isinstance(value, str) else "-".join(f"{key}={one}" for key, one in value.items()),
)
def test_invalid_options(name, options):
    option = next(iter(options))
    with pytest.raises(ValueError, match=option):
        getattr(mm_metrics_plugin, name)(**options)


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="score_threshold"):
        mm_metrics_plugin.DetectionPRF(score_threshold=0.5)
