"""A geometry of one class and a reader goes through metric, processes, files, merge, report and page."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mm_metrics_plugin import DetectionEvaluator, evaluate_detection, merge_states
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.io import readers
from mm_metrics_plugin.testing.processes import run_processes
from tests.helpers import circles
from tests.helpers.circles import CLASSES, Circles

RULES = ("coco", "agnostic")
pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.MetricWarning")


def write(path, key, samples):
    plain = [{**sample, **{part: lists(sample[part]) for part in ("found", "truth")}} for sample in samples]
    path.write_text(json.dumps({key: plain}), encoding="utf-8")
    return path


def lists(fields):
    return {name: column.tolist() for name, column in fields.items()}


def test_concentric_circles_have_the_ap_of_their_areas():
    """Radius 9 in radius 10: IoU 0.81, which reaches seven of COCO's ten thresholds."""
    batch = DetectionBatch(
        Detections([0], Circles([[50, 50, 9]]), [0.9], [0]), GroundTruths([0], Circles([[50, 50, 10]]), [0]), 1
    )
    evaluator = DetectionEvaluator(CLASSES[:1])
    evaluator.update(batch)
    assert evaluator.compute().log_values()["mAP"] == pytest.approx(0.7)


def test_metric_files_processes_merge_and_page_of_circles(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "READERS", (*readers.READERS, *circles.FORMATS))
    samples = circles.problem()
    truth = write(tmp_path / "truth.json", "circle truth", samples)
    results = write(tmp_path / "results.json", "circle results", samples)
    report = evaluate_detection(truth, results, matching=RULES, nms_iou_thr=0.9, ci=0.9, resamples=20)
    plain = evaluate_detection(truth, results, matching=RULES)

    # The metric, on one process and on two.
    expected = {f"det/{key}": value for key, value in plain.log_values().items()}
    assert 0 < expected["det/mAP"] < 1
    alone = circles.evaluate_share(1)
    assert alone[0] == pytest.approx(expected, nan_ok=True)
    assert run_processes(2, circles.evaluate_share, [2])[0] == [alone, (alone[0], None)]

    # Shards of the results, saved, merged and rendered.
    states = []
    for rank in range(2):
        part = write(tmp_path / f"{rank}.json", "circle results", samples[rank::2])
        states.append(tmp_path / f"{rank}.npz")
        evaluate_detection(truth, part, matching=RULES, nms_iou_thr=0.9, ci=0.9, resamples=20, save_state=states[-1])
    merged = merge_states(states)
    changed = ("inputs", "counts")
    assert {**merged.to_dict(), **dict.fromkeys(changed)} == {**report.to_dict(), **dict.fromkeys(changed)}
    files = report.save(tmp_path / "out", html=True)
    assert {"report.json", "report.md", "report.html"} <= set(files)
    assert "fog" not in str(report) and "coin" in str(report)

    # The groups of the images, sorted by image id, and a slice of them.
    groups = merged.analysis.table.image_columns["groups"]
    assert groups.tolist() == [sample["group"] for sample in samples[::-1]] == alone[1]
    night = [sample for sample in samples if sample["group"] == "night"]
    batch = circles.CirclePRF(num_classes=2).read(night).batch
    expected_matrix = match_images(batch, plain.settings, num_classes=2).rules["coco"].matrix
    table = plain.analysis.table.select_images(groups == "night")
    np.testing.assert_array_equal(table.confusion_matrix(), expected_matrix)
    assert set(table.image_columns["groups"]) == {"night"}
