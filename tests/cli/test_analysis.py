"""Average precision, curves, thresholds, kinds of error, sizes and intervals in the reports of the command."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mm_metrics_plugin.cli import main
from tests.helpers import result_files as files
from tests.helpers.detection_problems import crowded_images
from tests.helpers.result_files import CLASSES, ROOT, pair

pytestmark = pytest.mark.usefixtures("shown_warnings")

HERE = {"PYTHONPATH": str(ROOT)}
OPTIONS = ("--operating-point", "f1", "--ci", "0.9", "--resamples", "100", "--seed", "3")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("analysis")
    pair(folder)
    done = files.command("detection", "truth.json", "results.pkl", "out", *OPTIONS, cwd=folder, env=HERE)
    text = files.succeeded(done)
    return folder, text, json.loads((folder / "out" / "report.json").read_text())


def report_of(*arguments):
    return json.loads(files.printed(*arguments, "--format", "json"))


def test_average_precision_is_that_of_pycocotools(written):
    folder, _, report = written
    made = files.problem()
    boxes = made.boxes.astype(float)
    boxes[:, 2:] -= boxes[:, :2]
    rows = np.column_stack([made.image + 1, boxes, made.scores, made.labels + 1])
    evaluation = files.coco_evaluation(folder / "truth.json", rows)
    found = report["average_precision"]
    assert [found[key] for key in ("mAP", "mAP_50", "mAP_75")] == pytest.approx(evaluation.stats[:3], abs=1e-12)
    sizes = [report["sizes"]["overall"][name]["mAP"] for name in ("small", "medium", "large")]
    assert sizes == pytest.approx(evaluation.stats[3:6], abs=1e-12)
    per_class = evaluation.eval["precision"][:, :, :, 0, -1].mean(axis=(0, 1))
    assert [row["AP"] for row in found["per_class"]] == pytest.approx(per_class, abs=1e-12)
    assert [row["name"] for row in found["per_class"]] == list(CLASSES)


def test_the_threshold_that_was_found_gives_what_was_promised(written):
    folder, _, _ = written
    thresholds = json.loads((folder / "out" / "thresholds.json").read_text())
    best = thresholds["in_sample"]["overall"]
    again = report_of(
        "detection", folder / "truth.json", folder / "results.pkl", "--score-thr", thresholds["threshold"]
    )["protocols"]["coco"]
    assert again["f1_micro"] == pytest.approx(best["f_score"])
    assert again["recall_micro"] == pytest.approx(best["recall"])
    for other in np.linspace(0.05, 0.9, 18):
        found = report_of("detection", folder / "truth.json", folder / "results.pkl", "--score-thr", other)
        assert (found["protocols"]["coco"]["f1_micro"] or 0) <= best["f_score"] + 1e-12
    # Judged on images it was not chosen on, it cannot look better than the best there is.
    assert thresholds["cross_fitted"]["overall"]["f_score"] <= best["f_score"] + 1e-12
    assert list(thresholds["per_class"]) == list(CLASSES)


@pytest.mark.parametrize(("rule", "key"), [("precision=0.7", "precision"), ("recall=0.6", "recall")])
def test_floors_are_kept(rule, key, written):
    folder, _, _ = written
    found = report_of("detection", folder / "truth.json", folder / "results.pkl", "--operating-point", rule)
    point = found["operating_points"]["in_sample"]["overall"]
    assert point[key] >= float(rule.split("=")[1])


def test_intervals_hold_the_value_and_follow_the_seed(written):
    folder, _, report = written
    overall = report["intervals"]["overall"]
    coco = report["protocols"]["coco"]
    for name in ("precision", "recall", "f1_of_means", "f1"):
        assert overall[name]["value"] == pytest.approx(coco[name], abs=1e-12)
        assert overall[name]["low"] < overall[name]["value"] < overall[name]["high"]
    assert overall["mAP"]["value"] == pytest.approx(report["average_precision"]["mAP"], abs=1e-12)
    again = report_of("detection", folder / "truth.json", folder / "results.pkl", *OPTIONS)
    assert again["intervals"] == report["intervals"]
    other = report_of("detection", folder / "truth.json", folder / "results.pkl", *OPTIONS[:-1], "4")
    assert other["intervals"] != report["intervals"]


def test_own_sizes_and_matrix_only(written):
    folder, _, _ = written
    paths = folder / "truth.json", folder / "results.pkl"
    found = report_of("detection", *paths, "--size-edges", "4000")
    assert list(found["sizes"]["ranges"]) == ["all", "area_0_4000", "area_4000_up"]
    bare = report_of("detection", *paths, "--matrix-only")
    assert "average_precision" not in bare and bare["protocols"] == found["protocols"]


def test_states_and_several_processes_give_the_same_analysis(written, tmp_path):
    folder, _, report = written
    content = files.results_of(files.problem())
    for name, share in (("a", content[:11]), ("b", content[11:])):
        path = files.write_pickle(tmp_path / f"{name}.pkl", share)
        state = ("--save-state", tmp_path / f"{name}.npz", "--quiet")
        assert main(list(map(str, ["detection", folder / "truth.json", path, *OPTIONS, *state]))) == 0
    merged = report_of("merge", tmp_path / "b.npz", tmp_path / "a.npz")
    for key in ("average_precision", "sizes", "errors", "operating_points", "intervals", "protocols", "settings"):
        assert merged[key] == report[key]


def test_thin_and_empty_data_end_well(tmp_path):
    made = files.problem(3)
    nothing = made._replace(**{key: getattr(made, key)[:0] for key in made._fields[2:]})
    for name, truth, results in (("found", made, nothing), ("there", nothing, made), ("both", nothing, nothing)):
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


LIMIT = "AP uses the best 100 of up to 240 detections per class and image, as COCO does; change it with --max-dets"


def test_detections_beyond_max_dets_are_told(tmp_path, capsys):
    """240 objects of one class per image, all detected, of which AP uses 100 unless told otherwise."""
    truth, results = map(str, as_files(tmp_path, crowded_images(), 1))
    few = ["--resamples", "5", "--permutations", "5"]
    for command in (["detection", truth, results], ["compare", truth, results, results, *few]):
        assert main([*command, "--format", "json"]) == 0
        assert capsys.readouterr().err == f"mm-metrics: warning: {LIMIT}\n"
        assert main([*command, "--format", "json", "--max-dets", "240"]) == 0
        text, said = capsys.readouterr()
        assert said == "" and json.loads(text)["settings"]["max_dets"] == 240
    assert LIMIT in " ".join(files.printed("detection", truth, results, "--verbose").split())


# --- classifiers ------------------------------------------------------------------------------------------------------


def test_classifier_thresholds_and_intervals(tmp_path):
    from sklearn.metrics import roc_curve

    samples = files.samples(120)
    path = files.write_pickle(tmp_path / "results.pkl", samples)
    done = files.command(
        "classification", "results.pkl", "out", "--ci", "0.95", "--at-specificity", "0.8", cwd=tmp_path, env=HERE
    )
    text = files.succeeded(done)
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
    plain = report_of("classification", path)
    assert plain["intervals"] is None


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--operating-point", "best"),
        ("--operating-point", "precision=2"),
        ("--area-edges", "5,3"),
        ("--area-edges", "0"),
        ("--ci", "95"),
        ("--max-dets", "0"),
        ("--save-state", "part.pkl"),
    ],
)
def test_bad_options(option, value, capsys):
    with pytest.raises(SystemExit) as left:
        main(["detection", "truth.json", "results.pkl", option, value])
    out, said = capsys.readouterr()
    assert left.value.code == 2 and out == "" and said.count("\n") == 1 and option in said


def test_one_image_cannot_be_dealt_into_folds(tmp_path, capsys):
    made = files.problem(1)
    truth = files.write_json(tmp_path / "one.json", files.truth_of(made))
    results = files.write_pickle(tmp_path / "one.pkl", files.results_of(made))
    assert main(["detection", str(truth), str(results), "--operating-point", "f1"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "at least 2 images" in said


def test_a_classifier_with_few_samples_lacks_samples(tmp_path):
    files.write_pickle(tmp_path / "results.pkl", files.samples(12))
    done = files.command("classification", "results.pkl", "out", "--ci", "0.95", cwd=tmp_path, env=HERE)
    text = files.succeeded(done)
    assert "too few samples" in text and "too few images" not in text and "too few objects" not in text
    intervals = json.loads((tmp_path / "out" / "report.json").read_text())["intervals"]
    reasons = [one for part in intervals["per_class"].values() for one in part["reason"]]
    reasons += [one["reason"] for one in intervals["overall"].values()]
    assert "too few samples" in reasons and not {"too few images", "too few objects"} & set(reasons)
