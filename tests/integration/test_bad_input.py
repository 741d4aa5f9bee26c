"""Metrics and commands refuse invalid input and name it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from mm_metrics_plugin import DetectionPRF
from tests.helpers import bad_input
from tests.helpers.bad_input import (
    INF,
    NAN,
    VOC_FILE,
    annotated,
    changed,
    class_list,
    classification,
    classifier,
    detection,
    detector,
    fields,
    image,
    message_of,
    sampled,
    scored,
    voc,
    without,
)

# Input, a function that returns the message, and parts of the message: sample or image, field, value.
METRICS = [
    ("a NaN score", detector(image(scores=torch.tensor([NAN]))), "'scores'; sample 1 (cat.jpg); found nan"),
    ("an infinite box", detector(image(bboxes=torch.tensor([[0, 0, INF, 9]]))), "'boxes'; sample 1; found inf"),
    ("a NaN ground truth", detector(image(gt_bboxes=torch.tensor([[0, 0, NAN, 9]]))), "boxes'; sample 1; found nan"),
    ("a NaN score", classifier(scored((NAN, 0.5))), "'pred_score'; sample 1; found nan at index 0"),
    ("an infinite score", classifier(scored((0.5, -INF))), "'pred_score'; sample 1; found -inf at index 1"),
    ("a NaN field", fields(1.0, NAN), "'x'; sample 1; found nan at index 0"),
    ("a label out of range", detector(image(labels=torch.tensor([3]))), "'labels'; sample 1; found 3"),
    ("a negative label", detector(image(gt_labels=torch.tensor([-1]))), "labels'; sample 1; found -1"),
    ("a label out of range", classifier(scored(label=2)), "'gt_label'; sample 1; found 2"),
    ("a fractional label", detector(image(labels=torch.tensor([0.5]))), "'labels'; sample 1; found 0.5"),
    ("a fractional label", classifier(scored(label=0.5)), "'gt_label'; sample 1; found 0.5"),
    ("labels as text", detector(image(labels=["cat"])), "'pred_instances.labels'; sample 1; found ['cat']"),
    ("a label as text", classifier({**scored(), "gt_label": "cat"}), "'gt_label'; sample 1; found 'cat'"),
    (
        "no field",
        detector(without(image(), "pred_instances.scores")),
        "'pred_instances.scores'; sample 1 (cat.jpg); found bboxes, labels",
    ),
    (
        "no ground truth",
        detector(without(image(), "gt_instances")),
        "'gt_instances.bboxes'; sample 1; found img_id, img_path, pred_instances; LoadAnnotations",
    ),
    ("no field", classifier(without(scored(), "gt_label")), "'gt_label'; sample 1; found pred_score; labels"),
    ("other classes", classifier(scored((0.1, 0.2, 0.7))), "'pred_score'; sample 1; (2,); found (3,)"),
    (
        "a label beyond 64 bits",
        lambda _: message_of(DetectionPRF(num_classes=3), [image(labels=np.array([2**63], np.uint64))]),
        "'labels'; sample 0 (cat.jpg); found 9223372036854775808",
    ),
    ("a label beyond 64 bits", classifier({**scored(), "gt_label": 2**70}), "'gt_label'; sample 1; found 118059162"),
    ("an image id beyond 64 bits", detector(image(img_id=2**63)), "'img_id'; sample 1; found 9223372036854775808"),
    ("a value beyond 64 bits", fields(1.0, 10**20), "'x'; sample 1; found 100000000000000000000"),
    ("an inexact integer", bad_input.inexact_integer, "'x'; sample 1; float64; found 1152921504606846977 at index 0"),
    ("a complex number", classifier(scored(label=1 + 2j)), "'gt_label'; sample 1; found torch.complex64"),
    ("scale_factor", detector({**image(), "scale_factor": "half"}), "'scale_factor'; sample 1; found 'half'"),
    ("ori_shape", detector({**image(), "scale_factor": 2.0, "ori_shape": 480}), "'ori_shape'; sample 1; found 480"),
    ("a huge box", detector(image(bboxes=np.array([[0, 0, 1e300, 1e300]]))), "'boxes'; sample 1; found 1e+300"),
    (
        "a sparse tensor",
        classifier({**scored(), "pred_score": scored()["pred_score"].to_sparse()}),
        "'pred_score'; sample 1; torch.sparse_coo; dense",
    ),
    (
        "a tensor on the meta device",
        detector(image(scores=torch.empty(1, device="meta"))),
        "'pred_instances.scores'; sample 1; dense tensor; on meta",
    ),
    # mmengine's Evaluator takes the keys of a batch in one dict for samples.
    ("a dict of a batch", classifier("pred_score"), "sample 1; dict; found the text 'pred_score'"),
]
COMMANDS = [
    ("a NaN score", detection(results=changed(scores=lambda scores: scores * np.nan)), "'scores'; image 1; found nan"),
    ("a NaN box", detection(truth=annotated(bbox=[NAN, 0, 1, 1])), "'bbox'; annotation; 0; found [nan, 0, 1, 1]"),
    (
        "an infinite score",
        classification(sampled(pred_score=np.float32([INF, 0, 0]))),
        "results.pkl; 'pred_score'; sample; 1; found inf at index 0",
    ),
    (
        "a label out of range",
        detection(results=changed(labels=lambda labels: np.where(np.arange(len(labels)) == 2, 4, labels))),
        "results.pkl; 4 classes; 4 in image 1",
    ),
    ("a label out of range", classification(sampled(gt_label=np.array([3]))), "'gt_label'; sample; 1; found 3"),
    (
        "labels with fractions",
        detection(results=changed(labels=lambda labels: labels + 0.5)),
        "labels' of image 1 must be whole numbers; found 3.5",
    ),
    ("labels as floats", classification(sampled(gt_label=np.array([1.0]))), "'gt_label'; sample; 1; found float64"),
    (
        "no field",
        detection(results=lambda results: (results[1]["pred_instances"].pop("scores"), results)[1]),
        "results.pkl; 'pred_instances.scores'; image 2; found nothing",
    ),
    (
        "no image id",
        detection(results=lambda results: (results[1].pop("img_id"), results)[1]),
        "results.pkl; 'img_id'; image; 1; found None; meta_keys",
    ),
    (
        "an annotation without box",
        detection(truth=lambda truth: (truth["annotations"][0].pop("bbox"), truth)[1]),
        "truth.json; annotation; 0; 'bbox'",
    ),
    (
        "no field",
        classification(lambda samples: (samples[1].pop("gt_label"), samples)[1]),
        "results.pkl; 'gt_label'; sample; 1; found nothing",
    ),
    (
        "other classes",
        classification(sampled(pred_score=np.float32([0.5, 0.5]))),
        "results.pkl; 'pred_score'; sample; 1; 3 scores; found float32 (2,)",
    ),
    (
        "other classes than named",
        classification(lambda samples: samples, "--classes", "cat,dog"),
        "results.pkl; 3 classes; 2 class names",
    ),
    (
        "other classes than the ground truth",
        detection(results=lambda _: [[np.zeros((0, 5), np.float32)] * 3] * 3),
        "results.pkl; 3 classes; truth.json has 4",
    ),
    (
        "another class order",
        class_list("dog,cat"),
        "truth.json lists 'cat', 'dog'; --classes lists 'dog', 'cat'; label 0; --class-order annotations",
    ),
    ("a VOC folder without class names", voc("1.xml", VOC_FILE), "voc; --classes; 'cat'"),
    ("a folder of other XML", voc("pom.xml", "<project/>", "--classes", "cat"), "pom.xml; found 'project'"),
    ("a VOC folder and no image ids", voc("1.xml", VOC_FILE, "--classes", "cat"), "results.pkl; voc; --image-set"),
    ("other ground truth in the second run", bad_input.other_ground_truth, "a.pkl and b.pkl; image 2; number 0"),
    ("an unknown class", class_list("cat,unicorn"), "truth.json; 'unicorn'; 'cat', 'dog', 'traffic light', 'a|b'"),
    ("an empty list", detection(results=lambda _: []), "results.pkl; found an empty list"),
    ("an empty list", classification(lambda _: []), "results.pkl; found an empty list"),
    ("a repeated class name", class_list("cat,cat"), "classes must be distinct; 'cat'"),
    ("a repeated image id", detection(results=lambda results: [*results, results[0]]), "results.pkl; image 1"),
    (
        "a repeated image id in the ground truth",
        detection(truth=lambda truth: (truth["images"].append(truth["images"][0]), truth)[1]),
        "truth.json; has image id 1 more than once",
    ),
    (
        "a repeated annotation id",
        detection(truth=lambda truth: (truth["annotations"].append(truth["annotations"][0]), truth)[1]),
        "truth.json; has annotation id 1 more than once",
    ),
    ("results", detection(truth=lambda _: [{"image_id": 1}]), "truth.json; found COCO results; before the results"),
    ("GeoJSON", detection(truth=lambda _: {"type": "x", "features": []}), "truth.json; found a dict with 'type'"),
    ("a pipe", bad_input.pipe, "results.pkl; not a file"),
    ("a huge box", detection(truth=annotated(bbox=[0, 0, 1e300, 1e300])), "truth.json; image 1; found 1e+300"),
    (
        "an integer of 400 digits",
        detection(truth=annotated(bbox=[0, 0, 10**400, 1])),
        "truth.json; 'bbox'; annotation; 0; found [0, 0, 100000",
    ),
    (
        "a label beyond 64 bits",
        classification(sampled(gt_label=np.array([2**63], np.uint64))),
        "results.pkl; 'gt_label'; sample; 1; found 9223372036854775808",
    ),
]


@pytest.mark.parametrize(("what", "run", "words"), METRICS + COMMANDS)
def test_invalid_input_is_refused_and_named(what, run, words, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # an overflow without a message
        message = run(tmp_path)
    for word in words.split("; "):
        assert word in message
