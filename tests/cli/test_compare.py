"""``mm-metrics compare``: significant differences between detectors and between classifiers."""

from __future__ import annotations

import csv
import html
import json
import pickle
import re

import numpy as np
import pytest

from mm_metrics_plugin import compare_runs
from mm_metrics_plugin.render.tables import OVERALL_NAMES
from tests.helpers import result_files as files

pytestmark = pytest.mark.usefixtures("shown_warnings")

QUICK = ("--permutations", "199")


def worse(results, share=0.35, seed=1):
    """The same results without some of the detections."""
    random = np.random.default_rng(seed)
    changed = []
    for image in results:
        found = image["pred_instances"]
        kept = random.random(len(found["scores"])) >= share
        changed.append({**image, "pred_instances": {key: value[kept] for key, value in found.items()}})
    return changed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("compare")
    made = files.problem(60)
    results = files.results_of(made)
    files.write_json(place / "truth.json", files.truth_of(made))
    files.write_pickle(place / "good.pkl", results)
    files.write_pickle(place / "same.pkl", results[::-1])
    files.write_pickle(place / "worse.pkl", worse(results))
    return place


def report_of(*arguments):
    return files.report_of("compare", *arguments)


def error_of(capsys, *arguments):
    return files.error_of(capsys, "compare", *arguments)


def test_equal_runs_do_not_differ(folder):
    report = report_of(folder / "truth.json", folder / "good.pkl", folder / "same.pkl")
    (pair,) = report["comparisons"]
    assert {row["verdict"] for row in pair["overall"]} == {"no difference"}
    assert all(abs(row["difference"]) < 1e-12 and row["p_value"] == 1 for row in pair["overall"])
    assert pair["changed_images"] == [] and report["images"] == 60


def test_each_run_is_compared_with_the_first(folder, capsys):
    runs = [folder / f"{name}.pkl" for name in ("good", "same", "worse")]
    text = files.printed("compare", folder / "truth.json", *runs, folder / "out", *QUICK)
    assert "\nC: worse.pkl: " in text and "C is worse" in text and "comparison.json" in capsys.readouterr().err
    report = json.loads((folder / "out" / "comparison.json").read_text())
    assert [(pair["first"], pair["second"]) for pair in report["comparisons"]] == [
        ("good.pkl", "same.pkl"),
        ("good.pkl", "worse.pkl"),
    ]
    rows = {row["metric"]: row for row in report["comparisons"][1]["overall"]}
    assert rows["recall"]["verdict"] == "worse" and rows["recall"]["high"] < 0
    assert rows["recall"]["p_value"] == pytest.approx(1 / 200)
    for name, side in (("good", "first"), ("worse", "second")):
        alone = files.report_of("detection", folder / "truth.json", folder / f"{name}.pkl")
        coco = alone["matching_rules"]["coco"]
        for key in ("precision", "recall", "f1_of_means", "f1"):
            assert rows[key][side] == pytest.approx(coco[key], abs=1e-12)
        for key in ("mAP", "mAP_50"):
            assert rows[key][side] == pytest.approx(alone["average_precision"][key], abs=1e-12)
    table = list(csv.DictReader((folder / "out" / "differences.csv").open()))
    per_class = report["comparisons"][1]["per_class"]
    assert len(table) == 2 * (len(rows) + len(per_class))
    # Adjusting never makes a p-value less; verdict, p-value and interval agree.
    for row in (*rows.values(), *per_class):
        assert row["p_value"] >= row["p_unadjusted"] > 0
        assert row["low"] <= row["low_unadjusted"] + 1e-12 and row["high_unadjusted"] <= row["high"] + 1e-12
        outside = row["low"] > 0 or row["high"] < 0
        assert (row["p_value"] <= 0.05) == outside == (row["verdict"] in ("better", "worse"))
    changed = list(csv.DictReader((folder / "out" / "changed_images.csv").open()))
    sizes = [abs(int(row["tp"])) for row in changed]
    assert sizes == sorted(sizes, reverse=True) and changed[0]["image"].endswith(".jpg")
    assert "worse.pkl" in (folder / "out" / "comparison.md").read_text()


