"""Tensors and arrays in result files keep their numbers and their precision."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch

from mm_metrics_plugin.cli import main
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.functional.thresholding import PRECISIONS
from mm_metrics_plugin.io.classification_results import classification_from_samples, read_classification
from mm_metrics_plugin.io.results import read_results, results_from_images
from mm_metrics_plugin.io.safe_pickle import loads, tensors
from mm_metrics_plugin.io.safe_pickle.machine import Damaged, Machine
from mm_metrics_plugin.io.state_file import read_state

FORMS = ["float64", "float32", "float16", "bfloat16", ">f4", ">f2"]
pytestmark = pytest.mark.filterwarnings("ignore:.*read with plain pickle on request")


def as_form(values, form):
    if form.startswith(">"):
        return np.array(values, dtype=form)
    return torch.tensor(values, dtype=torch.float64).to(getattr(torch, form))


def write(folder, content, protocol=4):
    path = folder / "results.pkl"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


def image(number, scores, **more):
    boxes = torch.tensor([[0.0, 0, 9, 9]])
    found = dict(bboxes=boxes, scores=scores, labels=torch.tensor([0]))
    there = dict(bboxes=boxes, labels=torch.tensor([0]))
    return dict(img_id=number, pred_instances=found, gt_instances=there, **more)


# --- conjugate and negative bits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_lazy_bits_are_applied(protocol):
    values = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    tensors = {
        "conj": values.conj(),
        "neg": values.conj().imag,
        "both": torch._neg_view(values).conj(),
        "strided": values.repeat(2).conj().imag[::2],
        "plain": values.real,
    }
    read = loads(pickle.dumps(tensors, protocol=protocol))
    for name, tensor in tensors.items():
        expected = tensor.resolve_conj().resolve_neg().numpy()
        assert read[name].dtype == expected.dtype
        np.testing.assert_array_equal(read[name], expected)


def test_scores_with_the_negative_bit():
    scores = torch.tensor([-0.25j, -0.75j]).conj().imag
    read = loads(pickle.dumps([dict(pred_score=scores, gt_label=torch.tensor([1]))]))
    results = classification_from_samples(read, "results.pkl")
    assert results.scores.tolist() == [[0.25, 0.75]]
    assert results.predictions.tolist() == [1]


@pytest.mark.parametrize("bit", ["conj", "neg"])
def test_bits_that_cannot_be_are_refused(bit):
    tensor = torch.tensor([1 + 2j]).conj()
    tensor = tensor if bit == "conj" else tensor.imag
    damaged = pickle.dumps(tensor, protocol=2)
    # The value of the bit, True, becomes None.
    at = damaged.index(bit.encode())
    place = damaged.index(b"\x88", at)
    with pytest.raises(ResultFileError, match=f"invalid {bit} bit"):
        loads(damaged[:place] + b"N" + damaged[place + 1 :])


def test_metadata_that_is_no_dict_is_refused():
    machine = Machine(b"", {}, "results.pkl", None)
    with pytest.raises(Damaged, match="metadata of a tensor is a bool"):
        tensors._with_bits(machine, np.zeros(2), True)


# --- precision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("thr", [0.1, 0.3, 0.7])
def test_scores_equal_to_the_threshold(tmp_path, form, thr, trust):
    path = write(tmp_path, [image(1, as_form([thr], form))])
    assert read_results(path, trust=trust).detections.reach(thr).tolist() == [True]
    path = write(tmp_path, [dict(pred_score=as_form([thr, 0.01], form), gt_score=torch.tensor([1, 0]))])
    assert read_classification(path, trust=trust).reach(thr).tolist() == [[True, False]]


def test_every_image_keeps_its_precision():
    forms = FORMS[:4]
    read = loads(pickle.dumps([image(number, as_form([0.7], form)) for number, form in enumerate(forms)]))
    results = results_from_images(read, "results.pkl")
    assert [PRECISIONS[code] for code in results.detections.precision] == forms
    assert results.detections.reach(0.7).all()
    assert results.detections.reach(0.69).all()
    assert not results.detections.reach(0.71).any()


def test_mmdet_2_arrays_of_mixed_dtypes():
    content = [[np.array([[0, 0, 9, 9, 0.7]], dtype=dtype)] for dtype in (np.float32, np.float64, np.float16)]
    results = results_from_images(content, "results.pkl")
    assert results.detections.reach(0.7).all()


@pytest.mark.parametrize("protocol", [2, 5])
def test_big_endian_arrays(protocol):
    found = dict(bboxes=np.array([[0, 0, 9, 9]], ">i4"), scores=np.array([0.7], ">f4"), labels=np.array([300], ">u2"))
    read = loads(pickle.dumps([dict(img_id=1, pred_instances=found)], protocol=protocol))
    results = results_from_images(read, "results.pkl")
    assert results.detections.boxes.array.tolist() == [[0, 0, 9, 9]]
    assert results.detections.labels.tolist() == [300]
    assert results.detections.reach(0.7).all()


def test_labels_of_mixed_dtypes_stay_whole():
    images = [image(n, torch.ones(1)) for n in range(2)]
    for one, label in zip(images, (np.array([2**63 + 5], dtype=np.uint64), np.array([2051]))):
        one["pred_instances"]["labels"] = label
    labels = results_from_images(images, "results.pkl").detections.labels
    assert labels.dtype == np.int64
    assert labels[1] == 2051


def test_a_file_of_many_bfloat16_scores_is_not_too_large(tmp_path):
    path = write(
        tmp_path, [dict(pred_score=torch.rand(2000).to(torch.bfloat16), gt_label=torch.tensor([1])) for _ in range(3)]
    )
    assert read_classification(path).scores.shape == (3, 2000)


# --- the commands -------------------------------------------------------------------------------------------------


def report(capsys, *arguments):
    assert main([*map(str, arguments), "--format", "json"]) in (0, None)
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("form", ["float32", "float16", "bfloat16"])
def test_detection_command(tmp_path, capsys, form):
    path = write(tmp_path, [image(n, as_form([0.1], form), img_path=f"{n}.jpg") for n in range(3)])
    options = ("--classes", "cat", "--score-thr", "0.1")
    found = report(capsys, "detection", "-", path, *options)
    assert [one["confusion_matrix"][0][0] for one in found["protocols"].values()] == [3, 3]
    assert found["counts"]["detections"]["used"] == 3


@pytest.mark.parametrize("form", ["float32", "float16", "bfloat16"])
def test_classification_command(tmp_path, capsys, form):
    samples = [
        dict(pred_score=as_form([0.7, 0.01], form), gt_score=torch.tensor([1, 0])),
        dict(pred_score=as_form([0.01, 0.9], form), gt_score=torch.tensor([1, 1])),
    ]
    path = write(tmp_path, samples)
    found = report(capsys, "classification", path, "--score-thr", "0.7")
    rows = found["per_class"]
    assert [row["recall"] for row in rows] == [0.5, 1.0]


def test_saved_states_keep_the_precision(tmp_path, capsys):
    parts = []
    for number, form in enumerate(["bfloat16", "float32", "float64"]):
        path = write(tmp_path, [image(number, as_form([0.7], form))])
        parts.append(tmp_path / f"part{number}.npz")
        options = ("--classes", "cat", "--score-thr", "0.7", "--save-state", parts[-1])
        report(capsys, "detection", "-", path, *options)
    found = report(capsys, "merge", *parts)
    assert found["counts"]["detections"]["used"] == 3
    assert read_state(parts[1])[1]["matches.precision"].tolist() == [PRECISIONS.index("float32")]
