"""MeanIoU and DiceScore on mmseg's data samples, compared with its IoUMetric."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mmengine.evaluator import Evaluator
from mmengine.structures import PixelData
from mmseg.evaluation import IoUMetric
from mmseg.structures import SegDataSample

from mm_metrics_plugin import DiceScore, MeanIoU, MetricInputError, UndefinedMetricWarning
from mm_metrics_plugin.testing import evaluate

CLASSES = ("road", "car", "tree", "sky", "train")


def data_sample(index, target, prediction, scores):
    sample = SegDataSample(metainfo=dict(img_path=f"{index}.png"))
    fields = dict(gt_sem_seg=target, pred_sem_seg=prediction, seg_logits=scores)
    for field, value in fields.items():
        setattr(sample, field, PixelData(data=torch.as_tensor(value)))
    return sample


def seg_samples(used=CLASSES):
    """Images of different sizes with ignored pixels."""
    generator = np.random.default_rng(0)
    for index in range(9):
        shape = (1, 10 + index, 12 + 2 * index)
        target = generator.integers(0, len(used), shape)
        prediction = np.where(generator.random(shape) < 0.6, target, generator.integers(0, len(used), shape))
        target[generator.random(shape) < 0.1] = 255
        yield data_sample(index, target, prediction, generator.normal(size=(len(CLASSES), *shape[1:])))


def one_channel():
    """The samples of a decode head with ``out_channels=1``: sigmoid scores, and predictions as floats."""
    generator = np.random.default_rng(0)
    for index in range(6):
        shape = (1, 8 + index, 9)
        target = generator.integers(0, 2, shape)
        scores = torch.from_numpy((target + generator.normal(size=shape)).astype(np.float32)).sigmoid()
        target[generator.random(shape) < 0.2] = 255
        yield data_sample(index, target, (scores > 0.3).to(scores), scores)


def both(metrics, samples, classes=CLASSES):
    """The values of metrics in mmengine's Evaluator."""
    evaluator = Evaluator(metrics)
    evaluator.dataset_meta = {"classes": classes}
    samples = list(samples)
    for start in range(0, len(samples), 4):
        evaluator.process(samples[start : start + 4])
    return evaluator.evaluate(len(samples))


def exact_mmseg(samples, metric):
    """The values of IoUMetric before it rounds them to two digits."""
    areas = [
        IoUMetric.intersect_and_union(
            sample.pred_sem_seg.data.squeeze(), sample.gt_sem_seg.data.squeeze(), len(CLASSES), 255
        )
        for sample in samples
    ]
    return IoUMetric.total_area_to_metrics(*(sum(area).double() for area in zip(*areas)), [metric])


def test_values_equal_mmseg():
    metrics = [MeanIoU(classwise=True), DiceScore(over="dataset", classwise=True, prefix="dice")]
    values = both([*metrics, IoUMetric(iou_metrics=["mIoU", "mDice"])], seg_samples())
    for ours, theirs in (("sem-seg/mIoU", "mIoU"), ("sem-seg/mAcc", "mAcc"), ("dice/mDice", "mDice")):
        assert round(100 * values[ours], 2) == pytest.approx(values[theirs])
    expected = {**exact_mmseg(seg_samples(), "mIoU"), **exact_mmseg(seg_samples(), "mDice")}
    assert values["sem-seg/aAcc"] == pytest.approx(float(expected["aAcc"]), rel=1e-14)
    for key in ("sem-seg/IoU", "sem-seg/Acc", "dice/Dice"):
        per_class = [values[f"{key}/{name}"] for name in CLASSES]
        assert per_class == pytest.approx(expected[key.split("/")[1]].tolist(), rel=1e-14)


def test_values_equal_mmseg_without_samples_of_a_class():
    with pytest.warns(UndefinedMetricWarning, match="(IoU|Dice) is undefined for train"):
        metrics = [MeanIoU(), DiceScore(over="dataset", empty="skip", prefix="dice")]
        values = both([*metrics, IoUMetric(iou_metrics=["mIoU", "mDice"])], seg_samples(CLASSES[:4]))
    assert values["sem-seg/classes_averaged"] == 4
    assert round(100 * values["sem-seg/mIoU"], 2) == pytest.approx(values["mIoU"])
    assert round(100 * values["dice/mDice"], 2) == pytest.approx(values["mDice"])


def test_one_output_channel_equals_mmseg():
    metrics = [
        DiceScore(over="dataset", classwise=True, prefix="hard"),
        DiceScore(mode="soft", threshold=0.3, over="dataset", classwise=True, prefix="soft"),
        MeanIoU(classwise=True),
        IoUMetric(iou_metrics=["mIoU", "mDice"], prefix="mmseg"),
    ]
    values = both(metrics, one_channel(), ("background", "cell"))
    for ours, theirs in (("hard/mDice", "mDice"), ("soft/mDice", "mDice"), ("sem-seg/mIoU", "mIoU")):
        assert round(100 * values[ours], 2) == pytest.approx(values[f"mmseg/{theirs}"], abs=1e-9)
    assert values["hard/Dice/cell"] == values["soft/Dice/cell"]


def dice(x, y):
    return 2 * (x * y).sum() / ((x**2).sum() + (y**2).sum())


