"""Folders of VOC annotations: class names, the list of the test set, results without image ids."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mm_metrics_plugin.cli import main
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.readers import read_ground_truth
from tests.helpers import result_files as files

CLASSES = ("ant", "bee", "cat")
TEST_SET = ("000007", "000002", "000005")  # not sorted


def voc_object(name, edges):
    box = "".join(f"<{tag}>{value}</{tag}>" for tag, value in zip(("xmin", "ymin", "xmax", "ymax"), edges))
    return f"<object><name>{name}</name><difficult>0</difficult><bndbox>{box}</bndbox></object>"


def edges(number):
    return (10 * number + 1, 11, 10 * number + 31, 41)


def write(folder, name, *objects):
    size = "<size><width>200</width><height>100</height></size>"
    text = f"<annotation><filename>{name}.jpg</filename>{size}{''.join(objects)}</annotation>"
    (folder / f"{name}.xml").write_text(text)


@pytest.fixture
def root(tmp_path):
    """One "cat" per image, each at another position, and no "bee"."""
    folder = tmp_path / "Annotations"
    folder.mkdir()
    for number, name in enumerate(TEST_SET):
        write(folder, name, voc_object("cat", edges(number)))
    main_sets = tmp_path / "ImageSets" / "Main"
    main_sets.mkdir(parents=True)
    (main_sets / "test.txt").write_text("\n".join(TEST_SET) + "\n")
    return tmp_path


def boxes(number):
    return np.array([edges(number)], dtype=np.float32) - 1


def mmdet_3(label):
    return [
        {
            "img_id": name,
            "pred_instances": {"bboxes": boxes(at), "scores": np.array([0.9]), "labels": np.array([label])},
        }
        for at, name in enumerate(TEST_SET)
    ]


def mmdet_2(label, order=(0, 1, 2)):
    """One list of arrays per image, one array per class, as mmdet 2.x writes them."""
    rows = [np.column_stack([boxes(at), [0.9]]).astype(np.float32) for at in order]
    nothing = np.zeros((0, 5), np.float32)
    return [[row if at == label else nothing for at in range(len(CLASSES))] for row in rows]


def tp_by_class(*arguments):
    report = json.loads(files.printed("detection", *arguments, "--format", "json"))
    return {row["name"]: row["tp"] for row in report["matching_rules"]["coco"]["per_class"]}, report


def refused(capsys, *arguments):
    assert main(["detection", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_the_classes_of_a_folder_are_never_guessed(root, tmp_path, capsys):
    """One of the model's three classes is not in the folder, so sorted names would give "cat" another label."""
    results = files.write_pickle(tmp_path / "results.pkl", mmdet_3(label=2))
    err = refused(capsys, root, results)
    assert "--classes" in err and "class 'cat'" in err
    tp, report = tp_by_class(root, results, "--classes", ",".join(CLASSES))
    assert tp == {"ant": 0, "bee": 0, "cat": 3} and report["inputs"]["class_order"] == "classes"
    with pytest.raises(ResultFileError, match="VOC annotations do not define the label"):
        read_ground_truth(root)


@pytest.fixture
def config(root, tmp_path):
    import mmdet  # noqa: F401  # the config names its dataset

    path, image_set = tmp_path / "config.py", root / "ImageSets" / "Main" / "test.txt"
    path.write_text(
        "print('not for the report')\ndefault_scope = 'mmdet'\ntest_dataloader = dict(dataset=dict(type='XMLDataset', "
        f"ann_file={str(image_set)!r}, data_prefix=dict(sub_data_root={str(root)!r}), "
        f"metainfo=dict(classes={CLASSES!r}), test_mode=True, pipeline=[]))\n"
    )
    return path


