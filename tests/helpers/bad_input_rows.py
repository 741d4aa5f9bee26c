"""How each input of docs/en/reference/errors.md is tried: by what is wrong and who is given it, as the page says it."""

from __future__ import annotations

import numpy as np
import torch

from mm_metrics_plugin import DetectionPRF
from tests.helpers import bad_input_ways as ways
from tests.helpers.bad_input_ways import (
    INF,
    NAN,
    VOC_FILE,
    annotated,
    class_list,
    classification,
    classifier,
    detection,
    detector,
    fields,
    found,
    image,
    sampled,
    scored,
    told,
    voc,
    without,
)

METRIC, AUC, FIELD = "`DetectionPRF`", "`SingleLabelAUC` and the like", "`FieldMean`, `FieldSum`, `RegressionError`"
DETECTION, CLASSIFICATION = "`mm-metrics detection`", "`mm-metrics classification`"
COMPARE = "`mm-metrics compare`"
# Each is run in a folder: it gives the message, or looks for itself and gives nothing.
RUNS = {
    # NaN and inf
    ("a NaN", METRIC): detector(image(scores=torch.tensor([NAN]))),
    ("an infinity", METRIC): detector(image(bboxes=torch.tensor([[0, 0, INF, 9]]))),
    ("a NaN in the truth", METRIC): detector(image(gt_bboxes=torch.tensor([[0, 0, NAN, 9]]))),
    ("a NaN", AUC): classifier(scored((NAN, 0.5))),
    ("an infinity", AUC): classifier(scored((0.5, -INF))),
    ("a NaN", FIELD): fields(1.0, NAN),
    ("a NaN", DETECTION): detection(results=found(scores=lambda scores: scores * np.nan)),
    ("a NaN in the truth", DETECTION): detection(truth=annotated(bbox=[NAN, 0, 1, 1])),
    ("an infinity", CLASSIFICATION): classification(sampled(pred_score=np.float32([INF, 0, 0]))),
    # sizes
    ("a box of negative size (its corners swapped)", METRIC): ways.inverted_boxes,
    ("a box of negative size", DETECTION): ways.inverted_files,
    # labels
    ("a label out of range", METRIC): detector(image(labels=torch.tensor([3]))),
    ("a negative label in the truth", METRIC): detector(image(gt_labels=torch.tensor([-1]))),
    ("a label out of range", AUC): classifier(scored(label=2)),
    ("a label out of range", DETECTION): detection(
        results=found(labels=lambda labels: np.where(np.arange(len(labels)) == 2, 4, labels))
    ),
    ("a label out of range", CLASSIFICATION): classification(sampled(gt_label=np.array([3]))),
    ("a label that is no whole number", METRIC): detector(image(labels=torch.tensor([0.5]))),
    ("a label that is no whole number", AUC): classifier(scored(label=0.5)),
    ("labels as floats, whole numbers", f"{METRIC}, {AUC}"): ways.whole_float_labels,
    ("labels as floats", DETECTION): detection(results=found(labels=lambda labels: labels.astype(float))),
    ("labels as floats", CLASSIFICATION): classification(sampled(gt_label=np.array([1.0]))),
    ("labels as text", METRIC): detector(image(labels=["cat"])),
    ("a label as text", AUC): classifier({**scored(), "gt_label": "cat"}),
    # missing keys
    ("a field is missing", METRIC): detector(without(image(), "pred_instances.scores")),
    ("the truth is missing", METRIC): detector(without(image(), "gt_instances")),
    ("a field is missing", AUC): classifier(without(scored(), "gt_label")),
    ("a field is missing", DETECTION): detection(
        results=lambda results: (results[1]["pred_instances"].pop("scores"), results)[1]
    ),
    ("an image without id", DETECTION): detection(results=lambda results: (results[1].pop("img_id"), results)[1]),
    ("an annotation without box", DETECTION): detection(
        truth=lambda truth: (truth["annotations"][0].pop("bbox"), truth)[1]
    ),
    ("a field is missing", CLASSIFICATION): classification(lambda samples: (samples[1].pop("gt_label"), samples)[1]),
    # classes that do not fit
    ("samples with different numbers of classes", AUC): classifier(scored((0.1, 0.2, 0.7))),
    ("samples with different numbers of classes", CLASSIFICATION): classification(
        sampled(pred_score=np.float32([0.5, 0.5]))
    ),
    ("another number of classes than named", CLASSIFICATION): classification(
        lambda samples: samples, "--classes", "cat,dog"
    ),
    ("another number of classes than the truth has", DETECTION): detection(
        results=lambda _: [[np.zeros((0, 5), np.float32)] * 3] * 3
    ),
    ("class names in another order than the annotation file's", DETECTION): class_list("dog,cat"),
    ("a VOC folder without class names", DETECTION): voc("1.xml", VOC_FILE),
    ("a folder of other XML", DETECTION): voc("pom.xml", "<project/>", "--classes", "cat"),
    ("results without image ids (mmdet 2.x) and a VOC folder", DETECTION): voc("1.xml", VOC_FILE, "--classes", "cat"),
    ("results without image ids (mmdet 2.x) and a COCO file", DETECTION): ways.results_without_ids,
    ("other ground truth inside the second run", COMPARE): ways.other_truth_inside,
    ("a class that the truth does not have", DETECTION): class_list("cat,unicorn"),
    # nothing, little and much
    ("no sample at all", f"{METRIC}, {AUC}"): ways.no_image,
    ("an image without detections and objects", METRIC): ways.no_boxes,
    ("an empty list", DETECTION): detection(results=lambda _: []),
    ("an empty list", CLASSIFICATION): classification(lambda _: []),
    ("an empty list of COCO results", DETECTION): ways.coco_results_of_nothing,
    ("a truth of 0 images", DETECTION): ways.no_images_in_files,
    ("1 image", f"{METRIC}, {AUC}, {DETECTION}"): ways.one_image,
    ("100,000 images", DETECTION): ways.many_images,
    ("100,000 samples", "`SingleLabelPRF` and the like"): ways.many_samples,
    ("1,000 and 10,000 classes", CLASSIFICATION): ways.many_classes,
    ("10,000 detections in one image", f"{METRIC}, {DETECTION}"): ways.many_detections,
    # names
    ("class names and paths that are not ASCII", DETECTION): ways.foreign_names,
    ("a file name that is no UTF-8", DETECTION): ways.foreign_bytes,
    ("a byte-order mark, CRLF and empty lines in a class list", DETECTION): ways.windows_class_list,
    ("a byte-order mark and CRLF in an annotation file", DETECTION): ways.windows_json,
    ("a name twice in a class list", DETECTION): class_list("cat,cat"),
    # ids
    ("an image id twice", METRIC): ways.repeated_sample,
    ("an image id twice", DETECTION): detection(results=lambda results: [*results, results[0]]),
    ("an image id twice in the truth", DETECTION): detection(
        truth=lambda truth: (truth["images"].append(truth["images"][0]), truth)[1]
    ),
    ("an annotation id twice", DETECTION): detection(
        truth=lambda truth: (truth["annotations"].append(truth["annotations"][0]), truth)[1]
    ),
    # no COCO
    ("an annotation file that is a list", DETECTION): detection(truth=lambda _: [{"image_id": 1}]),
    ("an annotation file of another kind", DETECTION): detection(
        truth=lambda _: {"type": "FeatureCollection", "features": []}
    ),
    ("a pipe or a device", DETECTION): ways.pipe,
    # huge
    ("a label beyond 64 bits", METRIC): lambda _: told(
        DetectionPRF(num_classes=3), [image(labels=np.array([2**63], np.uint64))]
    ),
    ("a label beyond 64 bits", AUC): classifier({**scored(), "gt_label": 2**70}),
    ("an image id beyond 64 bits", METRIC): detector(image(img_id=2**63)),
    ("an image id beyond 64 bits", DETECTION): ways.huge_ids,
    ("a number beyond 64 bits", FIELD): fields(1.0, 10**20),
    ("whole numbers beside floats in one batch", "`SingleLabelPRF`, `FieldSum`, `DetectionPRF`"): ways.mixed_dtypes,
    ("a whole number that float64 does not hold exactly", "`RegressionError`"): ways.inexact_whole_number,
    ("a complex number", AUC): classifier(scored(label=1 + 2j)),
    ("a `scale_factor` that is none", METRIC): detector({**image(), "scale_factor": "half"}),
    ("an `ori_shape` that is none", METRIC): detector({**image(), "scale_factor": 2.0, "ori_shape": 480}),
    ("a box whose area is beyond float64", METRIC): detector(image(bboxes=np.array([[0, 0, 1e300, 1e300]]))),
    ("a box whose area is beyond float64", DETECTION): detection(truth=annotated(bbox=[0, 0, 1e300, 1e300])),
    ("an integer of 400 digits", DETECTION): detection(truth=annotated(bbox=[0, 0, 10**400, 1])),
    ("a label beyond 64 bits", CLASSIFICATION): classification(sampled(gt_label=np.array([2**63], np.uint64))),
    ("a sparse tensor", AUC): classifier({**scored(), "pred_score": scored()["pred_score"].to_sparse()}),
    ("a tensor on the meta device", METRIC): detector(image(scores=torch.empty(1, device="meta"))),
    ("a batch in one dict, of which mmengine's Evaluator takes the keys for samples", AUC): classifier("pred_score"),
    (
        "image ids that repeat, with paths that do not (a `ConcatDataset` of files that share ids)",
        DETECTION,
    ): ways.repeated_ids,
}