def test_iou_and_nms_thresholds(folder):
    options = ("--tp-iou-thr", "0.42", "--nms-iou-thr", "0.9")
    report = report_of(folder / "truth.json", folder / "good.pkl", folder / "worse.pkl", *options)
    rows = {row["metric"]: row for row in report["comparisons"][0]["overall"]}
    assert report["settings"]["iou_thr"] == 0.42 and report["settings"]["score_thr"] == 0.3
    alone = files.report_of("detection", folder / "truth.json", folder / "good.pkl", *options)
    assert rows["f1"]["first"] == pytest.approx(alone["matching_rules"]["coco"]["f1"], abs=1e-12)
    assert rows["mAP_50"]["first"] == pytest.approx(alone["average_precision"]["mAP_50"], abs=1e-12)


def test_a_score_threshold_above_every_score_is_a_warning(folder, capsys):
    report_of(folder / "truth.json", folder / "good.pkl", folder / "worse.pkl", "--score-thr", "30")
    error = capsys.readouterr().err
    assert "no detection of good.pkl reaches the score threshold 30 (the highest score is" in error
    assert error.count("\n") == 2


def test_ground_truths_in_the_results_must_be_the_same(tmp_path, capsys):
    made = files.problem(20)
    content = files.with_ground_truth(made, files.results_of(made))
    first = files.write_pickle(tmp_path / "a.pkl", content)
    # The order of images, and of the objects of an image, does not matter.
    other = [
        {**image, "gt_instances": {key: value[::-1] for key, value in image["gt_instances"].items()}}
        for image in content[::-1]
    ]
    second = files.write_pickle(tmp_path / "b.pkl", other)
    (pair,) = report_of("-", first, second)["comparisons"]
    assert {row["verdict"] for row in pair["overall"]} == {"no difference"}

    busy = [at for at, image in enumerate(content) if len(image["gt_instances"]["labels"])]
    changes = {
        busy[3]: lambda truth: {"gt_instances": {**truth, "bboxes": truth["bboxes"] + np.float32(0.5)}},
        busy[-1]: lambda truth: {"gt_instances": {**truth, "labels": (truth["labels"] + 1) % 4}},
        busy[2]: lambda truth: {"gt_instances": {key: value[1:] for key, value in truth.items()}},
        busy[4]: lambda truth: {"gt_instances": content[0]["ignored_instances"], "ignored_instances": truth},
    }
    for at, change in changes.items():
        wrong = list(content)
        wrong[at] = {**wrong[at], **change(wrong[at]["gt_instances"])}
        path = files.write_pickle(tmp_path / "wrong.pkl", wrong[::-1])
        error = error_of(capsys, "-", first, second, path)
        assert f"a.pkl and wrong.pkl: differ in the ground truth of image {at + 1} (" in error
    without = files.write_pickle(tmp_path / "without.pkl", files.results_of(made))
    assert "without.pkl: contains no ground truth" in error_of(capsys, "-", first, without)


def test_masks_that_are_not_evaluated_are_named(tmp_path):
    made = files.problem(8)
    truth = files.write_json(tmp_path / "truth.json", files.truth_of(made))
    content = files.results_of(made)
    boxes = files.write_pickle(tmp_path / "boxes.pkl", content)
    for image in content[:3]:
        image["pred_instances"]["masks"] = [{"size": [4, 4], "counts": "04"}] * len(image["pred_instances"]["scores"])
    masks = files.write_pickle(tmp_path / "masks.pkl", content)
    sentence = "results contain masks; evaluating boxes; use --iou-type segm for masks"
    on_page = "results contain masks; evaluating boxes; use the option iou_type=&#39;segm&#39; for masks"
    for arguments in (["compare", truth, boxes, masks, *QUICK], ["detection", truth, masks]):
        assert sentence in files.printed(*arguments, tmp_path / "out", "--html")
        assert on_page in (tmp_path / "out" / "report.html").read_text()
    runs = json.loads((tmp_path / "out" / "comparison.json").read_text())["inputs"]["runs"]
    assert [run.get("not_evaluated") for run in runs] == [None, ["masks"]]


def alone(run, *options):
    """The report on one run."""
    return files.report_of("detection", run.parent / "truth.json", run, *options)


def outputs_of(folder, *arguments):
    """The text of a comparison, and the content of comparison.json, comparison.md, differences.csv and report.html."""
    text = files.printed("compare", *arguments, folder / "out", "--html", *QUICK)
    names = ("comparison.json", "comparison.md", "differences.csv", "report.html")
    report, markdown, table, page = ((folder / "out" / name).read_text(encoding="utf-8") for name in names)
    return text, json.loads(report), markdown, list(csv.DictReader(table.splitlines())), page


