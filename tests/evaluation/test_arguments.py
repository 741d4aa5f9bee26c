"""Invalid arguments of the evaluation functions end in one sentence of this package, before anything is read."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin import compare_runs, evaluate_classification, evaluate_detection, merge_states
from mm_metrics_plugin.exceptions import ResultFileError

ANNOTATIONS = "demo/detections/annotations.json"
RESULTS = "demo/detections/results.pkl"
SCORES = np.array([[0.8, 0.2], [0.4, 0.6]])
LABELS = np.array([0, 1])
RUN = (SCORES, LABELS)
COCO = {"images": [{"id": 1, "height": 9, "width": 9}], "categories": [{"id": 1, "name": "cat"}], "annotations": []}
ROW = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 9, 9], "score": 0.5}


@pytest.mark.parametrize("option", ["matching", "operating_point", "resamples"])
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
        (lambda: compare_runs(ANNOTATIONS, [RESULTS, None]), "run number 1 .*NoneType"),
        (lambda: compare_runs(None, [RUN, RUN], names=["a"]), r"names .*2 distinct.*\['a'\]"),
        (lambda: compare_runs(None, [RUN, RUN], names=["a", "a"]), "names .*2 distinct"),
        (lambda: compare_runs(ANNOTATIONS, [RESULTS, RESULTS], task="multi-label"), "--task: is for classifiers"),
        (lambda: evaluate_detection(ANNOTATIONS), "results must be a path.*NoneType"),
        (lambda: evaluate_detection(ANNOTATIONS, 5), "results .*int"),
        (lambda: evaluate_detection(ANNOTATIONS, iter([])), "results .*list_iterator"),
        (lambda: evaluate_detection(ANNOTATIONS, RESULTS, save_state="x"), "save_state .*'x'"),
        (lambda: evaluate_detection("\0", RESULTS), "null"),
        (
            lambda: evaluate_detection(COCO, [], class_order="alphabet"),
            "class_order .*classes .*'alphabet'",
        ),
        (lambda: evaluate_detection(COCO, [], image_set="test.txt"), "--image-set: requires a folder of VOC files"),
        (lambda: evaluate_detection(COCO, [{**ROW, "score": 10**5000}]), "'score' .*found an integer of 16610 bits"),
        (lambda: evaluate_classification(()), "results .*tuple of 0"),
        (lambda: evaluate_classification((SCORES, LABELS, LABELS)), "results .*tuple of 3"),
        (lambda: evaluate_classification((None, None)), "results .*pair"),
        (lambda: evaluate_classification(RUN, classes=5), "classes .*5"),
        (lambda: evaluate_classification(RUN, classes="ab"), "classes .*'ab'"),
        (lambda: evaluate_classification(RUN, classes=["a", 1]), "classes .*1"),
        (lambda: evaluate_classification(RUN, classes=["a", "a"]), "classes .*'a' more than once"),
        (lambda: evaluate_classification(RUN).save(""), "folder"),
    ],
)
def test_invalid_inputs_are_named(call, found):
    with pytest.raises(ResultFileError, match=found):
        call()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [0.5], "x"])
@pytest.mark.parametrize("option", ["score_thr", "at_specificity", "ci"])
def test_options_are_finite_numbers(option, value):
    with pytest.raises(ValueError, match=f"{option} must be"):
        evaluate_classification(RUN, **{option: value})


@pytest.mark.parametrize("gallery", [-1, 1.5, True])
def test_the_gallery_is_a_whole_number(gallery, tmp_path):
    with pytest.raises(ValueError, match="gallery must be a whole number of at least 0"):
        evaluate_detection(COCO, [ROW], gallery=gallery)
    with pytest.raises(ValueError, match="gallery must be a whole number of at least 0"):
        evaluate_detection(COCO, [ROW]).save(tmp_path, html=True, gallery=gallery)
