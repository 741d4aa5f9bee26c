"""The conventions of federated datasets compared with lvis-api."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import pytest

from mm_metrics_plugin import DetectionPRF, evaluate_detection, merge_states
from mm_metrics_plugin.exceptions import MetricWarning
from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.testing.processes import run_processes
from tests.helpers.detection_problems import undefined_as_nan
from tests.helpers.lvis_problems import best_of_each_class, lvis_problem, lvis_results, packed_results

KEYS = {
    "AP": "mAP",
    "AP50": "mAP_50",
    "AP75": "mAP_75",
    "APs": "mAP_s",
    "APm": "mAP_m",
    "APl": "mAP_l",
    "APr": "mAP_r",
    "APc": "mAP_c",
    "APf": "mAP_f",
    "AR@300": "AR@{}",
    "ARs@300": "AR_s@{}",
    "ARm@300": "AR_m@{}",
    "ARl@300": "AR_l@{}",
}


def assert_equal(report, evaluation, *, seed):
    """All 13 numbers of lvis-api, and the AP of every class; returns the numbers."""
    actual = report.analysis.average_precision
    values = actual.to_dict()
    expected = undefined_as_nan([evaluation.results[key] for key in KEYS])
    numbers = [values[key.format(report.settings.max_dets)] for key in KEYS.values()]
    np.testing.assert_allclose(numbers, expected, rtol=0, atol=1e-10, err_msg=f"seed {seed}")
    order = np.argsort([row["id"] for row in evaluation.lvis_gt.dataset["categories"]])
    precision = undefined_as_nan(evaluation.eval["precision"])[..., 0].mean(axis=(0, 1))
    np.testing.assert_allclose(actual.per_class[order], precision, rtol=0, atol=1e-10, err_msg=f"seed {seed}")
    return numbers


@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")  # of no ground truths
@pytest.mark.parametrize("iou_type", ["bbox", "segm"])
def test_all_numbers_equal_lvis(iou_type):
    between = 0
    for seed in range(80 if iou_type == "bbox" else 30):
        content, results = lvis_problem(seed, masks=iou_type == "segm")
        if results:
            expected = lvis_results(content, results, iou_type)
            report = evaluate_detection(content, results, convention="lvis", iou_type=iou_type, gallery=None)
            between += 0 < assert_equal(report, expected, seed=seed)[0] < 1
    assert between > 20


@pytest.mark.filterwarnings("ignore:AP uses the best")
@pytest.mark.parametrize("iou_type", ["bbox", "segm"])
def test_detections_per_image_are_limited_as_in_lvis(iou_type):
    """Most images have more detections than the limit, many of them at the score of the last one that counts."""
    limited = 0
    for seed in range(40 if iou_type == "bbox" else 20):
        content, results = lvis_problem(seed, masks=iou_type == "segm")
        if results:
            expected = lvis_results(content, results, iou_type, max_dets=15)
            options = {"convention": "lvis", "max_dets": 15, "iou_type": iou_type, "gallery": None}
            report = evaluate_detection(content, results, **options)
            assert_equal(report, expected, seed=seed)
            limited += report.analysis.most_detections > 15
    assert limited > 10


def test_more_than_300_detections_per_image_equal_lvis():
    for seed in range(4):
        content, results = lvis_problem(seed, most=500)
        with pytest.warns(MetricWarning, match=r"AP uses the best 300 of up to \d+ detections per image"):
            report = evaluate_detection(content, results, convention="lvis", gallery=None)
        assert_equal(report, lvis_results(content, results, "bbox"), seed=seed)


@pytest.mark.filterwarnings("ignore:AP uses the best")
@pytest.mark.parametrize("iou_type", ["bbox", "segm"])
def test_fixed_ap_equals_lvis_on_the_best_detections_of_each_class(iou_type):
    limited = 0
    for seed in range(40 if iou_type == "bbox" else 20):
        content, results = lvis_problem(seed, masks=iou_type == "segm")
        for number in (10_000, 8):
            best = best_of_each_class(in_image_order(results), number)
            if best:
                expected = lvis_results(content, best, iou_type, max_dets=-1)
                options = {"convention": "lvis-fixed", "max_dets": number, "iou_type": iou_type, "gallery": None}
                report = evaluate_detection(content, results, **options)
                assert_equal(report, expected, seed=seed)
                limited += len(best) < len(results)
    assert limited > 10


def test_fixed_ap_has_no_limit_per_image():
    content, results = lvis_problem(3, most=500)
    report = evaluate_detection(content, results, convention="lvis-fixed", gallery=None)
    assert report.settings.max_dets == 10_000
    assert_equal(report, lvis_results(content, results, "bbox", max_dets=-1), seed=3)


class SharedSamples(NamedTuple):
    """What a process of a group evaluates."""

    ann_file: str
    packed: list
    convention: str


def evaluate_share(job):
    """The values of ``DetectionPRF`` on the samples of this process."""
    from torch import distributed

    rank, size = (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
    metric = DetectionPRF(ap=True, convention=job.convention, max_dets=15, ann_file=job.ann_file, recall_max_dets=(5,))
    metric.dataset_meta = {"classes": ()}
    share = job.packed[rank::size]
    share += job.packed[:1] * (-(-len(job.packed) // size) - len(share))  # padded as by mmengine's sampler
    for sample in share:
        metric.process(None, [sample])
    return metric.evaluate(len(job.packed))


@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.MetricWarning")
@pytest.mark.parametrize("convention", ["lvis", "lvis-fixed"])
def test_metric_equals_lvis_on_one_and_on_two_processes(tmp_path, convention):
    content, results = lvis_problem(6, most=60)
    packed, file = packed_results(content, results), tmp_path / "lvis.json"
    file.write_text(json.dumps(content))
    job = SharedSamples(str(file), packed, convention)
    values = evaluate_share(job)
    best = results if convention == "lvis" else best_of_each_class(in_image_order(results), 15)
    expected = lvis_results(content, best, "bbox", max_dets=15 if convention == "lvis" else -1)
    numbers = [values[f"det/{key.format(15)}"] for key in KEYS.values()]
    np.testing.assert_allclose(numbers, undefined_as_nan([expected.results[key] for key in KEYS]), rtol=0, atol=1e-10)
    assert run_processes(2, evaluate_share, [job])[0] == [pytest.approx(values, nan_ok=True)] * 2


def in_image_order(results):
    """The results by image, which decides ties at the limit of a class here; lvis-api follows the file."""
    return sorted(results, key=lambda row: row["image_id"])


@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.MetricWarning")
@pytest.mark.parametrize("convention", ["lvis", "lvis-fixed"])
def test_merged_shards_equal_one_run(tmp_path, convention):
    content, results = lvis_problem(6, most=60)
    packed = packed_results(content, results)
    options = {"convention": convention, "max_dets": 15, "gallery": None, "ci": 0.9, "resamples": 20}
    whole = evaluate_detection(content, packed, **options)
    states = [tmp_path / f"{part}.npz" for part in range(2)]
    for part, state in enumerate(states):
        evaluate_detection(content, packed[part::2], save_state=state, **options)
    merged = merge_states(states).to_dict()
    for key, value in whole.to_dict().items():
        assert key in ("inputs", "counts") or merged[key] == value, key


@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.MetricWarning")
def test_weights_count_images_several_times():
    """With LVIS' limit per image, which is that of every copy of the image."""
    content, results = lvis_problem(6, most=60, ties=False)
    table = evaluate_detection(content, results, convention="lvis", max_dets=15, gallery=None).analysis.table
    weights = np.array([image % 3 for image in range(table.num_images)])
    repeated = {**content, "images": [], "annotations": []}
    copies = []
    for number, image in enumerate(sorted(content["images"], key=lambda image: image["id"])):
        for copy in range(weights[number]):
            key = 100 * image["id"] + copy
            repeated["images"].append({**image, "id": key})
            own = [row for row in content["annotations"] if row["image_id"] == image["id"]]
            for row in own:
                repeated["annotations"].append({**row, "image_id": key, "id": len(repeated["annotations"]) + 1})
            copies += [{**row, "image_id": key} for row in results if row["image_id"] == image["id"]]
    expected = lvis_results(repeated, copies, "bbox", max_dets=15)
    actual = average_precision(table, weights=weights).to_dict()
    numbers = [actual[key.format(15)] for key in KEYS.values()]
    np.testing.assert_allclose(numbers, undefined_as_nan([expected.results[key] for key in KEYS]), rtol=0, atol=1e-10)
