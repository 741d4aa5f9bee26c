"""MeanIoU and DiceScore on samples as mmseg builds them, beside mmseg's own metric."""

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


def seg_samples(count=9, *, used=CLASSES, seed=0):
    """Pictures of different sizes with pixels to ignore; mmseg's structures and dtypes."""
    generator = np.random.default_rng(seed)
    samples = []
    for index in range(count):
        shape = (1, 10 + index, 12 + 2 * index)
        truth = generator.integers(0, len(used), shape)
        predicted = np.where(generator.random(shape) < 0.6, truth, generator.integers(0, len(used), shape))
        truth[generator.random(shape) < 0.1] = 255
        sample = SegDataSample(metainfo=dict(img_path=f"{index}.png"))
        sample.gt_sem_seg = PixelData(data=torch.from_numpy(truth))
        sample.pred_sem_seg = PixelData(data=torch.from_numpy(predicted))
        sample.seg_logits = PixelData(data=torch.from_numpy(generator.normal(size=(len(CLASSES), *shape[1:]))))
        samples.append(sample)
    return samples


def one_channel(count=6, *, threshold=0.3, seed=0):
    """What mmseg makes of a decode head with ``out_channels=1``: sigmoid scores, and a prediction of floats."""
    generator = np.random.default_rng(seed)
    samples = []
    for index in range(count):
        shape = (1, 8 + index, 9)
        truth = generator.integers(0, 2, shape)
        scores = torch.from_numpy((truth + generator.normal(size=shape)).astype(np.float32)).sigmoid()
        truth[generator.random(shape) < 0.2] = 255
        sample = SegDataSample(metainfo=dict(img_path=f"{index}.png"))
        sample.gt_sem_seg = PixelData(data=torch.from_numpy(truth))
        sample.pred_sem_seg = PixelData(data=(scores > threshold).to(scores))
        sample.seg_logits = PixelData(data=scores)
        samples.append(sample)
    return samples


def test_one_output_channel_of_two_classes():
    samples = one_channel()
    evaluator = Evaluator(
        [
            DiceScore(over="dataset", classwise=True, prefix="hard"),
            DiceScore(mode="soft", threshold=0.3, over="dataset", classwise=True, prefix="soft"),
            MeanIoU(classwise=True),
            IoUMetric(iou_metrics=["mIoU", "mDice"], prefix="mmseg"),
        ]
    )
    evaluator.dataset_meta = {"classes": ("background", "cell")}
    evaluator.process(samples[:4])
    evaluator.process(samples[4:])
    found = evaluator.evaluate(len(samples))
    for prefix in ("hard", "soft"):
        assert round(100 * found[f"{prefix}/mDice"], 2) == pytest.approx(found["mmseg/mDice"], abs=1e-9)
    assert found["hard/Dice/cell"] == found["soft/Dice/cell"]
    assert round(100 * found["sem-seg/mIoU"], 2) == pytest.approx(found["mmseg/mIoU"], abs=1e-9)


@pytest.mark.parametrize("target_shape", ["(1, H, W)", "(H, W)"])
@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_soft_dice_of_one_channel(target_shape, activation):
    metric = DiceScore(mode="soft", activation=activation, classwise=True, num_classes=2)
    samples, expected = [], []
    for sample in one_channel():
        scores, truth = sample.seg_logits.data, sample.gt_sem_seg.data
        logits = scores.double().logit() if activation else scores
        target = truth if target_shape == "(1, H, W)" else truth[0]
        samples.append(dict(seg_logits=dict(data=logits), gt_sem_seg=dict(data=target)))
        kept = truth != 255
        x, y = scores[kept].double().numpy(), truth[kept].numpy()
        expected.append([2 * (p * t).sum() / ((p * p).sum() + (t * t).sum()) for p, t in ((1 - x, 1 - y), (x, y))])
    found = evaluate(metric, samples)
    mean = np.mean(expected, axis=0)
    assert [found["sem-seg/Dice/0"], found["sem-seg/Dice/1"]] == pytest.approx(mean.tolist(), rel=1e-12)


def test_softmax_of_one_channel_is_refused():
    metric = DiceScore(mode="soft", activation="softmax", num_classes=2)
    sample = dict(seg_logits=dict(data=torch.zeros(1, 2, 2)), gt_sem_seg=dict(data=torch.zeros(1, 2, 2)))
    with pytest.raises(MetricInputError, match="has one channel: use activation='sigmoid'"):
        metric.process(None, [sample])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32])
