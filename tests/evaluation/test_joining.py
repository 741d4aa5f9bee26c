"""Results are joined to the ground truth by image id, path or position; errors name what does not fit."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mm_metrics_plugin.evaluation.joining import join
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.io.readers import read_detections, read_ground_truth
from mm_metrics_plugin.settings import DetectionSettings

IMAGES = 40
CATEGORIES = {"cat": 7, "dog": 3, "bird": 90}  # in the order of the file


def box(image, number):
    return [float(image), float(number * 50), 20.0 + number, 30.0]


@pytest.fixture
def truth_file(tmp_path):
    content = {
        "images": [{"id": 500 - n, "file_name": f"{n}.jpg", "height": 400, "width": 400} for n in range(IMAGES)],
        "categories": [{"id": number, "name": name} for name, number in CATEGORIES.items()],
        "annotations": [
            {
                "id": n * 3 + k + 1,
                "image_id": 500 - n,
                "category_id": list(CATEGORIES.values())[k],
                "bbox": box(n, k),
                "area": 600,
            }
            for n in range(IMAGES)
            for k in range(3)
        ],
    }
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(content))
    return path


def result(n):
    edges = np.array([box(n, k) for k in range(3)], np.float32)
    edges[:, 2:] += edges[:, :2]
    found = {"bboxes": edges, "scores": np.full(3, 0.9, np.float32), "labels": np.arange(3)}
    return {"img_id": 500 - n, "img_path": f"{n}.jpg", "pred_instances": found}


def results(order=range(IMAGES)):
    return read_detections([result(n) for n in order], "results.pkl")


def is_perfect(joined):
    found = match_images(joined.batch, DetectionSettings(), num_classes=len(joined.classes), keep="matrix")
    matrix = found.rules["coco"].matrix
    return (matrix == np.diag([IMAGES] * len(joined.classes) + [0])).all()


def test_coco_results_are_joined_by_category_id(truth_file, tmp_path):
    content = json.loads(truth_file.read_text())
    found = [{**row, "score": 0.5} for row in content["annotations"]]
    path = tmp_path / "found.json"
    path.write_text(json.dumps(found))
    assert is_perfect(join(read_ground_truth(truth_file), read_detections(path)))

    # Selected classes keep the order of the file; other detections are dropped and counted.
    chosen = read_ground_truth(truth_file, classes=["bird", "cat"])
    joined = join(chosen, read_detections(path))
    assert joined.classes == ("cat", "bird")
    assert is_perfect(joined)
    assert joined.detections.to_dict() == {"read": 120, "used": 80, "dropped": {"class not chosen": 40}}
    assert chosen.row_counts.to_dict() == {"read": 120, "used": 80, "dropped": {"class not chosen": 40}}

    # COCO results do not list images without detections: these images are counted, and no error.
    path.write_text(json.dumps(found[:6]))
    joined = join(read_ground_truth(truth_file), read_detections(path))
    assert (joined.missing_images, len(joined.batch.detections), joined.batch.num_images) == (38, 6, 40)

    path.write_text(json.dumps([{**found[0], "category_id": 8}]))
    with pytest.raises(ResultFileError, match=r"found.json: category id 8 not in instances.json"):
        join(read_ground_truth(truth_file), read_detections(path))


def test_images_and_labels_that_do_not_fit_are_listed(truth_file):
    truth = read_ground_truth(truth_file)
    with pytest.raises(ResultFileError, match=r"no results for 15 images \(475, 474, .*, 466, \.\.\.\) of instances"):
        join(truth, results(range(25)))
    with pytest.raises(ResultFileError, match=r"results.pkl: 2 images \(460, 459\) not in instances.json"):
        join(truth, results(range(42)))
    with pytest.raises(ResultFileError, match=r"2 images \(497, 493\) more than once"):
        join(truth, results([*range(IMAGES), 3, 7, 7]))
    content = [result(n) for n in range(IMAGES)]
    for image in content:
        image["pred_instances"]["labels"] = np.array([0, 1, 80])
    with pytest.raises(ResultFileError, match=r"40 labels beyond .*in image 491, \.\.\."):
        join(truth, read_detections(content, "results.pkl"))


def test_ground_truth_in_the_results():
    content = [{**result(n), "gt_instances": result(n)["pred_instances"]} for n in range(IMAGES)]
    inside = read_detections(content, "results.pkl")
    assert is_perfect(join(inside.ground_truth, inside, classes=["a", "b", "c"]))
    assert join(inside.ground_truth, inside).classes == ("0", "1", "2")
    with pytest.raises(ResultFileError, match="beyond the 2 classes"):
        join(inside.ground_truth, inside, classes=["a", "b"])
    with pytest.raises(ResultFileError, match="need COCO annotations"):
        join(inside.ground_truth, replace(inside, lists_all_images=False, category_ids=(0, 1, 2)))


def with_repeated_ids(order=range(IMAGES)):
    """Results of a ConcatDataset of two data sets with the same image ids, in different folders."""
    images = [result(n) for n in order]
    for n, image in zip(order, images):
        image["img_id"], image["img_path"] = n % (IMAGES // 2), f"part{n // (IMAGES // 2)}/{n}.jpg"
        image["gt_instances"] = {key: image["pred_instances"][key] for key in ("bboxes", "labels")}
    return images


def test_images_whose_ids_repeat_are_joined_by_path():
    found = read_detections(with_repeated_ids(), "results.pkl")
    joined = join(found.ground_truth, found, classes=tuple(CATEGORIES))
    assert is_perfect(joined) and joined.joined_by == "image path"
    assert joined.image_ids[0] == "part0/0.jpg"
    other = read_detections(with_repeated_ids(range(IMAGES)[::-1]), "other.pkl")
    assert is_perfect(join(found.ground_truth, other, classes=tuple(CATEGORIES)))


def test_a_shard_with_unique_ids_is_joined_by_path_if_others_repeat_them():
    found = read_detections(with_repeated_ids(), "results.pkl")
    half = read_detections(with_repeated_ids(range(IMAGES // 2)), "half.pkl")
    assert half.image_ids == tuple(range(IMAGES // 2))
    joined = join(found.ground_truth, half, classes=tuple(CATEGORIES), allow_missing=True)
    assert joined.missing_images == IMAGES // 2 and joined.joined_by == "image path"


@pytest.mark.parametrize("path", ["", "same.jpg"])
def test_ids_and_paths_that_repeat_cannot_be_joined(path):
    images = with_repeated_ids()
    for image in images:
        image["img_path"] = path
    found = read_detections(images, "results.pkl")
    with pytest.raises(ResultFileError, match="more than once"):
        join(found.ground_truth, found, classes=tuple(CATEGORIES))


def test_one_annotation_file_is_not_the_ground_truth_of_both_parts(truth_file):
    found = read_detections(with_repeated_ids(), "results.pkl")
    with pytest.raises(ResultFileError, match=r"image ids repeat in the results.*give the config .* as ground_truth="):
        join(read_ground_truth(truth_file), found)
