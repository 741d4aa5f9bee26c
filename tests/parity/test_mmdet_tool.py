"""The report on the test set of a config compared with mmdet's tool."""

from __future__ import annotations

import json

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope

from tests.helpers import result_files as files
from tests.helpers.detection_problems import stock_tool
from tests.helpers.result_files import CLASSES, command, succeeded

pytestmark = pytest.mark.usefixtures("shown_warnings")

CLASSIC = """
default_scope = 'mmdet'
test_dataloader = dict(dataset=dict(
    type='CocoDataset', data_root='', ann_file='{truth}', data_prefix=dict(img=''), test_mode=True,
    metainfo=dict(classes={classes!r}),
    pipeline=[dict(type='LoadImageFromFile'), dict(type='PackDetInputs')]))
"""
LAZY = """
from mmdet.datasets import CocoDataset

default_scope = 'mmdet'
test_dataloader = dict(dataset=dict(
    type=CocoDataset, data_root='', ann_file='{truth}', data_prefix=dict(img=''), test_mode=True,
    metainfo=dict(classes={classes!r})))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Configs of both styles, annotations, and results as torch tensors."""
    place = tmp_path_factory.mktemp("config")
    target, _ = files.pair(place, images=60)
    content = files.results_of(files.problem(60))
    for image in content:
        image["pred_instances"] = {key: torch.as_tensor(value) for key, value in image["pred_instances"].items()}
    files.write_pickle(place / "results.pkl", content)
    for name, text in (("classic.py", CLASSIC), ("lazy.py", LAZY)):
        (place / name).write_text(text.format(truth=target, classes=CLASSES))
    return place


@pytest.fixture(scope="module")
def report(folder):
    done = command("detection", "classic.py", "results.pkl", "out", "--quiet", cwd=folder)
    assert (succeeded(done), done.stderr) == ("", "")
    return json.loads((folder / "out" / "report.json").read_text())


def stock_matrix(folder, score_thr=0.3):
    config = Config.fromfile(str(folder / "classic.py"))
    init_default_scope("mmdet")
    dataset = DATASETS.build({**config.test_dataloader.dataset, "pipeline": []})
    content = torch_results(folder)
    return stock_tool().calculate_confusion_matrix(dataset, content, score_thr, None, 0.5)


def torch_results(folder):
    import pickle

    return pickle.loads((folder / "results.pkl").read_bytes())


def test_matrix_equals_the_stock_tool(folder, report):
    expected = stock_matrix(folder)
    assert expected.sum() > 300
    assert report["matching_rules"]["mmdet"]["confusion_matrix"] == expected.tolist()
    assert report["inputs"]["ground_truth"]["file"] == "classic.py" and "mmengine" in report["inputs"]["versions"]


def test_config_and_annotation_file_give_the_same_report(folder, report):
    alone = json.loads(files.printed("detection", folder / "truth.json", folder / "results.pkl", "--format", "json"))
    assert alone["matching_rules"] == report["matching_rules"] and alone["classes"] == report["classes"]
    assert alone["counts"]["detections"] == report["counts"]["detections"]


def test_new_style_configs_and_options(folder, report):
    done = command("detection", "lazy.py", "results.pkl", "--format", "json", cwd=folder)
    assert json.loads(succeeded(done))["matching_rules"] == report["matching_rules"]
    other = files.truth_of(files.problem(60))
    other["annotations"] = other["annotations"][:50]
    files.write_json(folder / "fewer.json", other)
    options = ("--cfg-options", f"test_dataloader.dataset.ann_file={folder / 'fewer.json'}")
    actual = json.loads(
        files.printed("detection", folder / "classic.py", folder / "results.pkl", *options, "--format", "json")
    )
    assert actual["counts"]["ground_truths"]["read"] == 50


def test_missing_mmdet_is_a_one_line_error(folder):
    code = """
import sys
sys.modules["mmdet"] = None
sys.argv = ["mm-metrics", "detection", "classic.py", "results.pkl"]
from mm_metrics_command import main
sys.exit(main())
"""
    error = files.refused(command(cwd=folder, script=("-c", code)))
    assert "classic.py: reading a config needs mmdet" in error and "annotation file" in error
