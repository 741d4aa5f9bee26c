"""Classification metrics in mmpretrain's training, test and analysis tools."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tests.helpers.stock import ROOT, run, scalars, score_of_test_tool, tool

AUC = "single-label/auc"
CLASSES = ("disc", "frame", "stripes", "triangle")


def train(config, images, work_dir):
    """Train for two epochs; returns the options of the tools and the scalars of the validations."""
    options = [f"{part}_dataloader.dataset.data_root={images}" for part in ("train", "val", "test")]
    config = ROOT / "configs" / config
    run(tool("mmpretrain", "train.py"), config, "--work-dir", work_dir, "--cfg-options", *options, cwd=work_dir)
    rows = scalars(work_dir, AUC)
    assert len(rows) == 2
    return options, rows


def best_checkpoint(work_dir, key, rows):
    """The checkpoint of the best epoch, by its scalars."""
    best = 1 + int(np.argmax([row[key] for row in rows]))
    assert [path.name for path in work_dir.glob("best_*")] == [f"best_{key.replace('/', '_')}_epoch_{best}.pth"]


@pytest.mark.parametrize("config", ["mmpretrain_auc.py", "mmpretrain_auc_lazy.py"])
def test_auc_in_every_tool(config, pictures, tmp_path):
    options, rows = train(config, pictures, tmp_path)
    for row in rows:
        assert row[AUC] == pytest.approx(np.mean([row[f"{AUC}/{name}"] for name in CLASSES]), abs=1e-12)
    best_checkpoint(tmp_path, AUC, rows)
    dumped = next(tmp_path.glob("*.py"))  # the config that mmengine wrote
    results = tmp_path / "results.pkl"
    run(
        *(tool("mmpretrain", "test.py"), dumped, tmp_path / "epoch_2.pth", "--work-dir", tmp_path / "test"),
        *("--out", results, "--out-item", "pred", "--cfg-options", *options),
        cwd=tmp_path,
    )
    logged = pytest.approx(rows[1][AUC], abs=1e-12)
    assert score_of_test_tool(tmp_path / "test", AUC) == logged
    script = tool("mmpretrain", "analysis_tools", "eval_metric.py")
    output = run(script, results, "--metric", "type=mm_metrics_plugin.SingleLabelAUC", cwd=tmp_path)
    assert float(re.search(rf"'{AUC}': ([0-9.]+)", output).group(1)) == logged
    samples = pickle.loads(results.read_bytes())
    scores = np.stack([np.asarray(sample["pred_score"], dtype=np.float64) for sample in samples])
    labels = np.array([int(sample["gt_label"]) for sample in samples])
    assert roc_auc_score(np.eye(4)[labels], scores) == logged


def test_all_classification_metrics(pictures, tmp_path):
    _, rows = train("mmpretrain_classification.py", pictures, tmp_path)
    best_checkpoint(tmp_path, "single-label-prf/f1", rows)
    for row in rows:
        for ours, theirs in (
            ("single-label-prf/precision", "single-label/precision"),
            ("single-label-prf/recall", "single-label/recall"),
            ("single-label-prf/f1", "single-label/f1-score"),
            ("single-label-prf/accuracy", "accuracy/top1"),
            ("single-label-prf/accuracy_top2", "accuracy/top2"),
            ("single-label/recall@2", "accuracy/top2"),
            ("multi-label-prf/f1", "single-label/f1-score"),
        ):
            assert row[ours] == pytest.approx(row[theirs] / 100, abs=1e-6), ours
        counts = {key: [row[f"single-label-prf/{key}/{name}"] for name in CLASSES] for key in ("tp", "fp", "tn", "fn")}
        samples = row["single-label/sample_count"]
        assert all(sum(cells) == samples for cells in zip(*counts.values()))
        assert row["single-label-prf/accuracy"] == sum(counts["tp"]) / samples == row["single-label-prf/f1_micro"]
        assert row["single-label/recall_count@1"] == sum(counts["tp"])
        assert abs(row["multi-label/auc"] - row[AUC]) <= row["multi-label/auc_error"] + 1e-12
        for name in CLASSES:
            # The bounds of the area under an increasing curve that is at most ks above the diagonal.
            ks = row[f"single-label/ks/{name}"]
            assert ks - 1e-12 <= row[f"{AUC}/{name}"] <= 1 - (1 - ks) ** 2 / 2 + 1e-12
        assert 0 <= row["single-label/ece"] <= row["single-label/mce"] <= 1
        assert 0 <= row["single-label/brier"] <= 2 and row["single-label/nll"] >= 0
