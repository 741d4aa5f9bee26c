"""Average precision, thresholds, error types, object sizes and intervals in the reports of the command."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from mm_metrics_plugin import evaluate_classification, evaluate_detection
from mm_metrics_plugin.cli import main
from tests.helpers import result_files as files
from tests.helpers.detection_problems import crowded_images
from tests.helpers.result_files import CLASSES, pair, report_of

pytestmark = pytest.mark.usefixtures("shown_warnings")

OPTIONS = ("--operating-point", "f1", "--ci", "0.9", "--resamples", "100", "--seed", "3")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("analysis")
    return folder, report_of("detection", *pair(folder), folder / "out", *OPTIONS)


def test_average_precision_is_that_of_pycocotools(written):
    folder, report = written
    made = files.problem()
    boxes = made.boxes.astype(float)
    boxes[:, 2:] -= boxes[:, :2]
    rows = np.column_stack([made.image + 1, boxes, made.scores, made.labels + 1])
    evaluation = files.coco_evaluation(folder / "truth.json", rows)
    ap = report["average_precision"]
    assert [ap[key] for key in ("mAP", "mAP_50", "mAP_75")] == pytest.approx(evaluation.stats[:3], abs=1e-12)
    sizes = [report["sizes"]["overall"][name]["mAP"] for name in ("small", "medium", "large")]
    assert sizes == pytest.approx(evaluation.stats[3:6], abs=1e-12)
    per_class = evaluation.eval["precision"][:, :, :, 0, -1].mean(axis=(0, 1))
    assert [row["AP"] for row in ap["per_class"]] == pytest.approx(per_class, abs=1e-12)
    assert [row["name"] for row in ap["per_class"]] == list(CLASSES)


def test_the_best_threshold_gives_the_reported_rates(written):
    folder, _ = written
    thresholds = json.loads((folder / "out" / "thresholds.json").read_text())
    best = thresholds["in_sample"]["overall"]
    again = report_of(
        "detection", folder / "truth.json", folder / "results.pkl", "--score-thr", thresholds["threshold"]
    )["matching_rules"]["coco"]
    assert again["f1_micro"] == pytest.approx(best["f_score"])
    assert again["recall_micro"] == pytest.approx(best["recall"])
    for other in np.linspace(0.05, 0.9, 9):
        report = report_of("detection", folder / "truth.json", folder / "results.pkl", "--score-thr", other)
        assert (report["matching_rules"]["coco"]["f1_micro"] or 0) <= best["f_score"] + 1e-12
    # On images it was not chosen on, it cannot be better than the best.
    assert thresholds["cross_fitted"]["overall"]["f_score"] <= best["f_score"] + 1e-12
    assert list(thresholds["per_class"]) == list(CLASSES)


def test_the_printed_thresholds_give_the_reported_counts():
    """Rounding to four decimals would lose the detection that the threshold of some classes stands for."""
    paths = files.DEMO / "annotations.json", files.DEMO / "results.pkl"
    report = evaluate_detection(*paths, operating_point="f1", gallery=None)
    points = dict(
        zip(["micro (pooled)", *report.classes], [report.analysis.points.overall, *report.analysis.points.per_class])
    )
    section = str(report).partition("Operating points")[2]
    printed = {name: re.search(rf"^{re.escape(name)} +(\S+)", section, re.MULTILINE)[1] for name in points}
    assert sum(float(f"{point.threshold:.4f}") > point.threshold for point in points.values()) >= 3
    for at, (name, text) in enumerate(printed.items()):
        again = evaluate_detection(*paths, score_thr=float(text), matching=("coco",), matrix_only=True, gallery=None)
        columns = again.matching_rules[0].columns
        counts = [int(columns[key].sum() if at == 0 else columns[key][at - 1]) for key in ("tp", "fp", "fn")]
        assert counts == [points[name].tp, points[name].fp, points[name].fn]
        assert f"threshold {text}:" in str(points[name])
        assert re.search(rf"^\| {re.escape(name)} \| {text} \|", report.to_markdown(), re.MULTILINE)
    assert report.to_dict()["operating_points"]["threshold"] == points["micro (pooled)"].threshold  # all digits


def test_intervals_contain_the_value_and_depend_on_the_seed(written):
    folder, report = written
    overall = report["intervals"]["overall"]
    coco = report["matching_rules"]["coco"]
    for name in ("precision", "recall", "f1_of_means", "f1"):
        assert overall[name]["value"] == pytest.approx(coco[name], abs=1e-12)
        assert overall[name]["low"] < overall[name]["value"] < overall[name]["high"]
    assert overall["mAP"]["value"] == pytest.approx(report["average_precision"]["mAP"], abs=1e-12)
    again = report_of("detection", folder / "truth.json", folder / "results.pkl", *OPTIONS)
    assert again["intervals"] == report["intervals"]
    other = report_of("detection", folder / "truth.json", folder / "results.pkl", *OPTIONS[:-1], "4")
    assert other["intervals"] != report["intervals"]


def test_own_sizes_and_matrix_only(written):
    folder, _ = written
    paths = folder / "truth.json", folder / "results.pkl"
    found = report_of("detection", *paths, "--size-edges", "4000")
    assert list(found["sizes"]["ranges"]) == ["all", "area_0_4000", "area_4000_up"]
    bare = report_of("detection", *paths, "--matrix-only")
    assert "average_precision" not in bare and bare["matching_rules"] == found["matching_rules"]


def test_empty_results_and_ground_truth(tmp_path):
    made = files.problem(3)
    nothing = made._replace(**{key: getattr(made, key)[:0] for key in made._fields[2:]})
    for name, truth, results in (("dets", made, nothing), ("gts", nothing, made), ("both", nothing, nothing)):
        paths = files.write_json(tmp_path / f"{name}.json", files.truth_of(truth)), tmp_path / f"{name}.pkl"
        files.write_pickle(paths[1], files.results_of(results))
        report = report_of("detection", *paths, tmp_path / name, *OPTIONS)
        assert report["average_precision"]["mAP"] in (None, 0.0)
    single = files.problem(1)
    truth = files.write_json(tmp_path / "one.json", files.truth_of(single))
    assert main(["detection", str(truth), str(files.write_pickle(tmp_path / "one.pkl", files.results_of(single)))]) == 0


# --- many detections per image ----------------------------------------------------------------------------------------


def as_files(folder, batch, num_classes):
    """Annotations and results of a batch."""
    dets, gts = batch.detections, batch.ground_truths
    made = files.problem(1)._replace(
        num_images=batch.num_images,
        image=dets.image,
        boxes=dets.boxes.array.astype(np.float32),
        scores=dets.scores.astype(np.float32),
        labels=dets.labels,
        gt_image=gts.image,
        gt_boxes=gts.boxes.array,
        gt_labels=gts.labels,
        gt_crowd=gts.crowd,
    )
    truth = files.write_json(folder / "truth.json", files.truth_of(made, CLASSES[:num_classes]))
    return truth, files.write_pickle(folder / "results.pkl", files.results_of(made))


LIMIT = "AP uses the best 100 of up to 240 detections per class and image ({}), as COCO does"


def test_detections_beyond_max_dets_are_a_warning(tmp_path, capsys):
    """240 objects of one class per image, all detected, of which AP uses 100 by default."""
    truth, results = map(str, as_files(tmp_path, crowded_images(), 1))
    few = ["--resamples", "5", "--permutations", "5"]
    for command in (["detection", truth, results], ["compare", truth, results, results, *few]):
        assert main([*command, "--format", "json"]) == 0
        assert capsys.readouterr().err == f"mm-metrics: warning: {LIMIT.format('--max-dets 100')}\n"
        assert main([*command, "--format", "json", "--max-dets", "240"]) == 0
        text, error = capsys.readouterr()
        assert error == "" and json.loads(text)["settings"]["max_dets"] == 240
    assert LIMIT.format("--max-dets 100") in " ".join(files.printed("detection", truth, results, "--verbose").split())


# --- classifiers ------------------------------------------------------------------------------------------------------


def test_classifier_thresholds_and_intervals(tmp_path):
    from sklearn.metrics import roc_curve

    samples = files.samples(120)
    path = files.write_pickle(tmp_path / "results.pkl", samples)
    options = ("--ci", "0.95", "--at-specificity", "0.8")
    text = files.printed("classification", path, tmp_path / "out", *options, "--verbose")
    assert "Confidence intervals" in text and "KS" in text
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    scores = np.stack([sample["pred_score"] for sample in samples])
    labels = np.array([int(sample["gt_label"][0]) for sample in samples])
    for index, row in enumerate(report["thresholds"]):
        fpr, tpr, thresholds = roc_curve(labels == index, scores[:, index], drop_intermediate=False)
        assert row["ks"] == pytest.approx((tpr - fpr).max(), abs=1e-12)
        assert row["ks_threshold"] in thresholds
        assert row["sensitivity_at_specificity"] == pytest.approx(tpr[1 - fpr >= 0.8].max(), abs=1e-12)
        assert row["specificity_at_sensitivity"] == pytest.approx((1 - fpr)[tpr >= 0.95].max(), abs=1e-12)
    macro = report["intervals"]["overall"]["auc"]
    assert macro["value"] == pytest.approx(report["auc"], abs=1e-12) and macro["low"] < macro["value"] < macro["high"]
    assert (tmp_path / "out" / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert report_of("classification", path)["intervals"] is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_printed_thresholds_of_a_sure_classifier_give_the_reported_rates(dtype):
    positive = np.array([0.99998936, 0.99999, 0.9999999, 0.2, 0.99997, 0.99998, 0.1, 0.9999892], dtype=dtype)
    labels = np.array([1, 1, 1, 1, 0, 0, 0, 0])
    report = evaluate_classification((np.stack([1 - positive, positive], axis=1), labels), classes=["no", "yes"])
    ks, threshold = re.search(r"^yes +(\S+) +(\S+)", str(report).partition("Thresholds")[2], re.MULTILINE).groups()
    reached = positive >= dtype(threshold)
    assert float(ks) == reached[labels == 1].mean() - reached[labels == 0].mean() == 0.75 and len(threshold) > 8
    assert f"| yes | {ks} | {threshold} |" in report.to_markdown()


def test_too_few_samples_are_the_reason_without_an_interval(tmp_path):
    path = files.write_pickle(tmp_path / "results.pkl", files.samples(12))
    text = files.printed("classification", path, tmp_path / "out", "--ci", "0.95")
    assert "too few samples" in text and "too few images" not in text and "too few objects" not in text
    intervals = json.loads((tmp_path / "out" / "report.json").read_text())["intervals"]
    reasons = [reason for interval in intervals["per_class"].values() for reason in interval["reason"]]
    reasons += [interval["reason"] for interval in intervals["overall"].values()]
    assert "too few samples" in reasons and not {"too few images", "too few objects"} & set(reasons)