def assert_same_verdicts(pair, text, markdown, page):
    """Each verdict over all classes is in the table of every output, with the marks of its warnings."""
    rows = dict(
        re.findall(
            r'<tr data-metric="(\w+)"><th[^>]*>[^<]*</th>\s*<td class="numeric" data-column(.*?)</tr>', page, re.S
        )
    )
    for row in pair["overall"]:
        shown = row["verdict"] if row["verdict"] not in ("better", "worse") else f"{pair['second']} is {row['verdict']}"
        shown += "*" * ("missing_results" in row["warnings"]) if shown != "undefined" else ""
        title = OVERALL_NAMES[row["metric"]]
        assert any(re.fullmatch(rf"{title}  .*  {re.escape(shown)}", line) for line in text.splitlines()), row
        assert any(
            line.startswith(f"| {title} |".replace("_", r"\_")) and line.replace("\\", "").endswith(f"| {shown} |")
            for line in markdown.splitlines()
        )
        assert re.findall(r"<td class=[^>]*>([^<]*)</td>", rows[row["metric"]])[-1] == shown


def unwrapped(text):
    """Text without line breaks, HTML entities and escapes of Markdown."""
    return " ".join(html.unescape(text).replace("\\", "").split())


def test_missing_results_are_counted_and_marked(folder, tmp_path):
    """The same detector, whose second file lacks 20 of 60 images."""
    content = pickle.loads((folder / "good.pkl").read_bytes())
    half = files.write_pickle(folder / "half.pkl", content[:40])
    arguments = (folder / "truth.json", folder / "good.pkl", half, "--allow-missing")
    text, report, markdown, table, page = outputs_of(tmp_path, *arguments)
    (pair,) = report["comparisons"]
    assert report["inputs"]["allow_missing"] is True
    # Each run is counted as by a report on this run alone.
    runs = [alone(folder / "good.pkl"), alone(half, "--allow-missing")]
    assert [run["counts"] for run in report["runs"]] == [run["counts"] for run in runs]
    assert [run["name"] for run in report["runs"]] == ["good.pkl", "half.pkl"]
    read, used = (runs[1]["counts"]["detections"][key] for key in ("read", "used"))
    counted = (
        f"half.pkl: {read} detections read, {used} used ({read - used} score below 0.3); "
        "20 images without results, evaluated as having no detections"
    )
    warning = "half.pkl: no results for 20 of 60 images; they are evaluated as having no detections"
    for shown in (text, markdown, page):
        assert counted in unwrapped(shown) and f"* {warning}" in unwrapped(shown)
    assert [entry["code"] for entry in pair["warnings"]] == ["missing_results"]
    rows = [*pair["overall"], *pair["per_class"]]
    assert "worse" in {row["verdict"] for row in rows} and {row["verdict"] for row in table} == {
        row["verdict"] for row in rows
    }
    assert all(row["warnings"] == ["missing_results"] for row in rows)
    assert {row["warnings"] for row in table} == {"missing_results"}
    assert_same_verdicts(pair, text, markdown, page)
    # Without missing images, nothing is marked.
    (pair,) = report_of(folder / "truth.json", folder / "good.pkl", folder / "same.pkl")["comparisons"]
    assert pair["warnings"] == [] and {tuple(row["warnings"]) for row in pair["overall"]} == {()}


def test_coco_results_of_half_a_test_set_are_counted_and_marked(tmp_path):
    """COCO results do not list images without detections: those that neither run lists are no reason for a warning."""
    truth, whole = files.DEMO / "annotations.json", files.DEMO.parent / "comparison" / "larger.json"
    rows = json.loads(whole.read_text())
    listed = sorted({row["image_id"] for row in rows})
    half = files.write_json(tmp_path / "half.json", [row for row in rows if row["image_id"] in listed[::2]])
    report = report_of(truth, whole, half, *QUICK)
    missing = [300 - len(listed), 300 - len(listed[::2])]
    assert [run["counts"]["images"]["without_results"] for run in report["runs"]] == missing and missing[0] > 0
    (warning,) = [one for one in report["comparisons"][0]["warnings"] if one["code"] == "missing_results"]
    assert warning["run"] == "half.json"
    assert warning["message"].startswith(
        f"no results for {len(listed[1::2])} of 300 images, in which the other run has"
    )
    (pair,) = report_of(truth, files.DEMO / "results.pkl", whole, *QUICK)["comparisons"]
    assert {one["code"] for one in pair["warnings"]} == {"score_thr"}


