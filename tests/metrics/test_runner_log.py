"""Warnings, tables and keys in the log of a Runner."""

from __future__ import annotations

import warnings

import pytest
import torch
from mmengine.evaluator import Evaluator
from mmengine.logging import MMLogger
from mmengine.structures import BaseDataElement, InstanceData

from mm_metrics_plugin import (
    CalibrationError,
    DetectionPRF,
    DiceScore,
    FieldMean,
    MeanIoU,
    MetricWarning,
    MultiLabelAUC,
    MultiLabelPRF,
    RecallAtK,
    SingleLabelAUC,
    SingleLabelKS,
    SingleLabelPRF,
    UndefinedMetricWarning,
)
from mm_metrics_plugin.metrics.runner_log import python_warnings, warn
from tests.helpers.runners import log_text, runner_for

CLASSES = ("cat\n", "dog", "bird")  # bird has no samples
BOXES, LABELS, MAP = torch.tensor([[0.0, 0, 8, 8]]), torch.tensor([0]), InstanceData(data=torch.tensor([[0, 1]]))


def samples(*labels):
    """Data samples with the fields of all metrics."""
    scores = [[0.75, 0.25, 0.0], [0.25, 0.75, 0.0]]
    return [
        BaseDataElement(
            pred_score=torch.tensor(scores[label]),
            gt_label=torch.tensor([label]),
            pred_sem_seg=MAP,
            gt_sem_seg=MAP,
            pred_instances=InstanceData(bboxes=BOXES, labels=LABELS, scores=torch.tensor([0.5])),
            gt_instances=InstanceData(bboxes=BOXES, labels=LABELS),
        )
        for label in labels
    ]


def train(folder, metric, epochs=1, **metainfo):
    """The Runner and the text of its log."""
    runner = runner_for(folder, samples(0, 1, 0), [metric], epochs=epochs, **metainfo)
    runner.train()
    return runner, log_text(folder)


def processed(metric):
    metric.process(None, [sample.to_dict() for sample in samples(0, 1)])
    return metric


def test_warnings_inside_a_runner_are_in_its_log(tmp_path, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error", MetricWarning)
        _, log = train(tmp_path, SingleLabelAUC(), epochs=3, classes=CLASSES)
    for output in (log, capsys.readouterr().out):
        lines = [line for line in output.splitlines() if "AUC is undefined for bird" in line]
        assert len(lines) == 1 and "WARNING" in lines[0]
        assert "warnings.warn" not in output and "UndefinedMetricWarning" not in output


def test_without_a_runner_warnings_are_python_warnings():
    with pytest.warns(UndefinedMetricWarning, match="AUC is undefined for 2"):
        processed(SingleLabelAUC()).evaluate(2)
    MMLogger.get_current_instance()  # mmengine creates this one for logging without a Runner
    with pytest.warns(MetricWarning, match="^hello$"):
        warn("hello")
    MMLogger.get_instance("experiment")
    with python_warnings(), pytest.warns(MetricWarning, match="^hello$"):
        warn("hello")


RATES = "f1 precision recall specificity"


@pytest.mark.parametrize(
    ("metric", "columns"),
    [
        (SingleLabelAUC(classwise=True), "auc"),
        (SingleLabelPRF(classwise=True, counts=True), f"{RATES} tp fp tn fn"),
        (SingleLabelKS(classwise=True), "ks ks_threshold"),
        (MultiLabelAUC(average=None), "auc"),
        (MultiLabelPRF(classwise=True), RATES),
        (DetectionPRF(classwise=True, ap=True), "f1 precision recall tp fp fn AP"),
        (MeanIoU(classwise=True), "IoU Acc"),
        (DiceScore(classwise=True), "Dice"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_results_per_class_are_a_table_in_the_log(tmp_path, metric, columns):
    runner, log = train(tmp_path, metric, classes=CLASSES)
    (table,) = log.split(f"{type(metric).__name__}, results per class:\n")[1:]
    header, *rows = [line.split() for line in table.splitlines()[:4]]
    assert header == ["class", *columns.split()]
    assert [row[0] for row in rows] == ["cat\\n", "dog", "bird"]
    for cell, name in zip(rows[0][1:], header[1:]):
        value = runner.message_hub.get_scalar(f"val/{metric.prefix}/{name}/{CLASSES[0]}").current()
        assert cell == (f"{value:.0f}" if name in ("tp", "fp", "tn", "fn") else f"{value:.4f}")


def test_no_table_without_results_per_class_or_a_runner(tmp_path, capsys):
    for index, metric in enumerate((SingleLabelPRF(), FieldMean("gt_label", key="a/b"))):
        assert "results per class" not in train(tmp_path / str(index), metric, classes=CLASSES)[1]
    MMLogger._instance_dict.clear()
    capsys.readouterr()
    assert "single-label-prf/f1/0" in processed(SingleLabelPRF(classwise=True, zero_division=0)).evaluate(2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.UndefinedMetricWarning")
def test_missing_class_names_give_one_warning(tmp_path):
    _, log = train(tmp_path, SingleLabelKS(classwise=True), epochs=2)
    assert log.count("3 classes are named by their indices, because the dataset has 0 class names") == 1
    assert "metainfo=dict(classes=(...))" in log
    MMLogger._instance_dict.clear()
    metric = processed(SingleLabelKS(classwise=True))
    metric.dataset_meta = dict(classes=("cat", "dog"))
    with pytest.warns(MetricWarning, match="the dataset has 2 class names"):
        metric.evaluate(2)


def test_no_key_is_one_of_mmpretrain():
    """The Evaluator of mmengine refuses equal keys."""
    from mmpretrain import evaluation as theirs

    rows = [sample.to_dict() for sample in samples(0, 1, 0, 1)]
    for row in rows:
        row.update(num_classes=3, gt_score=torch.eye(3)[int(row["gt_label"])].long())
    ours = [SingleLabelAUC(), SingleLabelPRF(), SingleLabelKS(), RecallAtK(topk=(1, 2)), CalibrationError()]
    ours += [MultiLabelAUC(), MultiLabelPRF()]
    stock = [theirs.Accuracy(), theirs.SingleLabelMetric(), theirs.MultiLabelMetric(), theirs.AveragePrecision()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes without samples
        values = Evaluator([*ours, *stock]).offline_evaluate(rows, chunk_size=2)
    assert {"single-label/precision", "single-label-prf/precision", "multi-label/recall"} <= set(values)
