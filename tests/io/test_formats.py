"""Inputs of other kinds are named, with what to do; inputs with one obvious meaning are read."""

from __future__ import annotations

import contextlib
import gzip
import io
import json

import numpy as np
import pandas
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.evaluator import DumpResults
from mmengine.structures import InstanceData, PixelData
from mmseg.structures import SegDataSample
from pycocotools.coco import COCO

from mm_metrics_plugin import compare_runs, evaluate_classification, evaluate_detection
from mm_metrics_plugin.exceptions import ResultFileError, UndefinedMetricWarning
from tests.helpers import result_files as files

MADE = files.problem(3)
TRUTH, RESULTS, SAMPLES = files.truth_of(MADE), files.results_of(MADE), files.samples(12)
ROW = {"image_id": 1, "category_id": 1, "score": 0.5}
RLE = {"size": [4, 4], "counts": "04L0"}
BOXES = {"boxes": torch.zeros(1, 4), "scores": torch.ones(1), "labels": torch.ones(1, dtype=torch.long)}
SCORES, LABELS = np.array([[0.8, 0.2], [0.4, 0.6], [0.7, 0.3]]), np.array([0, 1, 1])
COCO_ROWS = [
    {
        "image_id": int(image) + 1,
        "category_id": int(label) + 1,
        "bbox": [*box[:2], *(box[2:] - box[:2])],
        "score": score,
    }
    for image, label, box, score in zip(MADE.image, MADE.labels, MADE.boxes.astype(float), MADE.scores.astype(float))
]


def dumped(folder, sample):
    """What ``tools/test.py --out`` writes for one sample."""
    path = folder / "results.pkl"
    metric = DumpResults(out_file_path=str(path))
    metric.process({}, [sample.to_dict()])
    metric.evaluate(1)
    return path


def mmdet(folder, **fields):
    return dumped(folder, DetDataSample(metainfo={"img_id": 1}, pred_instances=InstanceData(**fields)))


def mmseg(folder):
    maps = PixelData(data=torch.zeros(1, 4, 4, dtype=torch.long))
    return dumped(folder, SegDataSample(metainfo={"img_path": "a.png"}, pred_sem_seg=maps, gt_sem_seg=maps))


def mmpose(folder):
    fields = dict(keypoints=np.zeros((1, 17, 2)), keypoint_scores=np.ones((1, 17)), bbox_scores=np.ones(1))
    return mmdet(folder, **fields, bboxes=np.zeros((1, 4)))


def as_pickle(content):
    return lambda folder: files.write_pickle(folder / "results.pkl", content)


def as_json(content, name="results.json"):
    return lambda folder: files.write_json(folder / name, content)


def as_bytes(name, data):
    def make(folder):
        (folder / name).write_bytes(data)
        return folder / name

    return make


def as_folder(content, *names):
    """A folder with the same text in several files."""

    def make(folder):
        for name in names:
            path = folder / "made" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return folder / "made"

    return make


def torch_file(folder):
    torch.save({"state_dict": {}}, folder / "epoch_12.pth")
    return folder / "epoch_12.pth"


def csv_file(folder):
    pandas.DataFrame(COCO_ROWS).to_csv(folder / "rows.csv")
    return folder / "rows.csv"


def npz_file(folder):
    np.savez(folder / "scores.npz", scores=SCORES, labels=LABELS)
    return folder / "scores.npz"


def saved_state(folder):
    evaluate_detection(TRUTH, COCO_ROWS, save_state=folder / "part.npz")
    return folder / "part.npz"


