"""Invalid, odd, empty and large inputs, given to metrics and commands."""

from __future__ import annotations

import copy
import csv
import gc
import io
import json
import math
import os
import re
import tracemalloc
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
from mm_metrics_plugin.testing import assert_same, evaluate
from tests.helpers import result_files as files

MADE = files.problem(3)
TRUTH, RESULTS, SAMPLES = files.truth_of(MADE), files.results_of(MADE), files.samples(4)
NAN, INF = float("nan"), float("inf")


# --- refused ---


def image(**fields):
    """One image with a detection on its object; ``gt_`` stands before what is changed in the truth."""
    boxes = torch.tensor([[0.0, 0, 10, 10]])
    found = dict(bboxes=boxes, scores=torch.tensor([0.9]), labels=torch.tensor([0]))
    there = dict(bboxes=boxes, labels=torch.tensor([0]))
    sample = dict(img_id=7, img_path="cat.jpg", pred_instances=found, gt_instances=there)
    for name, value in fields.items():
        if name in sample:
            sample[name] = value
        elif name.startswith("gt_"):
            there[name[3:]] = value
        else:
            found[name] = value
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
    """All metrics of a single label say the same."""
    metrics = (SingleLabelAUC, SingleLabelPRF, SingleLabelKS, RecallAtK, CalibrationError)
    return lambda _: one_of({message_of(metric(), [scored(), *samples]) for metric in metrics})