def test_a_score_threshold_near_the_best_is_no_warning():
    truth, *runs = (
        files.DEMO / "annotations.json",
        files.DEMO / "results.pkl",
        files.DEMO.parent / "comparison" / "larger.json",
    )
    for score_thr, warned in ((0.05, [0, 1]), (0.3, [0, 1]), (0.37, []), (0.4, []), (0.6, [0, 1])):
        (pair,) = compare_runs(truth, runs, names=["0", "1"], score_thr=score_thr, permutations=1).comparisons
        assert [int(warning.run) for warning in pair.warnings if warning.code == "score_thr"] == warned, score_thr


def test_means_are_over_the_classes_of_both_runs(folder, tmp_path):
    """The second run never predicts the class with the lowest precision."""
    good = alone(folder / "good.pkl")["matching_rules"]["coco"]["per_class"]
    hard = min(range(4), key=lambda label: good[label]["precision"])
    content = pickle.loads((folder / "good.pkl").read_bytes())
    for one in content:
        kept = one["pred_instances"]["labels"] != hard
        one["pred_instances"] = {key: value[kept] for key, value in one["pred_instances"].items()}
    never = files.write_pickle(folder / "never.pkl", content)
    text, report, markdown, table, page = outputs_of(tmp_path, folder / "truth.json", folder / "good.pkl", never)
    (pair,) = report["comparisons"]
    overall = {row["metric"]: row for row in pair["overall"]}
    others = [row["precision"] for label, row in enumerate(good) if label != hard]
    assert overall["precision"]["first"] == pytest.approx(np.mean(others), abs=1e-12)
    assert overall["precision"]["second"] == overall["precision"]["first"]
    assert overall["precision"]["verdict"] == "no difference" and overall["recall"]["verdict"] == "worse"
    classes = {name: row["classes_averaged"] for name, row in overall.items()}
    assert classes["precision"] == classes["f1_of_means"] == 3 and classes["recall"] == classes["mAP"] == 4
    assert classes["f1_micro"] is None
    assert {row["metric"]: row["classes_averaged"] for row in table if not row["class_name"]} == {
        name: "" if number is None else str(number) for name, number in classes.items()
    }
    note = "means leave out classes without a value in either run: macro precision is over 3 of 4 classes, F1 of means"
    assert all(note in unwrapped(shown) for shown in (text, markdown, page))
    # An undefined difference has no other verdict, in any output.
    for row in (*pair["per_class"], *pair["overall"]):
        assert (row["verdict"] == "undefined") == (row["difference"] is None) == (row["p_value"] is None)
    undefined = [(row["metric"], row["class_name"]) for row in pair["per_class"] if row["verdict"] == "undefined"]
    assert undefined == [("precision", files.CLASSES[hard])]
    assert [(row["metric"], row["class_name"]) for row in table if row["verdict"] == "undefined"] == undefined


def test_runs_without_detections_are_undefined(folder, tmp_path):
    content = pickle.loads((folder / "good.pkl").read_bytes())
    for one in content:
        one["pred_instances"] = {key: value[:0] for key, value in one["pred_instances"].items()}
    none = files.write_pickle(folder / "none.pkl", content)
    text, report, markdown, _, page = outputs_of(tmp_path, folder / "truth.json", none, none)
    verdicts = {row["metric"]: row["verdict"] for row in report["comparisons"][0]["overall"]}
    assert verdicts["precision"] == verdicts["precision_micro"] == verdicts["f1_of_means"] == "undefined"
    assert verdicts["recall"] == verdicts["mAP"] == "no difference"
    assert_same_verdicts(report["comparisons"][0], text, markdown, page)


