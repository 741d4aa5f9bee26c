"""No file takes more than 64 MB and 50 times its size. Files are read in a process with that limit."""

from __future__ import annotations

import json
import pickle
import random
import struct
import subprocess
import sys
import warnings
import zipfile
from io import BytesIO
from itertools import chain

import numpy as np
import pytest
import torch

from mm_metrics_plugin.evaluation.joining import join
from mm_metrics_plugin.evaluation.saved_states import read_state, write_state
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.functional.detection.data import GroundTruths
from mm_metrics_plugin.io import files as reading
from mm_metrics_plugin.io.arrays import JsonRows
from mm_metrics_plugin.io.detection_data import AnnotationSet
from mm_metrics_plugin.io.files import check_num_classes
from mm_metrics_plugin.io.readers import read_classification, read_detections
from mm_metrics_plugin.io.safe_pickle import read_pickle
from mm_metrics_plugin.row_counts import RowCounts
from tests.helpers.pickles import GOOD, P2, STOP, damaged, numbers, storage, storage_bytes, tensor

BASE = 64 << 20  # these two are a promise of SECURITY.md
PER_BYTE = 50

# Reads every file with the reader that its folder names, within the promised memory.
SCRIPT = """
import json, resource, sys
from pathlib import Path
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.readers import read_classification
from mm_metrics_plugin.io.readers import read_ground_truth
from mm_metrics_plugin.evaluation.joining import join
from mm_metrics_plugin.io.readers import read_detections
from mm_metrics_plugin.evaluation.saved_states import read_state

def report(path):
    results = read_detections(path)
    join(results.ground_truth, results)

readers = dict(
    detection=read_detections, classification=read_classification, coco=read_ground_truth, voc=read_ground_truth,
    state=read_state, report=report)
base, per_byte = map(int, sys.argv[2:])
outcomes = {}
for folder in sorted(Path(sys.argv[1]).iterdir()):
    for path in sorted(folder.iterdir()):
        files = path.iterdir() if path.is_dir() else [path]
        allowed = base + per_byte * max(file.stat().st_size for file in files)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + allowed, resource.RLIM_INFINITY))
        try:
            readers[folder.name](path)
            outcome = "read", ""
        except BaseException as error:
            outcome = type(error).__name__, str(error)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        outcomes[f"{folder.name}/{path.name}"] = outcome
print(json.dumps(outcomes))
"""


def doubled(make=lambda inner: [inner, inner], levels=40):
    """A list that contains one list twice, which contains one list twice, and so on."""
    value = make(0.5)
    for _ in range(levels):
        value = make(value)
    return value


def image(number=0, **fields):
    detections = {"bboxes": np.zeros((1, 4), "f4"), "scores": np.zeros(1, "f4"), "labels": np.zeros(1, "i8")}
    return {"img_id": number, "pred_instances": detections, **fields}


def sample(**fields):
    return {"pred_score": np.ones(2, "f4"), "gt_label": np.zeros(1, "i8"), **fields}