def fields(*values):
    """And so do all metrics of a field."""

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
    """Exit code, stdout and stderr, where warnings are."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as said:
        warnings.simplefilter("default", MetricWarning)
        code = main(list(map(str, arguments)))
    return code, out.getvalue(), said.getvalue()


def refused(*arguments):
    """The one line of a command that refuses."""
    code, out, said = command(*arguments)
    assert (code, out, said.count("\n")) == (2, "", 1), said
    return said.strip().split(": ", 1)[1]


def reported(*arguments):
    """The report of a command that has nothing to complain of."""
    code, out, said = command(*arguments, "--format", "json")
    assert (code, said) == (0, ""), said
    return json.loads(out)


def detection_files(folder, truth=None, results=None):
    """A truth and results, changed by functions."""
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
    """Results whose first image has other fields, made from those it has."""

    def change(results):
        first = results[0]["pred_instances"]
        first.update({name: make(first[name]) for name, make in fields.items()})
        return results

    return change


def annotated(**fields):
    return lambda truth: (truth["annotations"][0].update(fields), truth)[1]


def sampled(**fields):
    return lambda samples: (samples[1].update(fields), samples)[1]


# --- accepted ---


def inverted_boxes(_):
    both = torch.tensor([[9.0, 9, 2, 2]])
    values = evaluate(DetectionPRF(num_classes=1), [image(bboxes=both, gt_bboxes=both)])
    assert (values["det/tp"], values["det/fp"], values["det/fn"]) == (0, 1, 1)


def inverted_files(folder):
    swap = changed(bboxes=lambda boxes: boxes[:, [2, 3, 0, 1]])
    plain = reported("detection", *detection_files(folder))
    report = reported("detection", *detection_files(folder, annotated(bbox=[5, 5, -3, -3]), swap))
    assert sum(report["counts"]["ground_truths"]["dropped"].values()) == 1
    assert report["counts"]["detections"]["used"] == plain["counts"]["detections"]["used"]
    assert sum(row["tp"] for row in report["protocols"]["coco"]["per_class"]) < sum(
        row["tp"] for row in plain["protocols"]["coco"]["per_class"]
    )


def whole_float_labels(_):
    floats = [image(labels=torch.tensor([0.0]), gt_labels=torch.tensor([0.0]))]
    assert evaluate(DetectionPRF(num_classes=1), floats) == evaluate(DetectionPRF(num_classes=1), [image()])
    expected = evaluate(SingleLabelPRF(), [scored(), scored(label=0)])
    assert_same(evaluate(SingleLabelPRF(), [scored(label=1.0), scored(label=0.0)]), expected, 0.0, "labels as floats")


def mixed_dtypes(_):
    labels = [torch.tensor([2051]), torch.tensor([3.0], dtype=torch.float16)]
    samples = [dict(pred_label=label, gt_label=label) for label in labels]
    found = evaluate(SingleLabelPRF(num_classes=2060, counts=True), samples)
    assert (found["single-label-prf/tp/2051"], found["single-label-prf/tp/2052"]) == (1, 0)
    assert evaluate(FieldSum(field="x"), [dict(x=label) for label in labels])["field/sum"] == 2054
    images = [image(labels=label, gt_labels=label) for label in labels]
    assert evaluate(DetectionPRF(num_classes=2060), images)["det/tp"] == 2


def inexact_integer(_):
    samples = [dict(x=number, y=1) for number in (1, 2**60 + 1)]
    return message_of(RegressionError(prediction_field="x", target_field="y"), samples)


def no_image(_):
    for metric in (DetectionPRF(num_classes=2), SingleLabelAUC()):
        with pytest.warns(UserWarning, match="undefined"):
            values = metric.evaluate(0)
        counts = {"tp", "fp", "fn", "classes_averaged"}
        for key, value in values.items():
            assert value == 0 if key.split("/")[1] in counts else math.isnan(value), key


def no_boxes(_):
    nothing = dict(bboxes=torch.zeros(0, 4), scores=torch.zeros(0), labels=torch.zeros(0, dtype=torch.int64))
    plain = evaluate(DetectionPRF(num_classes=1), [image()])
    empty = image(pred_instances=nothing, gt_instances=nothing)
    assert evaluate(DetectionPRF(num_classes=1), [image(), empty]) == plain


def one_image(folder):
    assert evaluate(DetectionPRF(num_classes=1), [image()])["det/f1"] == 1.0
    with pytest.warns(UserWarning, match="AUC is undefined"):
        metric = SingleLabelAUC()
        metric.process(None, [scored()])
        assert math.isnan(metric.evaluate(1)["single-label/auc"])
    annotations = [one for one in TRUTH["annotations"] if one["image_id"] == 1]
    first = {**TRUTH, "images": TRUTH["images"][:1], "annotations": annotations}
    report = reported("detection", *detection_files(folder, lambda _: first, lambda results: results[:1]))
    assert report["counts"]["images"]["used"] == 1


def no_images_in_files(folder):
    nothing = files.write_json(folder / "truth.json", {**TRUTH, "images": [], "annotations": []})
    report = reported("detection", nothing, files.write_json(folder / "results.json", []))
    assert report["counts"]["images"]["used"] == 0
    assert all(row["f1"] is None for row in report["protocols"]["coco"]["per_class"])


def empty_coco_results(folder):
    truth, _ = detection_files(folder)
    report = reported("detection", truth, files.write_json(folder / "results.json", []))
    rows = report["protocols"]["coco"]["per_class"]
    assert sum(row["fn"] for row in rows) == sum(row["ground_truths"] for row in rows) > 0
    assert all(row["precision"] is None for row in rows)


def many_images(folder):
    count = 100_000
    results = [[np.float32([[0, 0, 10, 10, 0.9]])] for _ in range(count)]
    truth = {
        "images": [{"id": n, "file_name": "", "height": 48, "width": 64} for n in range(count)],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [
            {"id": n, "image_id": n, "category_id": 1, "bbox": [0, 0, 10, 10], "area": 100, "iscrowd": 0}
            for n in range(count)
        ],
    }
    places = files.write_json(folder / "truth.json", truth), files.write_pickle(folder / "results.pkl", results)
    report = reported("detection", *places, "--matrix-only")
    assert report["counts"]["images"]["used"] == report["protocols"]["coco"]["per_class"][0]["tp"] == count


def many_samples(_):
    metric, batch = SingleLabelPRF(counts=True), [scored(), scored((0.7, 0.3), 0)] * 500
    held = []
    tracemalloc.start()
    for number in range(100):
        metric.process(None, batch)
        if number in (9, 99):
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert held[1] - held[0] < 10_000  # a tenth of a byte a sample
    values = metric.evaluate(100_000)
    assert (values["single-label-prf/tp/0"], values["single-label-prf/tp/1"]) == (50_000, 50_000)


def many_classes(folder):
    for count in (1000, 10_000):
        scores = np.zeros((2, count), np.float32)
        scores[0, 7] = scores[1, 9] = 1
        samples = [{"pred_score": row, "gt_label": np.array([7])} for row in scores]
        report = reported("classification", files.write_pickle(folder / "results.pkl", samples))
        expected = {"row": [7, 7], "column": [7, 9], "count": [1, 1]}
        assert report["confusion_cells"] == (expected if count == 10_000 else None)
        assert report["accuracy"] == 0.5


def many_detections(folder):
    count = 10_000
    boxes, labels = np.tile(np.float32([0, 0, 10, 10]), (count, 1)), np.zeros(count, np.int64)
    scores = np.linspace(0.4, 0.9, count, dtype=np.float32)
    crowded = image(**{n: torch.from_numpy(v) for n, v in dict(bboxes=boxes, scores=scores, labels=labels).items()})
    limit = "AP uses the best 100 of up to 10000 detections per class and image"
    with pytest.warns(UserWarning, match=limit):
        values = evaluate(DetectionPRF(num_classes=1, ap=True), [crowded])
    assert (values["det/tp"], values["det/fp"], values["det/mAP"]) == (1, count - 1, pytest.approx(1))
    content = {"img_id": 1, "pred_instances": {"bboxes": boxes, "scores": scores, "labels": labels}}
    annotation = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 10, 10], "area": 100}
    truth = {**TRUTH, "images": TRUTH["images"][:1], "annotations": [annotation]}
    paths = detection_files(folder, lambda _: truth, lambda _: [content])
    code, out, said = command("detection", *paths, "--format", "json")
    assert code == 0 and said.count("\n") == 1 and limit in said
    row = json.loads(out)["protocols"]["coco"]["per_class"][0]
    assert (row["tp"], row["fp"], row["fp_duplicate"]) == (1, count - 1, count - 1)


NAMES = ("猫", "chien é", "светофор", "Ω|b")


def non_ascii_names(folder):
    place = folder / "результат 结果"
    place.mkdir()
    truth = files.write_json(place / "真.json", files.truth_of(MADE, NAMES))
    results = files.write_pickle(place / "données.pkl", RESULTS)
    report = reported("detection", truth, results)
    assert [row["name"] for row in report["protocols"]["coco"]["per_class"]] == list(NAMES)
    assert report["inputs"]["results"]["file"] == "données.pkl"
    code, _, said = command("detection", truth, results, place / "отчёт", "--quiet")
    assert code == 0 and set(re.findall("warning: (.....)", said)) <= {"Glyph"}
    with open(place / "отчёт" / "confusion_matrix.csv", encoding="utf-8", newline="") as file:
        assert next(csv.reader(file))[2:6] == list(NAMES)


def file_name_without_utf8(folder):
    truth, results = detection_files(folder)
    odd = os.fsdecode(os.fsencode(folder) + b"/r\xe9sultats.pkl")
    os.rename(results, odd)
    code, _, said = command("detection", truth, odd, folder / "out", "--quiet")
    assert (code, said) == (0, "")
    report = json.loads((folder / "out" / "report.json").read_text(encoding="utf-8"))
    assert report["inputs"]["results"]["file"] == "r\udce9sultats.pkl"


def repeated_image_id(_):
    assert evaluate(DetectionPRF(num_classes=1), [image(), image()])["det/tp"] == 2


def image_ids_beyond_64_bits(folder):
    def renamed(rows, key):
        for row in rows:
            row[key] = 2**70 if row[key] == 1 else row[key]

    def truth(content):
        renamed(content["images"], "id")
        renamed(content["annotations"], "image_id")
        return content

    def results(content):
        renamed(content, "img_id")
        return content

    expected = reported("detection", *detection_files(folder))["protocols"]
    assert reported("detection", *detection_files(folder, truth, results))["protocols"] == expected


def class_list_with_bom_and_crlf(folder):
    names = folder / "classes.txt"
    names.write_bytes("\ufeffcat\r\ndog\r\n\r\ntraffic light\r\na|b\r\n".encode())
    expected = reported("detection", *detection_files(folder))
    report = reported("detection", *detection_files(folder), "--classes", names)
    assert report["classes"] == expected["classes"] == list(files.CLASSES)
    assert report["protocols"] == expected["protocols"]


def json_with_bom_and_crlf(folder):
    truth, results = detection_files(folder)
    expected = reported("detection", truth, results)["protocols"]
    text = json.dumps(TRUTH, indent=1).replace("\n", "\r\n")
    truth.write_bytes(("\ufeff" + text).encode())
    assert reported("detection", truth, results)["protocols"] == expected


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


def results_without_ids(folder):
    truth, results = detection_files(folder)
    expected = reported("detection", truth, results)
    lists = []
    for one in RESULTS:
        found = one["pred_instances"]
        rows = np.column_stack([found["bboxes"], found["scores"]]).astype(np.float32)
        lists.append([rows[found["labels"] == label] for label in range(len(TRUTH["categories"]))])
    report = reported("detection", truth, files.write_pickle(folder / "old.pkl", lists))
    assert report["protocols"] == expected["protocols"]
    assert report["inputs"]["results"]["joined_by"] == "position"
    few = files.write_pickle(folder / "few.pkl", lists[1:])
    assert f"each of the {len(lists)} images of truth.json" in refused("detection", truth, few)


def other_ground_truth(folder):
    def run(boxes):
        found = {"bboxes": np.float32([[0, 0, 9, 9]]), "scores": np.float32([0.9]), "labels": np.array([0])}
        return [
            {"img_id": at, "pred_instances": found, "gt_instances": {"bboxes": box, "labels": np.array([0])}}
            for at, box in enumerate(boxes, start=1)
        ]

    box = np.float32([[0, 0, 9, 9]])
    first = files.write_pickle(folder / "a.pkl", run([box, box]))
    return refused("compare", "-", first, files.write_pickle(folder / "b.pkl", run([box, box + 1])))


def repeated_ids_with_different_paths(folder):
    boxes, scores, labels = np.float32([[0, 0, 10, 10]]), np.float32([0.9]), np.array([0])
    found, there = dict(bboxes=boxes, scores=scores, labels=labels), dict(bboxes=boxes, labels=labels)
    missed = dict(found, bboxes=boxes + 50)
    images = [
        dict(img_id=1, img_path=f"{part}/1.jpg", pred_instances=made, gt_instances=there)
        for part, made in (("a", found), ("b", missed))
    ]
    path = files.write_pickle(folder / "results.pkl", images)
    code, out, said = command("detection", "-", path, "--classes", "cat")
    assert code == 0 and "image ids in results.pkl repeat: images are joined by path" in out, said
    report = reported("detection", "-", path, "--classes", "cat")
    assert report["inputs"]["results"]["joined_by"] == "image path"
    row = report["protocols"]["coco"]["per_class"][0]
    assert (row["tp"], row["fp"], row["fn"]) == (1, 1, 1)


ACCEPTED = [
    inverted_boxes,
    inverted_files,
    whole_float_labels,
    mixed_dtypes,
    no_image,
    no_boxes,
    one_image,
    no_images_in_files,
    empty_coco_results,
    many_images,
    many_samples,
    many_classes,
    many_detections,
    non_ascii_names,
    file_name_without_utf8,
    repeated_image_id,
    image_ids_beyond_64_bits,
    class_list_with_bom_and_crlf,
    json_with_bom_and_crlf,
    results_without_ids,
    repeated_ids_with_different_paths,
]
