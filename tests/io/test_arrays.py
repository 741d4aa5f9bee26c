"""Tensors and arrays in result files keep their numbers and their precision."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch

from mm_metrics_plugin.cli import main
from mm_metrics_plugin.evaluation.saved_states import read_state
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.functional.thresholding import PRECISIONS
from mm_metrics_plugin.io.readers import read_classification, read_detections
from mm_metrics_plugin.io.safe_pickle import loads, tensors
from mm_metrics_plugin.io.safe_pickle.machine import Damaged, Machine

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


def image(number, scores):
    boxes = torch.tensor([[0.0, 0, 9, 9]])
    detections = dict(bboxes=boxes, scores=scores, labels=torch.tensor([0]))
    return dict(img_id=number, pred_instances=detections, gt_instances=dict(bboxes=boxes, labels=torch.tensor([0])))


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


@pytest.mark.parametrize("bit", ["conj", "neg"])
def test_invalid_bits_are_refused(bit):
    tensor = torch.tensor([1 + 2j]).conj()
    tensor = tensor if bit == "conj" else tensor.imag
    damaged = pickle.dumps(tensor, protocol=2)
    # The value of the bit, True, becomes None.
    at = damaged.index(bit.encode())
    place = damaged.index(b"\x88", at)
    with pytest.raises(ResultFileError, match=f"invalid {bit} bit"):
        loads(damaged[:place] + b"N" + damaged[place + 1 :])


def test_metadata_other_than_a_dict_is_refused():
    machine = Machine(b"", {}, "results.pkl", None)
    with pytest.raises(Damaged, match="metadata of a tensor is a bool"):
        tensors._with_bits(machine, np.zeros(2), True)


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("thr", [0.1, 0.3, 0.7])
def test_scores_equal_to_the_threshold(tmp_path, form, thr, trust):
    path = write(tmp_path, [image(1, as_form([thr], form))])
    assert read_detections(path, trust=trust).detections.reach(thr).tolist() == [True]
    path = write(tmp_path, [dict(pred_score=as_form([thr, 0.01], form), gt_score=torch.tensor([1, 0]))])
    assert read_classification(path, trust=trust).reach(thr).tolist() == [[True, False]]


def test_every_image_keeps_its_precision():
    forms = FORMS[:4]
    read = loads(pickle.dumps([image(number, as_form([0.7], form)) for number, form in enumerate(forms)]))
    results = read_detections(read, "results.pkl")
    assert [PRECISIONS[code] for code in results.detections.precision] == forms
    assert results.detections.reach(0.7).all()
    assert results.detections.reach(0.69).all()
    assert not results.detections.reach(0.71).any()


@pytest.mark.parametrize("protocol", [2, 5])
def test_big_endian_arrays(protocol):
    boxes, scores, labels = np.array([[0, 0, 9, 9]], ">i4"), np.array([0.7], ">f4"), np.array([300], ">u2")
    detections = dict(bboxes=boxes, scores=scores, labels=labels)
    read = loads(pickle.dumps([dict(img_id=1, pred_instances=detections)], protocol=protocol))
    results = read_detections(read, "results.pkl")
    assert results.detections.boxes.array.tolist() == [[0, 0, 9, 9]]
    assert results.detections.labels.tolist() == [300]
    assert results.detections.reach(0.7).all()


def test_labels_of_mixed_dtypes_stay_whole():
    images = [image(n, torch.ones(1)) for n in range(2)]
    for one, label in zip(images, (np.array([2**63 + 5], dtype=np.uint64), np.array([2051]))):
        one["pred_instances"]["labels"] = label
    labels = read_detections(images, "results.pkl").detections.labels
    assert labels.dtype == np.int64
    assert labels[1] == 2051


def test_saved_states_keep_the_precision(tmp_path, capsys):
    parts = []
    for number, form in enumerate(["bfloat16", "float32", "float64"]):
        path = write(tmp_path, [image(number, as_form([0.7], form))])
        parts.append(tmp_path / f"part{number}.npz")
        options = ("--classes", "cat", "--score-thr", "0.7", "--save-state", parts[-1])
        assert main(["detection", "-", *map(str, (path, *options))]) == 0
    capsys.readouterr()
    assert main(["merge", *map(str, parts), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["detections"]["used"] == 3
    assert read_state(parts[1])[1]["matches.precision"].tolist() == [PRECISIONS.index("float32")]
