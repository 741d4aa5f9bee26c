"""Unusual files that the command accepts."""

from __future__ import annotations

import csv
import json
import os
import re

import numpy as np

from tests.helpers import result_files as files
from tests.helpers.bad_input import (
    PROBLEM,
    RESULTS,
    TRUTH,
    annotated,
    changed,
    command,
    detection_files,
    refused,
    reported,
)

CLASS_NAMES = ("猫", "chien é", "светофор", "Ω|b")


def test_inverted_boxes(tmp_path):
    swap = changed(bboxes=lambda boxes: boxes[:, [2, 3, 0, 1]])
    plain = reported("detection", *detection_files(tmp_path))
    report = reported("detection", *detection_files(tmp_path, annotated(bbox=[5, 5, -3, -3]), swap))
    assert sum(report["counts"]["ground_truths"]["dropped"].values()) == 1
    assert report["counts"]["detections"]["used"] == plain["counts"]["detections"]["used"]
    assert sum(row["tp"] for row in report["protocols"]["coco"]["per_class"]) < sum(
        row["tp"] for row in plain["protocols"]["coco"]["per_class"]
    )


def test_one_image(tmp_path):
    annotations = [row for row in TRUTH["annotations"] if row["image_id"] == 1]
    first = {**TRUTH, "images": TRUTH["images"][:1], "annotations": annotations}
    report = reported("detection", *detection_files(tmp_path, lambda _: first, lambda results: results[:1]))
    assert report["counts"]["images"]["used"] == 1


def test_no_images_in_files(tmp_path):
    nothing = files.write_json(tmp_path / "truth.json", {**TRUTH, "images": [], "annotations": []})
    report = reported("detection", nothing, files.write_json(tmp_path / "results.json", []))
    assert report["counts"]["images"]["used"] == 0
    assert all(row["f1"] is None for row in report["protocols"]["coco"]["per_class"])


def test_empty_coco_results(tmp_path):
    truth, _ = detection_files(tmp_path)
    report = reported("detection", truth, files.write_json(tmp_path / "results.json", []))
    rows = report["protocols"]["coco"]["per_class"]
    assert sum(row["fn"] for row in rows) == sum(row["ground_truths"] for row in rows) > 0
    assert all(row["precision"] is None for row in rows)


def test_non_ascii_names(tmp_path):
    place = tmp_path / "результат 结果"
    place.mkdir()
    truth = files.write_json(place / "真.json", files.truth_of(PROBLEM, CLASS_NAMES))
    results = files.write_pickle(place / "données.pkl", RESULTS)
    report = reported("detection", truth, results)
    assert [row["name"] for row in report["protocols"]["coco"]["per_class"]] == list(CLASS_NAMES)
    assert report["inputs"]["results"]["file"] == "données.pkl"
    code, _, stderr = command("detection", truth, results, place / "отчёт", "--quiet")
    assert code == 0 and set(re.findall("warning: (.....)", stderr)) <= {"Glyph"}
    with open(place / "отчёт" / "confusion_matrix.csv", encoding="utf-8", newline="") as file:
        assert next(csv.reader(file))[2:6] == list(CLASS_NAMES)


def test_file_name_without_utf8(tmp_path):
    truth, results = detection_files(tmp_path)
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/r\xe9sultats.pkl")
    os.rename(results, odd)
    code, _, stderr = command("detection", truth, odd, tmp_path / "out", "--quiet")
    assert (code, stderr) == (0, "")
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert report["inputs"]["results"]["file"] == "r\udce9sultats.pkl"


def test_image_ids_of_more_than_64_bits(tmp_path):
    def with_large_id(rows, key):
        return [{**row, key: 2**70 if row[key] == 1 else row[key]} for row in rows]

    def truth(content):
        images, annotations = with_large_id(content["images"], "id"), with_large_id(content["annotations"], "image_id")
        return {**content, "images": images, "annotations": annotations}

    expected = reported("detection", *detection_files(tmp_path))["protocols"]
    paths = detection_files(tmp_path, truth, lambda results: with_large_id(results, "img_id"))
    assert reported("detection", *paths)["protocols"] == expected


def test_class_list_with_bom_and_crlf(tmp_path):
    names = tmp_path / "classes.txt"
    names.write_bytes("\ufeffcat\r\ndog\r\n\r\ntraffic light\r\na|b\r\n".encode())
    expected = reported("detection", *detection_files(tmp_path))
    report = reported("detection", *detection_files(tmp_path), "--classes", names)
    assert report["classes"] == expected["classes"] == list(files.CLASSES)
    assert report["protocols"] == expected["protocols"]


def test_json_with_bom_and_crlf(tmp_path):
    truth, results = detection_files(tmp_path)
    expected = reported("detection", truth, results)["protocols"]
    text = json.dumps(TRUTH, indent=1).replace("\n", "\r\n")
    truth.write_bytes(("\ufeff" + text).encode())
    assert reported("detection", truth, results)["protocols"] == expected


def test_results_without_ids(tmp_path):
    truth, results = detection_files(tmp_path)
    expected = reported("detection", truth, results)
    lists = []
    for result in RESULTS:
        prediction = result["pred_instances"]
        rows = np.column_stack([prediction["bboxes"], prediction["scores"]]).astype(np.float32)
        lists.append([rows[prediction["labels"] == label] for label in range(len(TRUTH["categories"]))])
    report = reported("detection", truth, files.write_pickle(tmp_path / "old.pkl", lists))
    assert report["protocols"] == expected["protocols"]
    assert report["inputs"]["results"]["joined_by"] == "position"
    few = files.write_pickle(tmp_path / "few.pkl", lists[1:])
    assert f"each of the {len(lists)} images of truth.json" in refused("detection", truth, few)


def test_repeated_ids_with_different_paths(tmp_path):
    box, labels = np.float32([[0, 0, 10, 10]]), np.array([0])
    images = [
        dict(
            img_id=1,
            img_path=f"{folder}/1.jpg",
            pred_instances=dict(bboxes=boxes, scores=np.float32([0.9]), labels=labels),
            gt_instances=dict(bboxes=box, labels=labels),
        )
        for folder, boxes in (("a", box), ("b", box + 50))
    ]
    path = files.write_pickle(tmp_path / "results.pkl", images)
    code, out, stderr = command("detection", "-", path, "--classes", "cat")
    assert code == 0 and "image ids in results.pkl repeat: images are joined by path" in out, stderr
    report = reported("detection", "-", path, "--classes", "cat")
    assert report["inputs"]["results"]["joined_by"] == "image path"
    row = report["protocols"]["coco"]["per_class"][0]
    assert (row["tp"], row["fp"], row["fn"]) == (1, 1, 1)
