"""Unusual inputs that metrics and commands accept."""

from __future__ import annotations

import json
import math
import os

import pytest

from mm_metrics_plugin import DetectionPRF, SingleLabelAUC
from mm_metrics_plugin.testing import evaluate
from tests.helpers import result_files as files
from tests.helpers.bad_input import (
    TRUTH,
    annotated,
    changed,
    command,
    detection_files,
    image,
    reported,
    scored,
)


def test_inverted_files(tmp_path):
    swap = changed(bboxes=lambda boxes: boxes[:, [2, 3, 0, 1]])
    plain = reported("detection", *detection_files(tmp_path))
    report = reported("detection", *detection_files(tmp_path, annotated(bbox=[5, 5, -3, -3]), swap))
    assert sum(report["counts"]["ground_truths"]["dropped"].values()) == 1
    assert report["counts"]["detections"]["used"] == plain["counts"]["detections"]["used"]
    assert sum(row["tp"] for row in report["matching_rules"]["coco"]["per_class"]) < sum(
        row["tp"] for row in plain["matching_rules"]["coco"]["per_class"]
    )


def test_one_image(tmp_path):
    assert evaluate(DetectionPRF(num_classes=1), [image()])["det/f1"] == 1.0
    with pytest.warns(UserWarning, match="AUC is undefined"):
        metric = SingleLabelAUC()
        metric.process(None, [scored()])
        assert math.isnan(metric.evaluate(1)["single-label/auc"])
    annotations = [row for row in TRUTH["annotations"] if row["image_id"] == 1]
    first = {**TRUTH, "images": TRUTH["images"][:1], "annotations": annotations}
    report = reported("detection", *detection_files(tmp_path, lambda _: first, lambda results: results[:1]))
    assert report["counts"]["images"]["used"] == 1


def test_no_images_in_files(tmp_path):
    nothing = files.write_json(tmp_path / "truth.json", {**TRUTH, "images": [], "annotations": []})
    report = reported("detection", nothing, files.write_json(tmp_path / "results.json", []))
    assert report["counts"]["images"]["used"] == 0
    assert all(row["f1"] is None for row in report["matching_rules"]["coco"]["per_class"])


def test_empty_coco_results(tmp_path):
    truth, _ = detection_files(tmp_path)
    results = files.write_json(tmp_path / "results.json", [])
    report = reported("detection", truth, results, warning="there are no detections")
    rows = report["matching_rules"]["coco"]["per_class"]
    assert sum(row["fn"] for row in rows) == sum(row["ground_truths"] for row in rows) > 0
    assert all(row["precision"] is None for row in rows)


def test_file_name_without_utf8(tmp_path):
    truth, results = detection_files(tmp_path)
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/r\xe9sultats.pkl")
    os.rename(results, odd)
    code, _, err = command("detection", truth, odd, tmp_path / "out", "--quiet")
    assert (code, err) == (0, "")
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert report["inputs"]["results"]["file"] == "r\udce9sultats.pkl"


def test_image_ids_beyond_64_bits(tmp_path):
    def renamed(rows, key):
        for row in rows:
            row[key] = 2**70 if row[key] == 1 else row[key]

    def truth(content):
        renamed(content["images"], "id")
        renamed(content["annotations"], "image_id")
        return content

    def results(content):
        renamed(content, "img_id")
        return content

    expected = reported("detection", *detection_files(tmp_path))["matching_rules"]
    assert reported("detection", *detection_files(tmp_path, truth, results))["matching_rules"] == expected


def test_class_list_with_bom_and_crlf(tmp_path):
    names = tmp_path / "classes.txt"
    names.write_bytes("\ufeffcat\r\ndog\r\n\r\ntraffic light\r\na|b\r\n".encode())
    expected = reported("detection", *detection_files(tmp_path))
    report = reported("detection", *detection_files(tmp_path), "--classes", names)
    assert report["classes"] == expected["classes"] == list(files.CLASSES)
    assert report["matching_rules"] == expected["matching_rules"]


def test_json_with_bom_and_crlf(tmp_path):
    truth, results = detection_files(tmp_path)
    expected = reported("detection", truth, results)["matching_rules"]
    text = json.dumps(TRUTH, indent=1).replace("\n", "\r\n")
    truth.write_bytes(("\ufeff" + text).encode())
    assert reported("detection", truth, results)["matching_rules"] == expected
