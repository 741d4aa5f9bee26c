"""Ground truth of a config: areas and thin objects come from the annotation file."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("mmdet")

from mmdet.datasets import CocoDataset
from mmengine.registry import DATASETS

from mm_metrics_plugin import evaluate_detection
from mm_metrics_plugin.evaluation.joining import join
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.io.readers import read_detections, read_ground_truth
from mm_metrics_plugin.settings import DetectionSettings
from tests.helpers.result_files import coco_evaluation

CLASSES = ("cat", "dog", "emu")
CONFIG = """
default_scope = 'mmdet'
part = dict(type='{kind}', ann_file='{file}', data_prefix=dict(img='pictures/'), test_mode=True,
            metainfo=dict(classes={classes}), pipeline=[])
test_dataloader = dict(dataset={dataset})
"""


def annotations(seed, images=12, thin=True):
    """Annotations whose areas are in other size ranges than their boxes; coordinates are exact in binary."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(images * 8):
        left, top = random.integers(0, 300, 2)
        width, height = random.choice([4, 24, 40, 90, 120], 2)
        if thin and number % 4 == 0:
            width = random.choice([0.25, 0.5])
        rows.append(
            dict(
                id=number + 1,
                image_id=number % images + 1,
                category_id=int(random.choice([3, 5, 9])),
                bbox=[float(left), float(top), float(width), float(height)],
                area=0.0 if number % 11 == 0 else float(width * height * random.choice([0.1, 0.5, 1.0])),
                iscrowd=int(random.random() < 0.1),
            )
        )
    return dict(
        images=[dict(id=at + 1, file_name=f"{at}.png", height=500, width=500) for at in range(images)],
        annotations=rows,
        categories=[dict(id=key, name=name) for key, name in zip((3, 5, 9), CLASSES)],
    )


def detections(content, seed):
    """COCO results near the objects, some of them thin."""
    random = np.random.default_rng(seed)
    rows = []
    for row in content["annotations"]:
        for _ in range(random.integers(0, 3)):
            moved = random.choice([0, 0, 0.25, 2], 4) * (1, 1, row["bbox"][2] >= 1, 1)
            box = np.array(row["bbox"]) + moved
            category = row["category_id"] if random.random() < 0.8 else int(random.choice([3, 5, 9]))
            score = float(random.integers(1, 1024)) / 1024
            rows.append(dict(image_id=row["image_id"], category_id=category, bbox=box.tolist(), score=score))
    return rows


def by_image(objects, keep=slice(None)):
    """Image, label, crowd flag, area and corners of the objects, in the order of the images."""
    columns = [objects.image, objects.labels, objects.crowd, objects.area, objects.boxes.to_format("xyxy")]
    rows = np.column_stack(columns)[keep]
    return rows[np.argsort(rows[:, 0], kind="stable")]


def written(folder, content, name="truth.json"):
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def built(folder, file, kind="CocoDataset", dataset="part", classes=CLASSES, **options):
    """The ground truth of a config."""
    path = folder / "config.py"
    path.write_text(CONFIG.format(file=file.as_posix(), kind=kind, dataset=dataset, classes=classes))
    return read_ground_truth(path, **options)


@pytest.mark.parametrize("seed", range(4))
def test_ap_equals_pycocotools_for_annotations_and_config(tmp_path, seed):
    content = annotations(seed)
    path = written(tmp_path, content)
    rows = detections(content, seed)
    expected = coco_evaluation(path, rows).stats
    assert np.isfinite(expected).all()
    truth = read_ground_truth(path)
    batch = join(truth, read_detections(rows, "results.json")).batch
    table = match_images(batch, DetectionSettings(), num_classes=len(CLASSES), keep="scores").table
    np.testing.assert_allclose(list(average_precision(table).to_dict().values()), expected, rtol=0, atol=1e-10)
    config = built(tmp_path, path)
    np.testing.assert_array_equal(by_image(config.objects), by_image(truth.objects))
    assert config.row_counts.to_dict() == truth.row_counts.to_dict() == {"read": 96, "used": 96, "dropped": {}}


