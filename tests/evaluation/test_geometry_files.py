"""Masks, rotated boxes and key points from files: the numbers of pycocotools, in every format."""

from __future__ import annotations

import copy
import json
import pickle
import sys
import tracemalloc
import types

import numpy as np
import pytest
import torch
from mmdet.structures.bbox import HorizontalBoxes
from mmdet.structures.mask import BitmapMasks, PolygonMasks

from mm_metrics_plugin import DetectionEvaluator, compare_runs, evaluate_detection, merge_states
from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError
from mm_metrics_plugin.io import readers
from mm_metrics_plugin.io.safe_pickle import loads
from tests.evaluation.test_shards import torchrun
from tests.helpers import geometry_problems as problems
from tests.helpers import result_files as files
from tests.helpers.detection_problems import undefined_as_nan

pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.MetricWarning")


def numbers(report):
    """The values of a report without its inputs."""
    return {name: value for name, value in report.to_dict().items() if name not in ("inputs", "settings")}


def of_json(report):
    return {name: value for name, value in report.items() if name not in ("inputs", "settings")}


def mask_files(seed, **options):
    """COCO's dicts of masks; ground truths also have boxes."""
    batch, num_classes = problems.mask_batch(seed, **options)
    truth, results = problems.coco_of(batch, num_classes, problems.segmentations)
    for image in truth["images"]:
        image.setdefault("height", 9)
        image.setdefault("width", 9)
    return truth, results


def in_samples(truth, results, fields):
    """COCO results as mmdet 3 writes them; ``fields(rows)`` are those of the instances of an image."""
    samples = []
    for image in truth["images"]:
        rows = [row for row in results if row["image_id"] == image["id"]]
        columns = {
            "scores": torch.tensor([row["score"] for row in rows], dtype=torch.float64),
            "labels": torch.tensor([row["category_id"] for row in rows], dtype=torch.int64),
        }
        samples.append({"img_id": image["id"], "pred_instances": {**columns, **fields(rows)}})
    return samples


def rles(rows):
    return [{**row["segmentation"], "counts": row["segmentation"]["counts"].encode()} for row in rows]


def mask_samples(truth, results):
    return in_samples(truth, results, lambda rows: {"bboxes": torch.zeros(len(rows), 4), "masks": rles(rows)})


def mask_lists(truth, results, *, scores=False):
    """Tuples of mmdet 2: boxes and masks of each class; of Mask Scoring R-CNN also the scores of the masks."""
    content = []
    for image in truth["images"]:
        rows = [row for row in results if row["image_id"] == image["id"]]
        by_class = [[row for row in rows if row["category_id"] == one["id"]] for one in truth["categories"]]
        box = [0.0, 0.0, 5.0, 5.0]
        boxes = [
            np.array([[*box, 0.5 if scores else row["score"]] for row in part]).reshape(-1, 5) for part in by_class
        ]
        masks = [rles(part) for part in by_class]
        content.append((boxes, (masks, [[row["score"] for row in part] for part in by_class]) if scores else masks))
    return content


@pytest.mark.parametrize("seed", range(4))
def test_masks_of_every_format_have_the_numbers_of_pycocotools(seed, tmp_path):
    truth, results = mask_files(seed, ties=False)
    expected = problems.evaluated(copy.deepcopy(truth), copy.deepcopy(results), "segm")
    truth_file = files.write_json(tmp_path / "truth.json", truth)
    formats = {
        "results.json": files.write_json(tmp_path / "results.json", results),
        "results.pkl": files.write_pickle(tmp_path / "results.pkl", mask_samples(truth, results)),
        "lists.pkl": files.write_pickle(tmp_path / "lists.pkl", mask_lists(truth, results)),
        "scored.pkl": files.write_pickle(tmp_path / "scored.pkl", mask_lists(truth, results, scores=True)),
    }
    reports = [files.report_of("detection", truth_file, path, "--iou-type", "segm") for path in formats.values()]
    ap = evaluate_detection(truth_file, formats["results.json"], iou_type="segm").analysis.average_precision.to_dict()
    assert ap["mAP"] == pytest.approx(reports[0]["average_precision"]["mAP"] or np.nan, nan_ok=True)
    actual = list(ap.values())
    np.testing.assert_allclose(actual, undefined_as_nan(expected.stats), rtol=0, atol=1e-10)
    for report in reports[1:]:
        assert of_json(report) == of_json(reports[0])
    boundary = evaluate_detection(truth, results, iou_type="boundary")
    assert boundary.settings.iou_type == "boundary" and boundary.settings.matching == ("coco", "agnostic")


