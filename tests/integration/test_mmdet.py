"""DetectionPRF in mmdet's training and test tools."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope

from tests.helpers.detection_problems import stock_tool
from tests.helpers.stock import ROOT, environment, run, run_on_two_processes, scalars, score_of_test_tool, tool


def options_for(shapes):
    loaders = [f"{part}_dataloader.dataset.data_root={shapes}/" for part in ("train", "val", "test")]
    return [*loaders, *(f"{part}_evaluator.0.ann_file={shapes}/val.json" for part in ("val", "test"))]


@pytest.fixture(scope="module", params=["mmdet_prf.py", "mmdet_prf_lazy.py"], ids=["classic", "lazy"])
def training(request, shapes, tmp_path_factory):
    """A training run: its config, its options and its folder."""
    work_dir = tmp_path_factory.mktemp("run")
    config = ROOT / "configs" / request.param
    options = options_for(shapes)
    run(tool("mmdet", "train.py"), config, "--work-dir", work_dir, "--cfg-options", *options, cwd=work_dir)
    return config, options, work_dir


def test_map_equals_coco_metric_at_every_validation(training):
    _, _, work_dir = training
    rows = scalars(work_dir, "det/f1")
    assert len(rows) == 2
    for row in rows:
        for key in ("mAP", "mAP_50", "mAP_75", "mAP_s", "mAP_m", "mAP_l"):
            value = row[f"det/{key}"]
            assert (-1 if np.isnan(value) else round(value, 3)) == row[f"coco/bbox_{key}"]
        assert row["det/tp"] + row["det/fn"] == rows[0]["det/tp"] + rows[0]["det/fn"]
    # The detector has learned something, so the values are not 0.
    assert rows[-1]["det/mAP"] > 0.01
    assert rows[-1]["det/tp"] > 5


def test_the_best_checkpoint_is_kept_by_f1(training):
    _, _, work_dir = training
    assert len(list(work_dir.glob("best_det_f1_epoch_*.pth"))) == 1


@pytest.fixture(scope="module")
def tested(training):
    """The folder with the values of ``tools/test.py`` for the last checkpoint, and its results."""
    config, options, work_dir = training
    arguments = [config, work_dir / "epoch_12.pth", "--work-dir", work_dir / "test", "--out", work_dir / "results.pkl"]
    run(tool("mmdet", "test.py"), *arguments, "--cfg-options", *options, cwd=work_dir)
    return work_dir


def test_values_of_the_test_tool_equal_the_log(tested):
    logged = scalars(tested, "det/f1")[-1]
    for key in ("det/f1", "det/mAP", "det/tp", "det/fp/disc"):
        assert score_of_test_tool(tested / "test", key) == logged[key]


def test_two_processes_give_the_values_of_one(training, tested):
    """25 images are not divisible by two, so the sampler adds padding."""
    config, options, work_dir = training
    arguments = [config, work_dir / "epoch_12.pth", "--work-dir", work_dir / "two", "--cfg-options", *options]
    run_on_two_processes(tool("mmdet", "test.py"), *arguments, cwd=work_dir)
    one, *two = (
        json.loads(next((work_dir / folder).glob("*/*.json")).read_text())
        for folder in ("test", "two/rank0", "two/rank1")
    )
    keys = [key for key in one if key.startswith("det/")]
    assert len(keys) > 20
    for values in two:
        np.testing.assert_equal([values[key] for key in keys], [one[key] for key in keys])


def report_of(config, options, work_dir, matching):
    """The report of ``mm-metrics detection`` on the results of ``tools/test.py --out``."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mm_metrics_command", "detection", str(config), str(work_dir / "results.pkl")),
            *("--matching", matching, "--format", "json", "--cfg-options", *options),
        ],
        cwd=work_dir,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["matching_rules"][matching]


def test_the_report_of_the_results_equals_the_log(training, tested):
    config, options, work_dir = training
    report = report_of(config, options, work_dir, "coco")
    log = scalars(work_dir, "det/f1")[-1]
    assert report["f1"] == log["det/f1"]
    assert report["recall"] == log["det/recall"]
    assert sum(row["tp"] for row in report["per_class"]) == log["det/tp"] > 0
    for row in report["per_class"]:
        assert (row["tp"], row["fp"], row["fn"]) == tuple(log[f"det/{key}/{row['name']}"] for key in ("tp", "fp", "fn"))


def test_the_confusion_matrix_equals_mmdets_tool(training, tested):
    config, options, work_dir = training
    loaded = Config.fromfile(str(config))
    loaded.merge_from_dict(dict(option.split("=", 1) for option in options))
    init_default_scope("mmdet")
    dataset = DATASETS.build({**loaded.test_dataloader.dataset, "pipeline": []})
    results = pickle.loads((work_dir / "results.pkl").read_bytes())
    expected = stock_tool().calculate_confusion_matrix(dataset, results, 0.3, None, 0.5)
    assert expected.diagonal().sum() > 0
    assert report_of(config, options, work_dir, "mmdet")["confusion_matrix"] == expected.tolist()
