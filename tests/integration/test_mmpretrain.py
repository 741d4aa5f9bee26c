"""SingleLabelAUC in real mmpretrain runs, through mmpretrain's own tools."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tests.helpers.stock import ROOT, run, scalars, score_of_test_tool, tool

KEY = "single-label/auc"


@pytest.fixture(scope="module", params=["mmpretrain_auc.py", "mmpretrain_auc_lazy.py"], ids=["classic", "lazy"])
def training(request, pictures, tmp_path_factory):
    """A finished training run of two epochs: its config and its folder."""
    work_dir = tmp_path_factory.mktemp("run")
    config = ROOT / "configs" / request.param
    options = [f"{part}_dataloader.dataset.data_root={pictures}" for part in ("train", "val", "test")]
    run(tool("mmpretrain", "train.py"), config, "--work-dir", work_dir, "--cfg-options", *options, cwd=work_dir)
    return config, options, work_dir


def test_every_epoch_is_logged_with_names_of_classes(training):
    _, _, work_dir = training
    rows = scalars(work_dir, KEY)
    assert len(rows) == 2
    for row in rows:
        named = [row[f"{KEY}/{name}"] for name in ("disc", "frame", "stripes", "triangle")]
        assert row[KEY] == pytest.approx(np.mean(named), abs=1e-12)
        assert 0 <= row[KEY] <= 1


def test_the_best_checkpoint_is_kept_by_auc(training):
    _, _, work_dir = training
    rows = scalars(work_dir, KEY)
    best = 1 + int(np.argmax([row[KEY] for row in rows]))
    assert [path.name for path in work_dir.glob("best_*")] == [f"best_single-label_auc_epoch_{best}.pth"]


def test_test_tool_and_offline_tool_give_the_number_of_the_log(training):
    _, options, work_dir = training
    dumped = next(work_dir.glob("*.py"))  # the config as mmengine dumped it must build too
    results = work_dir / "results.pkl"
    run(
        *(tool("mmpretrain", "test.py"), dumped, work_dir / "epoch_2.pth", "--work-dir", work_dir / "test"),
        *("--out", results, "--out-item", "pred", "--cfg-options", *options),
        cwd=work_dir,
    )
    logged = scalars(work_dir, KEY)[1][KEY]
    assert score_of_test_tool(work_dir / "test", KEY) == pytest.approx(logged, abs=1e-12)

    offline = run(
        *(tool("mmpretrain", "analysis_tools", "eval_metric.py"), results),
        *("--metric", "type=mm_metrics_plugin.SingleLabelAUC"),
        cwd=work_dir,
    )
    assert float(re.search(rf"'{KEY}': ([0-9.]+)", offline).group(1)) == pytest.approx(logged, abs=1e-12)

    # And the number is that of the scores in the file, by scikit-learn.
    samples = pickle.loads(results.read_bytes())
    scores = np.stack([np.asarray(sample["pred_score"], dtype=np.float64) for sample in samples])
    labels = np.array([int(sample["gt_label"]) for sample in samples])
    assert roc_auc_score(np.eye(4)[labels], scores) == pytest.approx(logged, abs=1e-12)