def test_polygons_and_lists_of_run_lengths_are_ground_truth(tmp_path):
    truth, results = mask_files(3)
    polygon = [[1.0, 1.0, 7.0, 1.5, 6.0, 8.0]]
    for row in truth["annotations"]:
        counts = row["segmentation"]
        height, width = counts["size"]
        row["segmentation"] = polygon if row["id"] % 2 else {"size": [height, width], "counts": [3, height * width - 3]}
    expected = problems.evaluated(copy.deepcopy(truth), copy.deepcopy(results), "segm")
    report = evaluate_detection(truth, results, iou_type="segm")
    actual = list(report.analysis.average_precision.to_dict().values())
    np.testing.assert_allclose(actual, undefined_as_nan(expected.stats), rtol=0, atol=1e-10)


def keypoint_files(seed, **options):
    batch = problems.keypoint_batch(seed, **options)
    truth, results = problems.coco_of(batch, 1, problems.keypoint_fields)
    for image in truth["images"]:
        image.update(height=300, width=300)
    for row in (*truth["annotations"], *results):
        row["category_id"] = 1
    category = {"id": 1, "name": "person", "keypoints": ["k"] * 17, "skeleton": [[1, 2], [2, 3]]}
    return {**truth, "categories": [category]}, results


def persons(results):
    """COCO results as mmpose writes them, one sample per person; images repeat."""
    samples = []
    for number, row in enumerate(results):
        points = np.reshape(row["keypoints"], (1, -1, 3))
        fields = {"keypoints": points[..., :2], "keypoint_scores": np.full(points.shape[:2], 0.5)}
        gt = {"bbox_scores": np.array([row["score"]]), "bboxes": torch.zeros(1, 4)}
        meta = {"id": number, "img_id": row["image_id"], "img_path": f"{row['image_id']}.jpg", "ori_shape": (300, 300)}
        samples.append({**meta, "category_id": 1, "pred_instances": fields, "gt_instances": gt})
    return samples


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_key_points_of_every_format_have_the_numbers_of_pycocotools(seed, tmp_path):
    truth, results = keypoint_files(seed)
    expected = problems.evaluated(copy.deepcopy(truth), copy.deepcopy(results), "keypoints")
    paths = (
        files.write_json(tmp_path / "truth.json", truth),
        files.write_json(tmp_path / "results.json", results),
        files.write_pickle(tmp_path / "results.pkl", [*persons(results), *persons(results[:1])]),  # padding
    )
    report = files.report_of("detection", *paths[:2], "--iou-type", "keypoints")
    assert report["settings"]["max_dets"] == 20
    ap = evaluate_detection(*paths[:2], iou_type="keypoints").analysis.average_precision.to_dict()
    names = ("mAP", "mAP_50", "mAP_75", "mAP_m", "mAP_l")
    actual = [ap[name] for name in names]
    np.testing.assert_allclose(actual, undefined_as_nan(expected.stats[:5]), rtol=0, atol=1e-10)
    options = ("--iou-type", "keypoints", "--score-mode", "bbox", "--nms-iou-thr", "1")
    of_mmpose = files.report_of("detection", paths[0], paths[2], *options)
    assert of_mmpose["counts"]["detections"]["dropped"].pop("repeated sample") == 1
    of_mmpose["counts"]["detections"]["read"] -= 1
    assert of_json(of_mmpose)["average_precision"] == report["average_precision"]
    assert of_mmpose["counts"] == report["counts"]


