"""Equal scores are ordered by image id, then position of the image, then position of the detection."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mm_metrics_plugin import DetectionPRF
from tests.helpers import result_files as files
from tests.helpers.ranks import dealt, on_ranks

CLASSES = ("cat", "dog")
NAMES = ["b", "a", "B", "a10", "a9", "10", "9", "é", "中", "\U0001f600", "\ufffc"]
NAMES += ["a" * 40, "a" * 40 + "b", "z z", "a\0", "a\1", "a\2"]


def tied(seed, ids):
    """One sample per id with its ground truth; many detections have the same score."""
    random = np.random.default_rng(seed)
    content = []
    for image_id in ids:
        boxes = np.array([[20, 20, 60, 60], [100, 20, 140, 60], [20, 100, 60, 140]], dtype=np.float32)
        num_gts = random.integers(1, 4)
        num_dets = random.integers(0, 4)
        content.append(
            {
                "img_id": image_id,
                "img_path": f"{image_id}.jpg",
                "ori_shape": (200, 200),
                "pred_instances": {
                    "bboxes": boxes[random.permutation(3)[:num_dets]],
                    "scores": random.choice([0.5, 0.7], num_dets).astype(np.float32),
                    "labels": random.integers(0, 2, num_dets),
                },
                "gt_instances": {"bboxes": boxes[:num_gts], "labels": random.integers(0, 2, num_gts)},
            }
        )
    return content


def truth_of(content):
    images = [{"id": one["img_id"], "file_name": one["img_path"], "height": 200, "width": 200} for one in content]
    annotations = []
    for one in content:
        for (left, top, right, bottom), label in zip(*(one["gt_instances"][key] for key in ("bboxes", "labels"))):
            box = [float(left), float(top), float(right - left), float(bottom - top)]
            row = {"image_id": one["img_id"], "category_id": int(label) + 1, "bbox": box, "area": box[2] * box[3]}
            annotations.append({"id": len(annotations) + 1, "iscrowd": 0, **row})
    categories = [{"id": label + 1, "name": name} for label, name in enumerate(CLASSES)]
    return {"images": images, "categories": categories, "annotations": annotations}


def by_pycocotools(content, tmp_path, ids):
    """mAP_50 with numbers instead of ids, in the same order."""
    numbered = [dict(one, img_id=number) for number, one in zip(ids, content)]
    rows = []
    for one in numbered:
        for box, score, label in zip(*(one["pred_instances"][key] for key in ("bboxes", "scores", "labels"))):
            left, top, right, bottom = map(float, box)
            box = [left, top, right - left, bottom - top]
            rows.append({"image_id": one["img_id"], "category_id": int(label) + 1, "bbox": box, "score": float(score)})
    path = files.write_json(tmp_path / "numbered.json", truth_of(numbered))
    return files.coco_evaluation(path, rows).stats[1]


def on_metric(content, world_size):
    """mAP_50 and its interval of DetectionPRF, on each of some ranks."""
    samples = [
        {
            key: {name: torch.from_numpy(value) for name, value in part.items()} if isinstance(part, dict) else part
            for key, part in one.items()
        }
        for one in content
    ]

    def evaluate(rank):
        metric = DetectionPRF(ap=True, ci=0.95, resamples=20, operating_point="f1")
        metric.dataset_meta = {"classes": CLASSES}
        share = samples if world_size == 1 else dealt(samples, padded=True)
        for start in range(0, len(share), 4):
            metric.process(None, share[start : start + 4])
        found = metric.evaluate(len(samples))
        return [found[f"det/{key}"] for key in ("mAP_50", "mAP_50_low", "mAP_50_high", "cross_fitted_f_score")]

    return [evaluate(0)] if world_size == 1 else on_ranks(world_size, evaluate)


TEXTS = [f"{name}{end}" for end in ("", "-x", "~y") for name in NAMES]
IDS = {
    "texts": TEXTS,
    "numbers": np.random.default_rng(1).permutation(200)[:42].tolist(),
    "both": TEXTS[:21] + list(range(30, 0, -1)),
}


@pytest.mark.usefixtures("shown_warnings")
@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("seed", range(3))
def test_metric_command_and_merged_shards_order_equal_scores_alike(tmp_path, kind, seed):
    ids = np.random.default_rng(seed).permutation(np.array(IDS[kind], dtype=object)).tolist()
    content = tied(seed, ids)
    place = {one: at for at, one in enumerate(sorted(ids, key=lambda one: (isinstance(one, str), one)))}
    expected = by_pycocotools(content, tmp_path, [place[one] for one in ids])
    one = on_metric(content, 1)[0]
    assert one[0] == pytest.approx(expected, abs=1e-12)
    assert on_metric(content, 3) == [one] * 3
    assert on_metric(content[::-1], 1)[0] == one

    # The ground truth in a file with another order of images, and in the results.
    truth = files.write_json(tmp_path / "truth.json", truth_of(content[::2] + content[1::2]))
    bare = [{key: value for key, value in sample.items() if key != "gt_instances"} for sample in content]
    whole = files.write_pickle(tmp_path / "whole.pkl", content)
    shards = [files.write_pickle(tmp_path / f"{at}.pkl", bare[at::3][::-1]) for at in range(3)]
    named = ("--classes", ",".join(CLASSES))
    reports = [files.report_of("detection", "-", whole, *named), files.report_of("detection", truth, *shards)]
    states = [tmp_path / f"{at}.npz" for at in range(3)]
    for shard, state in zip(shards, states):
        files.printed("detection", truth, shard, "--save-state", state, "--quiet")
    reports.append(files.report_of("merge", *reversed(states)))
    found = [report["average_precision"]["mAP_50"] for report in reports]
    for arguments in (("-", whole, whole, *named), (truth, whole, whole)):
        compared = files.report_of("compare", *arguments, "--permutations", "50")
        found += [row["first"] for row in compared["comparisons"][0]["overall"] if row["metric"] == "mAP_50"]
    assert found == pytest.approx([one[0]] * 5, abs=1e-12)


@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")
def test_images_with_equal_or_no_ids_are_ordered_by_position():
    content = tied(5, ["b", "a", "b", None, None, 7, 7, "a"] * 5)
    found = on_metric(content, 1)[0]
    assert on_metric(content, 3) == [found] * 3
    scalars = {7: torch.tensor(7), "a": np.str_("a"), "b": np.array("b"), None: None}
    assert on_metric([dict(one, img_id=scalars[one["img_id"]]) for one in content], 1)[0] == found
    # The same with numbers that have the same order.
    order = {7: 0, "a": 1, "b": 2, None: 3}
    keyed = sorted(range(len(content)), key=lambda at: (order[content[at]["img_id"]], at))
    numbers = {at: number for number, at in enumerate(keyed)}
    assert on_metric([dict(one, img_id=numbers[at]) for at, one in enumerate(content)], 1)[0] == found
