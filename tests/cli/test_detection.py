"""``mm-metrics detection`` from files to files."""

from __future__ import annotations

import csv
import json
import os

import numpy as np
import pytest

from mm_metrics_plugin import evaluate_detection
from tests.helpers import result_files as files
from tests.helpers.result_files import CLASSES, command, pair, succeeded

pytestmark = pytest.mark.usefixtures("shown_warnings")


OPTIONS = [word for name in ("coco", "mmdet", "agnostic") for word in ("--matching", name)]
OPTIONS += ["--ci", "0.9", "--resamples", "20"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of a report with all three matching rules, its report.json, and the message on stderr."""
    folder = tmp_path_factory.mktemp("report")
    done = command("detection", *pair(folder), "out", *OPTIONS, cwd=folder)
    succeeded(done)
    return folder, json.loads((folder / "out" / "report.json").read_text()), done.stderr


def test_all_files_are_written_and_named(written):
    folder, _, error = written
    assert sorted(os.listdir(folder / "out")) == [
        *("confidence_curves.png", "confusion_matrix.csv", "confusion_matrix.png", "confusion_matrix_agnostic.png"),
        *("confusion_matrix_mmdet.png", "curves.csv", "froc_curves.png", "per_class.csv", "pr_curves.png"),
        *("report.json", "report.md"),
    ]
    assert error.count("\n") == 1 and "report.json" in error


def test_counts_add_up(written):
    _, report, _ = written
    for counts in report["counts"].values():
        assert counts["read"] == counts["used"] + sum(counts["dropped"].values())
    used, gts = report["counts"]["detections"]["used"], report["counts"]["ground_truths"]["used"]
    assert report["counts"]["detections"]["dropped"]["score below 0.3"] > 0
    for name, rule in report["matching_rules"].items():
        matrix, counts = np.array(rule["confusion_matrix"]), rule["counts"]
        assert counts["detections"] + counts["detections_ignored"] == used
        assert counts["ground_truths"] + counts["ground_truths_ignored"] == gts
        assert matrix[:-1].sum() == counts["ground_truths"] + counts["ground_truths_counted_again"]
        assert matrix[:, :-1].sum() == counts["detections"] + counts["detections_counted_again"]
        assert sum(row["ground_truths"] for row in rule["per_class"]) == counts["ground_truths"]
        assert sum(row["detections"] for row in rule["per_class"]) == counts["detections"]
        if name != "mmdet":
            for row in rule["per_class"]:
                assert row["tp"] + row["fn"] == row["ground_truths"] and row["tp"] + row["fp"] == row["detections"]
    assert report["matching_rules"]["mmdet"]["counts"]["duplicates"] > 0


def test_the_schema(written):
    _, report, _ = written
    assert list(report)[:6] == ["schema_version", "classes", "settings", "inputs", "counts", "matching_rules"]
    assert report["schema_version"] == 3 and report["classes"] == list(CLASSES)
    assert (
        report["inputs"]["results"]["file"] == "results.pkl" and len(report["inputs"]["ground_truth"]["sha256"]) == 64
    )
    assert list(report["matching_rules"]) == ["coco", "mmdet", "agnostic"]
    keys = {"confusion_matrix", "per_class", "precision", "recall", "f1_of_means", "f1", "f1_micro"}
    row_keys = ["name", "ground_truths", "detections", "tp", "fp", "fn", "precision", "recall", "f1"]
    row_keys += ["fp_confusion", "fp_confusion_matched", "fp_duplicate", "fp_background"]
    for rule in report["matching_rules"].values():
        assert keys <= set(rule)
        assert [list(row) for row in rule["per_class"]] == [row_keys] * len(CLASSES)


def test_csv_files_equal_the_json(written):
    folder, report, _ = written
    with open(folder / "out" / "per_class.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for rule, content in report["matching_rules"].items():
        for row, expected in zip((row for row in rows if row["matching"] == rule), content["per_class"]):
            assert row["name"] == expected["name"] and int(row["tp"]) == expected["tp"]
            assert float(row["f1"]) == expected["f1"]  # to the last digit
    coco = [row for row in rows if row["matching"] == "coco"]
    assert [float(row["AP"]) for row in coco] == [row["AP"] for row in report["average_precision"]["per_class"]]
    for name in ("recall", "AP_50"):
        for end in ("low", "high"):
            column = [float(row[f"{name}_{end}"]) if row[f"{name}_{end}"] else None for row in coco]
            assert column == report["intervals"]["per_class"][name][end]
    assert {row[key] for row in rows if row["matching"] == "mmdet" for key in ("AP", "AP_low")} == {""}
    with open(folder / "out" / "confusion_matrix.csv", newline="") as file:
        header, *body = csv.reader(file)
    assert header == ["matching", "ground_truth \\ prediction", *CLASSES, "background"]
    matrix = [list(map(int, row[2:])) for row in body if row[0] == "mmdet"]
    assert matrix == report["matching_rules"]["mmdet"]["confusion_matrix"]


def test_formats_print_the_files(written):
    folder, _, _ = written
    for name, file in (("json", "report.json"), ("csv", "per_class.csv"), ("md", "report.md")):
        text = files.printed("detection", folder / "truth.json", folder / "results.pkl", *OPTIONS, "--format", name)
        assert text == (folder / "out" / file).read_text()


@pytest.mark.parametrize(("options", "imported"), [([], []), (["--ci", "0.95"], ["scipy"])])
def test_torch_and_scipy_are_imported_only_if_needed(options, imported, written):
    code = f"""
import sys
sys.argv = ["mm-metrics", "detection", "truth.json", "results.pkl", "--quiet", *{options}]
from mm_metrics_command import main
assert main() == 0
print([name for name in ("torch", "mmengine", "mmdet", "matplotlib", "scipy", "sklearn") if name in sys.modules])
"""
    assert succeeded(command(cwd=written[0], script=("-c", code))) == f"{imported}\n"


def report_of(*arguments):
    return files.report_of("detection", *arguments)


def matrices(report):
    return {name: rule["confusion_matrix"] for name, rule in report["matching_rules"].items()}


def test_all_formats_of_ground_truth_and_results_give_the_same_report(tmp_path):
    """Boxes in whole pixels; ground truth as COCO, VOC and in the results; results of mmdet 3, mmdet 2 and COCO."""
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

    # Ground truth in the results.
    inside = files.with_ground_truth(whole, content)
    within = files.write_pickle(tmp_path / "inside.pkl", inside)
    found = report_of("-", within, "--classes", "cat,dog,traffic light,a|b")
    assert matrices(found) == matrices(expected) and found["classes"] == list(CLASSES)
    assert "ground_truth" not in found["inputs"]
    halves = [files.write_pickle(tmp_path / f"half{n}.pkl", inside[n::2]) for n in (0, 1)]
    for paths in ([within], halves):
        found = report_of("-", *paths)
        assert matrices(found) == matrices(expected) and found["classes"] == ["0", "1", "2", "3"]

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


def test_remarks_on_crowd_regions():
    paths = files.DEMO / "annotations.json", files.DEMO / "results.pkl"
    for matching, words in (("mmdet", "mmdet counts 55 crowd regions"), ("coco", "coco ignores 55 crowd regions")):
        assert words in " ".join(evaluate_detection(*paths, matching=matching, matrix_only=True).remarks)


def test_undefined_values_are_null_and_left_out_of_the_means(tmp_path):
    """A class without ground truths and detections."""
    made = files.problem(10)
    truth = files.write_json(tmp_path / "truth.json", files.truth_of(made, (*CLASSES, "unicorn")))
    results = files.write_pickle(tmp_path / "results.pkl", files.results_of(made))
    report = report_of(truth, results)
    for rule in report["matching_rules"].values():
        unicorn = rule["per_class"][-1]
        assert [unicorn[key] for key in ("precision", "recall", "f1", "ground_truths")] == [None, None, None, 0]
        defined = [row["precision"] for row in rule["per_class"][:-1]]
        assert rule["precision"] == pytest.approx(np.mean(defined))
        assert rule["classes_averaged"]["precision"] == len(CLASSES)
    assert "precision is over 4 of 5 classes" in files.printed("detection", truth, results)


def test_masks_are_found_in_all_formats(tmp_path):
    """That they are named is tested with comparisons."""
    made = files.problem(8)
    content = files.results_of(made)
    for image in content[:3]:
        image["pred_instances"]["masks"] = [{"size": [4, 4], "counts": "04"}] * len(image["pred_instances"]["scores"])
    row = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "score": 0.5}
    boxes = [[np.full((2 + n % 2, 5), 0.5, np.float32) for _ in range(4)] for n in range(8)]
    old = [(image, [[]] * 4) if n % 2 else image for n, image in enumerate(boxes)]
    for results in (content, [row, {**row, "segmentation": {"counts": "04"}}], old):
        assert evaluate_detection(files.truth_of(made), results).inputs["results"]["not_evaluated"] == ["masks"]


def test_allow_missing_evaluates_images_without_results_as_empty(tmp_path):
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
    sentence = "2 images without results, evaluated as having no detections"
    assert sentence in found["remarks"]
    evaluate_detection(truth, some, allow_missing=True).save(tmp_path / "out", html=True)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count(sentence) == 1 and page.index(sentence) < page.index("Why the matching rules differ")


def test_score_iou_and_nms_thresholds(tmp_path):
    truth, results = pair(tmp_path)
    low, high = (report_of(truth, results, "--score-thr", thr) for thr in ("0.1", "0.6"))
    used = [report["counts"]["detections"]["used"] for report in (low, high)]
    scores = files.problem().scores
    assert used == [int((scores >= np.float32(thr)).sum()) for thr in (0.1, 0.6)]
    strict = report_of(truth, results, "--tp-iou-thr", "0.9")
    assert strict["matching_rules"]["coco"]["recall_micro"] < low["matching_rules"]["coco"]["recall_micro"]
    # 0 is a valid threshold, unlike in mmdet's tool: no two detections of a class may overlap.
    suppressed = report_of(truth, results, "--nms-iou-thr", "0")
    assert suppressed["counts"]["detections"]["dropped"]["removed by NMS"] > 0
    assert suppressed["settings"]["nms_iou_thr"] == 0