def test_mmpose_scores_nms_and_ground_truth_inside(tmp_path):
    truth, results = keypoint_files(2)
    samples = persons([*results, *results])  # every person twice
    suppressed = evaluate_detection(truth, samples, iou_type="keypoints").counts["detections"]["dropped"]
    assert suppressed["removed by OKS-NMS"] >= len(results)
    by_box = evaluate_detection(truth, samples, iou_type="keypoints", score_mode="bbox", nms_iou_thr=1)
    assert "removed by OKS-NMS" not in by_box.counts["detections"]["dropped"]
    rows = {image["id"]: [] for image in truth["images"]}
    for row in truth["annotations"]:
        rows[row["image_id"]].append(row)
    inside = [{**sample, "raw_ann_info": rows[sample["img_id"]]} for sample in samples]
    report = evaluate_detection(None, inside, iou_type="keypoints", classes=["person"])
    seen = {sample["img_id"] for sample in samples}
    assert report.counts["ground_truths"]["read"] == sum(len(rows[image]) for image in seen)
    with pytest.raises(ResultFileError, match=r"results: score_mode=... requires key points of mmpose .found COCO"):
        evaluate_detection(truth, results, iou_type="keypoints", score_mode="bbox")


def test_key_points_without_area_and_with_other_joints():
    truth, results = keypoint_files(5)
    for row in truth["annotations"]:
        row["area"] = 0.53 * row["bbox"][2] * row["bbox"][3]
    expected = numbers(evaluate_detection(truth, results, iou_type="keypoints"))
    for row in truth["annotations"]:
        del row["area"]
    with pytest.warns(MetricWarning, match="have no 'area'; 0.53 x the area of the box is used, as in xtcocotools"):
        assert numbers(evaluate_detection(truth, results, iou_type="keypoints")) == expected
    for row in (*truth["annotations"], *results):
        row["keypoints"] = row["keypoints"][:9]
    with pytest.raises(ResultFileError, match="need their sigmas"):
        evaluate_detection(truth, results, iou_type="keypoints")
    report = evaluate_detection(truth, results, iou_type="keypoints", sigmas=(0.1, 0.1, 0.1))
    assert report.settings.sigmas == (0.1, 0.1, 0.1)
    for row in truth["annotations"]:
        row["num_keypoints"] = 0
    ignored = evaluate_detection(truth, results, iou_type="keypoints", sigmas=(0.1, 0.1, 0.1))
    assert ignored.matching_rules[0].counts["ground_truths_ignored"] == len(truth["annotations"])


def dota_folder(place, batch):
    """Ground truths as DOTA's text files, with the two lines about the image."""
    place.mkdir()
    corners = batch.ground_truths.geometry.corners().reshape(-1, 8).tolist()
    for image in range(batch.num_images):
        lines = ["imagesource:GoogleEarth", "gsd:0.1"]
        for row in np.flatnonzero(batch.ground_truths.image == image):
            numbers_of_row = " ".join(map(repr, corners[row]))
            lines.append(f"{numbers_of_row} class{batch.ground_truths.labels[row]} 0")
        (place / f"P{image}.txt").write_text("\n".join(lines))
    return place


def rotated_samples(batch, boxes):
    dets = batch.detections
    samples = []
    for image in range(batch.num_images):
        rows = np.flatnonzero(dets.image == image)
        fields = {"bboxes": torch.from_numpy(boxes[rows]), "scores": torch.from_numpy(dets.scores[rows])}
        samples.append({"img_id": f"P{image}", "pred_instances": {**fields, "labels": dets.labels[rows]}})
    return samples