def test_a_selection_of_classes_and_images_is_counted(tmp_path):
    path = written(tmp_path, annotations(0))
    selected = built(tmp_path, path, dataset="dict(part, indices=5)", classes=("cat", "emu"))
    whole = read_ground_truth(path)
    labels = np.array([0, -1, 1])[whole.objects.labels]
    keep = (whole.objects.image < 5) & (labels >= 0)
    assert selected.row_counts.to_dict() == {
        "read": 96,
        "used": int(keep.sum()),
        "dropped": {
            "class not chosen": int((labels < 0).sum()),
            "image not in the test set": int(((labels >= 0) & (whole.objects.image >= 5)).sum()),
        },
    }
    expected = by_image(replace(whole.objects, labels=labels), keep)
    np.testing.assert_array_equal(by_image(selected.objects), expected)


def test_each_part_of_a_concatenation_has_its_own_file(tmp_path):
    first, second = annotations(1), annotations(2)
    for row in second["images"]:
        row["id"] += 100
    for row in second["annotations"]:
        row["image_id"] += 100
    paths = [written(tmp_path, first, "first.json"), written(tmp_path, second, "second.json")]
    other = f"dict(type='ConcatDataset', datasets=[part, dict(part, ann_file={paths[1].as_posix()!r})])"
    both = built(tmp_path, paths[0], dataset=other)
    areas = [by_image(read_ground_truth(path).objects)[:, 3] for path in paths]
    np.testing.assert_array_equal(both.objects.area, np.concatenate(areas))
    assert both.objects.image.max() == 23
    assert both.row_counts.to_dict() == {"read": 192, "used": 192, "dropped": {}}


@pytest.mark.parametrize("folders", [("first/", "second/"), ("same/", "same/")])
def test_parts_of_a_concatenation_that_share_ids(tmp_path, folders):
    """Images are identified by path; if paths repeat too, results cannot be joined."""
    paths = [written(tmp_path, annotations(seed), f"{seed}.json") for seed in (1, 2)]
    parts = [
        f"dict(part, ann_file={path.as_posix()!r}, data_prefix=dict(img={folder!r}))"
        for path, folder in zip(paths, folders)
    ]
    other = f"dict(type='ConcatDataset', datasets=[{', '.join(parts)}])"
    if len(set(folders)) == 1:
        with pytest.raises(ResultFileError, match="are repeated, and so are their paths"):
            built(tmp_path, paths[0], dataset=other)
        return
    both = built(tmp_path, paths[0], dataset=other)
    assert both.image_ids == tuple(f"{folder}{at}.png" for folder in folders for at in range(12))
    areas = [by_image(read_ground_truth(path).objects)[:, 3] for path in paths]
    np.testing.assert_array_equal(both.objects.area, np.concatenate(areas))
    empty = {"bboxes": np.zeros((0, 4)), "scores": np.zeros(0), "labels": np.zeros(0, int)}
    names = [(at % 12 + 1, both.image_names[at]) for at in range(24)[::-1]]
    images = [{"img_id": number, "img_path": name, "pred_instances": empty} for number, name in names]
    joined = join(both, read_detections(images, "results.pkl"))
    assert joined.image_ids == both.image_ids and joined.joined_by == "image path"


@pytest.fixture
def dataset_types():
    """Datasets with other rules, registered for one test."""

    class LargeOnly(CocoDataset):
        def parse_data_info(self, raw_data_info):
            info = super().parse_data_info(raw_data_info)
            info["instances"] = [row for row in info["instances"] if row["bbox"][2] - row["bbox"][0] > 30]
            return info

    class Moved(CocoDataset):
        def parse_data_info(self, raw_data_info):
            info = super().parse_data_info(raw_data_info)
            for row in info["instances"]:
                row["bbox"] = [value + 1 for value in row["bbox"]]
            return info

    for kind in (LargeOnly, Moved):
        DATASETS.register_module(name=kind.__name__, module=kind)
    yield
    for kind in (LargeOnly, Moved):
        DATASETS.module_dict.pop(kind.__name__)


