"""Evaluators: batches, merged parts and saved reports give the numbers of one pass; the log has those of the report."""

from __future__ import annotations

import numpy as np
import pytest

from mm_metrics_plugin import ClassificationEvaluator, DetectionEvaluator, evaluate_classification, evaluate_detection
from mm_metrics_plugin.cli import main
from mm_metrics_plugin.conventions import MATCHING_RULES
from mm_metrics_plugin.exceptions import MetricInputError, ResultFileError
from mm_metrics_plugin.io.writing import to_json
from mm_metrics_plugin.metrics import DetectionPRF
from tests.helpers.detection_problems import random_batch
from tests.helpers.result_files import ROOT

pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.MetricWarning")
TRUTH, RESULTS = (str(ROOT / "demo/detections" / name) for name in ("annotations.json", "results.pkl"))


def numbers(report):
    """The JSON report without the files it was made from."""
    return to_json({key: value for key, value in report.to_dict().items() if key not in ("inputs", "counts")})


def problem(seed, images=12):
    """The images of several small problems as dicts, and the same as one batch."""
    random = np.random.default_rng(seed)
    predictions, targets = [], []
    for _ in range(images):
        found, objects = int(random.integers(0, 9)), int(random.integers(0, 6))
        corner = random.integers(0, 20, (objects, 2))
        boxes = np.concatenate([corner, corner + random.integers(3, 12, (objects, 2))], axis=1).astype(np.float32)
        near = boxes[random.integers(0, objects, found)] if objects else np.tile(np.float32([0, 0, 5, 5]), (found, 1))
        predictions.append(
            dict(
                boxes=near + random.integers(0, 2, (found, 4)),
                scores=np.round(random.random(found), 1).astype(np.float32),
                labels=random.integers(0, 3, found),
            )
        )
        targets.append(dict(boxes=boxes, labels=random.integers(0, 3, objects), crowd=random.random(objects) < 0.1))
    return predictions, targets


OPTIONS = dict(matching=tuple(MATCHING_RULES), score_thr=0.4, ci=0.9, resamples=20, operating_point="f1")


@pytest.mark.parametrize("seed", range(3))
def test_batches_and_merged_parts_give_the_report_of_one_pass(seed):
    predictions, targets = problem(seed)
    whole = DetectionEvaluator("abc", worst_images=3, **OPTIONS)
    whole.update(predictions, targets)
    expected = whole.compute()

    batches = DetectionEvaluator("abc", worst_images=3, **OPTIONS)
    for start in range(0, 12, 5):
        batches.update(predictions[start : start + 5], targets[start : start + 5])
    parts = []
    for rank in range(3):
        part = DetectionEvaluator("abc", worst_images=3, **OPTIONS)
        part.update(predictions[rank::3], targets[rank::3], image_ids=range(rank, 12, 3))
        parts.append(part)
    for evaluator in (batches, parts[0].merge(*parts[1:]), parts[2].merge(parts[0]).merge(parts[1])):
        report = evaluator.compute()
        assert numbers(report) == numbers(expected)
        for own, other in zip(report.examples, expected.examples):
            for name, column in other.to_arrays().items():
                np.testing.assert_array_equal(own.to_arrays()[name], column, err_msg=name)
    assert len(parts[0].provenance.image_ids) == 4  # merging changes no part
    batches.reset()
    batches.update(predictions, targets)
    assert numbers(batches.compute()) == numbers(expected)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("seed", range(2))
def test_the_log_of_the_metric_is_that_of_the_report(seed, average):
    predictions, targets = problem(seed)
    evaluator = DetectionEvaluator(["0", "1", "2"], score_thr=0.4)
    evaluator.update(predictions, targets)
    options = dict(ap=True, olrp=True, froc=True, classwise=True, average=average)
    metric = DetectionPRF(score_thr=0.4, num_classes=3, **options)
    for found, truth in zip(predictions, targets):
        regular = ~truth["crowd"]
        parts = {
            name: dict(bboxes=truth["boxes"][rows], labels=truth["labels"][rows])
            for name, rows in (("gt_instances", regular), ("ignored_instances", ~regular))
        }
        sample = dict(pred_instances=dict(found, bboxes=found["boxes"].astype(np.float32)), **parts)
        metric.process(None, [sample])
    logged = {key[len("det/") :]: value for key, value in metric.evaluate(len(targets)).items()}
    values = evaluator.compute().log_values(average=average, classwise=True)
    assert list(logged) == list(values)
    np.testing.assert_array_equal(list(logged.values()), np.array(list(values.values()), dtype=float))