def test_rotated_boxes_of_every_format(tmp_path):
    batch, num_classes = problems.rotated_batch(4)
    batch.ground_truths.crowd[:] = False
    batch.detections.scores[:] = np.random.default_rng(0).permutation(len(batch.detections)) / 64
    classes = [f"class{label}" for label in range(num_classes)]
    evaluator = DetectionEvaluator(classes, iou_type="rbox", matching=("coco", "agnostic"))
    evaluator.update(batch)
    expected = evaluator.compute().analysis.average_precision.to_dict()
    folder, dets = dota_folder(tmp_path / "labelTxt", batch), batch.detections
    names, order = tmp_path / "classes.txt", tmp_path / "test.txt"
    names.write_text("\n".join(classes))
    order.write_text("\n".join(f"P{image}" for image in range(batch.num_images)))
    five = dets.geometry.array
    old = []
    for image in range(batch.num_images):
        rows = dets.image == image
        scored = np.column_stack([five, dets.scores])
        old.append([scored[rows & (dets.labels == label)] for label in range(num_classes)])
    quads = dets.geometry.corners().reshape(-1, 8)
    for number, content in enumerate((rotated_samples(batch, five), rotated_samples(batch, quads), old)):
        path = files.write_pickle(tmp_path / f"{number}.pkl", content)
        options = ["--iou-type", "rbox", "--classes", names, "--image-set", order]
        actual = files.report_of("detection", folder, path, *options)["average_precision"]
        for name, value in expected.items():
            assert (np.nan if actual[name] is None else actual[name]) == pytest.approx(value, abs=1e-9, nan_ok=True)
    with pytest.warns(MetricWarning, match=r"in alphabetical order .*give the order of the model with classes=\[...\]"):
        report = evaluate_detection(folder, rotated_samples(batch, five), iou_type="rbox")
    assert report.classes == tuple(sorted({f"class{label}" for label in batch.ground_truths.labels}))
    (folder / "P0.txt").write_text("0 0 9 9 9 0 0 9 class0 0\n0 0 9 0 3 3 0 9 class0 0\n0 0 9 0 9 9 0 9 class0 0\n")
    with pytest.warns(MetricWarning, match="2 quadrilaterals not convex, first in image 'P0'; the convex hull is used"):
        evaluate_detection(folder, rotated_samples(batch, five), iou_type="rbox", classes=classes)
    (folder / "P0.txt").write_text("1 2 3 4 5 6 7 ship 0\n")
    with pytest.raises(ResultFileError, match=r"P0.txt: line 1 must be eight coordinates, a class and a difficulty"):
        evaluate_detection(folder, rotated_samples(batch, five), iou_type="rbox", classes=classes)


def test_difficult_objects_of_dota_are_ignored(tmp_path):
    batch, num_classes = problems.rotated_batch(4)
    folder = dota_folder(tmp_path / "labels", batch)
    for path in folder.iterdir():
        path.write_text(path.read_text().replace(" 0\n", " 1\n"))
    classes = [f"class{label}" for label in range(num_classes)]
    report = evaluate_detection(
        folder, rotated_samples(batch, batch.detections.geometry.array), iou_type="rbox", classes=classes
    )
    assert report.matching_rules[0].counts["ground_truths_ignored"] > 0


def test_boxes_and_masks_from_one_reading_of_each_file(tmp_path, monkeypatch):
    truth, results = mask_files(3)
    for row in results:
        row["bbox"] = [1.0, 2.0, 20.0, 10.0]
    paths = files.write_json(tmp_path / "truth.json", truth), files.write_json(tmp_path / "results.json", results)
    read = []
    original = readers.read_json
    monkeypatch.setattr(readers, "read_json", lambda path: (read.append(path), original(path))[1])
    both = evaluate_detection(*paths, iou_type=("bbox", "segm"), save_state=tmp_path / "both.npz")
    assert len(read) == 2 and list(both.reports) == ["bbox", "segm"]
    assert both.reports["bbox"].settings.matching == ("coco", "mmdet")
    for iou_type, report in both.reports.items():
        assert numbers(report) == numbers(evaluate_detection(*paths, iou_type=iou_type))
        assert "not_evaluated" not in report.inputs["results"]
    assert evaluate_detection(*paths).inputs["results"]["not_evaluated"] == ["masks"]
    merged = merge_states([tmp_path / "both.npz"])
    assert merged.to_dict() == both.to_dict()
    printed = json.loads(files.printed("detection", *paths, "--iou-type", "bbox,segm", "--format", "json"))
    assert printed["iou_types"]["segm"]["average_precision"] == both.reports["segm"].to_dict()["average_precision"]
    with pytest.raises(ResultFileError, match=r"iou_type=... must be one or several distinct types"):
        evaluate_detection(*paths, iou_type=("segm", "segm"))
    with pytest.raises(ResultFileError, match="states of different IoU types cannot be merged"):
        evaluate_detection(*paths, iou_type="segm", save_state=tmp_path / "one.npz")
        merge_states([tmp_path / "both.npz", tmp_path / "one.npz"])