@pytest.mark.parametrize("squeeze", [False, True])
@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_soft_dice_of_one_channel(squeeze, activation):
    samples, expected = [], []
    for sample in one_channel():
        scores, target = sample.seg_logits.data, sample.gt_sem_seg.data
        logits = scores.double().logit() if activation else scores
        samples.append(dict(seg_logits=dict(data=logits), gt_sem_seg=dict(data=target[0] if squeeze else target)))
        x, y = scores[target != 255].double().numpy(), target[target != 255].numpy()
        expected.append([dice(1 - x, 1 - y), dice(x, y)])
    values = evaluate(DiceScore(mode="soft", activation=activation, classwise=True, num_classes=2), samples)
    mean = np.mean(expected, axis=0).tolist()
    assert [values["sem-seg/Dice/0"], values["sem-seg/Dice/1"]] == pytest.approx(mean, rel=1e-12)


def soft(**options):
    return DiceScore(mode="soft", prediction_field="x", target_field="y", **options)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32])
@pytest.mark.parametrize("ignore_index", [255, 100])
def test_ignored_values_of_a_mask(dtype, ignore_index):
    generator = np.random.default_rng(0)
    x, y = generator.random((5, 6)), generator.integers(0, 2, (5, 6))
    y[:2, :4] = ignore_index
    values = evaluate(soft(ignore_index=ignore_index), [dict(x=torch.tensor(x), y=torch.tensor(y).to(dtype))])
    assert values["sem-seg/mDice"] == pytest.approx(dice(x[y < 2], y[y < 2]), rel=1e-14)
    with pytest.raises(MetricInputError, match=rf"'y' of sample 0 must lie in 0 to 1 \(found {ignore_index}"):
        soft(ignore_index=None).process(None, [dict(x=x, y=y)])


def test_ignored_values_of_soft_targets_of_every_class():
    x = np.array([[[0.25, 0.5, 1.0]], [[0.75, 0.5, 0.0]]])
    y = np.array([[[0.0, 255, 0.5]], [[1.0, 255, 0.5]]])
    values = evaluate(soft(num_classes=2, classwise=True), [dict(x=x, y=y)])
    assert values["sem-seg/Dice/0"] == dice(x[0, 0, [0, 2]], y[0, 0, [0, 2]])
    assert values["sem-seg/Dice/1"] == dice(x[1, 0, [0, 2]], y[1, 0, [0, 2]])


def test_one_hot_targets_equal_label_maps():
    generator = np.random.default_rng(0)
    scores, labels = generator.random((3, 4, 5)), generator.integers(0, 3, (4, 5))
    one_hot = np.moveaxis(np.eye(3)[labels], -1, 0)
    assert evaluate(soft(num_classes=3), [dict(x=scores, y=one_hot)]) == pytest.approx(
        evaluate(soft(num_classes=3), [dict(x=scores, y=labels)]), rel=1e-14
    )


def test_dice_of_empty_masks():
    empty, full = np.zeros((1, 4), dtype=int), np.ones((1, 4), dtype=int)
    masks = [dict(x=empty, y=empty), dict(x=empty, y=full)]
    for options, samples, expected in (({}, masks, 0.5), ({"empty": "skip"}, masks, 0), ({"empty": 0.0}, masks[:1], 0)):
        metric = DiceScore(prediction_field="x", target_field="y", **options)
        assert evaluate(metric, samples)["sem-seg/mDice"] == expected


def label_maps(target, prediction):
    return dict(gt_sem_seg=dict(data=np.array(target)), pred_sem_seg=dict(data=np.array(prediction)))


def test_ignored_pixels():
    for options, sample in (
        (dict(num_classes=3, ignore_index=0), label_maps([0, 0, 1, 2], [1, 255, 1, 2])),
        (dict(num_classes=2), label_maps([255, 0, 1], [7, 0, 1])),
        (dict(num_classes=2), label_maps([0, 1, 255], np.float32([0, 1, 1]))),
    ):
        assert evaluate(MeanIoU(**options), [sample])["sem-seg/aAcc"] == 1
    metric = MeanIoU(num_classes=2)
    metric.process(None, [label_maps([255, 255], [0, 1])])
    with pytest.warns(UndefinedMetricWarning, match="0, 1"):
        values = metric.evaluate(1)
    assert np.isnan([values[f"sem-seg/{key}"] for key in ("mIoU", "aAcc", "mAcc")]).all()


LOGITS = dict(seg_logits=dict(data=torch.full((1, 2, 2), 3.0)), gt_sem_seg=dict(data=torch.zeros(1, 2, 2)))


@pytest.mark.parametrize(
    ("metric", "sample", "words"),
    [
        (MeanIoU(num_classes=2, ignore_index=None), label_maps([255, 0], [0, 0]), "from 0 to 1 (found 255)"),
        *(
            (MeanIoU(num_classes=2), label_maps([0, 1], np.float32([0, x])), f"hold whole numbers (found {x}, float32)")
            for x in (0.5, np.nan, np.inf)
        ),
        (MeanIoU(num_classes=2), label_maps([0, 1], ["a", "b"]), "must hold whole numbers (found <U1)"),
        (DiceScore(mode="soft", activation="softmax", num_classes=2), LOGITS, "has one channel: use activation='sig"),
        (DiceScore(mode="soft", activation="softmax"), LOGITS, "activation='softmax' needs num_classes=..."),
        (DiceScore(mode="soft"), LOGITS, "of sample 0 must lie in 0 to 1; for logits use activation"),
        (soft(), dict(x=["a"], y=[0]), "'x' of sample 0 must hold numbers (found <U1)"),
        (soft(), dict(x=[0.5], y=["a"]), "'y' of sample 0 must hold numbers (found <U1)"),
    ],
)
def test_invalid_label_maps_and_scores(metric, sample, words):
    with pytest.raises(MetricInputError) as caught:
        metric.process(None, [sample])
    assert words in str(caught.value)