YOLO = as_folder("0 0.5 0.5 0.25 0.25\n", "labels/val/1.txt", "labels/val/2.txt")
DOTA = as_folder("imagesource:GoogleEarth\ngsd:0.1\n0 0 9 0 9 9 0 9 plane 0\n", "1.txt")
LABELME = as_folder('{"version": "5.0", "flags": {}, "shapes": []}', "1.json")
DETECTOR = "results of a detector are the results.pkl"
ANNOTATIONS = "ground truth is a COCO annotation file"
CLASSIFIER = "evaluate_classification(scores, labels)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (mmseg, "found semantic segmentation of mmseg ('pred_sem_seg'); evaluate segmentation with MeanIoU"),
        (
            mmpose,
            "found key points of mmpose, from which boxes (iou_type='bbox') cannot be read; use iou_type='keypoints'",
        ),
        (
            lambda folder: mmdet(folder, masks=torch.ones(1, 4, 4, dtype=torch.bool), labels=torch.zeros(1)),
            "found masks without boxes, from which boxes (iou_type='bbox') cannot be read; use iou_type='segm'",
        ),
        (as_pickle(SAMPLES), "found results of mmpretrain; evaluate_classification and mm-metrics classification read"),
        (
            as_pickle([BOXES]),
            "found detections of torchvision ('boxes', 'scores', 'labels'); they do not name their im",
        ),
        (as_pickle({1: BOXES}), "found a dict of detections by image id; give COCO results: one dict per box"),
        (as_pickle([np.zeros((4, 4), np.int64)]), "found a list of segmentation maps; evaluate segmentation with Mean"),
        (as_pickle([np.zeros(4, np.float32)]), f"found a list of scores without labels; {DETECTOR}"),
        (as_pickle([{"boxes": [], "label": 3}]), f"found a list of dict with 'boxes', 'label'; {DETECTOR}"),
        (as_pickle({"meta": {}, "state_dict": {}}), "found a checkpoint ('state_dict'); test it first"),
        (
            as_json([{**ROW, "segmentation": RLE}]),
            "found COCO masks without boxes, from which boxes (iou_type='bbox') cannot be read; use iou_type='segm'",
        ),
        (as_json([{**ROW, "keypoints": [0.0] * 51}]), "found COCO key points without boxes, from which boxes"),
        (as_json(TRUTH), f"found COCO annotations; {DETECTOR}"),
        (
            as_json({**TRUTH, "annotations": [{**row, "score": 0.9} for row in TRUTH["annotations"]]}),
            "found COCO annotations with scores; COCO results are only their list 'annotations'",
        ),
        (as_json(TRUTH["annotations"]), "found the list of COCO annotations ('bbox' without 'score'); ground truth is"),
        (
            as_json([{"bboxes": [], "scores": [], "labels": []}]),
            "found detections of DetInferencer ('bboxes', 'sco",
        ),
        (
            as_bytes("rows.jsonl", b'{"image_id": 1}\n{"image_id": 2}\n'),
            "found JSON Lines; write the objects as one",
        ),
        (as_bytes("results.pkl.gz", gzip.compress(b"x")), "found a compressed file; decompress it first"),
        (as_bytes("results.pkl", b"image_id,score\n1,0.5\n"), "found a text file, at byte 0 (expected a pickle)"),
        (as_bytes("1.png", b"\x89PNG\r\n\x1a\n"), f"found an image; {DETECTOR}"),
        (as_bytes("results.parquet", b"PAR1\x15\x04"), f"found a Parquet file; {DETECTOR}"),
        (torch_file, f"found a zip archive, as torch.save writes; {DETECTOR}"),
        (csv_file, f"found a CSV file; {DETECTOR}"),
        (npz_file, f"found a file of NumPy arrays; {DETECTOR}"),
        (saved_state, "found a state that save_state wrote; merge_states and mm-metrics merge read it"),
        (YOLO, f"found a folder of YOLO label files; {DETECTOR}"),
        (as_folder("", "1.xml"), f"found a folder of VOC annotations; {DETECTOR}"),
        (lambda _: pandas.DataFrame(COCO_ROWS), f"results: found an object of type pandas.DataFrame; {DETECTOR}"),
        (lambda _: (1.0, 2.0), f"results: found a tuple of float; {DETECTOR}"),
        (lambda _: [torch.zeros(2, 6)], f"results: found a list of torch.Tensor; {DETECTOR}"),
        (lambda _: torch.zeros(2, 6), f"results: found an array of shape (2, 6); {DETECTOR}"),
        (lambda _: b"{}", f"results: found an object of type bytes; {DETECTOR}"),
    ],
)
def test_what_cannot_be_read_as_results_of_a_detector(make, message, tmp_path):
    given = make(tmp_path)
    with pytest.raises(ResultFileError) as caught:
        evaluate_detection(TRUTH, given)
    assert message in str(caught.value)
    if not isinstance(given, tuple) and "mmpretrain" not in message:  # a pair of arrays is a classifier
        with pytest.raises(ResultFileError) as caught:
            compare_runs(TRUTH, [RESULTS, given])
        assert message.replace("results: found", "run 2: found") in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (YOLO, f"made: found a folder of YOLO label files; {ANNOTATIONS}"),
        (
            DOTA,
            "made: found a folder of DOTA annotations, from which boxes (iou_type='bbox') cannot be read; use iou_t",
        ),
        (LABELME, f"made: found a folder of LabelMe files; {ANNOTATIONS}"),
        (as_folder("{}", "annotations/instances_val.json"), "made: found a folder of JSON files; give a file, not the"),
        (as_folder("", "train/1.jpg"), f"made: found a folder of images; {ANNOTATIONS}"),
        (csv_file, f"rows.csv: found a CSV file; {ANNOTATIONS}"),
        (as_bytes("1.xml", b"<annotation/>"), "1.xml: found a single XML file; of VOC annotations, give the folder"),
        (as_bytes("data.yaml", b"path: x"), f"data.yaml: found a YAML file; {ANNOTATIONS}"),
        (mmseg, "results.pkl: found semantic segmentation of mmseg ('pred_sem_seg'); evaluate segmentation"),
        (as_pickle(RESULTS), f"results.pkl: found results of mmdet; {ANNOTATIONS}"),
        (as_pickle(SAMPLES), "results.pkl: found results of mmpretrain; evaluate_classification and mm-metrics cla"),
        (as_pickle([{"filename": "a.jpg", "ann": {}}]), "found annotations in the middle format of mmdet"),
        (as_json({"metainfo": {}, "data_list": []}), "found annotations of a dataset of OpenMMLab ('metainfo', 'data"),
        (as_json({"images": [], "annotations": []}), "found part of COCO annotations; 'images', 'annotations' and 'c"),
        (
            as_json({**TRUTH, "annotations": [{"image_id": 1, "segments_info": []}]}),
            "found COCO panoptic annotations ('segments_info'); panoptic quality is not computed",
        ),
        (as_json(COCO_ROWS), f"results.json: found COCO results; {ANNOTATIONS}"),
        (as_json({"type": "FeatureCollection", "features": []}), "found a dict with 'type', 'features'; ground truth"),
        (lambda _: pandas.DataFrame(TRUTH["annotations"]), "ground_truth: found an object of type pandas.DataFrame"),
        (lambda _: TRUTH["annotations"], "ground_truth: found the list of COCO annotations ('bbox' without 'score')"),
    ],
)
def test_what_cannot_be_read_as_ground_truth(make, message, tmp_path):
    with pytest.raises(ResultFileError) as caught:
        evaluate_detection(make(tmp_path), RESULTS)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (mmseg, "found semantic segmentation of mmseg"),
        (csv_file, "rows.csv: found a CSV file; results of a classifier are the results.pkl of mmpretrain's"),
        (npz_file, CLASSIFIER),
        (YOLO, "found a folder of YOLO label files; results of a classifier"),
        (as_pickle(RESULTS), "found results of mmdet; evaluate_detection and mm-metrics detection read them"),
        (as_json(TRUTH), "found COCO annotations; evaluate_detection and mm-metrics detection read them"),
        (as_pickle({"class_scores": [], "pred_label": []}), "found results of mmcls 0.x ('class_scores'); results of"),
        (as_pickle([np.zeros(4, np.float32)]), "found a list of scores without labels; results of a classifier are"),
        (lambda _: pandas.DataFrame(SCORES), "results: found an object of type pandas.DataFrame; results of a clas"),
        (lambda _: SCORES, "results: found an array of shape (3, 2); results of a classifier are"),
    ],
)
def test_what_cannot_be_read_as_results_of_a_classifier(make, message, tmp_path):
    with pytest.raises(ResultFileError) as caught:
        evaluate_classification(make(tmp_path))
    assert message in str(caught.value)