@pytest.mark.parametrize("ignore_index", [255, 100])
def test_ignored_values_of_one_region(dtype, ignore_index):
    generator = np.random.default_rng(0)
    x, y = generator.random((5, 6)), generator.integers(0, 2, (5, 6))
    y[:2, :4] = ignore_index
    options = dict(mode="soft", prediction_field="x", target_field="y", ignore_index=ignore_index)
    found = evaluate(DiceScore(**options), [dict(x=torch.tensor(x), y=torch.tensor(y).to(dtype))])
    kept = y != ignore_index
    expected = 2 * (x[kept] * y[kept]).sum() / ((x[kept] ** 2).sum() + (y[kept] ** 2).sum())
    assert found["sem-seg/mDice"] == pytest.approx(expected, rel=1e-14)
    options["ignore_index"] = None
    with pytest.raises(MetricInputError, match=rf"'y' of sample 0 must lie in 0 to 1 \(found {ignore_index}"):
        DiceScore(**options).process(None, [dict(x=x, y=y)])


def test_ignored_values_of_soft_targets_of_every_class():
    x = np.array([[[0.25, 0.5, 1.0]], [[0.75, 0.5, 0.0]]])
    y = np.array([[[0.0, 255, 0.5]], [[1.0, 255, 0.5]]])
    metric = DiceScore(mode="soft", num_classes=2, classwise=True, prediction_field="x", target_field="y")
    found = evaluate(metric, [dict(x=x, y=y)])
    assert found["sem-seg/Dice/0"] == 2 * 0.5 / (0.0625 + 1 + 0.25)
    assert found["sem-seg/Dice/1"] == 2 * 0.75 / (0.5625 + 1 + 0.25)


def test_label_maps_of_floats_must_be_whole():
    truth = torch.tensor([[0, 1, 255]])
    metric = MeanIoU(num_classes=2)
    sample = dict(pred_sem_seg=dict(data=torch.tensor([[0.0, 1.0, 1.0]])), gt_sem_seg=dict(data=truth))
    assert evaluate(metric, [sample])["sem-seg/mIoU"] == 1
    for wrong in (0.5, np.nan, np.inf):
        sample["pred_sem_seg"]["data"] = torch.tensor([[0.0, wrong, 1.0]])
        with pytest.raises(MetricInputError, match=rf"must hold whole numbers \(found {wrong}, float32\)"):
            metric.process(None, [sample])


def both(metrics, samples):
    """What an evaluator of mmengine gives for these metrics, fed with data samples."""
    evaluator = Evaluator(metrics)
    evaluator.dataset_meta = {"classes": CLASSES}
    for start in range(0, len(samples), 4):
        evaluator.process(samples[start : start + 4])
    return evaluator.evaluate(len(samples))


def exact_mmseg(samples, metric):
    """The numbers of mmseg's IoUMetric before it rounds them to two digits."""
    parts = [
        IoUMetric.intersect_and_union(
            sample.pred_sem_seg.data.squeeze(), sample.gt_sem_seg.data.squeeze(), len(CLASSES), 255
        )
        for sample in samples
    ]
    return IoUMetric.total_area_to_metrics(*(sum(part).double() for part in zip(*parts)), [metric])


def test_equals_mmseg():
    samples = seg_samples()
    found = both([MeanIoU(classwise=True), IoUMetric()], samples)
    expected = exact_mmseg(samples, "mIoU")
    for key in ("mIoU", "aAcc", "mAcc"):
        assert round(100 * found[f"sem-seg/{key}"], 2) == pytest.approx(found[key])
    assert found["sem-seg/mIoU"] == pytest.approx(expected["IoU"].mean(), rel=1e-14)
    assert found["sem-seg/aAcc"] == pytest.approx(float(expected["aAcc"]), rel=1e-14)
    assert [found[f"sem-seg/IoU/{name}"] for name in CLASSES] == pytest.approx(expected["IoU"].tolist(), rel=1e-14)
    assert [found[f"sem-seg/Acc/{name}"] for name in CLASSES] == pytest.approx(expected["Acc"].tolist(), rel=1e-14)