def test_shards_and_processes_give_the_report_of_one_file(tmp_path):
    truth, results = mask_files(8)
    for row in truth["annotations"]:
        row["bbox"] = [1.0, 1.0, 5.0, 5.0]
    samples = mask_samples(truth, results)
    truth_file = files.write_json(tmp_path / "truth.json", truth)
    whole = files.write_pickle(tmp_path / "whole.pkl", samples)
    parts = [files.write_pickle(tmp_path / f"{n}.pkl", samples[n::2]) for n in (0, 1)]
    options = ("--iou-type", "bbox,segm")
    expected = evaluate_detection(truth_file, whole, iou_type=("bbox", "segm"))
    for number, part in enumerate(parts):
        files.printed("detection", truth_file, part, *options, "--save-state", tmp_path / f"{number}.npz")
    merged = merge_states([tmp_path / "1.npz", tmp_path / "0.npz"])
    several = evaluate_detection(truth_file, parts, iou_type=("bbox", "segm"))
    code, out, error = torchrun(2, "detection", truth_file, *parts, *options, "--format", "json", cwd=tmp_path)
    assert code == 0, error
    for iou_type, report in expected.reports.items():
        for other in (merged.reports[iou_type], several.reports[iou_type]):
            assert numbers(other) == numbers(report)
        assert of_json(json.loads(out)["iou_types"][iou_type]) == numbers(report)


@pytest.mark.parametrize("iou_type", ["segm", "keypoints"])
def test_runs_are_compared_by_their_shapes(iou_type, tmp_path):
    truth, results = mask_files(8) if iou_type == "segm" else keypoint_files(2)
    worse = [{**row, "score": row["score"] / 2 if row["image_id"] else row["score"]} for row in results[::2]]
    report = compare_runs(truth, [results, worse], iou_type=iou_type, permutations=50)
    assert report.settings.detection.iou_type == iou_type
    expected = evaluate_detection(truth, results, iou_type=iou_type).analysis.average_precision.to_dict()["mAP"]
    rows = {row.metric: row.first for row in report.comparisons[0].rows(report.classes) if row.class_name is None}
    assert rows["mAP"] == pytest.approx(expected, nan_ok=True)
    paths = [files.write_json(tmp_path / f"{n}.json", content) for n, content in enumerate((truth, results, worse))]
    assert "mAP" in files.printed("compare", *paths, "--iou-type", iou_type, "--permutations", "50")


def changed(content, index, **fields):
    content = copy.deepcopy(content)
    content[index].update(fields)
    return content


RLE = {"size": [9, 9], "counts": [81]}
ONE = {
    "images": [{"id": 7, "height": 9, "width": 9}],
    "categories": [{"id": 1, "name": "cat"}],
    "annotations": [
        {
            "id": 1,
            "image_id": 7,
            "category_id": 1,
            "bbox": [0, 0, 4, 4],
            "segmentation": RLE,
            "keypoints": [1, 1, 2] * 17,
            "area": 9,
        }
    ],
}
FOUND = {"image_id": 7, "category_id": 1, "score": 0.5, "segmentation": RLE, "keypoints": [1, 1, 2] * 17}


