"""Several files, saved states and several processes give exactly the report of one file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from mm_metrics_plugin import evaluate_detection, merge_states
from mm_metrics_plugin.evaluation.saved_states import read_state, write_state
from mm_metrics_plugin.exceptions import ResultFileError
from tests.helpers import result_files as files
from tests.helpers.result_files import CLASSES, ROOT, error_of

pytestmark = pytest.mark.usefixtures("shown_warnings")

FILES = ("report.json", "report.md", "per_class.csv", "confusion_matrix.csv", "confusion_matrix.png")


def torchrun(number, *arguments, cwd):
    """Run the command on several processes, in a new process group that can be killed."""
    import torch.distributed.run  # noqa: F401  # skips the test without torch

    words = ["-m", "torch.distributed.run", "--nproc-per-node", str(number), "--master-port", "0", "--standalone"]
    process = subprocess.Popen(
        [sys.executable, *words, "-m", "mm_metrics_command", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, error = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out, error


def tied(images=45):
    """Annotations and results with many equal scores and unsorted image ids."""
    made = files.problem(images)
    made = made._replace(scores=np.round(made.scores, 1).astype(np.float32))
    truth, results = files.truth_of(made), files.results_of(made)
    shuffled = np.random.default_rng(0).permutation(images)
    truth["images"] = [truth["images"][at] for at in shuffled]
    return truth, results


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("shards")
    truth, results = tied()
    files.write_json(place / "truth.json", truth)
    files.write_pickle(place / "whole.pkl", results)
    for name, share in (("a", results[:7]), ("b", results[30:6:-1]), ("c", results[31:])):
        files.write_pickle(place / f"{name}.pkl", share)
    files.printed("detection", place / "truth.json", *shards(place), place / "expected")
    return place


def shards(place, suffix="pkl"):
    return [place / f"{name}.{suffix}" for name in "abc"]


def check_same_files(place, expected):
    """All files of both reports are equal, except for the pixels of figures."""
    for name in os.listdir(expected):
        if name.endswith(".png"):
            assert (place / name).read_bytes().endswith(files.PNG_END), name
        else:
            assert (place / name).read_text() == (expected / name).read_text(), name
    assert sorted(os.listdir(place)) == sorted(os.listdir(expected))
    assert set(FILES) <= set(os.listdir(expected))


def test_several_files_give_the_report_of_one(folder):
    one = files.report_of("detection", folder / "truth.json", folder / "whole.pkl")
    several = json.loads((folder / "expected" / "report.json").read_text())
    assert [entry["file"] for entry in several["inputs"].pop("results")] == ["a.pkl", "b.pkl", "c.pkl"]
    assert one["inputs"].pop("results")["file"] == "whole.pkl"
    assert one == several


def test_merged_states_give_the_report_of_one_run(folder, tmp_path):
    """Of each file, and of two of them in one state."""
    truth, (a, b, c) = folder / "truth.json", shards(folder)
    for name, paths in (("a", [a]), ("b", [b]), ("c", [c]), ("ab", [a, b])):
        part = files.report_of("detection", truth, *paths, "--save-state", tmp_path / f"{name}.npz")
        assert part["counts"]["ground_truths"]["dropped"]["in an image of another shard"] > 0
    for names in (("c", "a", "b"), ("c", "ab")):
        out = tmp_path / "-".join(names)
        files.printed("merge", *(tmp_path / f"{name}.npz" for name in names), out)
        check_same_files(out, folder / "expected")


def test_several_processes_give_the_report_of_one(folder, tmp_path):
    """Four processes for three files."""
    done = torchrun(4, "detection", folder / "truth.json", *shards(folder), tmp_path / "out", cwd=tmp_path)
    assert done[0] == 0, done[2]
    check_same_files(tmp_path / "out", folder / "expected")
    assert done[1].count("macro: mean over classes") == 1  # only one process prints


def test_several_processes_share_the_images_of_one_file(folder, tmp_path):
    arguments = ["detection", folder / "truth.json", folder / "whole.pkl", "--quiet", "--nms-iou-thr", "0.6"]
    files.printed(*arguments, tmp_path / "one")
    done = torchrun(2, *arguments, tmp_path / "two", cwd=tmp_path)
    assert done[0] == 0, done[2]
    check_same_files(tmp_path / "two", tmp_path / "one")


def test_an_error_on_one_process_ends_all_with_one_line(folder, tmp_path):
    bad = files.write_pickle(tmp_path / "bad.pkl", [{"img_id": 1, "pred_instances": {}}])
    code, out, error = torchrun(
        2, "detection", folder / "truth.json", shards(folder)[2], bad, tmp_path / "out", cwd=tmp_path
    )
    assert code != 0 and out == ""
    (line,) = [line for line in error.splitlines() if line.startswith("mm-metrics")]
    assert "bad.pkl: 'pred_instances.bboxes' of image 1 must be an array" in line
    assert not (tmp_path / "out").exists()


def test_shards_may_have_separate_annotation_files(tmp_path):
    truth, results = tied(20)
    expected = evaluate_detection(truth, results).to_dict()
    for name, ids in (("a", range(1, 8)), ("b", range(8, 21))):
        annotations = {
            **truth,
            "images": [image for image in truth["images"] if image["id"] in ids],
            "annotations": [row for row in truth["annotations"] if row["image_id"] in ids],
        }
        path = files.write_json(tmp_path / f"{name}.json", annotations)
        images = [image for image in results if image["img_id"] in ids]
        evaluate_detection(path, images, save_state=tmp_path / f"{name}.npz")
    merged = merge_states([tmp_path / "a.npz", tmp_path / "b.npz"]).to_dict()
    assert [entry["file"] for entry in merged["inputs"]["ground_truth"]] == ["a.json", "b.json"]
    for key in ("counts", "matching_rules", "classes", "settings"):
        assert merged[key] == expected[key]


def test_allow_missing_with_several_files(folder):
    truth, (a, _, c) = folder / "truth.json", shards(folder)
    found = files.report_of("detection", truth, a, c, "--allow-missing")
    assert found["counts"]["images"] == {"read": 45, "used": 45, "dropped": {}, "without_results": 24}
    expected = json.loads((folder / "expected" / "report.json").read_text())
    assert found["counts"]["ground_truths"] == expected["counts"]["ground_truths"]


@pytest.fixture(scope="module")
def states(folder, tmp_path_factory):
    place = tmp_path_factory.mktemp("states")

    def save(name, results, *options):
        files.printed("detection", folder / "truth.json", results, "--save-state", place / f"{name}.npz", *options)

    for name, path in zip("abc", shards(folder)):
        save(name, path)
    save("other", shards(folder)[1], "--score-thr", "0.5")
    content = [image for image in tied()[1] if image["img_id"] > 30]
    for image in content:
        image["pred_instances"] = {key: value[:0] for key, value in image["pred_instances"].items()}
    save("classes", files.write_pickle(place / "empty.pkl", content), "--classes", ",".join(CLASSES[:3]))
    return place


def test_shards_that_cannot_be_merged_are_refused(states, folder, capsys, tmp_path):
    a, b, _ = shards(states, "npz")
    assert "a.npz and a.npz: both hold 7 images (1, 2, 3, 4, 5, 6, 7)" in error_of(capsys, "merge", a, a)
    error = error_of(capsys, "merge", a, states / "other.npz")
    assert "different settings ('score_thr' is 0.3 and 0.5)" in error
    assert "different classes" in error_of(capsys, "merge", a, states / "classes.npz")
    assert "truth.json: shards with 14 images are missing" in error_of(capsys, "merge", a, b, tmp_path / "out")
    truth, first, second = folder / "truth.json", *shards(folder)[:2]
    assert "whole.pkl: both hold" in error_of(capsys, "detection", truth, first, folder / "whole.pkl")
    error = error_of(capsys, "detection", truth, first, second)
    assert "no results for 14 images" in error and "--allow-missing" in error
    old = files.write_pickle(tmp_path / "old.pkl", [[np.zeros((0, 5), np.float32)] * 4] * 45)
    assert "no image ids" in error_of(capsys, "detection", truth, first, old)
    assert not (tmp_path / "out").exists()


def test_damaged_states_are_refused(states, folder, capsys, tmp_path):
    good = states / "a.npz"
    (tmp_path / "cut.npz").write_bytes(good.read_bytes()[:-200])
    (tmp_path / "text.npz").write_text("no zip at all")
    np.savez(tmp_path / "other.npz", a=np.arange(3))
    np.savez(tmp_path / "object.npz", header=np.array([{}], dtype=object))
    np.savez_compressed(tmp_path / "packed.npz", header=np.zeros(1 << 20, np.uint8))
    for name in ("cut", "text", "other", "object", "packed", "nowhere"):
        assert f"{name}.npz: " in error_of(capsys, "merge", tmp_path / f"{name}.npz", "out")
    header, arrays = read_state(good)
    with np.load(good) as content:
        changed = dict(content)
    changed["matches.score"] = changed["matches.score"] / 2
    np.savez(tmp_path / "changed.npz", **changed)
    assert "its content was changed" in error_of(capsys, "merge", tmp_path / "changed.npz")
    settings = header["settings"]
    changes = {
        "version": ({"schema_version": 9}, "version 9"),
        "kind": ({"kind": "other"}, "not a state"),
        "settings": ({"settings": {"score_thr": 0.5}}, "not a state"),
        "resamples": ({"settings": {**settings, "resamples": 10**12}}, "resamples must be"),
        "no-images": ({"classes": ["a"] * 60_000, "image_ids": [], "image_names": []}, "60000 classes"),
    }
    for name, (fields, words) in changes.items():
        write_state(tmp_path / f"{name}.npz", {**header, **fields}, arrays)
        assert words in error_of(capsys, "merge", tmp_path / f"{name}.npz"), name


def test_states_are_plain_arrays_and_reproducible(states, folder, tmp_path):
    path = tmp_path / "a.npz"
    files.printed("detection", folder / "truth.json", shards(folder)[0], "--save-state", path)
    assert path.read_bytes() == (states / "a.npz").read_bytes()
    with np.load(path, allow_pickle=False) as content:
        header = json.loads(content["header"].tobytes())
        assert all(content[name].dtype.kind in "biuf" for name in content.files)
    assert header["schema_version"] == 7 and header["classes"] == list(CLASSES)
    assert header["settings"]["score_thr"] == 0.3 and len(header["results"][0]["sha256"]) == 64
    assert all(entry.compress_type == zipfile.ZIP_STORED for entry in zipfile.ZipFile(path).infolist())


def test_states_of_coco_results_share_images(tmp_path, capsys):
    row = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 9, 9], "score": 0.5}
    truth = {"images": [{"id": 1, "height": 50, "width": 50}, {"id": 2, "height": 50, "width": 50}],
             "categories": [{"id": 1, "name": "cat"}], "annotations": []}  # fmt: skip
    path = files.write_json(tmp_path / "truth.json", truth)
    for name, image in (("a", 1), ("b", 2)):
        results = files.write_json(tmp_path / f"{name}.json", [{**row, "image_id": image}])
        printed = files.printed("detection", path, results, "--save-state", tmp_path / f"{name}.npz")
        assert "1 image without results" in printed
    message = error_of(capsys, "merge", tmp_path / "a.npz", tmp_path / "b.npz")
    assert "COCO results and key points of mmpose do not list images without detections" in message


@pytest.mark.parametrize("images", [45, 42])
def test_matching_in_blocks_gives_the_same_report(images, tmp_path, monkeypatch):
    truth, results = tied(images)
    paths = files.write_json(tmp_path / "truth.json", truth), files.write_pickle(tmp_path / "results.pkl", results)
    expected = evaluate_detection(*paths).save(tmp_path / "whole")
    monkeypatch.setattr("mm_metrics_plugin.states.detection._DETECTIONS_AT_ONCE", 7)
    evaluate_detection(*paths).save(tmp_path / "blocks")
    for name in expected:
        if name.endswith((".json", ".md", ".csv")):
            assert (tmp_path / "blocks" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.parametrize("seed", range(5))
def test_examples_do_not_depend_on_shards_and_image_order(seed, tmp_path):
    """More equal scores than examples are kept, and image ids in another order than in the annotation file."""
    made = files.problem(30, seed=seed)
    made = made._replace(scores=np.round(made.scores * 2) / 2)
    truth, content = files.truth_of(made), files.results_of(made)
    np.random.default_rng(seed).shuffle(truth["images"])
    for name, results in (("whole", content), ("first", content[::2]), ("second", content[1::2])):
        found = evaluate_detection(truth, results, save_state=tmp_path / f"{name}.npz", gallery=6)
        if name == "whole":
            expected = found.state.arrays()
    merged = merge_states([tmp_path / "second.npz", tmp_path / "first.npz"]).state.arrays()
    for name in expected:
        if name.startswith("examples."):
            np.testing.assert_array_equal(merged[name], expected[name], err_msg=name)


def test_states_of_different_ground_truths_in_memory_are_not_merged(tmp_path):
    files = []
    for image_id in (1, 2):
        truth = {
            "images": [{"id": image_id, "height": 9, "width": 9}],
            "categories": [{"id": 1, "name": "cat"}],
            "annotations": [],
        }
        files.append(tmp_path / f"{image_id}.npz")
        rows = [{"image_id": image_id, "category_id": 1, "bbox": [0, 0, 9, 9], "score": 0.5}]
        evaluate_detection(truth, rows, save_state=files[-1])
    with pytest.raises(ResultFileError, match="the states hold 1 image more than this ground truth"):
        merge_states(files)