def test_each_run_at_its_own_threshold(folder, tmp_path, capsys):
    """The second run is the first with all scores divided by 3: only the threshold differs."""
    content = pickle.loads((folder / "good.pkl").read_bytes())
    for one in content:
        one["pred_instances"]["scores"] = one["pred_instances"]["scores"] / 3
    low = files.write_pickle(folder / "low.pkl", content)
    truth, good = folder / "truth.json", folder / "good.pkl"
    shared = report_of(truth, good, low)
    rows = {row["metric"]: row for row in shared["comparisons"][0]["overall"]}
    assert rows["recall"]["verdict"] == "worse" and rows["mAP"]["verdict"] == "no difference"
    assert rows["recall"]["warnings"] == ["score_thr"] and rows["mAP"]["warnings"] == []
    (warning,) = shared["comparisons"][0]["warnings"]
    assert warning["code"] == "score_thr" and warning["run"] == "low.pkl"
    text, report, markdown, _, page = outputs_of(tmp_path, truth, good, low, "--operating-point", "f1")
    assert {row["verdict"] for row in report["comparisons"][0]["overall"]} == {"no difference"}
    assert report["comparisons"][0]["warnings"] == [] and report["comparisons"][0]["changed_images"] == []
    assert report["settings"]["operating_point"] == "f1" and report["settings"]["score_thr"] is None
    line = "at the best score threshold of each run (greatest F1; selected on other images, 5 folds), IoU >= 0.5"
    assert line in unwrapped(text) and line in unwrapped(markdown)
    for run, summary in zip((good, low), report["runs"]):
        fitted = alone(run, "--operating-point", "f1")["operating_points"]["cross_fitted"]["overall"]
        assert {key: summary["cross_fitted"][key] for key in fitted} == pytest.approx(fitted)
        shown = f"score threshold about {fitted['threshold']:.4g}"
        assert all(shown in unwrapped(output) for output in (text, markdown, page))
    micro = next(row for row in report["comparisons"][0]["overall"] if row["metric"] == "f1_micro")
    assert micro["first"] == pytest.approx(report["runs"][0]["cross_fitted"]["f_score"])
    counts = report["runs"][0]["counts"]["detections"]
    assert counts["used"] + counts["dropped"]["score below the best threshold"] == counts["read"]
    both = ("--operating-point", "f1", "--score-thr", "0.5")
    assert "--score-thr excludes --operating-point f1, which gives each run its own" in error_of(
        capsys, truth, good, low, *both
    )
    error = error_of(capsys, truth, good, low, "--operating-point", "recall=0.999")
    assert "good.pkl: no score threshold satisfies --operating-point recall=0.999 on the images of" in error


# --- classifiers ------------------------------------------------------------------------------------------------------


def named(samples):
    return [{**sample, "img_path": f"{at:03d}.png", "sample_idx": at} for at, sample in enumerate(samples)]


def blurred(samples, seed=3):
    random = np.random.default_rng(seed)
    return [
        {
            "pred_score": (sample["pred_score"] + random.random(len(sample["pred_score"])) * 0.8).astype(np.float32),
            **{key: value for key, value in sample.items() if key not in ("pred_score", "pred_label")},
        }
        for sample in samples
    ]


def two_classifiers(folder, wrong=(2, 5)):
    """Four classes, eight samples; the second run decides some of them differently."""
    runs = []
    for name, moved in (("old.pkl", ()), ("new.pkl", wrong)):
        content = []
        for at in range(8):
            scores = np.full(4, 0.1, dtype=np.float32)
            scores[(at + (at in moved)) % 4] = 0.7
            content.append({"pred_score": scores, "gt_label": np.array([at % 4]), "img_path": f"data/val/{at}.png"})
        runs.append(files.write_pickle(folder / name, content))
    return runs


def test_classifiers_need_no_ground_truth_argument(tmp_path, capsys):
    runs = two_classifiers(tmp_path)
    short = report_of(*runs)
    assert short == report_of("-", *runs) and short["kind"] == "classification"
    error_of(capsys, runs[0])
    third = files.write_pickle(tmp_path / "third.pkl", [])
    assert "third.pkl" in error_of(capsys, runs[0], third, runs[1])


def test_changed_samples_have_both_predicted_classes(tmp_path):
    runs = two_classifiers(tmp_path)
    options = ("--classes", "ant,bee,cat,dog", *QUICK)
    text = files.printed("compare", *runs, tmp_path / "out", *options)
    expected = [["data/val/2.png", "cat", "cat", "dog"], ["data/val/5.png", "bee", "bee", "cat"]]
    shown = text.split("classify differently")[1].splitlines()
    assert [line.split() for line in shown if "data/val" in line] == expected
    report = json.loads((tmp_path / "out" / "comparison.json").read_text())
    keys = ("image", "true_class", "first_class", "second_class")
    assert [[image[key] for key in keys] for image in report["comparisons"][0]["changed_images"]] == expected
    with open(tmp_path / "out" / "changed_images.csv", newline="") as file:
        assert [[row[key] for key in keys] for row in csv.DictReader(file)] == expected


