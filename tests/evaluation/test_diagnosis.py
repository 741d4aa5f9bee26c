"""The causes of an impossible result that a report names, and that it names none of healthy files."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from benchmarks.detection_problem import make_problem
from mm_metrics_plugin import MetricWarning, UndefinedMetricWarning, evaluate_detection, merge_states
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry.boundaries import Boundaries
from mm_metrics_plugin.functional.detection.geometry.boxes import Boxes
from mm_metrics_plugin.functional.detection.geometry.keypoints import COCO_SIGMAS, KeyPoints
from mm_metrics_plugin.functional.detection.geometry.masks import Masks
from mm_metrics_plugin.functional.detection.geometry.rotated_boxes import RotatedBoxes
from tests.helpers import detection_problems, geometry_problems
from tests.helpers import mistakes as made
from tests.helpers import result_files as files
from tests.helpers.mistakes import MISTAKES

NAMES = [mistake.name for mistake in MISTAKES]
quiet = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.MetricWarning")


def write(folder, content):
    """The files of annotations and results; COCO results are lists of rows with ``image_id``."""
    truth = files.write_json(folder / "truth.json", content.truth)
    if not content.results or "image_id" in content.results[0]:
        return truth, files.write_json(folder / "results.json", content.results)
    return truth, files.write_pickle(folder / "results.pkl", content.results)


def causes(report):
    return [finding.cause for finding in report.diagnosis]


# --- one mistake ------------------------------------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize("mistake", MISTAKES, ids=NAMES)
def test_one_mistake_has_one_finding(mistake, tmp_path):
    report = evaluate_detection(*write(tmp_path, mistake.make()))
    (finding,) = report.diagnosis
    assert finding.cause == mistake.cause, finding
    assert {key: finding.numbers[key] for key in mistake.numbers} == mistake.numbers


def test_scales_are_those_of_the_images():
    (finding,) = evaluate_quietly(*made.resized()).diagnosis
    assert finding.numbers["scale_x"] == pytest.approx(1.6, rel=0.02)
    stretched = next(mistake for mistake in MISTAKES if "stretched" in mistake.name)
    (finding,) = evaluate_quietly(*stretched.make()).diagnosis
    assert finding.numbers["scale_x"] == pytest.approx(0.5, rel=0.02)
    assert finding.numbers["scale_y"] == pytest.approx(0.8, rel=0.02)


def evaluate_quietly(truth, results, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MetricWarning)
        return evaluate_detection(truth, results, **options)


def test_a_threshold_outside_the_grid_has_no_key_instead_of_an_undefined_value():
    report = evaluate_quietly(*made.healthy(), iou_thrs=(0.6, 0.75))
    assert {"mAP", "mAP_75"} <= set(report.log_values()) and "mAP_50" not in report.log_values()
    assert not report.diagnosis


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_id": 1000}, "image 1000 not in"),
        ({"category_id": 0}, "category id 0 not in"),
    ],
)
def test_ids_that_are_not_in_the_annotations_are_errors(change, message):
    truth, results = made.healthy()
    rows = [{**row, **(change if number == 0 else {})} for number, row in enumerate(made.coco_rows(results))]
    with pytest.raises(ResultFileError, match=message):
        evaluate_detection(truth, rows)


def test_the_finding_of_a_matrix_only_report(tmp_path):
    truth, results = made.with_boxes(lambda x, y, x2, y2: (x, y, x2 - x, y2 - y))
    for matching in ("coco", "mmdet", "agnostic"):
        report = evaluate_quietly(truth, results, matrix_only=True, matching=matching)
        assert causes(report) == ["box_format"]


# --- other geometries -------------------------------------------------------------------------------------------------


def geometry_batch(iou_type, change_boxes, labels=(0, 1, 2)):
    """Objects of three classes and detections near them, as shapes of a geometry; boxes of detections are changed."""
    random = np.random.default_rng(0)
    image = np.repeat(np.arange(20), 4)
    corner = random.integers(0, 60, (80, 2)).astype(float)
    boxes = np.concatenate([corner, corner + random.integers(20, 38, (80, 2))], axis=1)
    found = change_boxes(boxes + random.integers(-1, 2, boxes.shape))
    gt_labels = random.integers(0, 3, 80)

    def shapes(values):
        if iou_type == "bbox":
            return Boxes(values)
        if iou_type == "rbox":
            left, top, right, bottom = values.T
            center = ((left + right) / 2, (top + bottom) / 2)
            return RotatedBoxes(np.stack([*center, right - left, bottom - top, np.zeros(len(values))], axis=1))
        if iou_type == "keypoints":
            places = np.random.default_rng(1).random((1, 17, 2))
            points = values[:, None, :2] + places * (values[:, None, 2:] - values[:, None, :2])
            return KeyPoints(np.concatenate([points, np.full((len(values), 17, 1), 2.0)], axis=2), COCO_SIGMAS)
        y, x = np.mgrid[:100, :100]
        left, top, right, bottom = values.T[..., None, None]
        kind = Boundaries if iou_type == "boundary" else Masks
        return kind.from_bitmaps((x >= left) & (x < right) & (y >= top) & (y < bottom))

    detections = Detections(image, shapes(found), random.random(80), np.array(labels)[gt_labels])
    return DetectionBatch(detections, GroundTruths(image, shapes(boxes), gt_labels), 20)


@quiet
@pytest.mark.parametrize("iou_type", ["bbox", "segm", "boundary", "rbox", "keypoints"])
def test_every_geometry_has_findings_of_classes_and_none_if_healthy(iou_type):
    def report(**options):
        batch = geometry_batch(iou_type, lambda boxes: boxes, **options)
        return evaluate_detection(batch, iou_type=iou_type, classes=("a", "b", "c"))

    assert report().diagnosis == ()
    assert causes(report(labels=(1, 2, 0))) == ["class_order"]


@quiet
@pytest.mark.parametrize("iou_type", ["bbox", "rbox", "keypoints"])
@pytest.mark.parametrize("factor", [0.4, 1 / 100, 3.0])
def test_scales_of_every_geometry_that_has_coordinates(iou_type, factor):
    batch = geometry_batch(iou_type, lambda boxes: boxes * factor)
    report = evaluate_detection(batch, iou_type=iou_type)
    assert causes(report) == ["box_scale"]


# --- healthy files ----------------------------------------------------------------------------------------------------


def healthy_problems(seed):
    """Small and crowded images, ties, crowds, areas and geometries: batches with detections and ground truths."""
    batch, num_classes = detection_problems.random_batch(seed)
    yield batch, num_classes, {}
    yield detection_problems.with_areas(batch, seed), num_classes, {"iou_thr": 0.75}
    yield detection_problems.everywhere(seed), 3, {"score_thr": 0.9}
    yield (*geometry_problems.mask_batch(seed), {"iou_type": "segm"})
    yield (*geometry_problems.mask_batch(seed, geometry=Boundaries, max_side=60), {"iou_type": "boundary"})
    yield geometry_problems.keypoint_batch(seed), 1, {"iou_type": "keypoints"}
    yield (*geometry_problems.rotated_batch(seed), {"iou_type": "rbox"})


def check_healthy(batch, num_classes, options):
    gts = batch.ground_truths
    if len(batch.detections) and not gts.ignored.all():
        report = evaluate_quietly(batch, None, classes=list(map(str, range(num_classes))), gallery=None, **options)
        assert report.diagnosis == ()
        return 1
    return 0


def test_random_problems_have_no_finding():
    assert sum(check_healthy(*problem) for seed in range(12) for problem in healthy_problems(seed)) > 60


def test_crowded_images_have_no_finding():
    for seed in range(2):
        batch = detection_problems.dense_batch(seed)
        check_healthy(*(batch if isinstance(batch, tuple) else (batch, 3)), {})


WEAK = {
    "random places": lambda random, boxes, labels, scores: (random.permutation(boxes), labels, scores),
    "coarse places": lambda random, boxes, labels, scores: (
        _ordered(boxes + random.normal(0, 40, boxes.shape)),
        labels,
        scores,
    ),
    "random classes": lambda random, boxes, labels, scores: (boxes, random.permutation(labels), scores),
    "one class": lambda random, boxes, labels, scores: (boxes, np.zeros_like(labels), scores),
    "low scores": lambda random, boxes, labels, scores: (boxes, labels, scores * 0.2),
    "random scores": lambda random, boxes, labels, scores: (boxes, labels, random.random(len(scores))),
}


def _ordered(boxes):
    return np.concatenate([boxes[:, :2], np.maximum(boxes[:, 2:], boxes[:, :2] + 1)], axis=1)


@pytest.mark.parametrize("weak", WEAK)
def test_weak_detectors_have_no_finding(weak):
    """Few or many images, classes and detections, rare classes, one object per image or many."""
    for seed in range(15):
        random = np.random.default_rng(seed)
        num_images, num_classes = int(random.integers(1, 90)), int(random.choice([1, 2, 3, 10, 80]))
        per_image, objects = int(random.choice([1, 5, 30, 100])), float(random.choice([1, 3, 20]))
        problem = make_problem(num_images, num_classes, per_image, objects, seed=seed)
        boxes, labels, scores = WEAK[weak](random, problem.boxes, problem.labels, problem.scores)
        gts = GroundTruths(problem.gt_image, problem.gt_boxes, problem.gt_labels, problem.gt_crowd)
        batch = DetectionBatch(Detections(problem.image, boxes, scores, labels), gts, num_images)
        check_healthy(batch, num_classes, {"iou_thr": float(random.choice([0.5, 0.75, 0.95]))})


def test_healthy_files_have_an_empty_diagnosis(tmp_path):
    report = evaluate_detection(*write(tmp_path, made.healthy()))
    assert report.to_dict()["diagnosis"] == [] and "Diagnosis" not in str(report)


# --- shards, processes and outputs ------------------------------------------------------------------------------------

SHARDED = ("xywh in results.pkl", "detections of resized images", "labels off by one", "logits", "all crowds")


@quiet
@pytest.mark.parametrize("name", SHARDED)
def test_merged_shards_have_the_findings_of_one_file(name, tmp_path):
    content = next(mistake for mistake in MISTAKES if mistake.name == name).make()
    truth, whole = write(tmp_path, content)
    expected = evaluate_detection(truth, whole).to_dict()["diagnosis"]
    states = []
    for rank in range(3):
        part = files.write_pickle(tmp_path / f"{rank}.pkl", content.results[rank::3])
        states.append(tmp_path / f"{rank}.npz")
        evaluate_detection(truth, part, save_state=states[-1])
    assert merge_states(states).to_dict()["diagnosis"] == expected
    assert [finding["cause"] for finding in expected]


@quiet
def test_the_sample_is_that_of_the_first_images_in_the_order_of_ids(tmp_path):
    """More images than the sample has: shards in any order give the same numbers."""
    problem = files.problem(150)
    results = files.results_of(problem)
    for image in results:
        image["pred_instances"]["bboxes"] = image["pred_instances"]["bboxes"] * np.float32(2)
    truth = files.truth_of(problem)
    expected = evaluate_detection(truth, results).diagnosis
    assert expected[0].numbers["images"] == 64
    states = []
    for number, rows in enumerate((results[70:], results[:20], results[20:70])):
        states.append(tmp_path / f"{number}.npz")
        evaluate_detection(truth, rows, save_state=states[-1])
    assert merge_states(states).diagnosis == expected == merge_states(states[::-1]).diagnosis


@pytest.mark.usefixtures("shown_warnings")
def test_every_output_of_the_command_has_the_diagnosis(tmp_path, capsys):
    paths = write(tmp_path, made.with_boxes(lambda x, y, x2, y2: (x, y, x2 - x, y2 - y)))
    text = files.printed("detection", *paths, tmp_path / "out", "--html")
    sentence = "the boxes of the detections fit if they are read as left, top, width, height"
    assert sentence in " ".join(text.split()) and text.index("Diagnosis") < text.index("precision")
    assert sentence in capsys.readouterr().err
    content = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [finding["cause"] for finding in content["diagnosis"]] == ["box_format"]
    assert set(content["diagnosis"][0]) == {"cause", "message", "remedy", "numbers"}
    assert sentence in (tmp_path / "out" / "report.md").read_text()
    page = (tmp_path / "out" / "report.html").read_text()
    assert 'data-cause="box_format"' in page and sentence in page


def test_python_callers_are_warned():
    truth, results = made.with_rows(lambda instances: {"scores": np.log(instances["scores"])})
    with pytest.warns(MetricWarning, match=r"800 of 800 scores are outside \[0, 1\]"), pytest.warns(
        MetricWarning, match="no detection reaches the score threshold"
    ):
        report = evaluate_detection(truth, results)
    assert "Diagnosis" in report._repr_html_() and "sigmoid" in report._repr_html_()
    with pytest.warns(UndefinedMetricWarning, match="all of 190 ground truths are ignored"):
        evaluate_detection(*made.with_annotations(lambda row: {"iscrowd": 1}))


@quiet
def test_class_names_in_findings_are_escaped(tmp_path):
    truth, results = made.disjoint_classes()
    truth["categories"] = [{"id": row["id"], "name": f"<script>{row['id']}\x1b[31m"} for row in truth["categories"]]
    report = evaluate_detection(truth, results)
    (finding,) = report.diagnosis
    assert finding.cause == "class_names" and "\x1b" not in str(report)
    report.save(tmp_path, html=True)
    assert "<script>1" not in (tmp_path / "report.html").read_text()
