"""All classification metrics at once in one real mmpretrain run, beside mmpretrain's own."""

from __future__ import annotations

import pytest

from tests.helpers.stock import ROOT, run, scalars, tool

CLASSES = ("disc", "frame", "stripes", "triangle")


@pytest.fixture(scope="module")
def finished(pictures, tmp_path_factory):
    """The folder of a training run of two epochs, and the scalars of its validations."""
    work_dir = tmp_path_factory.mktemp("classification")
    options = [f"{part}_dataloader.dataset.data_root={pictures}" for part in ("train", "val", "test")]
    config = ROOT / "configs" / "mmpretrain_classification.py"
    run(tool("mmpretrain", "train.py"), config, "--work-dir", work_dir, "--cfg-options", *options, cwd=work_dir)
    return work_dir, scalars(work_dir, "single-label-prf/f1")


def test_the_numbers_are_those_of_mmpretrain(finished):
    _, rows = finished
    assert len(rows) == 2
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


def test_the_metrics_agree_with_each_other(finished):
    _, rows = finished
    for row in rows:
        counts = {key: [row[f"single-label-prf/{key}/{name}"] for name in CLASSES] for key in ("tp", "fp", "tn", "fn")}
        samples = row["single-label/sample_count"]
        assert all(sum(cells) == samples for cells in zip(*counts.values()))
        assert row["single-label-prf/accuracy"] == sum(counts["tp"]) / samples == row["single-label-prf/f1_micro"]
        assert row["single-label/recall_count@1"] == sum(counts["tp"])
        assert abs(row["multi-label/auc"] - row["single-label/auc"]) <= row["multi-label/auc_error"] + 1e-12
        for name in CLASSES:
            # A rising curve that is at most ks above the diagonal, and somewhere is, cannot have another area.
            ks = row[f"single-label/ks/{name}"]
            assert ks - 1e-12 <= row[f"single-label/auc/{name}"] <= 1 - (1 - ks) ** 2 / 2 + 1e-12
        assert 0 <= row["single-label/ece"] <= row["single-label/mce"] <= 1
        assert 0 <= row["single-label/brier"] <= 2 and row["single-label/nll"] >= 0


def test_the_best_checkpoint_is_kept_by_f1(finished):
    work_dir, rows = finished
    best = 1 + max(range(2), key=lambda epoch: (rows[epoch]["single-label-prf/f1"], -epoch))
    assert [path.name for path in work_dir.glob("best_*")] == [f"best_single-label-prf_f1_epoch_{best}.pth"]