def test_a_saved_report_is_rendered_as_before(tmp_path):
    report = evaluate_detection(TRUTH, RESULTS, ci=0.95, resamples=20, operating_point="f1")
    report.save_state(tmp_path / "saved.npz")
    report.save(tmp_path / "before", html=True)
    arguments = ["report", tmp_path / "saved.npz", tmp_path / "after", "--html", "--quiet"]
    assert main([*map(str, arguments)]) == 0
    names = sorted(path.name for path in (tmp_path / "before").iterdir())
    assert "report.html" in names and names == sorted(path.name for path in (tmp_path / "after").iterdir())
    for name in names:
        assert (tmp_path / "after" / name).read_bytes() == (tmp_path / "before" / name).read_bytes(), name


@pytest.mark.parametrize("multi_label", [False, True])
def test_samples_of_a_classifier_are_merged_and_saved(multi_label, tmp_path):
    random = np.random.default_rng(3)
    scores = random.dirichlet(np.ones(4), 60).astype(np.float32)
    truth = random.integers(-1, 2, (60, 4)) if multi_label else random.integers(0, 4, 60)
    expected = evaluate_classification((scores, truth), classes=list("abcd"), ci=0.95)
    parts = []
    for rows in np.array_split(np.arange(60), 3):
        part = ClassificationEvaluator("abcd", ci=0.95)
        part.update(scores[rows], truth[rows])
        parts.append(part)
    merged = parts[0].merge(*parts[1:]).compute()
    for key in ("per_class", "means", "intervals", "calibration", "thresholds"):
        own, other = (report.to_dict().get(key) for report in (merged, expected))
        assert to_json(own) == to_json(other)
    expected.save_state(tmp_path / "saved.npz")
    assert main(["report", str(tmp_path / "saved.npz"), str(tmp_path / "after"), "--html", "--quiet"]) == 0
    expected.save(tmp_path / "before", html=True)
    for name in ("report.json", "report.html", "report.md", "per_class.csv"):
        assert (tmp_path / "after" / name).read_text() == (tmp_path / "before" / name).read_text()


def test_parts_that_do_not_fit_are_refused():
    predictions, targets = problem(0)
    first, second, other = (DetectionEvaluator("abc", score_thr=thr) for thr in (0.3, 0.3, 0.5))
    for part in (first, second, other):
        part.update(predictions, targets)
    with pytest.raises(ResultFileError, match="both hold 12 images"):
        first.merge(second)
    with pytest.raises(ResultFileError, match=r"different settings \('score_thr' is 0.3 and 0.5\)"):
        first.merge(other)
    with pytest.raises(MetricInputError, match=r"'scores' of image 0 must be an array \(found nothing\)"):
        first.update([dict(boxes=[], labels=[])], [dict(boxes=[], labels=[])])
    with pytest.raises(MetricInputError, match=r"same images \(found 2 and 1\)"):
        first.update(predictions[:2], targets[:1])
    classifier = ClassificationEvaluator("ab")
    with pytest.raises(MetricInputError, match=r"'scores' must be \(samples, 2\) floats"):
        classifier.update(np.zeros((3, 4)), np.zeros(3, dtype=int))
    with pytest.raises(MetricInputError, match="there are no samples"):
        classifier.compute()


def test_a_batch_of_arrays_and_dicts_are_the_same():
    batch, num_classes = random_batch(5)
    classes = list(map(str, range(num_classes)))
    arrays = DetectionEvaluator(classes)
    arrays.update(batch)
    dicts = DetectionEvaluator(classes)
    for image in range(batch.num_images):
        found, objects = (rows.images(image, image + 1) for rows in (batch.detections, batch.ground_truths))
        dicts.update(
            [dict(boxes=found.boxes.array, scores=found.scores, labels=found.labels)],
            [dict(boxes=objects.boxes.array, labels=objects.labels, crowd=objects.crowd)],
        )
    assert numbers(arrays.compute()) == numbers(dicts.compute())


def test_images_added_are_counted_and_merged():
    predictions, targets = problem(1)
    parts = [DetectionEvaluator("abc") for _ in range(2)]
    for number, part in enumerate(parts):
        rows = slice(number * 6, number * 6 + 6)
        part.update(predictions[rows], targets[rows], image_ids=range(number * 6, number * 6 + 6))
    counts = parts[0].merge(parts[1]).compute().counts
    whole = DetectionEvaluator("abc")
    whole.update(predictions, targets)
    assert counts == whole.compute().counts
    for name, images in (("detections", predictions), ("ground_truths", targets)):
        assert counts[name]["read"] == sum(len(image["labels"]) for image in images)
        assert counts[name]["read"] == counts[name]["used"] + sum(counts[name]["dropped"].values())