def test_a_config_defines_the_classes(config, root, tmp_path, capsys):
    results = files.write_pickle(tmp_path / "results.pkl", mmdet_3(label=2))
    tp, report = tp_by_class(config, results)
    assert tp == {"ant": 0, "bee": 0, "cat": 3} and report["inputs"]["class_order"] == "metainfo"
    err = refused(capsys, config, results, "--classes", "cat,bee,ant")
    assert "config.py lists 'ant', 'bee', 'cat' and --classes lists 'cat', 'bee', 'ant'" in err
    assert "have no order of classes" in refused(capsys, config, results, "--class-order", "annotations")
    assert "have no order of classes" in refused(capsys, root, results, "--class-order", "annotations")
    tp, _ = tp_by_class(config, results, "--classes", "bee,ant,cat", "--class-order", "classes")
    assert tp == {"bee": 0, "ant": 0, "cat": 3}
    # mmdet 2.x tested in the order of the list, which is the order of the data set.
    old = files.write_pickle(tmp_path / "old.pkl", mmdet_2(label=2))
    assert tp_by_class(config, old)[0] == tp


def test_boxes_with_swapped_corners_are_dropped_and_counted(config, root, tmp_path):
    good, thin = (50, 50, 80, 80), (50, 50, 50, 80)  # the second is one column of pixels in VOC
    bad = [(80, 50, 50, 80), (50, 80, 80, 50), (80, 80, 50, 50)]
    write(root / "Annotations", TEST_SET[0], *(voc_object("ant", box) for box in (good, *bad, thin)))
    truth = read_ground_truth(root, classes=CLASSES)
    assert truth.row_counts.to_dict() == {"read": 7, "used": 4, "dropped": {"corners swapped": 3}}
    results = files.write_pickle(tmp_path / "results.pkl", mmdet_3(label=2))
    assert tp_by_class(config, results)[1]["counts"]["ground_truths"] == truth.row_counts.to_dict()
    inside = [
        {**image, "gt_instances": {"bboxes": np.array([box], np.float32), "labels": np.array([0])}}
        for image, box in zip(mmdet_3(label=0), [good, bad[0], thin])
    ]
    report = tp_by_class("-", files.write_pickle(tmp_path / "inside.pkl", inside), "--classes", "ant")[1]
    assert report["counts"]["ground_truths"] == {"read": 3, "used": 2, "dropped": {"corners swapped": 1}}


def test_results_without_image_ids_need_the_list_of_the_test_set(root, tmp_path, capsys):
    results = files.write_pickle(tmp_path / "old.pkl", mmdet_2(label=2))
    classes = ("--classes", ",".join(CLASSES))
    err = refused(capsys, root, results, *classes)
    assert "old.pkl: has no image ids" in err and "--image-set" in err
    image_set = root / "ImageSets" / "Main" / "test.txt"
    tp, report = tp_by_class(root, results, *classes, "--image-set", image_set)
    assert tp["cat"] == 3
    assert report["inputs"]["results"]["joined_by"] == "position"
    assert report["inputs"]["ground_truth"]["image_set"]["file"] == "test.txt"
    printed = files.printed("detection", root, results, *classes, "--image-set", image_set)
    assert "old.pkl has no image ids: its entries are joined by position" in printed
    # Images are in the order of the list. In sorted order, every box is elsewhere.
    image_set.write_text("\n".join(sorted(TEST_SET)))
    assert tp_by_class(root, results, *classes, "--image-set", image_set)[0]["cat"] < 3
    image_set.write_text("\n".join(TEST_SET[:2]))
    assert "each of the 2 images" in refused(capsys, root, results, *classes, "--image-set", image_set)


def test_the_list_of_the_test_set_chooses_the_images(root, tmp_path, capsys):
    write(root / "Annotations", "000001", voc_object("ant", edges(0)))  # an image of the training set
    results = files.write_pickle(tmp_path / "results.pkl", mmdet_3(label=2))
    classes = ("--classes", ",".join(CLASSES))
    assert "no results for image '000001'" in refused(capsys, root, results, *classes)
    image_set = root / "ImageSets" / "Main" / "test.txt"
    tp, report = tp_by_class(root, results, *classes, "--image-set", image_set)
    assert tp["cat"] == 3 and report["counts"]["images"]["read"] == 3
    assert report["inputs"]["results"]["joined_by"] == "image id"
    for text, message in (
        ("000007\n000099\n", "test.txt: image '000099' without annotations in Annotations"),
        ("000007\n000007\n", "has image id '000007' more than once"),
        ("\n", "lists no image"),
        (b"\xff\xfe\x80", "must be text"),
    ):
        image_set.write_bytes(text if isinstance(text, bytes) else text.encode())
        assert message in refused(capsys, root, results, *classes, "--image-set", image_set)