def test_objects_that_a_dataset_drops_are_counted(tmp_path, dataset_types):
    path = written(tmp_path, annotations(3))
    truth = built(tmp_path, path, kind="LargeOnly")
    whole = read_ground_truth(path)
    keep = (whole.objects.boxes.array[:, 2] > 30) & (whole.objects.area > 0)
    np.testing.assert_array_equal(by_image(truth.objects), by_image(whole.objects, keep))
    left_out = int((~keep).sum())
    assert truth.row_counts.to_dict() == {
        "read": 96,
        "used": 96 - left_out,
        "dropped": {"left out by the dataset": left_out},
    }


def test_objects_that_are_not_in_the_file_have_the_area_of_their_box(tmp_path, dataset_types):
    path = written(tmp_path, annotations(3, thin=False))
    with pytest.warns(UserWarning, match="objects of the test dataset are not in its annotation file"):
        truth = built(tmp_path, path, kind="Moved")
    sides = truth.objects.boxes.array[:, 2:] - truth.objects.boxes.array[:, :2]
    np.testing.assert_array_equal(truth.objects.area, sides[:, 0] * sides[:, 1])
    assert truth.row_counts.to_dict() == {"read": len(sides), "used": len(sides), "dropped": {}}


def test_masks_of_a_config_are_those_of_its_annotation_file(tmp_path, dataset_types, monkeypatch):
    content = annotations(3)
    for row in content["annotations"]:
        left, top, width, height = row["bbox"]
        row["segmentation"] = [[left, top, left + width, top, left + width, top + height]]
    file = written(tmp_path, content)
    whole = read_ground_truth(file, iou_type="segm").objects
    order = np.argsort(whole.image, kind="stable")
    for kind, keep in (("CocoDataset", slice(None)), ("LargeOnly", None)):
        objects = built(tmp_path, file, kind=kind, iou_type="segm").objects
        if keep is None:  # a dataset with other rules
            boxes = read_ground_truth(file).objects
            keep = ((boxes.boxes.array[:, 2] > 30) & (boxes.area > 0))[order]
        expected = whole.take(order[keep])
        for name, array in expected.geometry.to_arrays().items():
            np.testing.assert_array_equal(objects.geometry.to_arrays()[name], array)
        np.testing.assert_array_equal(objects.area, expected.area)
    builds, build = [], DATASETS.build
    monkeypatch.setattr(DATASETS, "build", lambda *args, **options: (builds.append(1), build(*args, **options))[1])
    built(tmp_path, file)
    rle = {"size": [500, 500], "counts": [1000, 2000, 247000]}
    rows = [{"image_id": 1, "category_id": 3, "bbox": [0, 0, 5, 5], "score": 0.5, "segmentation": rle}]
    samples = [
        {"img_id": image["id"], "pred_instances": {"bboxes": [], "masks": [], "scores": [], "labels": []}}
        for image in content["images"]
    ]
    samples[0]["pred_instances"] = {"bboxes": [[0, 0, 5, 5]], "masks": [rle], "scores": [0.5], "labels": [0]}
    both = evaluate_detection(tmp_path / "config.py", samples, iou_type=("bbox", "segm"))
    assert len(builds) == 2  # of two calls
    for iou_type, report in both.reports.items():
        of_file = evaluate_detection(file, rows, iou_type=iou_type)
        assert report.counts["ground_truths"] == of_file.counts["ground_truths"]
        assert [rule.counts for rule in report.matching_rules] == [rule.counts for rule in of_file.matching_rules]
