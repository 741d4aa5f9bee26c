"""What LVIS annotations add to COCO annotations."""

from __future__ import annotations

import json

import pytest

from mm_metrics_plugin import DetectionEvaluator, evaluate_detection
from mm_metrics_plugin.exceptions import MetricInputError, MetricWarning, ResultFileError
from mm_metrics_plugin.io.readers import read_ground_truth
from tests.helpers.detection_problems import random_batch
from tests.helpers.lvis_problems import lvis_problem, packed_results


def evaluate(content, results, **options):
    return evaluate_detection(content, results, **{"convention": "lvis", "gallery": None, **options})


def test_columns_follow_the_labels():
    content = {
        "images": [
            {"id": 4, "height": 9, "width": 9, "neg_category_ids": [7], "not_exhaustive_category_ids": []},
            {"id": 2, "height": 9, "width": 9, "neg_category_ids": [], "not_exhaustive_category_ids": [5, 7]},
        ],
        "categories": [
            {"id": 7, "name": "cat", "frequency": "r"},
            {"id": 5, "name": "dog", "frequency": "f"},
            {"id": 6, "name": "emu", "frequency": "c"},
        ],
        "annotations": [],
    }
    whole = read_ground_truth(content)
    assert whole.image_columns["negative"].tolist() == [[True, False, False], [False, False, False]]
    assert whole.image_columns["not_exhaustive"].tolist() == [[False, False, False], [True, True, False]]
    assert whole.frequency == ("r", "f", "c")
    some = read_ground_truth(content, classes=["dog", "yak", "cat"], class_order="classes")
    assert some.image_columns["negative"].tolist() == [[False, False, True], [False, False, False]]
    assert some.image_columns["not_exhaustive"].tolist() == [[False, False, False], [True, False, True]]
    assert some.frequency == ("f", "", "r")


def remove(part, field):
    def change(content):
        content[part][-1].pop(field)

    return change


def replace_with(part, field, value):
    def change(content):
        content[part][0][field] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove("images", "neg_category_ids"), "image number 2 has no 'neg_category_ids'"),
        (remove("images", "not_exhaustive_category_ids"), "image number 2 has no 'not_exhaustive_category_ids'"),
        (
            replace_with("images", "neg_category_ids", 3),
            r"'neg_category_ids' of image number 0 must be a list of category ids \(found 3\)",
        ),
        (
            replace_with("images", "not_exhaustive_category_ids", [[3]]),
            r"'not_exhaustive_category_ids' of image number 0 must be a list of category ids \(found \[\[3\]\]\)",
        ),
        (remove("categories", "frequency"), "category number 7 has no 'frequency'"),
        (
            replace_with("categories", "frequency", "often"),
            r"'frequency' of category number 0 must be one of 'r', 'c', 'f' \(found 'often'\)",
        ),
    ],
)
def test_invalid_fields_are_errors(change, message):
    content, results = next(
        problem
        for problem in map(lvis_problem, range(100))
        if [len(problem[0][key]) for key in ("images", "categories")] == [3, 8]
    )
    change(content)
    with pytest.raises(ResultFileError, match=message):
        evaluate(content, results)


def test_annotations_that_do_not_say_what_is_judged_are_an_error():
    content, results = lvis_problem(1)
    for image in content["images"]:
        del image["neg_category_ids"]
    first = min(image["id"] for image in content["images"])
    with pytest.raises(
        MetricInputError, match=f"convention='lvis' needs 'neg_category_ids' of every image.* none of image {first}"
    ):
        evaluate(content, results)
    assert evaluate(content, results, convention="coco").analysis.average_precision.frequency is None


def test_arrays_need_booleans_of_every_class():
    batch, num_classes = random_batch(1)
    batch = batch.images(0, 1)
    for columns, message in (
        ({}, "needs 'neg_category_ids'"),
        ({"negative": [[True] * (num_classes + 1)]}, f"'negative' must be booleans of 1 image and {num_classes} class"),
        ({"negative": [[1] * num_classes]}, r"found int64 of shape"),
        ({"negative": [[True] * num_classes]}, "needs 'not_exhaustive_category_ids'"),
    ):
        federated = type(batch)(batch.detections, batch.ground_truths, 1, columns)
        evaluator = DetectionEvaluator([str(index) for index in range(num_classes)], convention="lvis")
        with pytest.raises(MetricInputError, match=message):
            evaluator.update(federated)
    with pytest.raises(MetricInputError, match="'frequency' must have one entry for each of the"):
        DetectionEvaluator([str(index) for index in range(num_classes)], frequency="r" * (num_classes + 1)).update(
            batch
        )
    with pytest.raises(ValueError, match=r"frequency must be 'r', 'c', 'f' or '' of each class \(found \('x',\)\)"):
        DetectionEvaluator(["cat"], frequency=["x"])


def test_fixed_ap_warns_if_the_model_limits_images():
    content, results = lvis_problem(5, most=300)
    ids = [image["id"] for image in content["images"]]
    of_image = {key: [row for row in results if row["image_id"] == key] for key in ids}
    limited = [row for rows in of_image.values() for row in rows[:120]]
    assert sum(len(rows) >= 120 for rows in of_image.values()) > 1
    with pytest.warns(MetricWarning, match=r"classes have fewer than 10000 detections, and \d images have exactly 120"):
        evaluate(content, limited, convention="lvis-fixed")
    evaluate(content, results, convention="lvis-fixed")  # warns of nothing


@pytest.mark.parametrize("number", [1, 2])
def test_config_of_lvis_datasets_equals_their_file(tmp_path, number):
    pytest.importorskip("mmdet")
    content, results = lvis_problem(6)
    names = [row["name"] for row in content["categories"]]
    parts = []
    for part in range(number):  # one file of all images, or two of half of them
        images = content["images"][part::number]
        for image in images:
            image["coco_url"] = f"http://images.cocodataset.org/val2017/{image['id']}.jpg"
        kept = {image["id"] for image in images}
        objects = [row for row in content["annotations"] if row["image_id"] in kept]
        file = tmp_path / f"{part}.json"
        file.write_text(json.dumps({**content, "images": images, "annotations": objects}))
        options = {"data_prefix": {"img": ""}, "metainfo": {"classes": names}, "test_mode": True, "pipeline": []}
        parts.append({"type": "LVISV1Dataset", "ann_file": str(file), **options})
    dataset = parts[0] if number == 1 else {"type": "ConcatDataset", "datasets": parts}
    config = tmp_path / "config.py"
    config.write_text(f"default_scope = 'mmdet'\ntest_dataloader = dict(dataset={dataset!r})\n")
    expected = evaluate(content, results).analysis.average_precision.to_dict()
    packed = packed_results(content, results)
    actual = evaluate(str(config), packed).analysis.average_precision.to_dict()
    assert actual == pytest.approx(expected, abs=1e-12, nan_ok=True) and expected["mAP_r"] > 0


@pytest.mark.parametrize("ids", [["7"], [99], [7, 8.5]])
def test_ids_that_are_no_categories_are_refused(ids):
    content, _ = lvis_problem(6)
    content["images"][0]["neg_category_ids"] = ids
    with pytest.raises(ResultFileError, match="'neg_category_ids' of image number 0 must list ids of the categories"):
        read_ground_truth(content)
