"""Every dialect of result files is read into one layout, and messages name the image and field."""

import json
import pickle

import numpy as np
import pytest
import torch
from mmdet.evaluation import DumpDetResults
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData

from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError
from mm_metrics_plugin.io.readers import read_detections

COUNTS = (3, 0, 5)


def boxes(count, seed=0):
    corners = np.random.default_rng(seed).uniform(0, 100, (count, 2, 2))
    return np.concatenate([corners[:, 0], corners.sum(axis=1)], axis=1).astype(np.float32)


def instances(count, seed=0):
    return {
        "bboxes": torch.from_numpy(boxes(count, seed)),
        "scores": torch.linspace(0.9, 0.1, count),
        "labels": torch.arange(count) % 4,
    }


def images(counts=COUNTS, **more):
    return [
        {
            "img_id": 100 + number,
            "img_path": f"val/{number}.jpg",
            "ori_shape": (480, 640),
            "pred_instances": instances(count, number),
            **{key: value(number, count) for key, value in more.items()},
        }
        for number, count in enumerate(counts)
    ]


def write(tmp_path, content, name="results.pkl"):
    path = tmp_path / name
    path.write_bytes(pickle.dumps(content, 2) if path.suffix == ".pkl" else json.dumps(content).encode())
    return path


def check_detections(results):
    detections = results.detections
    assert results.num_images == 3
    assert detections.image.tolist() == [0] * 3 + [2] * 5
    assert detections.labels.tolist() == [0, 1, 2, 0, 1, 2, 3, 0]
    np.testing.assert_array_equal(detections.boxes.array, np.concatenate([boxes(3, 0), boxes(5, 2)]))
    assert detections.boxes.array.dtype == detections.scores.dtype == np.float32
    assert results.row_counts.to_dict() == {"read": 8, "used": 8, "dropped": {}}


def test_mmdet_3(tmp_path):
    results = read_detections(write(tmp_path, images()))
    check_detections(results)
    assert results.lists_all_images
    assert results.image_ids == (100, 101, 102)
    assert results.image_names == ("val/0.jpg", "val/1.jpg", "val/2.jpg")
    assert results.image_sizes.tolist() == [[480, 640]] * 3
    assert results.ground_truth is None


@pytest.mark.parametrize("masks", [False, True])
def test_results_of_dump_det_results(tmp_path, masks):
    """The same detections, sent through the metric that ``tools/test.py --out`` adds."""
    path = tmp_path / "results.pkl"
    dump = DumpDetResults(out_file_path=str(path))
    for number, count in enumerate(COUNTS):
        detections = InstanceData(**instances(count, number))
        if masks:
            detections.masks = torch.ones(count, 8, 8, dtype=torch.bool)
        sample = DetDataSample(metainfo={"img_id": 100 + number, "img_path": "a.jpg", "ori_shape": (8, 8)})
        sample.pred_instances = detections
        sample.gt_instances = InstanceData(bboxes=torch.ones(1, 4), labels=torch.zeros(1).long())
        dump.process({}, [sample.to_dict()])
    dump.evaluate(len(COUNTS))
    results = read_detections(path)
    check_detections(results)
    assert results.image_ids == (100, 101, 102)
    assert results.ground_truth is None  # mmdet takes it out; mmyolo leaves it in


def test_trusted_tensors_read_the_same(tmp_path):
    with pytest.warns(UserWarning, match="plain pickle"):
        check_detections(read_detections(write(tmp_path, images()), trust=True))


def test_mmyolo_with_ground_truth(tmp_path):
    def ground_truths(number, count):
        return {"bboxes": torch.from_numpy(boxes(count + 1, 9 + number)), "labels": torch.arange(count + 1)}

    def ignored(number, count):
        return ground_truths(number, 0) if number == 2 else {}

    truth = read_detections(write(tmp_path, images(gt_instances=ground_truths, ignored_instances=ignored))).ground_truth
    assert truth.image_ids == (100, 101, 102)
    assert truth.objects.image.tolist() == [0] * 4 + [1] + [2] * 6 + [2]
    assert truth.objects.crowd.tolist() == [False] * 11 + [True]
    assert truth.objects.labels.tolist() == [0, 1, 2, 3, 0, 0, 1, 2, 3, 4, 5, 0]
    np.testing.assert_array_equal(truth.objects.boxes.array[4:5], boxes(1, 10))
    assert truth.row_counts.to_dict() == {"read": 12, "used": 12, "dropped": {}}
    assert truth.classes is None


