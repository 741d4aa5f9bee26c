"""The table of docs/bad_input.md."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, NamedTuple

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


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        input: What is wrong with it, or unusual.
        where: The metric or the command that is given it.
        happens: What comes of it. A message stands in backticks.
        run: Tries it in a folder: gives the message, or looks for itself and gives nothing.
    """

    input: str
    where: str
    happens: str
    run: Callable[[Path], object]


METRIC, AUC, FIELD = "`DetectionPRF`", "`SingleLabelAUC` and the like", "`FieldMean`, `FieldSum`, `RegressionError`"
DETECTION, CLASSIFICATION = "`mm-metrics detection`", "`mm-metrics classification`"
COMPARE = "`mm-metrics compare`"


def says(message):
    return f"`{message}`"


ROWS = [
    # NaN and inf
    Row(
        "a NaN",
        METRIC,
        says("'scores' of image 'sample 1 (cat.jpg)' must be finite (found nan)"),
        detector(image(scores=torch.tensor([NAN]))),
    ),
    Row(
        "an infinity",
        METRIC,
        says("'boxes' of image 'sample 1 (cat.jpg)' must be finite (found inf)"),
        detector(image(bboxes=torch.tensor([[0, 0, INF, 9]]))),
    ),
    Row(
        "a NaN in the truth",
        METRIC,
        says("'ground-truth boxes' of image 'sample 1 (cat.jpg)' must be finite (found nan)"),
        detector(image(gt_bboxes=torch.tensor([[0, 0, NAN, 9]]))),
    ),
    Row(
        "a NaN",
        AUC,
        says("'pred_score' of sample 1 must be finite (found nan at index 0)"),
        classifier(scored((NAN, 0.5))),
    ),
    Row(
        "an infinity",
        AUC,
        says("'pred_score' of sample 1 must be finite (found -inf at index 1)"),
        classifier(scored((0.5, -INF))),
    ),
    Row(
        "a NaN",
        FIELD,
        says("'x' of sample 1 must be finite (found nan at index 0)"),
        fields(1.0, NAN),
    ),
    Row(
        "a NaN",
        DETECTION,
        says("results.pkl: 'scores' of image 1 must be finite (found nan)"),
        detection(results=found(scores=lambda scores: scores * np.nan)),
    ),
    Row(
        "a NaN in the truth",
        DETECTION,
        says("truth.json: 'bbox' of annotation number 0 must be 4 finite numbers (found [NaN, 0, 1, 1])"),
        detection(truth=annotated(bbox=[NAN, 0, 1, 1])),
    ),
    Row(
        "an infinity",
        CLASSIFICATION,
        says("results.pkl: 'pred_score' of sample number 1 must be finite (found inf at index 0)"),
        classification(sampled(pred_score=np.float32([INF, 0, 0]))),
    ),
    # sizes
    Row(
        "a box of negative size (its corners swapped)",
        METRIC,
        "it has no area, so it overlaps nothing: a detection is wrong, an object is missed; the tally counts both",
        ways.inverted_boxes,
    ),
    Row(
        "a box of negative size",
        DETECTION,
        "a detection is kept and overlaps nothing; an object is left out and counted: of COCO files as `outside the "
        "image` or `empty`, as mmdet does; of VOC files and of ground truth inside the results "
        "as `corners swapped`",
        ways.inverted_files,
    ),
    # labels
    Row(
        "a label out of range",
        METRIC,
        says("'labels' of image 'sample 1 (cat.jpg)' must be between 0 and 2 (found 3)"),
        detector(image(labels=torch.tensor([3]))),
    ),
    Row(
        "a negative label in the truth",
        METRIC,
        says("'ground-truth labels' of image 'sample 1 (cat.jpg)' must be between 0 and 2 (found -1)"),
        detector(image(gt_labels=torch.tensor([-1]))),
    ),
    Row(
        "a label out of range",
        AUC,
        says("'gt_label' of sample 1 must be a class index from 0 to 1 (found 2)"),
        classifier(scored(label=2)),
    ),
    Row(
        "a label out of range",
        DETECTION,
        says("results.pkl: 1 labels are beyond the 4 classes (4 in image 1)"),
        detection(results=found(labels=lambda labels: np.where(np.arange(len(labels)) == 2, 4, labels))),
    ),
    Row(
        "a label out of range",
        CLASSIFICATION,
        says("results.pkl: 'gt_label' of sample number 1 must be between 0 and 2 (found 3)"),
        classification(sampled(gt_label=np.array([3]))),
    ),
    Row(
        "a label that is no whole number",
        METRIC,
        says("'labels' of image 'sample 1 (cat.jpg)' must be whole numbers (found 0.5)"),
        detector(image(labels=torch.tensor([0.5]))),
    ),
    Row(
        "a label that is no whole number",
        AUC,
        says("'gt_label' of sample 1 must be a class index from 0 to 1 (found 0.5)"),
        classifier(scored(label=0.5)),
    ),
    Row(
        "labels as floats, whole numbers",
        f"{METRIC}, {AUC}",
        "read as what they are: 1.0 is class 1",
        ways.whole_float_labels,
    ),
    Row(
        "labels as floats",
        DETECTION,
        says("results.pkl: 'pred_instances.labels' of image 1 must be whole numbers (found float64)"),
        detection(results=found(labels=lambda labels: labels.astype(float))),
    ),
    Row(
        "labels as floats",
        CLASSIFICATION,
        says("results.pkl: 'gt_label' of sample number 1 must be whole numbers (found float64 (1,))"),
        classification(sampled(gt_label=np.array([1.0]))),
    ),
    Row(
        "labels as text",
        METRIC,
        says("'pred_instances.labels' of sample 1 (cat.jpg) must hold numbers of at most 64 bits (found ['cat'])"),
        detector(image(labels=["cat"])),
    ),
    Row(
        "a label as text",
        AUC,
        says("'gt_label' of sample 1 must hold numbers of at most 64 bits (found 'cat')"),
        classifier({**scored(), "gt_label": "cat"}),
    ),
    # missing keys
    Row(
        "a field is missing",
        METRIC,
        says("sample 1 (cat.jpg) must have a field 'pred_instances.scores' (found bboxes, labels)"),
        detector(without(image(), "pred_instances.scores")),
    ),
    Row(
        "the truth is missing",
        METRIC,
        says(
            "sample 1 (cat.jpg) must have a field 'gt_instances.bboxes' (found img_id, img_path, pred_instances): add "
            "dict(type='LoadAnnotations', with_bbox=True) after Resize in the test pipeline"
        ),
        detector(without(image(), "gt_instances")),
    ),
    Row(
        "a field is missing",
        AUC,
        says("sample 1 must have a field 'gt_label' (found pred_score): the test dataset must have labels"),
        classifier(without(scored(), "gt_label")),
    ),
    Row(
        "a field is missing",
        DETECTION,
        says("results.pkl: 'pred_instances.scores' of image 2 must be an array (found nothing)"),
        detection(results=lambda results: (results[1]["pred_instances"].pop("scores"), results)[1]),
    ),
    Row(
        "an image without id",
        DETECTION,
        says(
            "results.pkl: 'img_id' of image number 1 must be a whole number or text (found None): add 'img_id' to "
            "meta_keys of PackDetInputs in the test pipeline and test again"
        ),
        detection(results=lambda results: (results[1].pop("img_id"), results)[1]),
    ),
    Row(
        "an annotation without box",
        DETECTION,
        says("truth.json: annotation number 0 has no 'bbox'"),
        detection(truth=lambda truth: (truth["annotations"][0].pop("bbox"), truth)[1]),
    ),
    Row(
        "a field is missing",
        CLASSIFICATION,
        says("results.pkl: 'gt_label' of sample number 1 must be an array (found nothing)"),
        classification(lambda samples: (samples[1].pop("gt_label"), samples)[1]),
    ),
    # classes that do not fit
    Row(
        "samples with different numbers of classes",
        AUC,
        says("'pred_score' of sample 1 must have the shape of the samples before it, (2,) (found (3,))"),
        classifier(scored((0.1, 0.2, 0.7))),
    ),
    Row(
        "samples with different numbers of classes",
        CLASSIFICATION,
        says("results.pkl: 'pred_score' of sample number 1 must be 3 scores (found float32 (2,))"),
        classification(sampled(pred_score=np.float32([0.5, 0.5]))),
    ),
    Row(
        "another number of classes than named",
        CLASSIFICATION,
        says(
            "results.pkl: holds scores of 3 classes where 2 are named; --classes was read as 2 classes ('cat', 'dog'): "
            "separate class names by commas (--classes a,b)"
        ),
        classification(lambda samples: samples, "--classes", "cat,dog"),
    ),
    Row(
        "another number of classes than the truth has",
        DETECTION,
        says("results.pkl: has 3 classes where truth.json has 4"),
        detection(results=lambda _: [[np.zeros((0, 5), np.float32)] * 3] * 3),
    ),
    Row(
        "class names in another order than the annotation file's",
        DETECTION,
        says(
            "results.pkl: holds labels, not class names: truth.json lists 'cat', 'dog' and --classes lists 'dog', "
            "'cat', so label 0 is 'cat' or 'dog'. Say which order the labels follow: --class-order annotations ("
            "mmdet's CocoDataset numbers them so) or --class-order classes"
        ),
        class_list("dog,cat"),
    ),
    Row(
        "a VOC folder without class names",
        DETECTION,
        says(
            "voc: VOC annotations do not say which label a class has; list all classes of the model in the order of "
            "its labels with --classes, or give the config as TRUTH (the folder has objects of class 'cat')"
        ),
        voc("1.xml", VOC_FILE),
    ),
    Row(
        "a folder of other XML",
        DETECTION,
        says("pom.xml: is no VOC annotation (expected the root element 'annotation'; found 'project')"),
        voc("pom.xml", "<project/>", "--classes", "cat"),
    ),
    Row(
        "results without image ids (mmdet 2.x) and a VOC folder",
        DETECTION,
        says(
            "results.pkl: has no image ids (mmdet 2.x), and voc has no order of images; give the list of the test set "
            "with --image-set, such as ImageSets/Main/test.txt"
        ),
        voc("1.xml", VOC_FILE, "--classes", "cat"),
    ),
    Row(
        "results without image ids (mmdet 2.x) and a COCO file",
        DETECTION,
        "are joined by position in the order of the file's images, as mmdet 2.x tested them, if there are equally "
        "many; the report says so",
        ways.results_without_ids,
    ),
    Row(
        "other ground truth inside the second run",
        COMPARE,
        says(
            "a.pkl and b.pkl: differ in the ground truth of image 2 (class, box or crowd flag of object number 0); "
            "give the annotations as TRUTH instead of -"
        ),
        ways.other_truth_inside,
    ),
    Row(
        "a class that the truth does not have",
        DETECTION,
        says("truth.json: has no class 'unicorn'; it has 4 classes ('cat', 'dog', 'traffic light', 'a|b')").replace(
            "|", "\\|"
        ),
        class_list("cat,unicorn"),
    ),
    # nothing, little and much
    Row(
        "no sample at all",
        f"{METRIC}, {AUC}",
        "every rate is NaN and announced as undefined; counts are 0",
        ways.no_image,
    ),
    Row("an image without detections and objects", METRIC, "changes nothing", ways.no_boxes),
    Row(
        "an empty list",
        DETECTION,
        says("results.pkl: must be a list with one entry an image (found an empty list)"),
        detection(results=lambda _: []),
    ),
    Row(
        "an empty list",
        CLASSIFICATION,
        says("results.pkl: must be a list with one dict a sample (found an empty list)"),
        classification(lambda _: []),
    ),
    Row(
        "an empty list of COCO results",
        DETECTION,
        "nothing was found: every object is missed, precision is undefined",
        ways.coco_results_of_nothing,
    ),
    Row("a truth of 0 images", DETECTION, "a report of 0 images, every rate undefined", ways.no_images_in_files),
    Row(
        "1 image",
        f"{METRIC}, {AUC}, {DETECTION}",
        "works; an AUC, which needs two classes, is NaN and announced as undefined",
        ways.one_image,
    ),
    Row("100,000 images", DETECTION, "works", ways.many_images),
    Row("100,000 samples", "`SingleLabelPRF` and the like", "works, in constant memory", ways.many_samples),
    Row(
        "1,000 and 10,000 classes",
        CLASSIFICATION,
        "work; of more than 100 classes the figure shows the 40 most confused, of more than 2,000 the files list the "
        "cells of the matrix that are not 0",
        ways.many_classes,
    ),
    Row(
        "10,000 detections in one image",
        f"{METRIC}, {DETECTION}",
        "works; all are counted, and a warning says that AP uses the best `max_dets` of them",
        ways.many_detections,
    ),
    # names
    Row(
        "class names and paths that are not ASCII",
        DETECTION,
        "work; a figure says `Glyph … missing from font(s)` of letters that matplotlib's font lacks",
        ways.foreign_names,
    ),
    Row(
        "a file name that is no UTF-8",
        DETECTION,
        "works; in the report the odd bytes are written out, as in `r\\udce9sultats.pkl`",
        ways.foreign_bytes,
    ),
    Row(
        "a byte-order mark, CRLF and empty lines in a class list",
        DETECTION,
        "are left out of the names",
        ways.windows_class_list,
    ),
    Row("a byte-order mark and CRLF in an annotation file", DETECTION, "change nothing", ways.windows_json),
    Row("a name twice in a class list", DETECTION, says("--classes: 'cat' comes 2 times"), class_list("cat,cat")),
    # ids
    Row(
        "an image id twice",
        METRIC,
        "both samples count: padding is what exceeds the size of the data set, not what has the same id",
        ways.repeated_sample,
    ),
    Row(
        "an image id twice",
        DETECTION,
        says("results.pkl: image 1 more than once"),
        detection(results=lambda results: [*results, results[0]]),
    ),
    Row(
        "an image id twice in the truth",
        DETECTION,
        says("truth.json: 1 image ids come twice (1)"),
        detection(truth=lambda truth: (truth["images"].append(truth["images"][0]), truth)[1]),
    ),
    Row(
        "an annotation id twice",
        DETECTION,
        says("truth.json: 1 annotation ids come twice (1)"),
        detection(truth=lambda truth: (truth["annotations"].append(truth["annotations"][0]), truth)[1]),
    ),
    # no COCO
    Row(
        "an annotation file that is a list",
        DETECTION,
        says(
            "truth.json: is no COCO annotation file (expected lists 'images', 'annotations' and 'categories'; found a "
            "list, as COCO results are)"
        ),
        detection(truth=lambda _: [{"image_id": 1}]),
    ),
    Row(
        "an annotation file of another kind",
        DETECTION,
        says(
            "truth.json: is no COCO annotation file (expected lists 'images', 'annotations' and 'categories'; found "
            "features, type)"
        ),
        detection(truth=lambda _: {"type": "FeatureCollection", "features": []}),
    ),
    Row("a pipe or a device", DETECTION, says("results.pkl: cannot be read (not a file)"), ways.pipe),
    # huge
    Row(
        "a label beyond 64 bits",
        METRIC,
        says("'labels' of image 'sample 0 (cat.jpg)' must be between 0 and 2 (found 9223372036854775808)"),
        lambda _: told(DetectionPRF(num_classes=3), [image(labels=np.array([2**63], np.uint64))]),
    ),
    Row(
        "a label beyond 64 bits",
        AUC,
        says("'gt_label' of sample 1 must hold numbers of at most 64 bits (found 1180591620717411303424)"),
        classifier({**scored(), "gt_label": 2**70}),
    ),
    Row(
        "an image id beyond 64 bits",
        METRIC,
        says("'img_id' of sample 1 (cat.jpg) must be a number of 64 bits, or text (found 9223372036854775808)"),
        detector(image(img_id=2**63)),
    ),
    Row("an image id beyond 64 bits", DETECTION, "works", ways.huge_ids),
    Row(
        "a number beyond 64 bits",
        FIELD,
        says("'x' of sample 1 must hold numbers of at most 64 bits (found 100000000000000000000)"),
        fields(1.0, 10**20),
    ),
    Row(
        "whole numbers beside floats in one batch",
        "`SingleLabelPRF`, `FieldSum`, `DetectionPRF`",
        "each sample is read as it is: label 2051 stays 2051 beside a label of float16",
        ways.mixed_dtypes,
    ),
    Row(
        "a whole number that float64 does not hold exactly",
        "`RegressionError`",
        says(
            "'x' of sample 1 must hold whole numbers that float64 holds exactly; subtract a common offset first "
            "(found 1152921504606846977 at index 0)"
        ),
        ways.inexact_whole_number,
    ),
    Row(
        "a complex number",
        AUC,
        says("'gt_label' of sample 1 must hold real numbers (found torch.complex64)"),
        classifier(scored(label=1 + 2j)),
    ),
    Row(
        "a `scale_factor` that is none",
        METRIC,
        says(
            "'scale_factor' of sample 1 (cat.jpg) must be one positive number, or those of width and height "
            "(found 'half')"
        ),
        detector({**image(), "scale_factor": "half"}),
    ),
    Row(
        "an `ori_shape` that is none",
        METRIC,
        says("'ori_shape' of sample 1 (cat.jpg) must be height and width (found 480)"),
        detector({**image(), "scale_factor": 2.0, "ori_shape": 480}),
    ),
    Row(
        "a box whose area is beyond float64",
        METRIC,
        says("'boxes' of image 'sample 1 (cat.jpg)' must be at most 1e+100 in size (found 1e+300)"),
        detector(image(bboxes=np.array([[0, 0, 1e300, 1e300]]))),
    ),
    Row(
        "a box whose area is beyond float64",
        DETECTION,
        says("truth.json: 'ground-truth boxes' of image 1 must be at most 1e+100 in size (found 1e+300)"),
        detection(truth=annotated(bbox=[0, 0, 1e300, 1e300])),
    ),
    Row(
        "an integer of 400 digits",
        DETECTION,
        says(
            "truth.json: 'bbox' of annotation number 0 must be 4 finite numbers (found [0, 0, "
            "10000000000000000000000000000000000000000000000000...)"
        ),
        detection(truth=annotated(bbox=[0, 0, 10**400, 1])),
    ),
    Row(
        "a label beyond 64 bits",
        CLASSIFICATION,
        says("results.pkl: 'gt_label' of sample number 1 must be between 0 and 2 (found 9223372036854775808)"),
        classification(sampled(gt_label=np.array([2**63], np.uint64))),
    ),
    Row(
        "a sparse tensor",
        AUC,
        says(
            "'pred_score' of sample 1 must be a dense tensor (found layout torch.sparse_coo): call "
            ".to_dense() before the metric is given the sample"
        ),
        classifier({**scored(), "pred_score": scored()["pred_score"].to_sparse()}),
    ),
    Row(
        "a tensor on the meta device",
        METRIC,
        says(
            "'pred_instances.scores' of sample 1 (cat.jpg) must be a tensor with values (found shape (1,) on"
            " the meta device): load the model on a real device"
        ),
        detector(image(scores=torch.empty(1, device="meta"))),
    ),
    Row(
        "a batch in one dict, of which mmengine's Evaluator takes the keys for samples",
        AUC,
        says(
            "sample 1 must be a dict with fields (found the text 'pred_score'): give a list with one dict "
            "per sample (a dict of a whole batch gives its keys)"
        ),
        classifier("pred_score"),
    ),
    Row(
        "image ids that repeat, with paths that do not (a `ConcatDataset` of files that share ids)",
        DETECTION,
        "images are joined by path; the report says so",
        ways.repeated_ids,
    ),
]
