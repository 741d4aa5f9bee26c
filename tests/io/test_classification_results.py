"""mmpretrain's result files, written from its own data samples."""

import pickle

import numpy as np
import pytest
import torch
from mmpretrain.structures import DataSample

from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.readers import read_classification


def samples(count=20, classes=5, **more):
    """As mmpretrain's DumpResults writes them: data samples turned into dicts."""
    rng = torch.Generator().manual_seed(0)
    out = []
    for number in range(count):
        scores = torch.softmax(torch.randn(classes, generator=rng), 0)
        sample = DataSample(metainfo={"img_path": f"{number}.png", "sample_idx": number, "num_classes": classes})
        sample.set_pred_score(scores).set_pred_label(scores.argmax(0, keepdim=True)).set_gt_label(number % classes)
        out.append({**sample.to_dict(), **{key: value(number) for key, value in more.items()}})
    return out


def write(tmp_path, content):
    path = tmp_path / "results.pkl"
    path.write_bytes(pickle.dumps(content, 2))
    return path


def test_single_label(tmp_path):
    content = samples()
    results = read_classification(write(tmp_path, content))
    np.testing.assert_array_equal(results.scores, torch.stack([row["pred_score"] for row in content]).numpy())
    assert results.scores.dtype == np.float32
    assert results.predictions.tolist() == [int(row["pred_label"]) for row in content]
    assert results.labels.tolist() == [number % 5 for number in range(20)]
    assert results.targets is None
    assert results.names[3] == "3.png"
    assert results.sample_idx.tolist() == list(range(20))
    assert results.row_counts.to_dict() == {"read": 20, "used": 20, "dropped": {}}


def test_multi_label(tmp_path):
    content = samples(
        gt_label=lambda n: torch.tensor([0, 3])[: n % 3], pred_label=lambda n: torch.tensor([1, 2, 4])[: n % 2 + 1]
    )
    results = read_classification(write(tmp_path, content))
    assert results.labels is None
    assert results.targets[:3].tolist() == [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 0, 0, 1, 0]]
    assert results.predictions[:2].tolist() == [1, -1]
    scored = samples(gt_score=lambda n: torch.tensor([1.0, 0, -1, 0, n % 2]))
    assert read_classification(write(tmp_path, scored)).targets[1].tolist() == [1, 0, -1, 0, 1]


@pytest.mark.parametrize(
    ("more", "task", "reason"),
    [
        ({}, "single-label", "every sample has one true label and one predicted label"),
        ({"pred_label": lambda n: None}, "single-label", "every sample has one true label"),
        ({"gt_label": lambda n: torch.tensor([0, 1])[: 1 + (n == 3)]}, "multi-label", "number 3 has 2 true labels"),
        ({"gt_label": lambda n: torch.tensor([0])[: int(n != 4)]}, "multi-label", "number 4 has 0 true labels"),
        ({"pred_label": lambda n: torch.tensor([0, 1])[: 1 + (n == 3)]}, "multi-label", "3 has 2 predicted labels"),
        ({"pred_label": lambda n: torch.tensor([0])[: int(n != 2)]}, "multi-label", "2 has 0 predicted labels"),
        ({"gt_score": lambda n: torch.eye(5)[n % 5]}, "multi-label", "number 0 has a 'gt_score'"),
        ({"gt_score": lambda n: torch.eye(5)[0] if n == 6 else None}, "multi-label", "number 6 has a 'gt_score'"),
        ({"pred_score": lambda n: torch.full((5,), 0.3)}, "single-label", "20 of 20 samples do not sum to 1"),
        ({"pred_score": lambda n: torch.arange(5.0)}, "single-label", "one predicted label"),
    ],
)
def test_the_task_is_inferred_from_all_samples(tmp_path, more, task, reason):
    results = read_classification(write(tmp_path, samples(**more)))
    assert results.task == task and results.task_reason.endswith(reason)
    assert (results.labels is None) == (task == "multi-label")
    as_multi_label = read_classification(write(tmp_path, samples(**more)), task="multi-label")
    assert as_multi_label.task_reason == "given"
    expected = results.as_multi_label("").targets
    np.testing.assert_array_equal(as_multi_label.targets, expected)
    if (expected.sum(axis=1) == 1).all():
        labels = read_classification(write(tmp_path, samples(**more)), task="single-label").labels
        np.testing.assert_array_equal(labels, expected.argmax(axis=1))
    else:
        with pytest.raises(ResultFileError, match="must hold one true class in a single-label task"):
            read_classification(write(tmp_path, samples(**more)), task="single-label")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "found an empty list"),
        ({}, "found a dict"),
        ([1], "found a list of int; results of a classifier are"),
        ([*samples(2), 1], "sample number 2 must be a dict .found int"),
        ([{"pred_instances": {}}], "found results of mmdet; evaluate_detection and mm-metrics detection read them"),
        ([*samples(2), {}], "'pred_score' of sample number 2 must be an array .found nothing"),
        (samples(pred_score=lambda n: torch.ones(5 + n // 7)), r"'pred_score' of sample number 7 must be 5 scores .*6"),
        (samples(pred_score=lambda n: torch.tensor([0, 0, n == 4]) / (n != 4)), "number 4 .*finite"),
        (samples(pred_score=lambda n: "ab"), "'pred_score' of sample number 0 must be an array of numbers .found 'ab'"),
        (samples(gt_label=lambda n: None), "'gt_label' of sample number 0 must be an array .found nothing"),
        (samples(gt_label=lambda n: torch.tensor([n])), r"'gt_label' of sample number 5 must be between 0 and 4"),
        (samples(gt_label=lambda n: torch.tensor([0.5])), "'gt_label' of sample number 0 must be whole numbers"),
        (samples(gt_score=lambda n: torch.full((5,), n / 3)), "'gt_score' of sample number 1 must be 5 of -1, 0 and 1"),
        ([{"pred_score": np.ones(1000), "gt_label": np.array([0])}] * 10, "holds more scores than a file of this size"),
        (samples(pred_label=lambda n: torch.tensor([-n])), "'pred_label' of sample number 1 must be between 0 and 4"),
    ],
)
def test_invalid_samples_are_refused(tmp_path, content, message):
    with pytest.raises(ResultFileError, match=f"results.pkl: .*{message}"):
        read_classification(write(tmp_path, content))