def test_empty_ground_truth_is_none(tmp_path):
    assert read_detections(write(tmp_path, images(gt_instances=lambda n, c: {}))).ground_truth is None


def test_openimages_instances(tmp_path):
    def ground_truths(number, count):
        return [
            {"bbox": [1.0, 2.0, 3.0 + n, 4.0], "bbox_label": n, "ignore_flag": n == 1, "is_group_of": n == 2}
            for n in range(count)
        ]

    with pytest.warns(MetricWarning, match=r"boxes of a group .* crowd regions.* \(found 2\)"):
        objects = read_detections(write(tmp_path, images(instances=ground_truths))).ground_truth.objects
    assert objects.image.tolist() == [0, 0, 0, 2, 2, 2, 2, 2]
    assert objects.labels.tolist() == [0, 1, 2, 0, 1, 2, 3, 4]
    assert objects.crowd.tolist() == [False, True, True, False, True, True, False, False]


@pytest.mark.parametrize("with_masks", [False, True])
def test_mmdet_2(tmp_path, with_masks):
    content = []
    for number, count in enumerate(COUNTS):
        rows = np.concatenate([boxes(count, number), np.linspace(0.9, 0.1, count, dtype=np.float32)[:, None]], axis=1)
        classes = [rows[np.arange(count) % 4 == label] for label in range(4)]
        content.append((classes, [[] for _ in range(4)]) if with_masks else classes)
    results = read_detections(write(tmp_path, content))
    assert (results.image_ids, results.num_classes, results.num_images) == (None, 4, 3)
    order = np.lexsort((results.detections.labels, -results.detections.scores, results.detections.image))
    np.testing.assert_array_equal(results.detections.boxes.array[order], np.concatenate([boxes(3, 0), boxes(5, 2)]))
    assert results.detections.labels[order].tolist() == [0, 1, 2, 0, 1, 2, 3, 0]
    assert results.detections.image.tolist() == [0] * 3 + [2] * 5


def test_coco_json(tmp_path):
    content = [
        {"image_id": 9, "category_id": 18, "bbox": [1, 2.5, 3, 4], "score": 0.5},
        {"image_id": 4, "category_id": 1, "bbox": [0, 0, 1, 1], "score": 1},
        {"image_id": 9, "category_id": 1, "bbox": [5, 5, 1, 1], "score": 0.25},
    ]
    results = read_detections(write(tmp_path, content, "results.bbox.json"))
    assert (results.lists_all_images, results.image_ids, results.category_ids) == (False, (9, 4), (18, 1))
    assert results.detections.image.tolist() == [0, 1, 0]
    assert results.detections.labels.tolist() == [0, 1, 1]
    assert results.detections.boxes.box_format == "xywh"
    assert results.detections.boxes.array[0].tolist() == [1, 2.5, 3, 4]
    assert read_detections(write(tmp_path, [], "none.json")).num_images == 0


