"""Ground truth read from files alone is what mmdet's own data sets read."""

import json

import numpy as np
import pytest

from mm_metrics_plugin.exceptions import MetricWarning, ResultFileError
from mm_metrics_plugin.io.readers import read_ground_truth

NAMES = ["zebra", "cat", "dog", "bird"]


def coco(seed=0, images=30, annotations=400):
    """Annotations among which every rule of CocoDataset finds some to leave out."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(1000)[:images].tolist()
    categories = [{"id": number, "name": name} for number, name in zip((90, 3, 17, 4), NAMES)]
    content = {
        "images": [{"id": i, "file_name": f"{i}.jpg", "height": 80, "width": 100} for i in ids],
        "categories": categories,
        "annotations": [],
    }
    for number in range(annotations):
        box = rng.uniform([-60, -60, 0, 0], [120, 100, 40, 40]).round(2).tolist()
        if number % 10 == 0:
            box = [float(int(value)) for value in box]
        row = {
            "id": number + 1,
            "image_id": int(rng.choice(ids)),
            "category_id": int(rng.choice([90, 3, 17, 4])),
            "bbox": box,
            "area": 0 if number % 17 == 0 else box[2] * box[3] * 0.7,
        }
        if number % 3:
            row["iscrowd"] = int(number % 7 == 0)
        if number % 11 == 0:
            row["ignore"] = number % 2
        content["annotations"].append(row)
    return content


def write(tmp_path, content):
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(content))
    return path


def rows_of(dataset):
    """The objects of an mmdet data set as rows of image, label, crowd and edges."""
    rows = []
    for number in range(len(dataset)):
        for row in dataset.get_data_info(number)["instances"]:
            rows.append([number, row["bbox_label"], row["ignore_flag"], *row["bbox"]])
    return np.array(rows)


def our_rows(truth, like_mmdet=False):
    """The objects as in rows_of; like mmdet: without objects that are too small for mmdet."""
    gts = truth.objects
    if like_mmdet:
        gts = gts.take((gts.boxes.array[:, 2:] >= 1).all(axis=1) & (gts.area > 0))
    rows = np.column_stack([gts.image, gts.labels, gts.crowd, gts.boxes.to_format("xyxy")])
    return rows[np.argsort(gts.image, kind="stable")]


@pytest.mark.parametrize("classes", [None, ["dog", "zebra"], ["bird", "dog", "cat", "zebra"]])
def test_coco_is_read_as_mmdet_reads_it(tmp_path, classes, capsys):
    from mmdet.datasets import CocoDataset

    path = write(tmp_path, coco())
    dataset = CocoDataset(
        ann_file=str(path),
        metainfo={"classes": tuple(classes or NAMES)},
        data_prefix={"img": ""},
        test_mode=True,
        pipeline=[],
    )
    truth = read_ground_truth(path, classes=classes)
    np.testing.assert_array_equal(our_rows(truth, like_mmdet=True), rows_of(dataset))
    assert len(truth.objects) > len(rows_of(dataset))
    assert list(truth.image_ids) == [dataset.get_data_info(number)["img_id"] for number in range(len(dataset))]
    assert list(truth.category_ids) == dataset.cat_ids
    assert truth.classes == tuple(name for name in NAMES if classes is None or name in classes)
    assert truth.objects.crowd.any()
    row_counts = truth.row_counts.to_dict()
    assert row_counts["read"] == 400 == row_counts["used"] + sum(row_counts["dropped"].values())
    assert row_counts["used"] == len(truth.objects)
    assert {"marked 'ignore'", "outside the image"} <= set(row_counts["dropped"])
    assert ("class not chosen" in row_counts["dropped"]) == (classes == ["dog", "zebra"])


def test_annotations_of_unknown_images_and_categories_are_counted(tmp_path):
    content = coco(annotations=3)
    for row in content["annotations"]:
        row.update(bbox=[1, 1, 5, 5], area=25, ignore=0)
    content["annotations"][0]["image_id"] = 5555
    content["annotations"][1]["category_id"] = 5555
    truth = read_ground_truth(write(tmp_path, content))
    assert truth.row_counts.to_dict() == {
        "read": 3,
        "used": 1,
        "dropped": {"image not in the file": 1, "category not in the file": 1},
    }


def test_areas_are_kept(tmp_path):
    content = coco(annotations=1)
    content["annotations"][0].update(bbox=[1, 1, 5, 5], area=7.5, ignore=0)
    assert read_ground_truth(write(tmp_path, content)).objects.area.tolist() == [7.5]
    del content["annotations"][0]["area"]
    assert read_ground_truth(write(tmp_path, content)).objects.area.tolist() == [25.0]


@pytest.mark.parametrize(
    ("box", "area", "dropped"),
    [
        ([1, 1, 0.5, 9], 4.5, {}),
        ([1, 1, 9, 0.25], 2.25, {}),
        ([1, 1, 5, 5], 0, {}),
        ([1, 1, 0, 9], 0, {"empty": 1}),
        ([1, 1, 5, -5], 25, {"empty": 1}),
        ([1, 1, 5, 5], -1, {"empty": 1}),
        ([100, 1, 5, 5], 25, {"outside the image": 1}),
    ],
)
def test_thin_objects_are_kept_and_empty_ones_counted(tmp_path, box, area, dropped):
    content = coco(annotations=1)
    content["annotations"][0].update(bbox=box, area=area, ignore=0)
    truth = read_ground_truth(write(tmp_path, content))
    assert truth.row_counts.to_dict() == {"read": 1, "used": 1 - len(dropped), "dropped": dropped}
    assert len(truth.objects) == 1 - len(dropped)


def test_no_annotations_and_no_images(tmp_path):
    content = coco(annotations=0)
    assert len(read_ground_truth(write(tmp_path, content)).objects) == 0
    content["images"] = []
    assert read_ground_truth(write(tmp_path, content)).image_ids == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: 3, "found an object of type int; ground truth is a COCO annotation file"),
        (lambda c: {**c, "images": {}}, "'images' of COCO annotations must be a list .found dict"),
        (lambda c: {**c, "categories": c["categories"] * 2}, "has 4 category ids .* more than once"),
        (lambda c: {**c, "images": [{"id": 1}]}, "image number 0 has no 'height'"),
        (lambda c: {**c, "annotations": [5]}, "annotation number 0 must be an object"),
        (lambda c: {**c, "annotations": [{**c["annotations"][0], "bbox": "a"}]}, "'bbox' of annotation number 0 .*4"),
        (lambda c: {**c, "categories": [{"id": 1}]}, "category number 0 has no 'name'"),
    ],
)
def test_invalid_coco_files_are_refused(tmp_path, change, message):
    with pytest.raises(ResultFileError, match=f"instances.json: .*{message}"):
        read_ground_truth(write(tmp_path, change(coco())))


def test_unknown_classes_are_refused(tmp_path):
    path = write(tmp_path, coco())
    with pytest.raises(
        ResultFileError, match=r"has no class 'horse'; it has 4 classes .'zebra', 'cat', 'dog', 'bird'."
    ):
        read_ground_truth(path, classes=["cat", "horse"])


# -- VOC -------------------------------------------------------------------------------------------------------------


def voc(folder, seed=0, images=12):
    rng = np.random.default_rng(seed)
    annotations = folder / "Annotations"
    annotations.mkdir()
    names = [f"{number:06d}" for number in rng.permutation(1000)[:images]]
    for name in names:
        objects = ""
        for _ in range(rng.integers(0, 6)):
            left, top, right, bottom = rng.uniform((1, 1, 60, 60), 200).round(1)
            difficult = f"<difficult>{rng.integers(0, 2)}</difficult>" if rng.random() < 0.7 else ""
            objects += (
                f"<object><name>{rng.choice(NAMES)}</name>{difficult}<bndbox><xmin>{left}</xmin><ymin>{top}</ymin>"
                f"<xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox></object>"
            )
        size = "<size><width>500</width><height>375</height><depth>3</depth></size>"
        text = f"<annotation><filename>{name}.jpg</filename>{size}{objects}</annotation>"
        (annotations / f"{name}.xml").write_text(text)
    (folder / "test.txt").write_text("\n".join(sorted(names)))
    return annotations


@pytest.mark.parametrize("classes", [["dog", "zebra"], ["zebra", "bird", "dog", "cat"], sorted(NAMES)])
def test_voc_is_read_as_mmdet_reads_it(tmp_path, classes):
    """All but the objects with swapped corners, which mmdet keeps and which nothing can match."""
    from mmdet.datasets import XMLDataset

    folder = voc(tmp_path)
    metainfo = {"classes": tuple(classes)}
    prefix = {"sub_data_root": str(tmp_path)}
    dataset = XMLDataset(
        ann_file=str(tmp_path / "test.txt"), metainfo=metainfo, data_prefix=prefix, test_mode=True, pipeline=[]
    )
    truth = read_ground_truth(folder, classes=classes)
    rows = rows_of(dataset)
    kept = (rows[:, 5:] >= rows[:, 3:5]).all(axis=1)
    np.testing.assert_array_equal(our_rows(truth), rows[kept])
    assert list(truth.image_ids) == [dataset.get_data_info(number)["img_id"] for number in range(len(dataset))]
    assert truth.image_sizes.tolist() == [[375, 500]] * len(dataset)
    assert truth.classes == metainfo["classes"]
    row_counts = truth.row_counts.to_dict()
    assert row_counts["read"] == row_counts["used"] + sum(row_counts["dropped"].values())
    assert row_counts["used"] == kept.sum() > 0
    assert 0 < (~kept).sum() <= row_counts["dropped"]["corners swapped"]
    assert ("class not chosen" in row_counts["dropped"]) == (classes == ["dog", "zebra"])
    assert read_ground_truth(tmp_path, classes=classes).image_ids == truth.image_ids  # the folder above will do


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<annotation>", "is not XML"),
        ("", "is not XML"),
        ("<?xml version='1.0' encoding='foo'?><annotation/>", "is not XML .unknown encoding"),
        ("<annotation><object><name>a</name></object></annotation>", "no name or no bndbox"),
        ("<annotation><size><width>a</width><height>1</height></size></annotation>", "'width' must be a number .found"),
        ("<annotation><size><width>1</width></size></annotation>", "'height' must be a number .found None"),
        ("<annotation><object><name>a</name><bndbox><xmin>nan</xmin></bndbox></object></annotation>", "'xmin' must be"),
    ],
)
def test_invalid_voc_files_are_refused(tmp_path, text, message):
    (tmp_path / "000001.xml").write_text(text)
    with pytest.raises(ResultFileError, match=f"000001.xml: .*{message}"):
        read_ground_truth(tmp_path)


def test_a_folder_without_annotations(tmp_path):
    with pytest.raises(ResultFileError, match="found a folder without annotations; ground truth is"):
        read_ground_truth(tmp_path)
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(ResultFileError, match="found an empty file; ground truth is"):
        read_ground_truth(tmp_path / "a.txt")


def test_categories_of_the_same_name_are_reported():
    content = {"images": [], "annotations": [], "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "cat"}]}
    with pytest.warns(MetricWarning, match="a.json: several categories have the same name .'cat'."):
        assert read_ground_truth(content, "a.json").classes == ("cat", "cat")
    with pytest.warns(MetricWarning), pytest.raises(ResultFileError, match="more than one category named 'cat'"):
        read_ground_truth(content, "a.json", classes=["cat"], class_order="classes")