def test_classifiers_are_joined_by_name(tmp_path):
    from sklearn.metrics import roc_auc_score

    samples = named(files.samples(150))
    other = blurred(samples)
    first = files.write_pickle(tmp_path / "a.pkl", samples)
    second = files.write_pickle(tmp_path / "b.pkl", other[::-1])
    options = ("--classes", "cat,dog,bird", *QUICK)
    assert "b.pkl is worse" in files.printed("compare", "-", first, second, tmp_path / "out", *options)
    report = json.loads((tmp_path / "out" / "comparison.json").read_text())
    rows = {row["metric"]: row for row in report["comparisons"][0]["overall"]}
    truth = np.eye(3)[[int(sample["gt_label"][0]) for sample in samples]]
    for content, side in ((samples, "first"), (other, "second")):
        scores = np.stack([sample["pred_score"] for sample in content])
        assert rows["auc"][side] == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
        assert rows["accuracy"][side] == pytest.approx((scores.argmax(1) == truth.argmax(1)).mean(), abs=1e-12)
    assert rows["auc"]["verdict"] == "worse" and report["kind"] == "classification"
    assert [run["counts"] for run in report["runs"]] == [
        files.report_of("classification", path)["counts"] for path in (first, second)
    ]
    assert report["comparisons"][0]["changed_images"][0]["image"].endswith(".png")
    # Without names, samples are joined by position.
    for sample in (*samples, *other):
        sample.update(img_path=None, sample_idx=None)
    unnamed = [files.write_pickle(tmp_path / f"{n}.pkl", c) for n, c in (("c", samples), ("d", other))]
    by_position = report_of("-", *unnamed)
    assert [run["joined_by"] for run in report["inputs"]["runs"]] == ["img_path", "img_path"]
    assert [run["joined_by"] for run in by_position["inputs"]["runs"]] == ["position", "position"]
    note = "no img_path or sample_idx that tells samples apart: their entries are joined by position"
    assert f"c.pkl, d.pkl have {note}" in " ".join(files.printed("compare", "-", *unnamed, *QUICK).split())
    assert "by position" not in files.printed("compare", "-", first, second, *QUICK)
    again = by_position["comparisons"][0]["overall"]
    assert [row["difference"] for row in again] == [row["difference"] for row in rows.values()]


def test_classifiers_are_joined_by_a_field_that_both_have(tmp_path):
    samples = named(files.samples(60))
    first = files.write_pickle(tmp_path / "a.pkl", samples)
    numbered = files.write_pickle(tmp_path / "b.pkl", [{**one, "img_path": None} for one in samples[::-1]])
    report = report_of("-", first, numbered)
    assert report["inputs"]["runs"][1]["joined_by"] == "sample_idx"
    assert {row["verdict"] for row in report["comparisons"][0]["overall"]} == {"no difference"}


def test_multi_label_classifiers(tmp_path):
    random = np.random.default_rng(0)
    truth = random.integers(0, 2, (80, 3))
    runs = []
    for noise in (0.5, 2.0):
        scores = truth * 0.5 + random.random((80, 3)) * noise
        runs.append(
            [{"pred_score": s.astype(np.float32), "gt_score": t.astype(np.float32)} for s, t in zip(scores, truth)]
        )
    paths = [files.write_pickle(tmp_path / f"{at}.pkl", run) for at, run in enumerate(runs)]
    report = report_of("-", *paths)
    rows = {row["metric"]: row for row in report["comparisons"][0]["overall"]}
    assert rows["auc"]["verdict"] == "worse" and "f1_micro" in rows and report["settings"]["score_thr"] == 0.5
    for path, key in zip(paths, ("first", "second")):
        alone = files.report_of("classification", path)
        for metric in ("precision", "recall", "f1", "f1_of_means", "auc"):
            assert rows[metric][key] == pytest.approx(alone[metric], abs=1e-12)
    lower = report_of("-", *paths, "--score-thr", "0.3")
    assert lower["settings"]["score_thr"] == 0.3
    assert lower["comparisons"][0]["overall"] != report["comparisons"][0]["overall"]


