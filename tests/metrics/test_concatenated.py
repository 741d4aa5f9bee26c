"""Concatenated datasets in mmdet's MultiDatasetsEvaluator, and tasks in mmpretrain's MultiTasksMetric."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch
from mmengine.dataset import DefaultSampler
from mmengine.dist import get_rank
from mmengine.evaluator import Evaluator

from mm_metrics_plugin import (
    DetectionPRF,
    DiceScore,
    FieldSum,
    MetricInputError,
    SingleLabelAUC,
    UndefinedMetricWarning,
)
from mm_metrics_plugin.testing import assert_same, evaluate, run_processes
from tests.helpers.cases import CASES
from tests.helpers.cases_single_label import single_label

SIZES = (9, 1, 12)
ENDS = list(np.cumsum(SIZES))


def multi(metrics, meta):
    from mmdet.evaluation import MultiDatasetsEvaluator

    evaluator = MultiDatasetsEvaluator(metrics, [f"set{index}" for index in range(len(metrics))])
    evaluator.dataset_meta = meta
    return evaluator


def evaluate_with(evaluator, samples, batch_size, size=None):
    """The values of an evaluator, without warnings of undefined values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        for start in range(0, len(samples), batch_size):
            evaluator.process(samples[start : start + batch_size])
        return evaluator.evaluate(len(samples) if size is None else size)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_metric_evaluates_each_dataset(case):
    samples = case.draw(ENDS[-1])
    meta = {**case.metric().dataset_meta, "cumulative_sizes": ENDS}
    evaluator = multi([case.build() for _ in SIZES], meta)
    if case.order_matters:
        with pytest.raises(MetricInputError, match="cannot evaluate a part of the samples"):
            evaluate_with(evaluator, samples, 4)
        return
    expected = {}
    for index, (start, stop) in enumerate(zip([0, *ENDS], ENDS)):
        values = evaluate(case.metric(), samples[start:stop])
        expected.update({f"set{index}/{key}": value for key, value in values.items()})
    for batch_size in (4, 30):  # the second evaluation does not depend on the first
        assert_same(evaluate_with(evaluator, samples, batch_size), expected, case.tolerance, case.name)


def image(label, detected):
    """An image with one object, which is detected or not."""
    box = torch.tensor([[0.0, 0.0, 10.0, 10.0]])
    predictions = dict(bboxes=box if detected else box + 50, scores=torch.tensor([0.9]), labels=torch.tensor([label]))
    return dict(pred_instances=predictions, gt_instances=dict(bboxes=box, labels=torch.tensor([label])))


def test_datasets_with_different_classes(tmp_path):
    """Their metainfo is a list; each metric gets its own element at the first evaluation."""
    metas = [
        {"classes": ("cat",), "cumulative_sizes": [3, 5]},
        {"classes": ("ant", "bee", "cow"), "cumulative_sizes": [3, 5]},
    ]
    samples = [image(0, True) for _ in range(3)] + [image(2, True), image(1, False)]
    options = dict(classwise=True, outfile_prefix=str(tmp_path / "second"))
    evaluator = multi([DetectionPRF(classwise=True), DetectionPRF(**options)], metas)
    for _ in range(2):
        values = evaluate_with(evaluator, samples, 4)
        assert values["set0/det/tp"] == 3.0 and values["set1/det/tp"] == 1.0 and values["set1/det/fp"] == 1.0
        assert sum(key.endswith("cow") for key in values) == sum(key.endswith("cat") for key in values) > 0
    assert json.loads((tmp_path / "second.json").read_text())["classes"] == ["ant", "bee", "cow"]
    plain = Evaluator([DetectionPRF()])
    plain.dataset_meta = metas
    with pytest.raises(MetricInputError, match="cannot evaluate datasets with different classes as one"):
        evaluate_with(plain, samples, 4)


def test_batches_that_span_datasets_are_refused():
    metas = [{"classes": ("a", "b", "c"), "cumulative_sizes": [3, 5]}, {"classes": ("x",), "cumulative_sizes": [3, 5]}]
    for metric in (SingleLabelAUC(slide_steps=2), DiceScore(convention="mindspore")):
        metric.dataset_meta = metas
        with pytest.raises(MetricInputError, match="evaluate each dataset in a separate run"):
            metric.process(None, single_label(np.random.default_rng(0), 2))


def test_metainfo_of_mmdets_concat_dataset():
    from mmdet.datasets import ConcatDataset
    from mmengine.dataset import BaseDataset

    class Two(BaseDataset):
        METAINFO = dict(classes=("cat",))

        def load_data_list(self):
            return [dict(img_path=f"{index}.jpg") for index in range(2)]

    evaluator = multi([DetectionPRF(), DetectionPRF()], ConcatDataset([Two(), Two()]).metainfo)
    values = evaluate_with(evaluator, [image(0, True), image(0, True), image(0, False), image(0, False)], 3)
    assert (values["set0/det/f1"], values["set1/det/f1"]) == (1.0, 0.0)


def evaluate_rank(job):
    """One rank of an evaluation of three datasets."""
    size, round_up = job
    ends = [size // 2, size // 2 + 1, size]
    samples = [dict(value=10.0**index, img_id=index) for index in range(size)]
    share = [samples[index] for index in DefaultSampler(samples, shuffle=False, round_up=round_up)]
    evaluator = multi([FieldSum(field="value") for _ in ends], {"classes": ("a",), "cumulative_sizes": ends})
    plain = Evaluator([FieldSum(field="value")])
    plain.dataset_meta = evaluator.dataset_meta
    twice = [evaluate_with(evaluator, share, 2, size) for _ in range(2)]
    return [*twice, evaluate_with(plain, share, 2, size)]


def test_each_dataset_on_several_processes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # mmengine collects results in a folder under the current one
    jobs = [(9, True), (9, False), (8, True)]
    for (size, _), ranks in zip(jobs, run_processes(2, evaluate_rank, jobs)):
        middle = size // 2
        for first, second, whole in ranks:
            assert first == second
            digits = [f"{int(first[f'set{index}/field/sum']):0{size}d}"[::-1] for index in range(3)]
            assert digits == [
                "1" * middle + "0" * (size - middle),
                "0" * middle + "1" + "0" * (size - middle - 1),
                "0" * (middle + 1) + "1" * (size - middle - 1),
            ]
            assert f"{int(whole['field/sum'])}" == "1" * size


def one_rank_without_samples(_):
    from mmpretrain.evaluation import MultiTasksMetric

    metric, results = MultiTasksMetric(task_metrics={"task": [dict(type="FieldSum", field="value")]}), []
    for _ in range(2):
        if get_rank() == 0:
            metric.process(None, [{"task": dict(value=value, eval_mask=True)} for value in (1.0, 2.0)])
        results.append(metric.evaluate(2))
    return results


def test_a_process_without_samples_takes_part_in_every_task():
    """MultiTasksMetric evaluates a task on a process only if ``results`` is true there."""
    (ranks,) = run_processes(2, one_rank_without_samples, [None])
    assert ranks == [[{"task_field/sum": 3.0}] * 2] * 2
