"""``mm-metrics detection`` from files to files."""

from __future__ import annotations

import csv
import json
import os

import numpy as np
import pytest

from mm_metrics_plugin.cli import main
from tests.helpers import result_files as files
from tests.helpers.result_files import CLASSES, command, pair, succeeded

pytestmark = pytest.mark.usefixtures("shown_warnings")


def constant(name):
    raise AssertionError(f"{name} is no JSON")


def strict(text):
    return json.loads(text, parse_constant=constant)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with the files of a report under all three protocols, and what was printed."""
    folder = tmp_path_factory.mktemp("report")
    options = [word for name in ("coco", "mmdet", "agnostic") for word in ("--matching", name)]
    done = command("detection", *pair(folder), "out", *options, cwd=folder)
    return folder, succeeded(done), done.stderr


def test_every_file_is_there_and_nothing_else(written):
    folder, _, said = written
    expected = [
        "confidence_curves.png",
        "confusion_matrix.csv",
        "confusion_matrix.png",
        "confusion_matrix_agnostic.png",
    ]
    expected += ["confusion_matrix_mmdet.png", "curves.csv", "per_class.csv", "pr_curves.png"]
    expected += ["report.json", "report.md"]
    assert sorted(os.listdir(folder / "out")) == expected
    assert said.count("\n") == 1 and "report.json" in said


def test_the_sums_balance(written):
    report = strict((written[0] / "out" / "report.json").read_text())
    for tally in report["counts"].values():
        assert tally["read"] == tally["used"] + sum(tally["dropped"].values())
    used, there = report["counts"]["detections"]["used"], report["counts"]["ground_truths"]["used"]
    assert report["counts"]["detections"]["dropped"]["score below 0.3"] > 0
    for name, protocol in report["protocols"].items():
        matrix, counts = np.array(protocol["confusion_matrix"]), protocol["counts"]
        assert counts["detections"] + counts["detections_ignored"] == used
        assert counts["ground_truths"] + counts["ground_truths_ignored"] == there
        assert matrix[:-1].sum() == counts["ground_truths"] + counts["ground_truths_counted_again"]
        assert matrix[:, :-1].sum() == counts["detections"] + counts["detections_counted_again"]
        assert sum(row["ground_truths"] for row in protocol["per_class"]) == counts["ground_truths"]
        assert sum(row["detections"] for row in protocol["per_class"]) == counts["detections"]
        if name != "mmdet":
            for row in protocol["per_class"]:
                assert row["tp"] + row["fn"] == row["ground_truths"] and row["tp"] + row["fp"] == row["detections"]
    assert report["protocols"]["mmdet"]["counts"]["duplicates"] > 0


def test_the_schema(written):
    report = strict((written[0] / "out" / "report.json").read_text())
    assert list(report)[:6] == ["schema_version", "classes", "settings", "inputs", "counts", "protocols"]
    assert report["schema_version"] == 3 and report["classes"] == list(CLASSES)
    assert (
        report["inputs"]["results"]["file"] == "results.pkl" and len(report["inputs"]["ground_truth"]["sha256"]) == 64
    )
    assert list(report["protocols"]) == ["coco", "mmdet", "agnostic"]
    keys = {"confusion_matrix", "per_class", "precision", "recall", "f1_of_means", "f1", "f1_micro"}
    row_keys = ["name", "ground_truths", "detections", "tp", "fp", "fn", "precision", "recall", "f1"]
    row_keys += ["fp_confusion", "fp_confusion_matched", "fp_duplicate", "fp_background"]
    for protocol in report["protocols"].values():
        assert keys <= set(protocol)
        assert [list(row) for row in protocol["per_class"]] == [row_keys] * len(CLASSES)


def test_tables_agree_with_the_json(written):
    report = strict((written[0] / "out" / "report.json").read_text())
    with open(written[0] / "out" / "per_class.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for protocol, content in report["protocols"].items():
        mine = [row for row in rows if row["protocol"] == protocol]
        for found, expected in zip(mine, content["per_class"]):
            assert found["name"] == expected["name"] and int(found["tp"]) == expected["tp"]
            assert float(found["f1"]) == expected["f1"]  # to the last digit
    with open(written[0] / "out" / "confusion_matrix.csv", newline="") as file:
        header, *body = csv.reader(file)
    assert header == ["protocol", "ground_truth \\ prediction", *CLASSES, "background"]
    matrix = [list(map(int, row[2:])) for row in body if row[0] == "mmdet"]
    assert matrix == report["protocols"]["mmdet"]["confusion_matrix"]


def test_formats_print_what_the_files_hold(written, tmp_path):
    folder, _, _ = written
    out = folder / "out"
    options = [word for name in ("coco", "mmdet", "agnostic") for word in ("--matching", name)]
    for name, file in (("json", "report.json"), ("csv", "per_class.csv"), ("md", "report.md")):
        done = command("detection", folder / "truth.json", folder / "results.pkl", *options, "--format", name, cwd="/")
        assert succeeded(done) == (out / file).read_text() and done.stderr == ""


def test_quiet_prints_nothing(written, tmp_path):
    folder, _, _ = written
    done = command("detection", folder / "truth.json", folder / "results.pkl", tmp_path / "a" / "b", "--quiet", cwd="/")
    assert (succeeded(done), done.stderr) == ("", "")
    names = os.listdir(tmp_path / "a" / "b")
    assert sorted(names) == [
        *("confidence_curves.png", "confusion_matrix.csv", "confusion_matrix.png"),
        *("curves.csv", "per_class.csv", "pr_curves.png", "report.json", "report.md"),
    ]


@pytest.mark.parametrize(("options", "imported"), [([], []), (["--ci", "0.95"], ["scipy"])])
def test_torch_and_scipy_are_imported_only_where_needed(options, imported, written):
    code = f"""