def pickles():
    rows = [{"bbox": [0.0, 0.0, 1.0, 1.0], "bbox_label": 0} for _ in range(3000)]
    many, name = np.zeros((100_000, 4), "f4"), "a" * 1_000_000
    strings = ["a" * 1_000_000, *map(str, range(100_000))]
    empty = {"bboxes": np.zeros((0, 4), "f4"), "scores": np.zeros(0, "f4"), "labels": np.zeros(0, "i8")}
    shared = {"bboxes": many, "scores": many[:, 0].copy(), "labels": np.zeros(len(many), "i8")}
    tuples, dicts = doubled(lambda inner: (inner, inner)), doubled(lambda inner: {"a": inner, "b": inner})
    large_label = {**image()["pred_instances"], "labels": np.array([60_000])}
    contents = {
        "detection/doubled-id": [image(doubled())],
        "detection/doubled-shape": [image(ori_shape=doubled())],
        "detection/doubled-boxes": [image(pred_instances={**empty, "bboxes": doubled()})],
        "detection/doubled-instances": [image(instances=doubled())],
        "detection/doubled-tuples": [image(pred_instances={**empty, "bboxes": tuples})],
        "detection/doubled-dicts": [image(x=dicts)],
        "detection/shared-instances": [image(number, instances=rows) for number in range(3000)],
        "detection/shared-arrays": [image(number, pred_instances=shared) for number in range(3000)],
        "detection/shared-name": [image(number, img_path=name) for number in range(3000)],
        "detection/shared-id": [image(name) for _ in range(3000)],
        "detection/text-for-scores": [image(pred_instances={**empty, "scores": strings})],
        "detection/text-for-boxes": [image(pred_instances={**empty, "bboxes": [strings[:4]] * 10_000})],
        "detection/shared-classes": [[np.zeros((0, 5), "f4")] * 1000] * 3000,
        "classification/doubled-scores": [sample(pred_score=doubled())],
        "classification/doubled-labels": [sample(gt_label=doubled())],
        "classification/shared-scores": [sample(pred_score=list(range(3000)))] * 3000,
        "classification/shared-targets": [sample(gt_score=many[:, 0])] * 3000,
        "classification/text-for-scores": [sample(pred_score=strings)],
        "classification/text-for-labels": [sample(gt_label=strings)],
        "report/label-60000": [image(pred_instances=large_label, gt_instances={**empty, "x": 1})],
    }
    for name, content in contents.items():
        yield f"{name}.pkl", pickle.dumps(content, 4)
    # Parts that take much memory for their bytes. The others are in test_pickle_limits.py.
    again = b"".join(b"]\x94j" + struct.pack("<I", at) for at in range(200_000))
    yield "detection/lists-used-twice.pkl", b"\x80\4(" + again + b"l" + STOP
    wide = tensor(storage(GOOD), size=numbers(*[1] * 32), stride=numbers(*[1] * 32))
    yield "detection/many-dimensions.pkl", P2 + b"(" + wide * 3000 + b"l" + STOP
    made = tensor(storage(storage_bytes(bytes(1020), 255)), size=numbers(255))
    parameters = b"ctorch._utils\n_rebuild_parameter\nq\0(" + made + b"\x89}tq\1R" + b"h\0h\1R" * 100_000
    yield "detection/parameters-again.pkl", P2 + b"(" + parameters + b"l" + STOP


ROW = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "score": 1}


def texts():
    rows = {
        "text-for-scores": [{**ROW, "score": "a" * 100_000}] + [{**ROW, "score": "b"}] * 10_000,
        "text-in-boxes": [{**ROW, "bbox": ["a" * 100_000, 1, 1, 1]}] + [ROW] * 10_000,
        "colliding-ids": [{**ROW, "image_id": at * ((1 << 61) - 1)} for at in range(1, 60_000)],
    }
    for name, content in rows.items():
        yield f"detection/{name}.json", json.dumps(content).encode()
    yield "detection/objects.json", b"[" + b"{}," * 200_000 + b"{}]"
    yield "detection/objects-of-one.json", b"[" + b'{"":0},' * 200_000 + b"{}]"
    yield "detection/lists.json", b"[" + b"[]," * 200_000 + b"[]]"
    yield "detection/wide.json", b"[" + "\U0001f600".encode() + b"[],".join([b""] * 200_000) + b"]"
    yield "detection/deep.json", b"[" * 200_000
    yield "detection/long-number.json", json.dumps([ROW]).replace("1}", "1" * 3_000_000 + "}").encode()
    long_name = {"images": [], "annotations": [], "categories": [{"id": 1, "name": ["a" * 1_000_000]}]}
    yield "coco/long-name.json", json.dumps(long_name).encode()
    yield "voc/deep", b"<a>" * 200_000
    yield "voc/elements", b"<a>" + b"<a/>" * 200_000 + b"</a>"
    yield "voc/attributes", b"<a>" + b'<a b=""/>' * 200_000 + b"</a>"
    yield "voc/lines", b"<a>" + b"\n" * 1_000_000 + b"</a>"
    yield "state/overlapping.npz", overlapping(1000)