def test_one_multi_label_run_makes_the_comparison_multi_label(tmp_path):
    first = files.samples(40)
    second = [{**one, "pred_label": np.array([0, 1]) if at == 5 else one["pred_label"]} for at, one in enumerate(first)]
    paths = [files.write_pickle(tmp_path / f"{at}.pkl", run) for at, run in enumerate((first, second))]
    for runs in (paths, paths[::-1]):
        settings = report_of("-", *runs)["settings"]
        assert settings["task"] == "multi-label" and settings["score_thr"] == 0.5
        assert settings["task_reason"] == "1.pkl: sample number 5 has 2 predicted labels"
    settings = report_of("-", *paths, "--task", "single-label")["settings"]
    assert settings["task"] == "single-label" and settings["score_thr"] is None


# --- what is refused --------------------------------------------------------------------------------------------------


def test_what_cannot_be_compared(folder, tmp_path, capsys):
    truth, good = folder / "truth.json", folder / "good.pkl"
    samples = named(files.samples(40))
    scores = files.write_pickle(tmp_path / "scores.pkl", samples)
    assert "--allow-missing is for detectors" in error_of(capsys, "-", scores, scores, "--allow-missing")
    assert "--operating-point is for detectors" in error_of(capsys, "-", scores, scores, "--operating-point", "f1")
    assert "--task is for classifiers" in error_of(capsys, truth, good, good, "--task", "multi-label")
    assert "at least two runs" in error_of(capsys, truth, good)
    assert "cannot be compared with classifiers" in error_of(capsys, truth, good, scores)
    assert "contains its ground truth, which requires GROUND_TRUTH -" in error_of(capsys, truth, scores, scores)
    message = "good.pkl: contains no ground truth; give the annotation file as GROUND_TRUTH"
    assert message in error_of(capsys, "-", good, good) and message in error_of(capsys, good, good)
    some = files.write_pickle(tmp_path / "some.pkl", files.results_of(files.problem(59)))
    assert "no results for image 60" in error_of(capsys, truth, good, some)
    fewer = files.write_pickle(tmp_path / "fewer.pkl", samples[1:])
    assert "fewer.pkl: holds no sample '000.png'" in error_of(capsys, "-", scores, fewer)
    wrong = files.write_pickle(tmp_path / "wrong.pkl", [{**one, "gt_label": np.array([0])} for one in samples])
    assert "differ in the ground truth" in error_of(capsys, "-", scores, wrong)
    narrow = files.write_pickle(tmp_path / "narrow.pkl", files.samples(40, classes=2))
    assert "of 3 and of 2 classes" in error_of(capsys, "-", scores, narrow)
    assert "3 classes for 1 class name" in error_of(capsys, "-", scores, scores, "--classes", "cat")
    short = [files.write_pickle(tmp_path / f"{n}.pkl", files.samples(n)) for n in (30, 31)]
    assert "equally many (found 30 and 31)" in error_of(capsys, "-", *short)


def test_truncated_tables_give_the_number_of_rows_and_files_are_complete(tmp_path):
    """50 classes and 100 samples, of which the second run decides 60 differently."""
    runs = []
    for name, moved in (("a.pkl", 0), ("b.pkl", 60)):
        content = []
        for at in range(100):
            scores = np.full(50, 0.01, dtype=np.float32)
            scores[(at + (at < moved)) % 50] = 0.5
            content.append({"pred_score": scores, "gt_label": np.array([at % 50]), "img_path": f"{at}.png"})
        runs.append(files.write_pickle(tmp_path / name, content))
    text = files.printed("compare", *runs, tmp_path / "out", *QUICK)
    markdown = (tmp_path / "out" / "comparison.md").read_text()
    for shown in (text, markdown):
        assert "40 of 50 classes" in shown and "20 of 60" in shown
    pair = json.loads((tmp_path / "out" / "comparison.json").read_text())["comparisons"][0]
    with open(tmp_path / "out" / "changed_images.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(pair["changed_images"]) == 60


def test_samples_whose_ground_truth_differs_are_named(tmp_path, capsys):
    runs = two_classifiers(tmp_path)
    content = pickle.loads(runs[1].read_bytes())
    content[3]["gt_label"] = np.array([0])
    other = files.write_pickle(tmp_path / "other.pkl", content)
    assert "1 sample, first in sample 'data/val/3.png'" in error_of(capsys, runs[0], other)


def test_two_coco_results_without_ground_truth_are_explained(tmp_path, capsys):
    paths = [files.write_json(tmp_path / name, []) for name in ("a.json", "b.json")]
    assert "a.json is the ground truth" in error_of(capsys, *paths)