def test_equals_mmseg_when_a_class_is_absent():
    samples = seg_samples(used=CLASSES[:4])
    with pytest.warns(UndefinedMetricWarning, match="train"):
        found = both([MeanIoU(), IoUMetric()], samples)
    assert found["sem-seg/classes_averaged"] == 4
    assert round(100 * found["sem-seg/mIoU"], 2) == pytest.approx(found["mIoU"])


def test_dice_over_the_data_set_equals_mmseg():
    samples = seg_samples()
    found = both([DiceScore(over="dataset", classwise=True), IoUMetric(iou_metrics=["mDice"])], samples)
    assert round(100 * found["sem-seg/mDice"], 2) == pytest.approx(found["mDice"])
    expected = exact_mmseg(samples, "mDice")["Dice"]
    assert [found[f"sem-seg/Dice/{name}"] for name in CLASSES] == pytest.approx(expected.tolist(), rel=1e-14)


def test_skipping_empty_classes_over_the_data_set_is_mmsegs_rule():
    samples = seg_samples(used=CLASSES[:4])
    with pytest.warns(UndefinedMetricWarning, match="Dice is undefined for train"):
        found = both([DiceScore(over="dataset", empty="skip"), IoUMetric(iou_metrics=["mDice"])], samples)
    assert round(100 * found["sem-seg/mDice"], 2) == pytest.approx(found["mDice"])


def test_soft_dice_reads_mmsegs_logits_only_with_an_activation():
    samples = seg_samples()
    assert 0 < both([DiceScore(mode="soft", activation="softmax")], samples)["sem-seg/mDice"] < 1
    with pytest.raises(MetricInputError, match=r"'seg_logits.data' of sample 0 \(0.png\) must lie in 0 to 1; for log"):
        both([DiceScore(mode="soft")], samples)


def label_sample(truth, predicted):
    return dict(gt_sem_seg=dict(data=np.array(truth)), pred_sem_seg=dict(data=np.array(predicted)))


def soft(**options):
    return DiceScore(mode="soft", prediction_field="x", target_field="y", **options)


def test_empty_against_empty_is_one_and_against_something_zero():
    empty, full = np.zeros((1, 4), dtype=int), np.ones((1, 4), dtype=int)
    masks = [dict(x=empty, y=empty), dict(x=empty, y=full)]
    options = dict(prediction_field="x", target_field="y")
    assert evaluate(DiceScore(**options), masks)["sem-seg/mDice"] == 0.5
    assert evaluate(DiceScore(empty="skip", **options), masks)["sem-seg/mDice"] == 0
    assert evaluate(DiceScore(empty=0.0, **options), masks[:1])["sem-seg/mDice"] == 0


def test_an_ignored_class_and_predictions_under_ignored_pixels():
    found = evaluate(MeanIoU(num_classes=3, ignore_index=0), [label_sample([0, 0, 1, 2], [1, 255, 1, 2])])
    assert found["sem-seg/aAcc"] == 1
    found = evaluate(MeanIoU(num_classes=2), [label_sample([255, 0, 1], [7, 0, 1])])
    assert found["sem-seg/aAcc"] == 1


def test_label_255_without_ignore_index_is_refused():
    with pytest.raises(MetricInputError, match="from 0 to 1 \\(found 255\\)"):
        evaluate(MeanIoU(num_classes=2, ignore_index=None), [label_sample([255, 0], [0, 0])])


def test_nothing_but_ignored_pixels_is_undefined():
    with pytest.warns(UndefinedMetricWarning, match="0, 1"):
        metric = MeanIoU(num_classes=2)
        metric.process(None, [label_sample([255, 255], [0, 1])])
        found = metric.evaluate(1)
    assert all(np.isnan(found[f"sem-seg/{key}"]) for key in ("mIoU", "aAcc", "mAcc"))


def test_targets_may_be_one_hot_maps():
    generator = np.random.default_rng(0)
    scores = generator.random((3, 4, 5))
    labels = generator.integers(0, 3, (4, 5))
    one_hot = np.moveaxis(np.eye(3)[labels], -1, 0)
    assert evaluate(soft(num_classes=3), [dict(x=scores, y=one_hot)]) == pytest.approx(
        evaluate(soft(num_classes=3), [dict(x=scores, y=labels)]), rel=1e-14
    )