def overlapping(times):
    """A zip archive whose directory names the same bytes many times."""
    array, made = BytesIO(), BytesIO()
    np.save(array, np.zeros(1 << 20, np.uint8))
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("header.npy", array.getvalue())
    data = made.getvalue()
    start = data.index(b"PK\1\2")
    entry = data[start : data.index(b"PK\5\6")]
    entries = b"".join(entry.replace(b"header.npy", b"h%05d.npy" % number) for number in range(times))
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, times, times, len(entries), start, 0)
    # Python compares the name in the directory with that before the data, so one entry keeps it.
    return data[:start] + entries.replace(b"h00000.npy", b"header.npy") + end


def mutated(number=60):
    """Files of every kind with damaged bytes."""
    rng = random.Random(14)
    samples = [sample(img_path=f"{at}.png", pred_label=np.array([1])) for at in range(20)]
    tensors = [{**row, "pred_score": torch.rand(5)} for row in samples]
    rows = [{"bbox": [0.0, 0.0, 1.0, 1.0], "bbox_label": 0}] * 3
    large = [sample(pred_score=np.full(1000, at, "f4")) for at in range(3500)]  # its memory is released
    undamaged = {
        "classification/mutated-arrays-{}.pkl": pickle.dumps(samples, 4),
        "classification/mutated-tensors-{}.pkl": pickle.dumps(tensors, 2),
        "classification/mutated-large-{}.pkl": pickle.dumps(large, 2),
        "detection/mutated-{}.pkl": pickle.dumps([image(at) for at in range(20)], 2),
        "report/mutated-{}.pkl": pickle.dumps([image(at, instances=rows) for at in range(20)], 4),
        "detection/mutated-{}.json": json.dumps([ROW] * 20).encode(),
        "coco/mutated-{}.json": json.dumps(ANNOTATIONS).encode(),
        "voc/mutated-{}": b"<annotation><size><width>9</width><height>9</height></size></annotation>",
    }
    for name, data in undamaged.items():
        for at in range(2 if "large" in name else number):
            yield name.format(at), damaged(data, rng)


ANNOTATIONS = {
    "images": [{"id": 1, "file_name": "1.jpg", "width": 9, "height": 9}],
    "categories": [{"id": 1, "name": "cat"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "area": 25, "iscrowd": 0}],
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for name, data in chain(pickles(), texts(), mutated()):
        path = folder / name
        if name.startswith("voc/"):
            path = path / "000001.xml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    command = [sys.executable, "-c", SCRIPT, str(folder), str(BASE), str(PER_BYTE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_no_file_takes_more_memory_than_promised(outcomes):
    assert len(outcomes) > 40
    for name, (outcome, message) in outcomes.items():
        allowed = ("read", "ResultFileError", *(("UnsafePickleError",) if "mutated" in name else ()))
        assert outcome in allowed, (name, outcome, message)
        assert "MemoryError" not in message, (name, message)
    mutants = [outcome for name, (outcome, _) in outcomes.items() if "mutated" in name]
    assert len(mutants) > 400 and 0.5 < np.mean([outcome != "read" for outcome in mutants]) < 1


EXPANDS = "it expands to far more data than the file contains"


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("detection/doubled", EXPANDS),
        ("detection/shared", EXPANDS),
        ("detection/parameters", EXPANDS),
        ("classification/doubled", EXPANDS),
        ("classification/shared", EXPANDS),
        ("detection/text-for-scores.pkl", "'pred_instances.scores' of image 0 must be an array"),
        ("detection/text-for-boxes.pkl", EXPANDS),
        ("classification/text-for-scores", "'pred_score' of sample number 0 must be an array of numbers"),
        ("detection/long-number.json", "is not JSON"),
        ("detection/deep.json", "is nested too deeply"),
        ("detection/text-for-scores.json", "'score' of detection number 0 must be a finite number"),
        ("detection/text-in-boxes.json", "'bbox' of detection number 0 must be 4 finite numbers"),
        ("detection/colliding-ids.json", "'image_id' holds numbers of more than 61 bits that collide"),
        ("voc/deep", "is nested deeper than 64 levels"),
        ("state/overlapping", "its arrays take 1048704000 bytes in total"),
        ("report/label-60000", "the largest label is 60000, and class names are not given"),
    ],
)
def test_content_that_expands_is_refused_with_the_reason(outcomes, start, expected):
    chosen = {name: message for name, (_, message) in outcomes.items() if name.startswith(start)}
    assert chosen
    for name, message in chosen.items():
        assert expected in message, (name, message[:300])
        assert len(message) < 400