@pytest.mark.parametrize(
    ("iou_type", "annotation", "detection", "message"),
    [
        (
            "segm",
            {"segmentation": [[1, 1, 2, 2]]},
            {},
            "number 0 must have polygons of at least three points.*in image 7",
        ),
        (
            "segm",
            {"segmentation": {"size": [8, 9], "counts": [72]}},
            {},
            r"'segmentation' of annotation number 0 must have the size \[9, 9\].*in image 7",
        ),
        (
            "segm",
            {},
            {"segmentation": {"size": [8, 9], "counts": [72]}},
            "'masks' of image 7 must have one size .*8 x 9",
        ),
        (
            "segm",
            {},
            {"segmentation": {"size": [9, 9], "counts": "!"}},
            "'segmentation' of detection number 0 must have 'counts' in COCO's",
        ),
        (
            "segm",
            {},
            {"segmentation": {"size": [9, 9], "counts": "04"}},
            "detection number 0 must have run lengths .* = 81",
        ),
        ("segm", {}, {"segmentation": {"size": [1 << 21, 1 << 20], "counts": [1 << 41]}}, "1 to 4294967295 pixels"),
        (
            "segm",
            {},
            {"segmentation": {"size": [9, 9], "counts": "o" * 5000}},
            "detection number 0 must have 'counts' in",
        ),
        (
            "segm",
            {},
            {"segmentation": {"size": [9, 9], "counts": [[1, 2], [3]]}},
            r"number 0 must have 'counts' that are a string or a list of whole numbers .*3.*in image",
        ),
        ("segm", {}, {"segmentation": {"size": [9, 9], "counts": [1 << 40, 81]}}, "number 0 must have run lengths"),
        ("segm", {}, {"segmentation": {"size": [9, 9]}}, "number 0 must be a COCO RLE with 'size' and 'counts'"),
        ("segm", {}, {"segmentation": None}, "no detection has 'segmentation', which iou_type='segm' needs"),
        ("segm", {"segmentation": None}, {}, "no annotation has 'segmentation', which iou_type='segm' needs"),
        (
            "rbox",
            {"bbox": [5, 5, -1, 2, 0]},
            {"bbox": [5, 5, 1, 2, 0]},
            "ground-truth boxes' of image 7 must have sides",
        ),
        (
            "rbox",
            {"bbox": [5, 5, 1, 2, 0]},
            {"bbox": [5, 5, 1, 2, float("nan")]},
            "'bbox' of detection number 0 must be 5",
        ),
        ("keypoints", {}, {"keypoints": [1, 1, 2] * 16}, r"need their sigmas.*found 16 key points"),
        (
            "keypoints",
            {"keypoints": [1, 1]},
            {},
            "'keypoints' of annotation number 0 must be x, y and visib.*in image 7",
        ),
        (
            "keypoints",
            {},
            {"keypoints": [1, 1, float("inf")] * 17},
            "'keypoints' of detection number 0 must be 51 finite",
        ),
    ],
)
def test_invalid_shapes_are_named_in_one_sentence(iou_type, annotation, detection, message):
    truth = {**ONE, "annotations": changed(ONE["annotations"], 0, **annotation)}
    with pytest.raises(ResultFileError, match=message) as caught:
        evaluate_detection(truth, changed([FOUND], 0, **detection), iou_type=iou_type)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_rotated_samples_that_are_invalid_are_named():
    def sample(*boxes):
        fields = {"scores": np.ones(len(boxes)), "labels": np.zeros(len(boxes), int)}
        return [{"img_id": 7, "pred_instances": {"bboxes": np.array(boxes), **fields}}]

    truth = {**ONE, "annotations": changed(ONE["annotations"], 0, bbox=[5, 5, 1, 2, 0])}
    for box, message in (
        ([1.0, 1, 2, -3, 0], "'boxes' of image 7 must have sides"),
        ([1.0, 1, 2, 3, np.nan], "finite"),
    ):
        with pytest.raises(ResultFileError, match=message):
            evaluate_detection(truth, sample([5.0, 5, 1, 1, 0], box), iou_type="rbox")
    with pytest.raises(ResultFileError, match="sigmas"):
        evaluate_detection(ONE, [FOUND], iou_type="keypoints", sigmas=(0.1, 0.2))


def two_images():
    """Ground truth of images 7 and 8 with an object each."""
    images = [{**ONE["images"][0], "id": number} for number in (7, 8)]
    annotations = [{**ONE["annotations"][0], "id": number, "image_id": number} for number in (7, 8)]
    return {**ONE, "images": images, "annotations": annotations}


FULL = {"size": [9, 9], "counts": [0, 81]}
BOX = np.array([[0.0, 0, 9, 9, 0.5]])


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (([BOX], [[FULL, FULL]]), "class 0 of image number 1 must have one mask per box, 1 .found 2"),
        (([BOX], []), "the masks of image number 1 must be 1 list, one per class .found 0"),
        (([BOX], None), "the masks of image number 1 must be 1 list, one per class .found NoneType"),
        (([BOX], [[{"size": [9, 9], "counts": b"!"}]]), "mask 0 of image 1 must have 'counts' in COCO's"),
        ([BOX], "image number 1 has no masks"),
    ],
)
def test_invalid_masks_of_mmdet_2_are_named(image, message):
    with pytest.raises(ResultFileError, match=message):
        evaluate_detection(two_images(), [([BOX], [[FULL]]), image], iou_type="segm")


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[0.5, 0.5]], "class 0 of image number 1 must have one mask score per box, 1 .found 2"),
        ([], "the mask scores of image number 1 must be 1 list"),
        ([["a"]], "'mask scores' of class 0 of image number 1 must be an array of numbers"),
    ],
)
def test_invalid_mask_scores_of_mmdet_2_are_named(scores, message):
    with pytest.raises(ResultFileError, match=message):
        evaluate_detection(two_images(), [([BOX], ([[FULL]], each)) for each in ([[0.5]], scores)], iou_type="segm")


