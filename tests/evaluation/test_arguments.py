"""Invalid arguments of the evaluation functions end in one sentence of this package, before anything is read."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin import compare_runs, evaluate_classification, evaluate_detection, merge_states
from mm_metrics_plugin.exceptions import ResultFileError
from tests.helpers.result_files import ROOT, error_of

ANNOTATIONS = "demo/detections/annotations.json"
RESULTS = "demo/detections/results.pkl"
SCORES = np.array([[0.8, 0.2], [0.4, 0.6]])
LABELS = np.array([0, 1])
RUN = (SCORES, LABELS)
COCO = {"images": [{"id": 1, "height": 9, "width": 9}], "categories": [{"id": 1, "name": "cat"}], "annotations": []}
ROW = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 9, 9], "score": 0.5}


@pytest.mark.parametrize("option", ["matching", "area_edges", "resamples"])
def test_comparison_has_no_options_without_effect(option):
    with pytest.raises(TypeError, match=f"'{option}' is not an option"):
        compare_runs(None, [RUN, RUN], **{option: "coco"})


@pytest.mark.parametrize(
    ("call", "option", "nearest"),
    [
        (lambda **options: evaluate_detection(ANNOTATIONS, RESULTS, **options), "score_threshold", "score_thr"),
        (lambda **options: evaluate_detection(ANNOTATIONS, RESULTS, **options), "clases", "classes"),
        (lambda **options: evaluate_detection(ANNOTATIONS, RESULTS, **options), "alow_missing", "allow_missing"),
        (lambda **options: evaluate_classification(RUN, **options), "at_specifity", "at_specificity"),
        (lambda **options: compare_runs(None, [RUN, RUN], **options), "permutation", "permutations"),
    ],
)
def test_unknown_options_are_refused_with_the_nearest_one(call, option, nearest):
    with pytest.raises(TypeError, match=f"did you mean '{nearest}'"):
        call(**{option: 1})


def test_internal_fields_are_no_options():
    with pytest.raises(TypeError, match="task_reason"):
        evaluate_classification(RUN, task_reason="because")


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: merge_states([]), r"files .*\[\]"),
        (lambda: merge_states(None), "files .*None"),
        (lambda: merge_states("a.npz"), "files .*'a.npz'"),
        (lambda: compare_runs(ANNOTATIONS, 5), "runs .*5"),
        (lambda: compare_runs(ANNOTATIONS, "a.pkl"), "runs .*'a.pkl'"),
        (lambda: compare_runs(ANNOTATIONS, [RESULTS]), "at least two runs .*found 1"),
        (lambda: compare_runs(ANNOTATIONS, [RESULTS, None]), "run 2: found nothing; results of a detector are"),
        (lambda: compare_runs(None, [RUN, RUN], names=["a"]), r"names .*2 distinct.*\['a'\]"),
        (lambda: compare_runs(None, [RUN, RUN], names=["a", "a"]), "names .*2 distinct"),
        (lambda: compare_runs(ANNOTATIONS, [RESULTS, RESULTS], task="multi-label"), "task=... is for classifiers"),
        (lambda: evaluate_detection(ANNOTATIONS), "results: found nothing; results of a detector are"),
        (lambda: evaluate_detection(ANNOTATIONS, 5), "results: found an object of type int; results of a detector"),
        (lambda: evaluate_detection(ANNOTATIONS, iter([])), "results: found .*list_iterator"),
        (lambda: evaluate_detection(ANNOTATIONS, (1.0, 2.0)), "results: found a tuple of float"),
        (lambda: evaluate_detection("x" * 5000, RESULTS), "xxx: cannot be read .*too long"),
        (lambda: evaluate_detection(ANNOTATIONS, RESULTS, save_state="x"), "save_state='x' must end in .npz"),
        (lambda: evaluate_detection("\0", RESULTS), "cannot be read"),
        (
            lambda: evaluate_detection(COCO, [], class_order="alphabet"),
            "class_order .*classes .*'alphabet'",
        ),
        (
            lambda: evaluate_detection(COCO, [], image_set="test.txt"),
            "image_set=... requires a folder of VOC annotations",
        ),
        (lambda: evaluate_detection(COCO, [{**ROW, "score": 10**5000}]), "'score' .*found an integer of 16610 bits"),
        (lambda: evaluate_classification([]), "results: found an empty list; results of a classifier are"),
        (lambda: evaluate_classification([], []), r"'scores' must hold at least one score .found shape \(0,\)"),
        (lambda: evaluate_classification(()), "results: found an object of type tuple; .*evaluate_classification"),
        (lambda: evaluate_classification((SCORES, LABELS, LABELS)), "results: found a tuple of numpy.ndarray; "),
        (lambda: evaluate_classification((None, None)), "'scores' must be real numbers .*found None"),
        (lambda: evaluate_classification(SCORES), r"found an array of shape \(2, 2\); .*scores, labels"),
        (lambda: evaluate_classification(LABELS, SCORES), "'scores' must be .*scores come first, then labels"),
        (lambda: evaluate_classification(SCORES, LABELS[:1]), r"'labels' as many rows .*\(2, 2\) and \(1,\)"),
        (
            lambda: evaluate_classification(SCORES, [0, 2]),
            "'labels' of sample number 1 must be .* 0 and 1 .found 2",
        ),
        (lambda: evaluate_classification(SCORES[:, 0], [1, -1]), "'labels' of one score .* 0 and 1 .found -1"),
        (lambda: evaluate_classification(RUN, settings=5), "settings must be ClassificationSettings .found 5"),
        (lambda: compare_runs(None, [RUN, RUN], ci=None), "ci must be .*None"),
        (lambda: evaluate_detection(COCO, [ROW], matching=None), "matching must be .*None"),
        (lambda: evaluate_detection(COCO, [ROW], cfg_options="a=1"), "cfg_options must be a list .*'a=1'"),
        (lambda: evaluate_detection(COCO, [ROW], image_set=3), "image_set must be a path .found 3"),
        (lambda: evaluate_classification(RUN, classes=5), "classes .*5"),
        (lambda: evaluate_classification(RUN, classes="ab"), "classes .*'ab'"),
        (lambda: evaluate_classification(RUN, classes=["a", 1]), "classes .*1"),
        (lambda: evaluate_classification(RUN, classes=["a", "a"]), "classes.*'a' more than once"),
        (lambda: evaluate_classification(RUN).save(""), "folder"),
    ],
)
def test_invalid_inputs_are_named(call, found):
    with pytest.raises(ValueError, match=found) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_the_command_names_arguments_by_their_flags(capsys, tmp_path):
    """The same message in both ways; names of files stay."""
    state = tmp_path / "save_state.pkl"
    with pytest.raises(ResultFileError, match=rf"^save_state='{state}' must end in .npz$"):
        evaluate_detection(ANNOTATIONS, RESULTS, save_state=state)
    paths = f"{ROOT}/{ANNOTATIONS}", f"{ROOT}/{RESULTS}"
    error = error_of(capsys, "detection", *paths, "--save-state", state)
    assert error == f"mm-metrics detection: --save-state {state} must end in .npz\n"
    with pytest.raises(ResultFileError, match=r"^classes=\[...\] must be distinct"):
        evaluate_detection(ANNOTATIONS, RESULTS, classes=["a", "a"])
    assert "detection: --classes must be distinct" in error_of(capsys, "detection", *paths, "--classes", "a,a")
    with pytest.raises(ResultFileError, match=r"^results.pkl: contains no ground truth.* as ground_truth=...$"):
        evaluate_detection(None, RESULTS)
    error = error_of(capsys, "detection", "-", paths[1])
    assert error.endswith("results.pkl: contains no ground truth; give the annotation file as GROUND_TRUTH\n")
    error = error_of(capsys, "detection", *paths, "--iou-thr", "2")
    assert "argument --iou-thr: must be above 0 and at most 1 (found 2)" in error


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [0.5], "x"])
@pytest.mark.parametrize("option", ["score_thr", "at_specificity", "ci"])
def test_options_are_finite_numbers(option, value):
    with pytest.raises(ValueError, match=f"{option} must be"):
        evaluate_classification(RUN, **{option: value})


@pytest.mark.filterwarnings("ignore:there are no ground truths")
@pytest.mark.parametrize("gallery", [-1, 1.5, True])
def test_the_gallery_is_a_whole_number(gallery, tmp_path):
    with pytest.raises(ValueError, match="gallery must be a whole number of at least 0"):
        evaluate_detection(COCO, [ROW], gallery=gallery)
    with pytest.raises(ValueError, match="gallery must be a whole number of at least 0"):
        evaluate_detection(COCO, [ROW]).save(tmp_path, html=True, gallery=gallery)
