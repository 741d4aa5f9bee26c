"""Commands on random problems with unusual class names, compared with pycocotools and scikit-learn."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score

from tests.helpers import result_files as files
from tests.helpers.detection_problems import dense_batch, random_batch, with_areas

pytestmark = [pytest.mark.usefixtures("shown_warnings"), pytest.mark.filterwarnings("ignore")]
HOSTILE = ["50", "a/b", "low", "=1+1", "", "a", "mAP_50", "f1/high", "micro", "\x1b[31m", "中", "|", "a_0", "a\0"]
TWELVE = ("mAP", "mAP_50", "mAP_75", "mAP_s", "mAP_m", "mAP_l")
TWELVE += ("AR@1", "AR@10", "AR@100", "AR_s@100", "AR_m@100", "AR_l@100")


def detector(seed):
    """COCO annotations, a result pickle and COCO results, with ids that are not consecutive."""
    batch, num_classes = dense_batch(seed) if seed % 4 == 3 else random_batch(seed, odd_boxes=False)
    random, batch = np.random.default_rng(seed), with_areas(batch, seed)
    names = [
        *random.permutation(HOSTILE)[:num_classes].tolist(),
        *map(str, range(100, 100 + num_classes - len(HOSTILE))),
    ]
    image_ids = random.permutation(10_000)[: batch.num_images].tolist()
    category_ids = (random.permutation(90)[:num_classes] + 1).tolist()

    def rows(part, **columns):
        boxes, images, labels = part.boxes.to_format("xywh").tolist(), part.image.tolist(), part.labels.tolist()
        for box, image, label, *values in zip(boxes, images, labels, *columns.values()):
            own = {"image_id": image_ids[image], "category_id": category_ids[label], "bbox": box}
            yield {**own, **dict(zip(columns, values))}

    gts, dets = batch.ground_truths, batch.detections
    numbers = range(1, len(gts) + 1)
    ground_truth = {
        "images": [{"id": number, "file_name": f"{number}.jpg", "height": 900, "width": 900} for number in image_ids],
        "categories": [{"id": number, "name": name} for number, name in zip(category_ids, names)],
        "annotations": list(rows(gts, id=numbers, area=gts.area.tolist(), iscrowd=gts.crowd.astype(int).tolist())),
    }
    results = []
    for index, image_id in enumerate(image_ids):
        part = dets.images(index, index + 1)
        instances = {"bboxes": part.boxes.array, "scores": part.scores, "labels": part.labels}
        results.append({"img_id": image_id, "img_path": f"{image_id}.jpg", "pred_instances": instances})
    return ground_truth, results, list(rows(dets, score=dets.scores.tolist())), names


@pytest.mark.parametrize("seed", range(12))
def test_detectors(tmp_path, seed):
    ground_truth, results, rows, names = detector(seed)
    path = files.write_json(tmp_path / "truth.json", ground_truth)
    expected = files.coco_evaluation(path, rows).stats
    pickled, listed = files.write_pickle(tmp_path / "a.pkl", results), files.write_json(tmp_path / "b.json", rows)
    for given in (pickled, listed):
        report = json.loads(files.printed("detection", path, given, "--format", "json"))
        actual = [report["average_precision"][key] for key in TWELVE]
        np.testing.assert_allclose(np.array(actual, dtype=float), expected, rtol=0, atol=1e-10)
        assert report["classes"] == [row["name"] for row in report["average_precision"]["per_class"]] == names
        assert [row["name"] for row in report["matching_rules"]["coco"]["per_class"]] == names
    compared = json.loads(files.printed("compare", path, pickled, listed, "--permutations", "20", "--format", "json"))
    compared = {row["metric"]: row for row in compared["comparisons"][0]["overall"]}
    for key, value in zip(TWELVE[:3], expected):
        given = [compared[key][run] for run in ("first", "second")]
        np.testing.assert_allclose(np.array(given, dtype=float), value, rtol=0, atol=1e-10)


def classifier(seed, several):
    """Scores in one of three dtypes with one digit, so that many are tied or equal to the threshold."""
    random = np.random.default_rng(seed)
    number, classes = random.integers(2, 60), random.integers(2, 6)
    dtypes = [(np.float16, np.float32, np.float64)[at] for at in random.integers(0, 3, number)]
    runs = [[np.round(random.random(classes), 1).astype(dtype) for dtype in dtypes] for _ in range(2)]
    true = np.zeros((number, classes), dtype=np.int64)
    true[np.arange(number), random.integers(0, classes, number)] = 1
    if several:
        true |= random.random(true.shape) < 0.3
    contents = []
    for scores in runs:
        contents.append(
            [
                {
                    "pred_score": score,
                    "pred_label": np.flatnonzero(score >= score.dtype.type(0.5)) if several else score.argmax()[None],
                    "gt_label": np.flatnonzero(row),
                    "img_path": f"{at}.jpg",
                }
                for at, (score, row) in enumerate(zip(scores, true))
            ]
        )
    return contents, true, random


def decisions_of(content, several):
    if several:
        return np.stack([sample["pred_score"] >= sample["pred_score"].dtype.type(0.5) for sample in content]).astype(
            int
        )
    return np.eye(len(content[0]["pred_score"]), dtype=int)[[sample["pred_score"].argmax() for sample in content]]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_classifiers(tmp_path, seed, several):
    pytest.importorskip("sklearn", minversion="1.3")  # older versions have no zero_division=nan
    contents, true, random = classifier(seed, several)
    order = random.permutation(len(true))
    paths = [
        files.write_pickle(tmp_path / "a.pkl", contents[0]),
        files.write_pickle(tmp_path / "b.pkl", [contents[1][at] for at in order]),
    ]
    options = ("--task", "multi-label" if several else "single-label")
    compared = json.loads(files.printed("compare", "-", *paths, "--permutations", "20", "--format", "json", *options))[
        "comparisons"
    ][0]
    compared = {row["metric"]: row for row in compared["overall"]}
    for content, path, run in zip(contents, paths, ("first", "second")):
        decided = decisions_of(content, several)
        scores = np.stack([sample["pred_score"].astype(np.float64) for sample in content])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rates = precision_recall_fscore_support(true, decided, average=None, zero_division=np.nan)[:3]
            means = [np.nanmean(rate) for rate in rates]
            areas = [
                roc_auc_score(true[:, at], scores[:, at]) if 0 < true[:, at].sum() < len(true) else np.nan
                for at in range(true.shape[1])
            ]
            expected = np.array([*means, np.nanmean(areas)])
        report = json.loads(files.printed("classification", path, "--format", "json", *options))
        keys = ("precision", "recall", "f1", "auc")
        for actual in ([report[key] for key in keys], [compared[key][run] for key in keys]):
            np.testing.assert_allclose(np.array(actual, dtype=float), expected, rtol=0, atol=1e-12)
        given = {"precision": rates[0], "recall": rates[1], "f1": rates[2], "auc": areas}
        for key, values in given.items():
            table = np.array([row[key] for row in report["per_class"]], dtype=float)
            np.testing.assert_allclose(table, values, rtol=0, atol=1e-12)