def test_mask_scores_of_another_length_are_named():
    samples = [
        {"img_id": image, "pred_instances": {"masks": [FULL], "scores": [0.5], "labels": [0], "mask_scores": scores}}
        for image, scores in ((7, [0.5]), (8, [0.5, 0.5]))
    ]
    with pytest.raises(ResultFileError, match=r"'pred_instances.mask_scores' of image 8 must have shape \(1,\)"):
        evaluate_detection(two_images(), samples, iou_type="segm")


def test_masks_too_large_for_boundaries_are_named():
    size = [1 << 14, 1 << 14]
    large = {"size": size, "counts": [0, 1 << 28]}
    truth = {**ONE, "images": [{"id": 7, "height": size[0], "width": size[1]}]}
    truth["annotations"] = changed(ONE["annotations"], 0, segmentation=large)
    with pytest.raises(ResultFileError, match=r"'masks' of image 7 must have bounding boxes of at most .* at index 1"):
        evaluate_detection(
            truth,
            [{**FOUND, "segmentation": {"size": size, "counts": [1 << 28]}}, {**FOUND, "segmentation": large}],
            iou_type="boundary",
        )


@pytest.mark.parametrize(
    ("part", "fields", "message"),
    [
        ("pred_instances", {"keypoints": np.ones((17, 2))}, r"'pred_instances.keypoints' of image 8 must have shape"),
        ("pred_instances", {"keypoint_scores": None}, "'pred_instances.keypoint_scores' of image 8 must be an array"),
        (
            "pred_instances",
            {"keypoint_scores": np.full((1, 17), np.nan)},
            "'pred_instances.keypoint_scores' of image 8 must be finite",
        ),
        ("pred_instances", {"bbox_scores": [np.inf]}, "'pred_instances.bbox_scores' of image 8 must be finite"),
        ("gt_instances", {"bbox_scales": [[np.nan, 1]]}, "'gt_instances.bbox_scales' of image 8 must be finite"),
        (
            "gt_instances",
            {"bbox_scales": [["a", "b"]]},
            "'gt_instances.bbox_scales' of image 8 must be an array of num",
        ),
        (None, {"category_id": ["a"]}, "results: 'category_id' of image 8 must be a whole number"),
        (None, {"category_id": {}}, "results: 'category_id' of image 8 must be a whole number"),
    ],
)
def test_invalid_samples_of_mmpose_are_named(part, fields, message):
    samples = persons([{**FOUND, "image_id": image} for image in (7, 8)])
    changed_part = samples[1] if part is None else samples[1][part]
    changed_part.update(fields)
    with pytest.raises(ResultFileError, match=message):
        evaluate_detection(two_images(), samples, iou_type="keypoints")


def test_sigmas_of_other_shapes_than_key_points_are_refused():
    with pytest.raises(ResultFileError, match=r"sigmas=... needs iou_type='keypoints' .found iou_type='segm'"):
        evaluate_detection(ONE, [FOUND], iou_type="segm", sigmas=(0.1,))


def test_detections_without_masks_are_counted():
    truth = {**ONE, "annotations": [*ONE["annotations"], {**ONE["annotations"][0], "id": 2, "segmentation": None}]}
    report = evaluate_detection(truth, [FOUND, {**FOUND, "segmentation": None}], iou_type="segm")
    for kind in ("detections", "ground_truths"):
        assert report.counts[kind] == {"read": 2, "used": 1, "dropped": {"without 'segmentation'": 1}}