def numbers(report):
    return {name: value for name, value in report.to_dict().items() if name not in ("inputs", "settings")}


def test_objects_with_one_meaning_are_read_as_detections(tmp_path):
    expected = numbers(evaluate_detection(TRUTH, RESULTS))
    with contextlib.redirect_stdout(io.StringIO()):
        annotations = COCO(str(files.write_json(tmp_path / "truth.json", TRUTH)))
    samples = [
        DetDataSample(
            metainfo={"img_id": image["img_id"]},
            pred_instances=InstanceData(
                **{
                    name: torch.from_numpy(value).requires_grad_(name == "scores")
                    for name, value in image["pred_instances"].items()
                }
            ),
        )
        for image in RESULTS
    ]
    lists = [
        {**image, "pred_instances": {name: value.tolist() for name, value in image["pred_instances"].items()}}
        for image in RESULTS
    ]
    for results in (samples, tuple(RESULTS), files.write_json(tmp_path / "results.json", lists), json.dumps(lists)):
        assert numbers(evaluate_detection(TRUTH, results)) == expected
    for truth in (json.dumps(TRUTH), annotations, files.write_pickle(tmp_path / "truth.pkl", TRUTH)):
        assert numbers(evaluate_detection(truth, RESULTS)) == expected
    by_rows = numbers(evaluate_detection(TRUTH, COCO_ROWS))
    for results in (json.dumps(COCO_ROWS), files.write_pickle(tmp_path / "rows.pkl", COCO_ROWS)):
        assert numbers(evaluate_detection(TRUTH, results)) == by_rows


