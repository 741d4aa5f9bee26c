"""``mm-metrics classification``, compared with scikit-learn and the metrics of training."""

from __future__ import annotations

import csv
import json
import os
import re

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    confusion_matrix,
    precision_recall_fscore_support,
    roc_auc_score,
    top_k_accuracy_score,
)

from mm_metrics_plugin import MultiLabelAUC, MultiLabelPRF
from tests.helpers import result_files as files
from tests.helpers.result_files import ROOT, command, report_of, succeeded

pytestmark = pytest.mark.usefixtures("shown_warnings")

NAMES = ("cat", "dog", "cow")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classification")
    path = files.write_pickle(folder / "results.pkl", files.samples())
    text = files.printed("classification", path, folder / "out", "--classes", ",".join(NAMES), "--ci", "0.9")
    return folder, text, json.loads((folder / "out" / "report.json").read_text())


def test_numbers_are_those_of_scikit_learn(written):
    _, _, report = written
    content = files.samples()
    labels = np.array([one["gt_label"][0] for one in content])
    scores = np.stack([one["pred_score"] for one in content]).astype(np.float64)
    decided = scores.argmax(axis=1)
    assert report["accuracy"] == pytest.approx(accuracy_score(labels, decided), abs=1e-15)
    scores /= scores.sum(axis=1, keepdims=True)
    assert report["auc"] == pytest.approx(roc_auc_score(labels, scores, multi_class="ovr"), abs=1e-12)
    assert report["confusion_matrix"] == confusion_matrix(labels, decided).tolist()
    rates = precision_recall_fscore_support(labels, decided)
    for key, values in zip(("precision", "recall", "f1", "samples"), rates):
        assert [row[key] for row in report["per_class"]] == pytest.approx(values.tolist(), abs=1e-15)
    macro = precision_recall_fscore_support(labels, decided, average="macro")
    found = [report[key] for key in ("precision", "recall", "f1")]
    assert found == pytest.approx(list(macro[:3]), abs=1e-15)


def test_top_k_and_average_precision_are_those_of_scikit_learn(tmp_path):
    content = files.samples(200, classes=9, seed=3)
    labels = np.array([one["gt_label"][0] for one in content])
    scores = np.stack([one["pred_score"] for one in content])
    path = files.write_pickle(tmp_path / "results.pkl", content)
    report = report_of("classification", path)
    for key, k in (("accuracy", 1), ("accuracy_top5", 5)):
        assert report[key] == pytest.approx(top_k_accuracy_score(labels, scores, k=k))
    expected = [average_precision_score(labels == label, scores[:, label]) for label in range(9)]
    assert [row["AP"] for row in report["per_class"]] == pytest.approx(expected)
    assert report["mAP"] == pytest.approx(np.mean(expected))
    text = files.printed("classification", path)
    assert "top-5 accuracy" in text and "mAP" in text
    few = files.write_pickle(tmp_path / "few.pkl", files.samples())
    assert "accuracy_top5" not in report_of("classification", few)  # 3 classes


def test_accuracy_has_a_confidence_interval(tmp_path):
    path = files.write_pickle(tmp_path / "results.pkl", files.samples(400))
    found = report_of("classification", path, "--ci", "0.95")
    one = found["intervals"]["overall"]["accuracy"]
    assert one["value"] == found["accuracy"] and one["low"] < found["accuracy"] < one["high"]
    # Wilson's interval, except for the t quantile.
    p, n, z = found["accuracy"], 400, 1.96
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n**2))
    assert [one["low"], one["high"]] == pytest.approx([center - half, center + half], abs=1e-3)
    several = report_of("classification", path, "--ci", "0.95", "--task", "multi-label")
    assert several["intervals"]["overall"]["accuracy"]["value"] == pytest.approx(several["accuracy"])
    text = files.printed("classification", path, "--ci", "0.95")
    assert re.search(r"accuracy +\d\.\d+ +\[", text)


def evaluated(metric, content):
    metric.process(None, [{key: torch.as_tensor(value) for key, value in sample.items()} for sample in content])
    return metric.evaluate(len(content))