def test_classes_known_from_labels_alone_are_limited_by_the_file():
    """The matrix of a label of 60,000 would take 26 GB. A large file or class names allow more classes."""
    for size, most in ((0, 2047), (200_000_000, 24_579)):
        check_num_classes(most, "results.pkl", size, labels_only=True)
        with pytest.raises(ResultFileError, match=rf"results\.pkl: the largest label is {most}, .* classes=\["):
            check_num_classes(most + 1, "results.pkl", size, labels_only=True)
    check_num_classes(23_169, "results.pkl", 0, labels_only=False)
    with pytest.raises(ResultFileError, match="23170 classes are more than a file of this size may have"):
        check_num_classes(23_170, "results.pkl", 0, labels_only=False)
    check_num_classes(1 << 40, "results.pkl", None, labels_only=True)  # not from a file


def test_classes_with_scores_or_arrays_are_limited_too(tmp_path):
    path = tmp_path / "results.pkl"
    message = "60000 classes are more than a file of this size may have"
    path.write_bytes(pickle.dumps([sample(pred_score=np.ones(60_000, "f4"))]))
    with pytest.raises(ResultFileError, match=message):
        read_classification(path)
    path.write_bytes(pickle.dumps([[np.zeros((0, 5), "f4")] * 60_000]))
    truth = AnnotationSet("-", (1,), ("",), np.zeros((1, 2)), GroundTruths.empty(), RowCounts(0, 0))
    with pytest.raises(ResultFileError, match=message):
        join(truth, read_detections(path))
    detections = {**image()["pred_instances"], "labels": np.array([5000])}
    path.write_bytes(pickle.dumps([image(pred_instances=detections, gt_instances=detections)]))
    results = read_detections(path)
    with pytest.raises(ResultFileError, match="the largest label is 5000"):
        join(results.ground_truth, results)
    assert len(join(results.ground_truth, results, classes=list(map(str, range(5001)))).classes) == 5001


def test_scores_in_bfloat16_take_twice_their_bytes_and_are_read(tmp_path):
    path = tmp_path / "results.pkl"
    content = [{"pred_score": torch.ones(20_000).bfloat16(), "gt_label": torch.tensor([0])} for _ in range(3)]
    path.write_bytes(pickle.dumps(content, 4))
    assert read_classification(path).scores.nbytes > path.stat().st_size


def test_large_random_ids_are_read():
    ids = np.random.default_rng(0).integers(0, 1 << 63, 50_000, dtype=np.uint64).tolist()
    assert JsonRows([], "a.json", "detection").ids("image_id", ids * 3) == ids * 3


def test_a_state_with_repeated_or_compressed_arrays_is_refused(tmp_path):
    path = tmp_path / "state.npz"
    write_state(path, {"kind": "x"}, {"a": np.zeros(3)})
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    for names, options, message in (
        (["header.npy", "a.npy", "a.npy"], {}, "an array is repeated"),
        (["header.npy", "a.npy"], {"compression": zipfile.ZIP_DEFLATED}, "'header.npy' is not a plain array"),
    ):
        with warnings.catch_warnings(), zipfile.ZipFile(path, "w", **options) as archive:
            warnings.simplefilter("ignore")  # of names that come twice
            for name in names:
                archive.writestr(name, entries[name])
        with pytest.raises(ResultFileError, match=message):
            read_state(path)


def test_files_are_read_without_madvise_and_malloc_trim(tmp_path, monkeypatch):
    """As on Windows, where memory cannot be released part by part, and on macOS, where malloc_trim is missing."""
    path = tmp_path / "results.pkl"
    path.write_bytes(pickle.dumps([np.zeros(reading.LARGE, np.uint8)]))
    monkeypatch.setattr(reading, "_CAN_RELEASE", False)
    assert type(reading.read_content(path)[0]) is bytes
    assert read_pickle(path)[0].nbytes == reading.LARGE
    for error in (AttributeError, OSError, TypeError):

        def missing(name, error=error):
            raise error

        monkeypatch.setattr(reading.ctypes, "CDLL", missing)
        reading.trim_memory()
