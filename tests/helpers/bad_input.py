"""Invalid inputs of metrics and commands, and what they answer."""

from __future__ import annotations

import copy
import io
import json
import os
import warnings
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
import torch

from mm_metrics_plugin import (
    CalibrationError,
    DetectionPRF,
    FieldMean,
    FieldSum,
    MetricInputError,
    MetricWarning,
    RecallAtK,
    RegressionError,
    SingleLabelAUC,
    SingleLabelKS,
    SingleLabelPRF,
)
from mm_metrics_plugin.cli import main
from mm_metrics_plugin.testing import evaluate
from tests.helpers import result_files as files

MADE = files.problem(3)
TRUTH, RESULTS, SAMPLES = files.truth_of(MADE), files.results_of(MADE), files.samples(4)
NAN, INF = float("nan"), float("inf")


def image(**fields):
    """One image with a detection on its object; fields of the ground truth have the prefix ``gt_``."""
    boxes = torch.tensor([[0.0, 0, 10, 10]])
    detections = dict(bboxes=boxes, scores=torch.tensor([0.9]), labels=torch.tensor([0]))
    ground_truths = dict(bboxes=boxes, labels=torch.tensor([0]))
    sample = dict(img_id=7, img_path="cat.jpg", pred_instances=detections, gt_instances=ground_truths)
    for name, value in fields.items():
        if name in sample:
            sample[name] = value
        elif name.startswith("gt_"):
            ground_truths[name[3:]] = value
        else:
            detections[name] = value
    return sample


def scored(score=(0.2, 0.8), label=1, **fields):
    return dict(pred_score=torch.tensor(score), gt_label=torch.tensor([label]), **fields)


def without(sample, field):
    *path, last = field.split(".")
    inner = sample
    for name in path:
        inner = inner[name]
    del inner[last]
    return sample


def message_of(metric, samples):
    """The error message, without the name of the metric."""
    with pytest.raises(MetricInputError) as caught:
        evaluate(metric, samples)
    name, message = type(metric).__name__, str(caught.value)
    assert name in message
    return message[len(f"{name}: ") :] if message.startswith(f"{name}: ") else message


def detector(*samples):
    return lambda _: message_of(DetectionPRF(num_classes=3), [image(), *samples])


def classifier(*samples):
    """All single-label metrics have the same message."""
    metrics = (SingleLabelAUC, SingleLabelPRF, SingleLabelKS, RecallAtK, CalibrationError)
    return lambda _: only({message_of(metric(), [scored(), *samples]) for metric in metrics})


def fields(*values):
    """All metrics of a field have the same message."""

    def run(_):
        samples = [dict(x=value, y=1.0) for value in values]
        regression = RegressionError(prediction_field="x", target_field="y")
        metrics = (FieldMean(field="x"), FieldSum(field="x"), regression)
        return only({message_of(metric, samples) for metric in metrics})

    return run


def only(messages):
    assert len(messages) == 1, messages
    return messages.pop()


def command(*arguments):
    """Exit code, stdout and stderr, where warnings are."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        warnings.simplefilter("default", MetricWarning)
        code = main(list(map(str, arguments)))
    return code, out.getvalue(), err.getvalue()


def refused(*arguments):
    """The message of a command that fails."""
    code, out, err = command(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    return err.strip().split(": ", 1)[1]


def reported(*arguments, warning=None):
    """The report of a command that succeeds without warnings, or with one that begins with these words."""
    code, out, err = command(*arguments, "--format", "json")
    expected = err == "" if warning is None else err.startswith(f"mm-metrics: warning: {warning}")
    assert code == 0 and expected, err
    return json.loads(out)


def detection_files(folder, truth=None, results=None):
    """Annotations and results, changed by functions."""
    both = [copy.deepcopy(TRUTH), copy.deepcopy(RESULTS)]
    for place, change in enumerate((truth, results)):
        if change is not None:
            both[place] = change(both[place])
    return files.write_json(folder / "truth.json", both[0]), files.write_pickle(folder / "results.pkl", both[1])


def detection(**changes):
    return lambda folder: refused("detection", *detection_files(folder, **changes))


def classification(change, *options):
    def run(folder):
        path = files.write_pickle(folder / "results.pkl", change(copy.deepcopy(SAMPLES)))
        return refused("classification", path, *options)

    return run


def changed(**fields):
    """Results with functions applied to fields of the first image."""

    def change(results):
        first = results[0]["pred_instances"]
        first.update({name: make(first[name]) for name, make in fields.items()})
        return results

    return change


def annotated(**fields):
    return lambda truth: (truth["annotations"][0].update(fields), truth)[1]


def sampled(**fields):
    return lambda samples: (samples[1].update(fields), samples)[1]


def inexact_integer(_):
    samples = [dict(x=number, y=1) for number in (1, 2**60 + 1)]
    return message_of(RegressionError(prediction_field="x", target_field="y"), samples)


def pipe(folder):
    truth, results = detection_files(folder)
    results.unlink()
    os.mkfifo(results)
    return refused("detection", truth, results)


def class_list(names):
    return lambda folder: refused("detection", *detection_files(folder), "--classes", names)


VOC_FILE = (
    "<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    "</object></annotation>"
)


def voc(name, text, *options):
    """A folder with one file, and results of mmdet 2.x."""

    def run(folder):
        (folder / "voc").mkdir()
        (folder / "voc" / name).write_text(text)
        results = files.write_pickle(folder / "results.pkl", [[np.float32([[0, 0, 8, 8, 0.9]])]])
        return refused("detection", folder / "voc", results, *options)

    return run


def other_ground_truth(folder):
    def run(boxes):
        detections = {"bboxes": np.float32([[0, 0, 9, 9]]), "scores": np.float32([0.9]), "labels": np.array([0])}
        return [
            {"img_id": at, "pred_instances": detections, "gt_instances": {"bboxes": box, "labels": np.array([0])}}
            for at, box in enumerate(boxes, start=1)
        ]

    box = np.float32([[0, 0, 9, 9]])
    first = files.write_pickle(folder / "a.pkl", run([box, box]))
    return refused("compare", "-", first, files.write_pickle(folder / "b.pkl", run([box, box + 1])))
