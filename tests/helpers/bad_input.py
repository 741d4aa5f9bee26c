"""Invalid inputs of metrics and commands, and their messages."""

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
from tests.helpers import invalid_input
from tests.helpers import result_files as files

PROBLEM = files.problem(3)
TRUTH, RESULTS, SAMPLES = files.truth_of(PROBLEM), files.results_of(PROBLEM), files.samples(4)
NAN, INF = float("nan"), float("inf")


def image(**fields):
    """An image with one ground truth, whose fields have the prefix ``gt_`` here, and its detection."""
    boxes = torch.tensor([[0.0, 0, 10, 10]])
    prediction = dict(bboxes=boxes, scores=torch.tensor([0.9]), labels=torch.tensor([0]))
    target = dict(bboxes=boxes, labels=torch.tensor([0]))
    sample = dict(img_id=7, img_path="cat.jpg", pred_instances=prediction, gt_instances=target)
    for name, value in fields.items():
        if name in sample:
            sample[name] = value
        elif name.startswith("gt_"):
            target[name[3:]] = value
        else:
            prediction[name] = value
    return sample


def scored(score=(0.2, 0.8), label=1, **fields):
    return dict(pred_score=torch.tensor(score), gt_label=torch.tensor([label]), **fields)


def without(sample, field):
    invalid_input.without(field)(sample)
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
    """The message of all single-label metrics."""
    metrics = (SingleLabelAUC, SingleLabelPRF, SingleLabelKS, RecallAtK, CalibrationError)
    return lambda _: one_of({message_of(metric(), [scored(), *samples]) for metric in metrics})


def fields(*values):
    """The message of all metrics of a field."""

    def run(_):
        samples = [dict(x=value, y=1.0) for value in values]
        regression = RegressionError(prediction_field="x", target_field="y")
        metrics = (FieldMean(field="x"), FieldSum(field="x"), regression)
        return one_of({message_of(metric, samples) for metric in metrics})

    return run


def one_of(messages):
    assert len(messages) == 1, messages
    return messages.pop()


def command(*arguments):
    """Exit code, stdout and stderr (with the warnings)."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as stderr:
        warnings.simplefilter("default", MetricWarning)
        code = main(list(map(str, arguments)))
    return code, out.getvalue(), stderr.getvalue()


def refused(*arguments):
    """The one line of a command that fails."""
    code, out, stderr = command(*arguments)
    assert (code, out, stderr.count("\n")) == (2, "", 1), stderr
    return stderr.strip().split(": ", 1)[1]


def reported(*arguments):
    """The report of a command without warnings."""
    code, out, stderr = command(*arguments, "--format", "json")
    assert (code, stderr) == (0, ""), stderr
    return json.loads(out)


def detection_files(folder, truth=None, results=None):
    """An annotation file and results, changed by functions."""
    both = [copy.deepcopy(TRUTH), copy.deepcopy(RESULTS)]
    for index, change in enumerate((truth, results)):
        if change is not None:
            both[index] = change(both[index])
    return files.write_json(folder / "truth.json", both[0]), files.write_pickle(folder / "results.pkl", both[1])


def detection(**changes):
    return lambda folder: refused("detection", *detection_files(folder, **changes))


def classification(change, *options):
    def run(folder):
        path = files.write_pickle(folder / "results.pkl", change(copy.deepcopy(SAMPLES)))
        return refused("classification", path, *options)

    return run


def changed(**fields):
    """Results with fields of the first image changed by functions."""

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
        prediction = {"bboxes": np.float32([[0, 0, 9, 9]]), "scores": np.float32([0.9]), "labels": np.array([0])}
        return [
            {"img_id": image, "pred_instances": prediction, "gt_instances": {"bboxes": box, "labels": np.array([0])}}
            for image, box in enumerate(boxes, start=1)
        ]

    box = np.float32([[0, 0, 9, 9]])
    first = files.write_pickle(folder / "a.pkl", run([box, box]))
    return refused("compare", "-", first, files.write_pickle(folder / "b.pkl", run([box, box + 1])))
