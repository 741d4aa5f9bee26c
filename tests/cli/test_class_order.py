"""The order of classes: from annotation files, configs and --classes, as mmdet numbers labels, and in reports."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers import result_files as files

pytestmark = pytest.mark.usefixtures("shown_warnings")

FILE_ORDER = ("dog", "cat", "emu")  # of the annotation file's categories
CONFIG = """
default_scope = 'mmdet'
test_dataloader = dict(dataset=dict(
    type='{type}', data_root={root!r}, ann_file={ann_file!r}, data_prefix=dict({prefix}), test_mode=True,
    metainfo=dict(classes={classes!r}), pipeline=[]))
"""


def box(label):
    return [10.0 + 40 * label, 10.0, 20.0, 20.0]


def annotations(names=FILE_ORDER):
    """One object of each class in each of two images, each class at its own place."""
    place = {name: FILE_ORDER.index(name) for name in names}
    rows = [(image, at) for image in (8, 5) for at in range(len(names))]
    return {
        "images": [{"id": one, "file_name": f"{one}.png", "height": 100, "width": 200} for one in (8, 5)],
        "categories": [{"id": 10 * at + 7, "name": name} for at, name in enumerate(names)],
        "annotations": [
            {
                "id": number + 1,
                "image_id": image,
                "category_id": 10 * at + 7,
                "bbox": box(place[names[at]]),
                "area": 400,
                "iscrowd": 0,
            }
            for number, (image, at) in enumerate(rows)
        ],
    }


def results(order, missed="emu"):
    """A detector whose labels follow ``order``, and which misses one class."""
    found = [name for name in order if name != missed and name in FILE_ORDER]
    boxes = np.array([box(FILE_ORDER.index(name)) for name in found])
    boxes[:, 2:] += boxes[:, :2]
    instances = {
        "bboxes": boxes,
        "scores": np.full(len(found), 0.9),
        "labels": np.array([order.index(name) for name in found]),
    }
    return [{"img_id": one, "pred_instances": instances} for one in (5, 8)]


@pytest.fixture
def folder(tmp_path):
    files.write_json(tmp_path / "truth.json", annotations())
    files.write_pickle(tmp_path / "results.pkl", results(FILE_ORDER))
    return tmp_path


def config(folder, classes, ann_file="truth.json", name="config.py"):
    path = folder / name
    text = CONFIG.format(type="CocoDataset", root=f"{folder}/", ann_file=ann_file, prefix="img=''", classes=classes)
    path.write_text(text)
    return path


def report_of(*arguments, subcommand="detection"):
    return files.report_of(subcommand, *arguments)


def recalls(report):
    return {row["name"]: row["recall"] for row in report["matching_rules"]["coco"]["per_class"]}


def error_of(capsys, *arguments, subcommand="detection"):
    return files.error_of(capsys, subcommand, *arguments)


RIGHT = {"dog": 1.0, "cat": 1.0, "emu": 0.0}


def test_config_and_annotation_file_give_the_same_classes(folder, capsys):
    """In mmdet, labels follow the order of the file; the config only names them."""
    alone = report_of(folder / "truth.json", folder / "results.pkl")
    assert recalls(alone) == RIGHT and alone["inputs"]["class_order"] == "annotations"
    capsys.readouterr()
    same = report_of(config(folder, FILE_ORDER), folder / "results.pkl")
    assert capsys.readouterr().err.count("warning") == 0
    other = report_of(config(folder, ("emu", "dog", "cat")), folder / "results.pkl")
    error = capsys.readouterr().err
    assert recalls(same) == recalls(other) == RIGHT
    assert other["classes"] == list(FILE_ORDER) and other["inputs"]["class_order"] == "annotations"
    assert "'dog', 'cat', 'emu'" in error and "'emu', 'dog', 'cat'" in error and "label 0 is 'dog' or 'emu'" in error


def test_labels_are_those_of_mmdet(folder):
    from mmdet.datasets import CocoDataset

    from mm_metrics_plugin.io.readers import read_ground_truth

    classes = ("emu", "dog", "cat")
    dataset = CocoDataset(
        ann_file=str(folder / "truth.json"),
        metainfo={"classes": classes},
        data_prefix={"img": ""},
        test_mode=True,
        pipeline=[],
    )
    name_of = {row["id"]: row["name"] for row in annotations()["categories"]}
    by_label = {label: name_of[category] for category, label in dataset.cat2label.items()}
    with pytest.warns(UserWarning, match="metainfo lists"):
        truth = read_ground_truth(config(folder, classes))
    assert truth.classes == tuple(by_label[label] for label in range(3)) != dataset.metainfo["classes"]
    labels = [one["bbox_label"] for at in range(2) for one in dataset.get_data_info(at)["instances"]]
    assert truth.objects.labels.tolist() == labels


@pytest.mark.parametrize("truth", ["truth.json", "config.py"])
@pytest.mark.parametrize("subcommand", ["detection", "compare"])
def test_classes_in_another_order_need_class_order(folder, capsys, truth, subcommand):
    config(folder, FILE_ORDER)
    order = ("cat", "emu", "dog")
    runs = [folder / "results.pkl"] if subcommand == "detection" else [folder / "results.pkl"] * 2
    given = [folder / truth, *runs, "--classes", ",".join(order)]
    error = error_of(capsys, *given, subcommand=subcommand)
    assert "results.pkl" in error and "'dog', 'cat', 'emu'" in error and "'cat', 'emu', 'dog'" in error
    assert "--class-order annotations" in error and "--class-order classes" in error

    own = files.write_pickle(folder / "own.pkl", results(order))
    for answer, run, classes in (
        ("annotations", folder / "results.pkl", FILE_ORDER),
        ("classes", own, order),
    ):
        runs = [run] * (1 if subcommand == "detection" else 2)
        options = ("--classes", ",".join(order), "--class-order", answer)
        report = report_of(folder / truth, *runs, *options, subcommand=subcommand)
        assert report["classes"] == list(classes) and report["inputs"]["class_order"] == answer
        if subcommand == "detection":
            assert recalls(report) == RIGHT
        else:
            rows = [row for row in report["comparisons"][0]["per_class"] if row["metric"] == "recall"]
            assert {row["class_name"]: row["first"] for row in rows} == RIGHT


def test_category_ids_need_no_class_order(folder):
    rows = [
        {"image_id": image, "category_id": 10 * at + 7, "bbox": box(at), "score": 0.9}
        for image in (5, 8)
        for at in (0, 1)
    ]
    found = files.write_json(folder / "found.json", rows)
    for order in ([], ["--class-order", "annotations"], ["--class-order", "classes"]):
        assert recalls(report_of(folder / "truth.json", found, "--classes", "cat,emu,dog", *order)) == RIGHT


def test_an_annotation_file_that_lacks_classes_of_the_model(folder, capsys):
    """Mmdet numbers the remaining classes from 0, unlike the labels of the model."""
    model = ("ant", "cat", "dog", "emu")
    path = config(folder, model)
    own = files.write_pickle(folder / "own.pkl", results(model))
    error = error_of(capsys, path, own)
    assert "label 0 is 'dog' or 'ant'" in error and "--class-order classes" in error
    report = report_of(path, own, "--class-order", "classes")
    assert {name: value for name, value in recalls(report).items() if name != "ant"} == RIGHT
    assert report["classes"] == list(model)
    assert recalls(report_of(path, folder / "results.pkl", "--class-order", "annotations")) == RIGHT

    assert "has no class 'ant'" in error_of(capsys, folder / "truth.json", own, "--classes", ",".join(model))
    report = report_of(folder / "truth.json", own, "--classes", ",".join(model), "--class-order", "classes")
    assert {name: value for name, value in recalls(report).items() if name != "ant"} == RIGHT
    # Classes after those of the file change no label.
    assert recalls(report_of(config(folder, (*FILE_ORDER, "yak")), folder / "results.pkl"))["dog"] == 1.0


def test_classes_that_number_labels_unlike_the_config(folder, capsys):
    path = config(folder, FILE_ORDER)
    error = error_of(capsys, path, folder / "results.pkl", "--classes", "cat,emu")
    assert "label 0 is 'dog' or 'cat'" in error and "--class-order" in error
    own = files.write_pickle(folder / "own.pkl", results(("cat", "emu")))
    assert recalls(report_of(path, own, "--classes", "cat,emu", "--class-order", "classes")) == {"cat": 1.0, "emu": 0.0}


@pytest.mark.parametrize("other_name", ["other.json", "other/truth.json"])
def test_annotation_files_of_one_test_set_must_agree(folder, capsys, other_name):
    other = annotations(("cat", "dog", "emu"))
    for image in other["images"]:
        image["id"] += 100
    for row in other["annotations"]:
        row["image_id"] += 100
    (folder / "other").mkdir(exist_ok=True)
    other_file = files.write_json(folder / other_name, other)
    parts = ", ".join(
        f"dict(type='CocoDataset', ann_file={str(folder / name)!r}, data_prefix=dict(img=''), test_mode=True, "
        f"metainfo=dict(classes={FILE_ORDER!r}), pipeline=[])"
        for name in ("truth.json", other_name)
    )
    path = folder / "both.py"
    path.write_text(
        f"default_scope = 'mmdet'\ntest_dataloader = dict(dataset=dict(type='ConcatDataset', datasets=[{parts}]))\n"
    )
    error = error_of(capsys, path, folder / "results.pkl")
    shown = other_file.name if other_name == "other.json" else other_file
    assert f"truth.json lists 'dog', 'cat', 'emu' and {shown} lists 'cat', 'dog', 'emu'" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-", "results.pkl", "--class-order", "classes"], "--class-order"),
        (["-", "results.pkl", "--image-set", "a.txt"], "--image-set"),
        (["truth.json", "results.pkl", "--class-order", "classes"], "--class-order classes needs class names"),
        (["truth.json", "results.pkl", "--image-set", "truth.json"], "requires a folder of VOC annotations"),
        (["config.py", "results.pkl", "--image-set", "truth.json"], "found a config"),
        (["truth.json", "results.pkl", "--classes", "x", "--class-order", "classes"], "has no class 'x'"),
    ],
)
def test_options_that_do_not_fit(folder, capsys, monkeypatch, arguments, message):
    config(folder, FILE_ORDER)
    monkeypatch.chdir(folder)
    assert message in error_of(capsys, *arguments)


def test_classifier_names_in_two_orders(tmp_path, capsys):
    pytest.importorskip("mmpretrain")
    samples = files.write_pickle(tmp_path / "results.pkl", files.samples(30))
    path = tmp_path / "config.py"
    path.write_text(
        "default_scope = 'mmpretrain'\ntest_dataloader = dict(dataset=dict(type='CustomDataset', "
        f"data_root={str(tmp_path)!r}, metainfo=dict(classes=('cat', 'dog', 'bird')), pipeline=[]))\n"
    )
    options = ("--config", path, "--classes", "dog,cat,bird")
    error = error_of(capsys, samples, *options, subcommand="classification")
    assert "'cat', 'dog', 'bird'" in error and "'dog', 'cat', 'bird'" in error
    report = report_of(samples, "--classes", "dog,cat,bird", subcommand="classification")
    assert report["inputs"]["class_order"] == "classes"
    assert report_of(samples, subcommand="classification")["inputs"]["class_order"] == "labels"