import sys
sys.argv = ["mm-metrics", "detection", "truth.json", "results.pkl", "--quiet", *{options}]
from mm_metrics_command import main
assert main() == 0
print([name for name in ("torch", "mmengine", "mmdet", "matplotlib", "scipy", "sklearn") if name in sys.modules])
"""
    assert succeeded(command(cwd=written[0], script=("-c", code))) == f"{imported}\n"


def report_of(*arguments):
    return strict(files.printed("detection", *arguments, "--format", "json"))


def matrices(report):
    return {name: one["confusion_matrix"] for name, one in report["protocols"].items()}


def test_every_source_of_truth_and_every_dialect_says_the_same(tmp_path):
    """One problem in whole pixels as COCO, VOC and truth inside; as mmdet 3, mmdet 2 and COCO results."""
    made = files.problem(12)
    whole = made._replace(
        boxes=np.round(made.boxes),
        gt_boxes=np.round(made.gt_boxes).clip(0, 479),
        scores=np.round(made.scores, 3).astype(np.float32),
    )
    keep = (whole.gt_boxes[:, 2:] - whole.gt_boxes[:, :2] >= 1).all(axis=1)
    whole = whole._replace(**{k: getattr(whole, k)[keep] for k in whole._fields if k.startswith("gt_")})
    truth = files.write_json(tmp_path / "truth.json", files.truth_of(whole))
    content = files.results_of(whole)
    results = files.write_pickle(tmp_path / "results.pkl", content)
    expected = report_of(truth, results)
    assert sum(map(sum, matrices(expected)["coco"])) > 50

    # Results in another order, and as the two other dialects.
    shuffled = files.write_pickle(tmp_path / "shuffled.pkl", content[::-1])
    assert matrices(report_of(truth, shuffled)) == matrices(expected)
    lists = []
    for image in content:
        found = image["pred_instances"]
        rows = np.column_stack([found["bboxes"], found["scores"]]).astype(np.float32)
        lists.append([rows[found["labels"] == label] for label in range(len(CLASSES))])
    old = files.write_pickle(tmp_path / "old.pkl", lists)
    assert matrices(report_of(truth, old)) == matrices(expected)
    rows = []
    for image in content:
        found = image["pred_instances"]
        for box, score, label in zip(found["bboxes"].tolist(), found["scores"].tolist(), found["labels"].tolist()):
            size = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
            rows.append({"image_id": image["img_id"], "category_id": label + 1, "bbox": size, "score": score})
    coco = files.write_json(tmp_path / "coco.json", rows)
    assert matrices(report_of(truth, coco)) == matrices(expected)
    # NMS of boxes written as width and height is the same as of edges.
    nms = ("--nms-iou-thr", "0.3")
    suppressed = matrices(report_of(truth, results, *nms))
    assert suppressed != matrices(expected) and matrices(report_of(truth, coco, *nms)) == suppressed

    # Truth inside, with crowds apart, as mmyolo writes it.
    inside = []
    for number, image in enumerate(content):
        parts = {}
        for key, crowd in (("gt_instances", False), ("ignored_instances", True)):
            here = (whole.gt_image == number) & (whole.gt_crowd == crowd)
            parts[key] = {"bboxes": whole.gt_boxes[here], "labels": whole.gt_labels[here]}
        inside.append({**image, **parts})
    within = files.write_pickle(tmp_path / "inside.pkl", inside)
    found = report_of("-", within, "--classes", "cat,dog,traffic light,a|b")
    assert matrices(found) == matrices(expected) and found["classes"] == list(CLASSES)
    assert "ground_truth" not in found["inputs"]

    # VOC counts pixels from 1; difficult objects are its crowds.
    folder = tmp_path / "voc"
    folder.mkdir()
    for number in range(whole.num_images):
        objects = ""
        for row in np.flatnonzero(whole.gt_image == number):
            edges = zip(("xmin", "ymin", "xmax", "ymax"), whole.gt_boxes[row])
            box = "".join(f"<{edge}>{int(value) + 1}</{edge}>" for edge, value in edges)
            name, difficult = CLASSES[whole.gt_labels[row]], int(whole.gt_crowd[row])
            objects += f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox>{box}</bndbox></object>"
        (folder / f"{number + 1:03d}.xml").write_text(f"<annotation>{objects}</annotation>")
    named = [{**image, "img_id": f"{image['img_id']:03d}"} for image in content]
    voc = files.write_pickle(tmp_path / "voc.pkl", named)
    names = tmp_path / "classes.txt"
    names.write_text("\n".join(CLASSES) + "\n")
    found = report_of(folder, voc, "--classes", names)
    assert matrices(found) == matrices(expected) and found["classes"] == list(CLASSES)


def test_undefined_is_null_and_left_out_of_the_means(tmp_path):
    """A class nobody drew and nobody found."""
    made = files.problem(10)
    truth = files.write_json(tmp_path / "truth.json", files.truth_of(made, (*CLASSES, "unicorn")))
    results = files.write_pickle(tmp_path / "results.pkl", files.results_of(made))
    report = report_of(truth, results)
    for protocol in report["protocols"].values():
        unicorn = protocol["per_class"][-1]
        assert (unicorn["precision"], unicorn["recall"], unicorn["f1"], unicorn["ground_truths"]) == (
            None,
            None,
            None,
            0,
        )
        defined = [row["precision"] for row in protocol["per_class"][:-1]]
        assert protocol["precision"] == pytest.approx(np.mean(defined))
        assert protocol["classes_averaged"]["precision"] == len(CLASSES)
    assert "precision is over 4 of 5 classes" in files.printed("detection", truth, results)


def test_missing_images_name_the_option_that_allows_them(tmp_path, capsys):
    made = files.problem(8)
    truth = files.write_json(tmp_path / "truth.json", files.truth_of(made))
    content = files.results_of(made)
    runs = [files.write_pickle(tmp_path / f"{name}.pkl", content[a:b]) for name, a, b in (("a", 0, 3), ("b", 3, 6))]
    for given in (runs[:1], runs):
        assert main(["detection", str(truth), *map(str, given)]) == 2
        assert "--allow-missing" in capsys.readouterr().err


def test_the_table_per_class_has_average_precision_and_intervals(tmp_path):
    truth, results = pair(tmp_path)
    files.printed("detection", truth, results, tmp_path / "out", "--ci", "0.9", "--resamples", "20")
    report = strict((tmp_path / "out" / "report.json").read_text())
    with open(tmp_path / "out" / "per_class.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    coco = [row for row in rows if row["protocol"] == "coco"]
    assert [float(row["AP"]) for row in coco] == [one["AP"] for one in report["average_precision"]["per_class"]]
    for name in ("recall", "AP_50"):
        for end in ("low", "high"):
            found = [float(row[f"{name}_{end}"]) if row[f"{name}_{end}"] else None for row in coco]
            assert found == report["intervals"]["per_class"][name][end]
    assert {row[key] for row in rows if row["protocol"] == "mmdet" for key in ("AP", "AP_low")} == {""}


def test_masks_that_are_not_evaluated_are_counted(tmp_path):
    made = files.problem(8)
    truth = files.write_json(tmp_path / "truth.json", files.truth_of(made))
    content = files.results_of(made)
    for image in content[:3]:
        image["pred_instances"]["masks"] = [{"size": [4, 4], "counts": "04"}] * len(image["pred_instances"]["scores"])
    number = sum(len(image["pred_instances"]["scores"]) for image in content[:3])
    path = files.write_pickle(tmp_path / "masks.pkl", content)
    assert f"masks: not evaluated ({number} detections)" in files.printed("detection", truth, path)
    assert report_of(truth, path)["inputs"]["results"]["masks"] == number
    rows = [
        {"image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "score": 0.5},
        {"image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "score": 0.5, "segmentation": {"counts": "04"}},
    ]
    path = files.write_json(tmp_path / "rows.json", rows)
    assert "masks: not evaluated (1 detection)" in files.printed("detection", truth, path)
    boxes = [[np.full((2 + at % 2, 5), 0.5, np.float32) for _ in range(4)] for at in range(8)]
    old = [(one, [[]] * 4) if at % 2 else one for at, one in enumerate(boxes)]
    path = files.write_pickle(tmp_path / "old.pkl", old)
    assert "masks: not evaluated (48 detections)" in files.printed("detection", truth, path)
    assert "masks" not in files.printed("detection", *pair(tmp_path))


def test_allow_missing_says_so(tmp_path):
    made = files.problem(8)
    truth = files.write_json(tmp_path / "truth.json", files.truth_of(made))
    content = files.results_of(made)
    some = files.write_pickle(tmp_path / "some.pkl", content[:6])
    none = {"bboxes": np.empty((0, 4), np.float32), "scores": np.empty(0, np.float32), "labels": np.empty(0, int)}
    empty = [*content[:6], *({**image, "pred_instances": none} for image in content[6:])]
    expected = report_of(truth, files.write_pickle(tmp_path / "empty.pkl", empty))
    found = report_of(truth, some, "--allow-missing")
    assert matrices(found) == matrices(expected)
    assert found["counts"]["images"]["without_results"] == 2
    assert "2 images without results" in " ".join(found["remarks"])


def test_choosing_classes_drops_the_others(tmp_path):
    made = files.problem(10)
    truth = files.write_json(tmp_path / "truth.json", files.truth_of(made))
    rows = [
        {"image_id": 1, "category_id": label + 1, "bbox": [0, 0, 10, 10], "score": 0.9} for label in range(len(CLASSES))
    ]
    report = report_of(truth, files.write_json(tmp_path / "r.json", rows), "--classes", "dog,traffic light")
    assert report["classes"] == ["dog", "traffic light"]
    assert report["counts"]["detections"] == {"read": 4, "used": 2, "dropped": {"class not chosen": 2}}
    assert report["counts"]["ground_truths"]["dropped"]["class not chosen"] > 0


def test_thresholds_are_those_of_the_tool(tmp_path):
    truth, results = pair(tmp_path)
    loose, strict_ = (report_of(truth, results, "--score-thr", thr) for thr in ("0.1", "0.6"))
    used = [one["counts"]["detections"]["used"] for one in (loose, strict_)]
    scores = files.problem().scores
    assert used == [int((scores >= np.float32(thr)).sum()) for thr in (0.1, 0.6)]
    tight = report_of(truth, results, "--tp-iou-thr", "0.9")
    assert tight["protocols"]["coco"]["recall_micro"] < loose["protocols"]["coco"]["recall_micro"]
    # 0 is a threshold like any other, though mmdet's tool takes it for none: no two of a class may overlap.
    apart = report_of(truth, results, "--nms-iou-thr", "0")
    assert apart["counts"]["detections"]["dropped"]["removed by NMS"] > 0
    assert apart["settings"]["nms_iou_thr"] == 0


def test_names_cannot_command_the_terminal(tmp_path):
    made = files.problem(5)
    truth = files.write_json(tmp_path / "truth.json", files.truth_of(made, ("\x1b[2Jcat", "[red]dog", "x\ny", "é中")))
    results = files.write_pickle(tmp_path / "results.pkl", files.results_of(made))
    text = files.printed("detection", truth, results, tmp_path / "out")
    assert "\x1b" not in text and "\\x1b[2Jcat" in text and "[red]dog" in text and "é中" in text
    assert "\x1b" not in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_the_bundled_results(tmp_path):
    done = command("detection", files.DEMO / "annotations.json", files.DEMO / "results.pkl", tmp_path / "out", cwd="/")
    text = succeeded(done)
    report = strict((tmp_path / "out" / "report.json").read_text())
    assert report["counts"]["images"]["read"] >= 200
    assert all(row["tp"] > 0 for row in report["protocols"]["coco"]["per_class"])
    assert "frame → ring: 10" in text and "===Averaging all classes===" not in text
    assert sum(path.stat().st_size for path in files.DEMO.iterdir()) <= 2_000_000
