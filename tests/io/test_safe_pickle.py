"""Undamaged files are read like pickle.load, to the last bit; damaged files raise one type of error."""

import contextlib
import gc
import io
import os
import pickle
import random
import re
import struct
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

from mm_metrics_plugin.exceptions import ResultFileError, UnsafePickleError
from mm_metrics_plugin.io import files as reading
from mm_metrics_plugin.io.arrays import BFloat16Array
from mm_metrics_plugin.io.safe_pickle import loads, read_pickle, safe_globals, tensors
from mm_metrics_plugin.io.safe_pickle.machine import Machine, SafeGlobal
from mm_metrics_plugin.io.safe_pickle.opcodes import run
from tests.helpers.pickles import damaged, storage_bytes

PROTOCOLS = range(6)
TORCH_DTYPES = [*tensors.TORCH_DTYPES]
NUMPY_DTYPES = [*"?bBhHiIqQefdgFDG", ">i2", ">u4", ">i8", ">f4", ">f8", "S3", "U4", ">U4"]


def same(ours, theirs):
    """Whether two nested values are equal in type, dtype, shape and every bit. Tensors are compared as arrays."""
    if isinstance(theirs, torch.Tensor):
        theirs = theirs.detach()
        narrow = theirs.dtype == torch.bfloat16
        theirs = theirs.float().numpy().view(BFloat16Array) if narrow else theirs.numpy()
    if isinstance(theirs, torch.Size):
        theirs = tuple(theirs)
    if isinstance(theirs, (np.ndarray, np.generic)):
        return (
            type(ours) is type(theirs)
            and ours.dtype == theirs.dtype
            and ours.shape == theirs.shape
            and (np.asarray(ours) == np.asarray(theirs)).all()
        )
    if type(ours) is not type(theirs):
        return False
    if isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(same(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs


def image(seed, count=3):
    rng = np.random.default_rng(seed)
    return {
        "img_id": seed,
        "img_path": f"val/{seed}.jpg",
        "ori_shape": (480, 640),
        "scale_factor": (1.5, 1.5),
        "pred_instances": {
            "bboxes": torch.tensor(rng.uniform(0, 100, (count, 4)), dtype=torch.float32),
            "scores": torch.tensor(rng.uniform(0, 1, count), dtype=torch.float32),
            "labels": torch.tensor(rng.integers(0, 80, count)),
        },
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_results_are_read_as_by_pickle(protocol, tmp_path):
    path = tmp_path / "results.pkl"
    path.write_bytes(pickle.dumps([image(1), image(2, 0), image(3, 300)], protocol))
    assert same(read_pickle(path), pickle.loads(path.read_bytes()))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", TORCH_DTYPES)
def test_tensors_of_every_dtype_and_layout(dtype, protocol):
    values = torch.arange(24).remainder(2 if dtype == "bool" else 120).to(getattr(torch, dtype)).reshape(4, 6)
    if values.is_complex():
        values = values * (1 + 2j)
    tensors = [values, values.T, values[1:, ::2], values[2, 3], values[:0], values[:1].expand(3, 6), values[:, None]]
    if values.is_floating_point():
        tensors += [values.clone().requires_grad_(), torch.nn.Parameter(values)]
    data = pickle.dumps(tensors, protocol)
    assert same(loads(data), tensors)
    if dtype not in ("uint16", "uint32", "uint64"):  # torch 2.13 cannot read back what it wrote of these
        assert same(loads(data), pickle.loads(data))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_arrays_and_scalars_of_every_dtype_and_layout(dtype, protocol):
    values = np.arange(24).reshape(4, 6).astype(dtype)
    arrays = [values, values.T, values[1:, ::2], values[2, 3], values[:0], np.asfortranarray(values), values[1:2, 0]]
    data = pickle.dumps(arrays, protocol)
    assert same(loads(data), pickle.loads(data))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_values(protocol):
    value = {
        "numbers": [0, -1, 255, 256, 65536, -(2**31), 2**31, 2**63, -(2**200), 0.1, float("inf"), 1e-300, 1 + 2j],
        "text": ["", "é\n\\\0\ud800", "x" * 300, "y" * 70_000],
        "bytes": [b"", b"a", bytes(range(256)) * 2, bytearray(b"ab"), bytearray()],
        "truth": (True, False, None),
        "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        "sets": [set(), {1, "a", (1, 2)}, frozenset(), frozenset({b"b", 2.5})],
        "ordered": OrderedDict([("z", 1), ("a", OrderedDict())]),
        7: {None: 1, True: 2, 2.5: 3, b"k": 4, (1, "a"): 5},
        "size": torch.Size([3, 4]),
    }
    data = pickle.dumps(value, protocol)
    assert same(loads(data), pickle.loads(data))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_shared_objects_stay_shared(protocol):
    shape, tensor, array, inner = (480, 640), torch.ones(3), np.ones(3), {"a": 1}
    ours = loads(pickle.dumps([[shape, tensor, array, inner]] * 2 + [[shape, tensor, array, inner]], protocol))
    assert ours[0] is ours[1]
    assert ours[0] is not ours[2]
    assert all(first is second for first, second in zip(ours[0], ours[2]))


def test_long_bytes_may_be_used_again_but_not_the_text_they_were_written_as():
    """Protocol 2 writes bytes as text that is encoded. The text is forgotten then: it is as large as the bytes."""
    content = [bytes(range(256)), b"short"] * 2
    assert loads(pickle.dumps(content, protocol=2)) == content
    text = b"X" + struct.pack("<I", 100) + b"a" * 100 + b"q\x00"
    encoded = b"c_codecs\nencode\n" + text + b"X\x06\x00\x00\x00latin1\x86q\x01R"
    assert loads(b"\x80\x02]" + encoded + b"a.") == [b"a" * 100]
    for slot in (b"h\x00", b"h\x01"):
        with pytest.raises(ResultFileError, match="used again after it became bytes"):
            loads(b"\x80\x02](" + encoded + slot + b"e.")


def test_large_results_take_little_more_memory_than_twice_their_scores(tmp_path):
    """The bytes of the file and the array. In protocol 2 the file itself is larger than that."""
    samples, classes = 8000, 1000
    scores = torch.rand(samples, classes)
    content = [{"pred_score": row.clone(), "gt_label": torch.tensor([at % 7])} for at, row in enumerate(scores)]
    path = tmp_path / "results.pkl"
    path.write_bytes(pickle.dumps(content, protocol=2))
    del content
    script = """
import re, sys
from mm_metrics_command import load
read = load("mm_metrics_plugin.io.readers").read_classification

def peak():  # not ru_maxrss, which is at least the memory of the process that started this one
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read()).group(1)) * 1024

before = peak()
total = float(read(sys.argv[1]).scores.sum(dtype="float64"))
print(total, peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    total, memory = map(float, done.stdout.split())
    assert total == pytest.approx(float(scores.sum(dtype=torch.float64)))
    assert memory < 3.2 * scores.numel() * 4


def test_a_file_that_becomes_shorter_while_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "results.pkl"
    path.write_bytes(b"\x80\x04" + b"N" * reading.LARGE)
    monkeypatch.setattr(reading, "open", lambda *arguments, **options: io.BytesIO(b"\x80\x04N"), raising=False)
    with pytest.raises(ResultFileError, match="became shorter while it was read"):
        read_pickle(path)


def test_nan_bits_survive():
    data = np.array([0x7FC00001, 0xFFC12345], np.uint32).view(np.float32)
    assert loads(pickle.dumps(torch.from_numpy(data), 2)).tobytes() == data.tobytes()
    assert np.isnan(loads(pickle.dumps(float("nan"))))


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("kind", ["float8_e4m3fn", "complex32"])
def test_a_dtype_that_numpy_lacks_is_named(kind):
    with pytest.raises(UnsafePickleError, match=f"torch.{kind}"):
        loads(pickle.dumps(torch.zeros(2).to(getattr(torch, kind))))


def test_storage_headers_are_read_as_by_the_opcodes():
    """Whatever the regular expression accepts, the opcodes must read with the same result."""
    machine = Machine(b"", safe_globals.NAMES, "test")
    rng = random.Random(0)
    taken = 0
    for dtype in TORCH_DTYPES:
        for count in (0, 1, 255, 256, 70_000):
            tensor = torch.zeros(count, dtype=getattr(torch, dtype))
            content = tensor.untyped_storage() if dtype.startswith("uint") and dtype != "uint8" else tensor.storage()
            content = content.__reduce__()[1][0]
            head = tensors._HEADER.match(content)
            assert head, dtype
            for trial in range(30):
                changed = bytearray(content)
                if trial:
                    changed[rng.randrange(head.end())] = rng.randrange(256)
                try:
                    fast = tensors.load_from_bytes(machine, bytes(changed))
                except Exception:
                    continue
                machine.budget.left = 1 << 40
                kind, numel, at = tensors._storage_header(machine, bytes(changed))
                assert (fast.kind, fast.numel, fast.start) == (kind, numel, at + 8)
                taken += 1
    assert taken > 75  # the unchanged ones at least


def _outcome(data, names):
    machine = Machine(data, names, "test")
    try:
        value, _ = run(machine)
    except ResultFileError as error:
        return str(error)
    return _comparable(value)


def _comparable(value):
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, (list, tuple)):
        return type(value), [_comparable(item) for item in value]
    return type(value), getattr(value, "name", None) or getattr(value, "content", None) or repr(value)


def test_tensors_in_one_step_are_read_as_by_the_opcodes():
    """Whatever the layouts of tensors accept, in undamaged and damaged files, the opcodes must give as well."""
    name = ("torch._utils", "_rebuild_tensor_v2")
    torch.manual_seed(0)
    slow = {**safe_globals.NAMES, name: SafeGlobal(".".join(name), tensors.rebuild_tensor_v2)}
    kinds = [
        torch.rand(300),
        torch.arange(2),
        torch.rand(3, 4),
        torch.rand(4, 3).T,
        torch.zeros(0, 4),
        torch.ones(2).bfloat16(),
    ]
    data = pickle.dumps([kind.clone() for _ in range(9) for kind in kinds], 2)
    first = len(pickle.dumps([kind.clone() for _ in range(6) for kind in kinds], 2))
    machine = Machine(data, safe_globals.NAMES, "test")
    run(machine)
    assert len(machine.layouts) == len(kinds) - 1  # two have the same type and size, and different strides
    assert _outcome(data, safe_globals.NAMES) == _outcome(data, slow)
    rng = random.Random(0)
    for _ in range(2_000):
        changed = bytearray(data)
        changed[rng.randrange(first, len(data))] = rng.randrange(256)
        assert _outcome(bytes(changed), safe_globals.NAMES) == _outcome(bytes(changed), slow)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_truncation_is_an_error_with_its_offset(protocol):
    data = pickle.dumps([image(1), {"array": np.arange(4), "set": {1}, "bytes": b"abc"}], protocol)
    loads(data)
    for length in range(1, len(data)):
        with pytest.raises(ResultFileError, match=r"is truncated \(.*\), at byte \d+"):
            loads(data[:length])


@pytest.mark.parametrize("trials", [10_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_damaged_files_are_read_or_raise_one_type_of_error(trials):
    rng = random.Random(trials)
    files = [pickle.dumps([image(1), image(2, 0)], 2), pickle.dumps([image(1, 1), np.arange(4.0), {1}, b"ab"], 4)]
    files.append(pickle.dumps([np.ones((2, 5), "f4"), np.float32(1), OrderedDict(a=1), np.array(["ab"])], 5))
    files.append(pickle.dumps([np.ones((2, 5), "f4"), 1.5, "text", {"a": (1, 2)}, torch.ones(2)], 0))
    read = refused = 0
    for trial in range(trials):
        try:
            value = loads(damaged(files[trial % len(files)], rng))
        except ResultFileError as error:
            assert " byte " in str(error)
            refused += 1
        else:
            pickle.dumps(value)  # a complete value of data only
            read += 1
    assert read > trials // 20
    assert refused > trials // 5


def wrapped(value, times):
    """The value inside nested lists, dicts and tuples."""
    for number in range(times):
        value = ([value], {"a": value}, (value,))[number % 3]
    return value


SHARED, DEEP_FIRST, DEEP_LAST = wrapped([], 39), [wrapped([], 9), []], [[], wrapped([], 9)]


@pytest.mark.parametrize(
    "around",
    [
        pytest.param(lambda times: wrapped([], times + 63), id="chain"),
        pytest.param(lambda times: [SHARED, wrapped(SHARED, times + 23)], id="shared, met above"),
        pytest.param(lambda times: [wrapped(SHARED, times + 23), SHARED], id="shared, met below"),
        pytest.param(lambda times: [DEEP_FIRST, wrapped(DEEP_FIRST, times + 52)], id="deep beside shallow"),
        pytest.param(lambda times: [DEEP_LAST, wrapped(DEEP_LAST, times + 52)], id="shallow beside deep"),
        pytest.param(lambda times: [wrapped(1, 20), wrapped([], times + 62), 1, [2]], id="between others"),
    ],
)
def test_sixty_four_levels_are_read_and_one_more_is_refused(around):
    for times in (-2, -1, 0):
        assert same(loads(pickle.dumps(around(times), 4)), around(times))
    for times in (1, 2):
        with pytest.raises(ResultFileError, match=r"nested deeper than 64 levels, by byte \d+"):
            loads(pickle.dumps(around(times), 4))


def test_depths_of_siblings_are_not_added():
    part = wrapped([], 30)
    value = [part, [part], [[part]], wrapped(1, 50), [part, part]] * 20
    assert same(loads(pickle.dumps(value, 4)), value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04", "found a zip archive, as torch.save writes, at byte 0 (expected a pickle)"),
        (b"[1]", "found a JSON file"),
        (b"", "found an empty file"),
        (b"hello world\n", "found a text file"),
        (b"image_id,score\n1,0.5\n2,0.9\n", "found a text file"),
        (b"0 0.5 0.5 0.1 0.1\n", "found a text file"),
        (b"\xff\xd8\xff\xe0 a picture", "found an image"),
        ("résultats".encode("utf-16"), "found a file of an unknown format, at byte 0 (expected a pickle)"),
        (b"\x80\x04K\x01." + b"abc", "the pickle is followed by 3 bytes, at byte 5"),
    ],
)
def test_files_of_another_kind_are_named(data, message):
    with pytest.raises(ResultFileError, match=re.escape(f"results.pkl: {message}")):
        loads(data, "results.pkl")
    assert loads(pickle.dumps(["PK", "["])) == ["PK", "["]


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("data", [pickle.dumps([1]), b"\x80\x02]"])
def test_the_garbage_collector_is_restored(enabled, data):
    try:
        gc.enable() if enabled else gc.disable()
        with contextlib.suppress(ResultFileError):
            loads(data)
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_a_path_that_is_not_a_file(tmp_path):
    with pytest.raises(ResultFileError, match=r"nothing\.pkl: cannot be read"):
        read_pickle(tmp_path / "nothing.pkl")
    os.mkfifo(tmp_path / "pipe.pkl")  # opening it would wait for a writer
    for path in (tmp_path, tmp_path / "pipe.pkl"):
        with pytest.raises(ResultFileError, match=r"cannot be read \(not a file\)"):
            read_pickle(path)


def test_trust_uses_plain_pickle_and_warns(tmp_path):
    path = tmp_path / "results.pkl"
    path.write_bytes(pickle.dumps({"path": Path("a"), "tensor": torch.ones(2)}))
    with pytest.raises(UnsafePickleError, match="pathlib"):
        read_pickle(path)
    with pytest.warns(UserWarning, match=r"results\.pkl: read with plain pickle") as warned:
        value = read_pickle(path, trust=True)
    assert [warning.filename for warning in warned] == [__file__]
    assert value["path"] == Path("a")
    assert isinstance(value["tensor"], torch.Tensor)
    path.write_bytes(b"\x80\x02N")
    with pytest.warns(UserWarning), pytest.raises(ResultFileError, match="pickle could not load it"):
        read_pickle(path, trust=True)


def test_storages_in_the_corpus_are_as_torch_writes_them():
    theirs = torch.zeros(4).storage().__reduce__()[1][0]
    ours = storage_bytes(b"\0" * 16, 4)
    key = theirs[theirs.index(b"storageq\0") :].split(b"X\x0e\0\0\0")[1][:14]
    assert theirs.replace(key, b"94410857984480") == ours