def test_masks_without_pycocotools(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    polygon = {**ONE, "annotations": changed(ONE["annotations"], 0, segmentation=[[1, 1, 5, 1, 5, 5]])}
    evaluate_detection(ONE, [FOUND], iou_type="segm")
    with pytest.raises(ResultFileError, match="masks given as polygons need pycocotools: pip install pycocotools"):
        evaluate_detection(polygon, [FOUND], iou_type="segm")


@pytest.mark.parametrize("size", [[1, (1 << 32) - 1], [65535, 65535]])
def test_masks_of_huge_images_take_little_memory(size):
    """A run of a few bytes covers four billion pixels; its outline is that of its box."""
    rle = {"size": size, "counts": [0, size[0] * size[1]]}
    truth = {**ONE, "images": [{"id": 7, "height": size[0], "width": size[1]}]}
    truth["annotations"] = changed(ONE["annotations"], 0, segmentation=rle)
    tracemalloc.start()
    report = evaluate_detection(truth, [{**FOUND, "segmentation": rle}] * 300, iou_type="segm")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 26
    assert report.matching_rules[0].columns["tp"].tolist() == [1]
    assert report.state["examples"].arrays()["shapes_outline_points"].max() == size[1]


def test_masks_of_very_many_runs_take_little_memory():
    """COCO's string has a character for every run; the outline is that of the box."""
    number = 300_000
    rle = {"size": [1, number], "counts": "111" + "0" * (number - 3)}
    truth = {**ONE, "images": [{"id": 7, "height": 1, "width": number}]}
    truth["annotations"] = changed(ONE["annotations"], 0, segmentation=rle)
    tracemalloc.start()
    report = evaluate_detection(truth, [{**FOUND, "segmentation": rle}] * 2, iou_type="segm")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150 * number
    assert report.matching_rules[0].columns["tp"].tolist() == [1]
    assert report.state["examples"].arrays()["shapes_outline_lengths"].max() == 5


def test_files_that_lack_the_shapes_say_which_type_they_hold(tmp_path):
    truth, results = keypoint_files(2)
    with pytest.raises(ResultFileError, match=r"found key points of mmpose, from which boxes \(iou_type='bbox'\)"):
        evaluate_detection(truth, persons(results))
    rows = files.write_json(tmp_path / "rows.json", results), files.write_json(tmp_path / "truth.json", truth)
    with pytest.raises(ResultFileError, match="use iou_type='keypoints'"):
        evaluate_detection(rows[1], rows[0])
    with pytest.raises(ResultFileError, match="image number 0 has no masks, which iou_type='segm' needs"):
        evaluate_detection(ONE, [[np.zeros((1, 5))]], iou_type="segm")


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_boxes_and_masks_of_mmdet_and_mmrotate_are_data(protocol, monkeypatch):
    module = types.ModuleType("mmrotate.structures.bbox.rotated_boxes")

    class RotatedBoxes:
        def __init__(self, tensor):
            self.tensor = tensor

    RotatedBoxes.__module__, RotatedBoxes.__qualname__ = module.__name__, "RotatedBoxes"
    module.RotatedBoxes = RotatedBoxes
    for name in ("mmrotate", "mmrotate.structures", "mmrotate.structures.bbox", module.__name__):
        monkeypatch.setitem(sys.modules, name, module)
    boxes, bitmaps = torch.rand(3, 5), np.random.default_rng(0).random((2, 4, 6)) < 0.5
    polygons = [[np.array([0.0, 0, 3, 0, 3, 3])]]
    content = {
        "rotated": RotatedBoxes(boxes),
        "horizontal": HorizontalBoxes(boxes[:, :4]),
        "bitmaps": BitmapMasks(bitmaps.astype(np.uint8), 4, 6),
        "polygons": PolygonMasks(polygons, 4, 6),
    }
    read = loads(pickle.dumps(content, protocol))
    np.testing.assert_array_equal(read["rotated"], boxes)
    np.testing.assert_array_equal(read["horizontal"], boxes[:, :4])
    np.testing.assert_array_equal(read["bitmaps"]["masks"], bitmaps)
    assert read["polygons"]["width"] == 6 and read["polygons"]["masks"][0][0].tolist() == polygons[0][0].tolist()
    annotated = {"masks": content["polygons"], "labels": np.array([0])}
    sample = {"img_id": 1, "pred_instances": {**annotated, "scores": np.ones(1)}, "gt_instances": annotated}
    for one in (sample, loads(pickle.dumps(sample, protocol))):
        report = evaluate_detection(None, [one], iou_type="segm")
        assert report.analysis.average_precision.to_dict()["mAP"] == 1
    with pytest.raises(ResultFileError, match="the state of an object is not a dict with tensor"):
        loads(pickle.dumps(content["rotated"], 2).replace(b"\x06\0\0\0tensor", b"\x06\0\0\0sensor"))
