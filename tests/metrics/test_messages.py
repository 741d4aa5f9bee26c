"""Warnings and tables in the log of a Runner, and checks before training starts."""

from __future__ import annotations

import random
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmengine.model import BaseModel
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement, InstanceData

from mm_metrics_plugin import (
    CalibrationError,
    DetectionPRF,
    DiceScore,
    EvaluationCheckHook,
    FieldMean,
    MeanIoU,
    MetricFigureHook,
    MetricInputError,
    MetricWarning,
    MultiLabelAUC,
    MultiLabelPRF,
    RecallAtK,
    SingleLabelAUC,
    SingleLabelKS,
    SingleLabelPRF,
    UndefinedMetricWarning,
)
from mm_metrics_plugin.metrics.hooks import check_evaluations, check_keys
from mm_metrics_plugin.metrics.runner_log import python_warnings, warn


class Model(BaseModel):
    """Learns nothing, and answers with the data samples it is given."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, inputs, data_samples, mode="tensor"):
        return {"loss": self.weight * len(inputs)} if mode == "loss" else data_samples


class Dataset(torch.utils.data.Dataset):
    """Samples as mmdet's and mmpretrain's datasets give them."""

    def __init__(self, samples, **metainfo):
        self.samples = samples
        self.metainfo = metainfo

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002
        return dict(inputs=torch.zeros(1), data_samples=self.samples[index])


class Losses(Hook):
    """Notes what numbers random transforms would draw in training."""

    def __init__(self):
        self.drawn = []

    def before_train(self, runner):
        self.drawn = [random.random(), float(np.random.rand()), float(torch.rand(1))]  # noqa: NPY002


def train(folder, samples, metrics, hooks=(), epochs=1, **metainfo):
    """Train and validate; gives the Runner and what is in its log file."""
    loader = dict(
        batch_size=2, num_workers=0, dataset=Dataset(samples, **metainfo), collate_fn=dict(type="pseudo_collate")
    )
    runner = Runner(
        model=Model(),
        work_dir=str(folder),
        train_dataloader=dict(loader, sampler=dict(type="DefaultSampler", shuffle=False)),
        train_cfg=dict(by_epoch=True, max_epochs=epochs),
        optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.1)),
        val_dataloader=dict(loader, sampler=dict(type="DefaultSampler", shuffle=False)),
        val_cfg=dict(),
        val_evaluator=list(metrics),
        custom_hooks=list(hooks),
        randomness=dict(seed=0),
        default_hooks=dict(checkpoint=None),
        experiment_name=folder.name,
    )
    runner.train()
    (path,) = folder.glob("*/*.log")
    return runner, path.read_text()


def classified(*labels):
    scores = [[0.75, 0.25, 0.0], [0.25, 0.75, 0.0]]
    return [BaseDataElement(pred_score=torch.tensor(scores[label]), gt_label=torch.tensor([label])) for label in labels]


def detected(**gt):
    boxes, labels = torch.tensor([[0.0, 0, 8, 8]]), torch.tensor([0])
    found = InstanceData(bboxes=boxes, labels=labels, scores=torch.tensor([0.5]))
    there = InstanceData(**gt) if gt else InstanceData(bboxes=boxes, labels=labels)
    return BaseDataElement(metainfo=dict(img_path="a.jpg", img_id=7), pred_instances=found, gt_instances=there)


# --- warnings -----------------------------------------------------------------------------------------------------


def test_warnings_inside_a_runner_are_in_its_log(tmp_path, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error", MetricWarning)
        _, log = train(tmp_path, classified(0, 1), [SingleLabelAUC()], epochs=3, classes=("cat", "dog", "bird"))
    for output in (log, capsys.readouterr().out):
        lines = [line for line in output.splitlines() if "AUC is undefined for bird" in line]
        assert len(lines) == 1 and "WARNING" in lines[0]
        assert "warnings.warn" not in output and "UndefinedMetricWarning" not in output


def test_without_a_runner_warnings_are_python_warnings():
    metric = SingleLabelAUC()
    metric.process(None, [sample.to_dict() for sample in classified(0, 1)])
    with pytest.warns(UndefinedMetricWarning, match="AUC is undefined for 2"):
        metric.evaluate(2)
    MMLogger.get_current_instance()  # mmengine makes this one for whoever logs without a Runner
    with pytest.warns(MetricWarning, match="^hello$"):
        warn("hello")


def test_python_warnings_after_a_runner():
    MMLogger.get_instance("experiment")
    with python_warnings(), pytest.warns(MetricWarning, match="hello"):
        warn("hello")


# --- values per class ---------------------------------------------------------------------------------------------

PER_CLASS = [
    (lambda: SingleLabelAUC(classwise=True), "auc"),
    (lambda: SingleLabelPRF(classwise=True, counts=True), "f1  precision  recall  specificity  tp  fp  tn  fn"),
    (lambda: SingleLabelKS(classwise=True), "ks  ks_threshold"),
    (lambda: MultiLabelAUC(average=None), "auc"),
    (lambda: MultiLabelPRF(classwise=True), "f1  precision  recall  specificity"),
]


@pytest.mark.parametrize(("build", "columns"), PER_CLASS)
def test_values_per_class_are_a_table_in_the_log(tmp_path, build, columns):
    runner, log = train(tmp_path, classified(0, 1, 0), [build()], classes=("cat\n", "dog", "bird"))
    name = type(build()).__name__
    block = log.split(f"{name}, results per class:\n")
    assert len(block) == 2
    header, *rows = block[1].splitlines()[:4]
    assert header.split() == ["class", *columns.split()]
    assert [row.split()[0] for row in rows] == ["cat\\n", "dog", "bird"]
    first = columns.split()[0]
    values = [
        runner.message_hub.get_scalar(f"val/{build().prefix}/{first}/{one}").current() for one in ("cat\n", "dog")
    ]
    assert [row.split()[1] for row in rows[:2]] == [f"{value:.4f}" for value in values]


def test_detections_per_class(tmp_path):
    metric = DetectionPRF(classwise=True, ap=True)
    _, log = train(tmp_path, [detected(), detected()], [metric], classes=("cat", "dog"))
    table = log.split("DetectionPRF, results per class:\n")[1].splitlines()
    assert table[0].split() == ["class", "f1", "precision", "recall", "tp", "fp", "fn", "AP"]
    assert table[1].split() == ["cat", "1.0000", "1.0000", "1.0000", "2", "0", "0", "1.0000"]


@pytest.mark.parametrize("metric", [MeanIoU(classwise=True), DiceScore(classwise=True)])
def test_overlap_per_class(tmp_path, metric):
    picture = InstanceData(data=torch.tensor([[0, 1]]))
    sample = BaseDataElement(pred_sem_seg=picture, gt_sem_seg=picture)
    _, log = train(tmp_path, [sample] * 2, [metric], classes=("cat", "dog"))
    assert re.search(r"results per class:\nclass +(IoU +Acc|Dice)\ncat +1.0000", log)


def test_no_table_without_values_per_class_nor_outside_of_a_runner(tmp_path, capsys):
    _, log = train(tmp_path, classified(0, 1), [SingleLabelPRF(), RecallAtK(topk=1), CalibrationError()])
    assert "results per class" not in log
    samples = [BaseDataElement(x=1.0)] * 2
    assert "results per class" not in train(tmp_path / "slash", samples, [FieldMean("x", key="a/b")])[1]
    MMLogger._instance_dict.clear()
    metric = SingleLabelPRF(classwise=True, zero_division=0)
    metric.process(None, [sample.to_dict() for sample in classified(0, 1)])
    capsys.readouterr()
    assert "single-label-prf/f1/0" in metric.evaluate(2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.UndefinedMetricWarning")  # there are no birds
def test_missing_class_names_give_one_warning(tmp_path):
    _, log = train(tmp_path, classified(0, 1), [SingleLabelKS(classwise=True)], epochs=2)
    assert log.count("3 classes are named by their indices, because the dataset has 0 class names") == 1
    assert "metainfo=dict(classes=(...))" in log
    MMLogger._instance_dict.clear()
    metric = SingleLabelKS(classwise=True)
    metric.dataset_meta = dict(classes=("cat", "dog"))
    metric.process(None, [sample.to_dict() for sample in classified(0, 1)])
    with pytest.warns(MetricWarning, match="the dataset has 2 class names"):
        metric.evaluate(2)


# --- before training starts ---------------------------------------------------------------------------------------


def test_missing_ground_truth_raises_before_training(tmp_path):
    bare = BaseDataElement(gt_instances=InstanceData(), metainfo=dict(img_path="a.jpg"))
    drawn = Losses()
    with pytest.raises(MetricInputError) as caught:
        train(tmp_path, [bare] * 2, [DetectionPRF()], [EvaluationCheckHook(), drawn], classes=("cat",))
    assert str(caught.value) == (
        "DetectionPRF: sample 0 (a.jpg) must have a field 'gt_instances.bboxes' (found nothing): add "
        "dict(type='LoadAnnotations', with_bbox=True) after Resize in the test pipeline"
    )
    assert not drawn.drawn


def test_the_figure_hook_warns_before_training(tmp_path):
    sample = detected()
    sample.gt_instances = InstanceData()
    with pytest.raises(MetricInputError):
        train(tmp_path, [sample] * 2, [DetectionPRF()], [MetricFigureHook()], classes=("cat",))
    (path,) = tmp_path.glob("*/*.log")
    warned, trained = (
        path.read_text().find(words) for words in ("the evaluation will fail: DetectionPRF", "Epoch(train)")
    )
    assert warned > 0 and (trained < 0 or warned < trained)


@pytest.mark.parametrize("metric", [SingleLabelAUC, MeanIoU, CalibrationError])
def test_other_ground_truth(tmp_path, metric):
    with pytest.raises(MetricInputError, match=r"test dataset must have labels|LoadAnnotations"):
        train(tmp_path, [BaseDataElement(other=1)] * 2, [metric()], [EvaluationCheckHook()], classes=("cat", "dog"))


def test_the_check_changes_nothing_random(tmp_path):
    drawn = []
    for hooks in ([], [EvaluationCheckHook()]):
        note = Losses()
        folder = tmp_path / str(len(hooks))
        train(folder, [detected()] * 2, [DetectionPRF()], [*hooks, note], classes=("cat",))
        drawn.append(note.drawn)
    assert drawn[0] == drawn[1] and len(drawn[0]) == 3


class Broken(Dataset):
    """A dataset whose files are missing."""

    def __getitem__(self, index):
        raise OSError("no such file")


@pytest.mark.parametrize(
    "dataset", [None, [], [torch.zeros(3)], [dict(data_samples=[dict()])], Dataset([dict(x=1)]), Broken([1])]
)
def test_other_datasets_are_not_checked(dataset):
    """A model may make the samples itself, and what cannot be loaded is told by the loop."""
    loop = SimpleNamespace(evaluator=Evaluator([SingleLabelAUC()]), dataloader=SimpleNamespace(dataset=dataset))
    check_evaluations(SimpleNamespace(_val_loop=loop, _test_loop=dict(type="TestLoop")))


def test_duplicate_keys_raise_before_training(tmp_path):
    note = Losses()
    metrics = [SingleLabelAUC(), SingleLabelAUC(curve="pr")]
    with pytest.raises(ValueError, match="both give the key 'single-label/auc': give one of them another prefix="):
        train(tmp_path, classified(0, 1), metrics, [EvaluationCheckHook(), note])
    assert not note.drawn
    with pytest.raises(ValueError, match="FieldMean and FieldMean"):
        check_keys([FieldMean("a"), FieldMean("b")])
    check_keys([FieldMean("a"), FieldMean("b", key="b")])


def test_the_check_does_not_use_up_warnings():
    metric = SingleLabelAUC()
    check_keys([metric])
    with pytest.warns(UndefinedMetricWarning):
        metric.evaluate(0)


def test_no_key_is_one_of_mmpretrain():
    """Default prefixes, one evaluator: no key comes twice."""
    theirs = pytest.importorskip("mmpretrain.evaluation")
    samples = [sample.to_dict() for sample in classified(0, 1, 0, 1)]
    for sample in samples:
        sample.update(num_classes=3, gt_score=torch.eye(3)[int(sample["gt_label"])].long())
    ours = [SingleLabelAUC(), SingleLabelPRF(), SingleLabelKS(), RecallAtK(topk=(1, 2)), CalibrationError()]
    ours += [MultiLabelAUC(), MultiLabelPRF()]
    stock = [theirs.Accuracy(), theirs.SingleLabelMetric(), theirs.MultiLabelMetric(), theirs.AveragePrecision()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes without samples, theirs and ours
        found = Evaluator([*ours, *stock]).offline_evaluate(samples, chunk_size=2)
    assert {
        "single-label/precision",
        "single-label-prf/precision",
        "multi-label/recall",
        "multi-label-prf/recall",
    } <= set(found)