def test_no_detections():
    with pytest.warns(UndefinedMetricWarning, match="there are no detections"):
        report = evaluate_detection(TRUTH, [])
    assert report.counts["detections"]["read"] == 0
    assert report.matching_rules[0].columns["fn"].sum() == len(MADE.gt_labels) - MADE.gt_crowd.sum()
    with pytest.raises(ResultFileError, match="contains no ground truth"):
        evaluate_detection(None, [])


@pytest.mark.filterwarnings("ignore:all of .* ground truths are ignored")
@pytest.mark.parametrize(
    "flag", [1, True, np.int64(1), np.array(True), np.array([1]), torch.tensor(1), torch.tensor([True]), 1.0]
)
def test_crowd_flags(flag):
    def crowds(value):
        annotations = [{**row, "iscrowd": value} for row in TRUTH["annotations"]]
        counts = evaluate_detection({**TRUTH, "annotations": annotations}, RESULTS).matching_rules[0].counts
        return counts["ground_truths_ignored"]

    assert crowds(flag) == crowds(1) != crowds(0) == crowds(None)
    for wrong in ("0", 2, -1, 0.5, float("nan"), [0], np.array([0, 1]), torch.zeros(2), {}):
        with pytest.raises(ResultFileError, match="'iscrowd' of annotation number 0 must be 0 or 1"):
            crowds(wrong)


def test_scores_and_labels_as_two_arguments():
    expected = numbers(evaluate_classification((SCORES, LABELS)))
    for scores, labels in (
        (SCORES, LABELS),
        (SCORES.tolist(), LABELS.tolist()),
        (torch.tensor(SCORES, requires_grad=True), torch.tensor(LABELS)[:, None]),
        ([torch.tensor(row, requires_grad=True) for row in SCORES], [torch.tensor(label) for label in LABELS]),
        (pandas.DataFrame(SCORES), pandas.Series(LABELS)),
    ):
        assert numbers(evaluate_classification(scores, labels)) == expected
    targets = np.eye(2)[LABELS]
    assert numbers(evaluate_classification(SCORES, targets)) == numbers(evaluate_classification((SCORES, targets)))


@pytest.mark.parametrize("labels", [LABELS, LABELS.astype(bool), LABELS.astype(float), LABELS[:, None]])
def test_one_score_per_sample_is_that_of_class_1(labels):
    scores = SCORES[:, 1].astype(np.float32)
    expected = numbers(evaluate_classification(scores[:, None], LABELS[:, None], classes=["1"], score_thr=0.6))
    for given in (scores, torch.from_numpy(scores)[:, None].requires_grad_()):
        report = evaluate_classification(given, labels, score_thr=0.6)
        assert numbers(report) == expected
        assert (report.settings.task, report.classes) == ("multi-label", ("1",))
        assert report.settings.task_reason == "one score per sample, of class 1"
    # 0.6 is reached by the score 0.6 in single precision.
    assert report.columns["tp"].tolist() == [1] and report.columns["fn"].tolist() == [1]
    assert compare_runs(None, [(scores, labels), (1 - scores, labels)], permutations=10).classes == ("1",)
    with pytest.raises(ResultFileError, match="scores of 1 class for 2 class names"):
        evaluate_classification(scores, labels, classes=["no", "yes"])


def test_one_score_per_sample_in_a_file(tmp_path):
    samples = [{"pred_score": np.float32([score]), "gt_label": np.array([1])} for score in (0.1, 0.9)]
    with pytest.raises(ResultFileError, match="must be 0, the only class that has a score"):
        evaluate_classification(files.write_pickle(tmp_path / "results.pkl", samples))


def test_classification_results_in_json(tmp_path):
    samples = [{key: value.tolist() for key, value in sample.items()} for sample in SAMPLES]
    path = files.write_json(tmp_path / "results.json", samples)
    double = [{**sample, "pred_score": sample["pred_score"].astype(float)} for sample in SAMPLES]
    assert numbers(evaluate_classification(path)) == numbers(evaluate_classification(double))