def changed(key, value, number=2):
    content = images()
    *way, last = key.split(".")
    target = content[number]
    for step in way:
        target = target[step]
    if value is KeyError:
        del target[last]
    else:
        target[last] = value
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "found a dict; results of a detector are"),
        ([3], "found a list of int; results of a detector are"),
        ([*images(), 3], r"image number 3 must be a dict \(found int\)"),
        ([{"pred_score": np.ones(2)}], "found results of mmpretrain; evaluate_classification and mm-metrics"),
        (changed("img_id", 1.5), r"'img_id' of image number 2 .*found 1\.5"),
        (changed("pred_instances", KeyError), r"'pred_instances' of image 102 must be a dict \(found nothing\)"),
        (changed("pred_instances.bboxes", KeyError), "'pred_instances.bboxes' of image 102 must be an array .found"),
        (changed("pred_instances.scores", torch.ones(4)), r"scores' of image 102 must have shape \(5,\) \(found"),
        (changed("pred_instances.bboxes", torch.ones(5, 3)), r"must have shape \(5, 4\) \(found \(5, 3\)\)"),
        (
            changed("pred_instances.bboxes", torch.ones(5, 5)),
            r"image 102 .*rotated boxes need iou_type='rbox' .found \(5, 5\)",
        ),
        (
            changed("pred_instances.bboxes", torch.ones(5, 8)),
            r"image 102 .*rotated boxes need iou_type='rbox' .found \(5, 8\)",
        ),
        (changed("pred_instances.bboxes", torch.tensor(3.0)), r"bboxes' of image 102 must have shape \(1, 4\) \(found"),
        (changed("pred_instances.labels", ["a"] * 5), "labels' of image 102 must be an array of numbers"),
        (changed("pred_instances.scores", np.array(["a"] * 5)), "scores' of image 102 must be numbers"),
        ([[np.ones((2, 5), "f4")], [np.ones((2, 5), "f4")] * 2], "image number 1 must be a list of 1 array,"),
        ([[np.ones((2, 6), "f4")]], "class 0 of image number 0 .*rotated"),
        ([[np.ones((2, 5), "f4"), [1]]], "class 1 of image number 0 must be an array"),
    ],
)
def test_invalid_results_are_refused(tmp_path, content, message):
    with pytest.raises(ResultFileError, match=message) as raised:
        read_detections(write(tmp_path, content))
    assert str(raised.value).startswith("results.pkl: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"image_id": 1, "category_id": 1}, 1], "detection number 1 must be an object .found int"),
        ([{"image_id": 1}], "detection number 0 has no 'category_id'"),
        ([{"image_id": 1, "category_id": 1, "score": 1, "bbox": [1, 2, 3]}], r"'bbox' of .* 4 finite numbers .found"),
        ([{"image_id": 1, "category_id": 1, "score": float("nan"), "bbox": [1, 2, 3, 4]}], "'score' of .*found nan"),
        ([{"image_id": 1, "category_id": 1, "score": True, "bbox": [1, 2, 3, 4]}], "'score' of .*found True"),
        ([{"image_id": 1, "category_id": 1, "score": 10**400, "bbox": [1, 2, 3, 4]}], r"found 1000.*\.\.\."),
        ([{"image_id": [1], "category_id": 1, "score": 1, "bbox": [1, 2, 3, 4]}], "'image_id' of .*whole number or"),
    ],
)
def test_invalid_coco_results_are_refused(tmp_path, content, message):
    with pytest.raises(ResultFileError, match=message):
        read_detections(write(tmp_path, content, "results.json"))


def test_files_of_another_kind(tmp_path):
    for name, data, message in (
        ("a.json", b"\x80\x02N.", "found nothing; results of a detector"),
        ("b.json", b"[1,", "is not JSON"),
        ("c.json", b"\xff\xfe\xfa", "is not JSON"),
        ("g.txt", b"", "found an empty file; results of a detector"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ResultFileError, match=message):
            read_detections(tmp_path / name)
    with pytest.raises(ResultFileError, match="cannot be read"):
        read_detections(tmp_path / "nothing.json")


def test_more_boxes_than_the_file_can_hold_are_not_copied(tmp_path):
    shared = {key: value.numpy() for key, value in instances(1000).items()}
    content = [{"img_id": number, "pred_instances": shared} for number in range(50)]
    with pytest.raises(ResultFileError, match="50,000 boxes are more than a file of this size can hold"):
        read_detections(write(tmp_path, content))
    assert len(read_detections(content[:3], "here").detections) == 3000
    # An array of this shape takes no memory.
    empty = {"bboxes": np.empty((1 << 40, 0), np.float32), "scores": np.empty(0), "labels": np.empty(0, int)}
    with pytest.raises(ResultFileError, match="1,099,511,627,776 boxes are more than a file of this size"):
        read_detections(write(tmp_path, [{"img_id": 1, "pred_instances": empty}]))


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_many_small_arrays_are_read(tmp_path, protocol):
    """Mmdet 2.x writes an empty array for most classes of most images."""
    images = [[np.zeros((0, 5), np.float32) for _ in range(80)] for _ in range(1000)]
    images[7][3] = np.float32([[0, 0, 9, 9, 0.5]])
    path = tmp_path / "results.pkl"
    path.write_bytes(pickle.dumps(images, protocol))
    results = read_detections(path)
    assert (results.num_images, results.num_classes, results.detections.labels.tolist()) == (1000, 80, [3])