def test_files_and_text(written):
    folder, text, report = written
    names = ["confusion_matrix.csv", "confusion_matrix.png", "curves.png", "per_class.csv", "report.json", "report.md"]
    assert sorted(os.listdir(folder / "out")) == names
    with open(folder / "out" / "per_class.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["auc"]) for row in rows] == [row["auc"] for row in report["per_class"]]
    for name in ("recall", "auc"):
        for end in ("low", "high"):
            assert [float(row[f"{name}_{end}"]) for row in rows] == report["intervals"]["per_class"][name][end]
    assert "accuracy" in text and f"{report['auc']:.4f}" in text
    assert " → " in (folder / "out" / "report.md").read_text(encoding="utf-8")
    assert report["counts"]["samples"] == {"read": 60, "used": 60, "dropped": {}}


def test_multi_label_reports_equal_the_metrics_of_training(tmp_path):
    random = np.random.default_rng(0)
    content = []
    for _ in range(50):
        truth = random.integers(-1, 2, 4)
        score = np.clip(truth * 0.3 + random.random(4), 0, 1).astype(np.float32)
        content.append({"pred_score": score, "gt_score": truth.astype(np.float32)})
    path = files.write_pickle(tmp_path / "results.pkl", content)
    report = report_of("classification", path, tmp_path / "out")
    log = evaluated(MultiLabelPRF(prefix="multi-label"), content)
    log.update(evaluated(MultiLabelAUC(), content))
    keys = ("accuracy", "auc", "precision", "recall")
    assert {key: report[key] for key in keys} == {key: log[f"multi-label/{key}"] for key in keys}
    assert report["confusion_matrix"] is None and report["settings"]["score_thr"] == 0.5
    assert sorted(os.listdir(tmp_path / "out")) == ["curves.png", "per_class.csv", "report.json", "report.md"]
    assert report["settings"]["task"] == "multi-label"


def one_true_class(predicted, seed=0):
    """Samples of a multi-label model that all have one true class; ``predicted`` gives the labels of sample n."""
    random = np.random.default_rng(seed)
    scores = random.random((40, 3)).astype(np.float32)
    return [
        {"pred_score": score, "pred_label": np.array(predicted(n), dtype=np.int64), "gt_label": np.array([n % 3])}
        for n, score in enumerate(scores)
    ]


@pytest.mark.parametrize("number", [0, 2])
def test_the_task_is_inferred_from_the_predicted_labels(tmp_path, number):
    content = one_true_class(lambda n: [0, 1][:number] if n == 7 else [0])
    path = files.write_pickle(tmp_path / "results.pkl", content)
    report = report_of("classification", path)
    assert report["settings"]["task"] == "multi-label" and report["settings"]["score_thr"] == 0.5
    assert report["settings"]["task_reason"] == f"sample number 7 has {number} predicted labels"
    targets = np.eye(3)[[n % 3 for n in range(40)]]
    decided = np.stack([one["pred_score"] for one in content]) >= 0.5
    expected = precision_recall_fscore_support(targets, decided)
    for key, values in zip(("precision", "recall", "f1"), expected):
        assert [row[key] for row in report["per_class"]] == pytest.approx(values.tolist(), abs=1e-15)


def test_the_task_can_be_given(tmp_path, capsys):
    path = files.write_pickle(tmp_path / "results.pkl", one_true_class(lambda n: [0, 1]))
    report = report_of("classification", path, "--task", "single-label")
    assert report["settings"]["task"] == "single-label" and report["confusion_matrix"] is not None
    assert report["settings"]["score_thr"] is None
    plain = files.write_pickle(tmp_path / "plain.pkl", one_true_class(lambda n: [0]))
    report = report_of("classification", plain, "--task", "multi-label")
    assert report["settings"]["task"] == "multi-label" and report["confusion_matrix"] is None
    several = [{**one, "gt_label": np.array([0, 2])} for one in one_true_class(lambda n: [0])]
    path = files.write_pickle(tmp_path / "several.pkl", several)
    message = "'gt_label' of sample number 0 must hold one true class in a single-label task (found 2 true"
    assert message in files.error_of(capsys, "classification", path, "--task", "single-label")


def test_a_score_threshold_above_every_score_is_a_warning(tmp_path, capsys):
    path = files.write_pickle(tmp_path / "results.pkl", one_true_class(lambda n: [0, 1]))
    assert report_of("classification", path, "--score-thr", "30")["recall"] == 0
    assert "no score reaches the score threshold 30 (the highest score is 0.99" in capsys.readouterr().err


def test_the_pages_name_task_and_threshold(tmp_path):
    path = files.write_pickle(tmp_path / "results.pkl", one_true_class(lambda n: [0, 1]))
    files.printed("classification", path, tmp_path / "one", "--html")
    files.printed("compare", "-", path, path, tmp_path / "two", "--html", "--resamples", "20", "--permutations", "20")
    for folder in ("one", "two"):
        page = (tmp_path / folder / "report.html").read_text(encoding="utf-8")
        assert re.search(r"score threshold\s*</\w+>\s*<\w+[^>]*>\s*0\.5\s*<", page)
        assert re.search(r"task\s*</\w+>\s*<\w+[^>]*>\s*multi-label\s*<", page)


def test_names_from_a_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = files.write_pickle(tmp_path / "results.pkl", files.samples())
    dataset = f"dict(type='CustomDataset', data_root='nowhere', metainfo=dict(classes={NAMES!r}), pipeline=[])"
    (tmp_path / "config.py").write_text(f"default_scope = 'mmpretrain'\ntest_dataloader = dict(dataset={dataset})\n")
    report = report_of("classification", path, "--config", "config.py")
    assert report["classes"] == list(NAMES) and report["inputs"]["config"]["file"] == "config.py"
    # CustomDataset names the classes by folders.
    for name in NAMES:
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "a.png").write_bytes(b"")
    dataset = "dict(type='CustomDataset', data_root='data', pipeline=[])"
    (tmp_path / "folders.py").write_text(f"default_scope = 'mmpretrain'\ntest_dataloader = dict(dataset={dataset})\n")
    assert report_of("classification", path, "--config", "folders.py")["classes"] == sorted(NAMES)


@pytest.mark.parametrize(
    ("options", "word"), [(["--cfg-options", "a=1"], "--cfg-options"), (["--config", "x.py"], "x.py")]
)
def test_invalid_options(options, word, tmp_path, capsys):
    path = files.write_pickle(tmp_path / "results.pkl", files.samples())
    assert word in files.error_of(capsys, "classification", path, *options)


def test_names_are_numbers_by_default_and_no_torch_is_imported(tmp_path):
    files.write_pickle(tmp_path / "results.pkl", files.samples())
    code = """
import json, sys
sys.argv = ["mm-metrics", "classification", "results.pkl", "--format", "json"]
from mm_metrics_command import main
assert main() == 0
assert not {"torch", "mmengine", "matplotlib"} & set(sys.modules)
"""
    text = succeeded(command(cwd=tmp_path, script=("-c", code)))
    assert json.loads(text)["classes"] == ["0", "1", "2"]
    script = (ROOT / "tools" / "classification_report.py",)
    assert succeeded(command("results.pkl", "--format", "json", cwd=tmp_path, script=script)) == text
