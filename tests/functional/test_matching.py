"""Matching, beside mmdet's own tool, pycocotools and supervision."""

from __future__ import annotations

import contextlib
import io
import os
import tracemalloc

import numpy as np
import pytest
from mm_metrics_plugin.functional.detection_batch import DetectionBatch, Detections, Objects, check_rows
from mm_metrics_plugin.functional.matching import PROTOCOLS, match

from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional import assignment
from tests.functional.detection_problems import (
    StockDataset,
    coco_eval,
    empty_batch,
    random_batch,
    stock_results,
    stock_tool,
)

SEEDS = range(int(os.environ.get("MM_METRICS_SEEDS", "300")))


def _stock_matrix(batch, num_classes, score_threshold, iou_threshold):
    with contextlib.redirect_stdout(io.StringIO()):
        return stock_tool().calculate_confusion_matrix(
            StockDataset(batch, num_classes), stock_results(batch), score_threshold, None, iou_threshold
        )


def _thresholds(seed):
    return [0.3, 0.0, 0.5][seed % 3], [0.5, 0.5, 0.75, 0.3][seed % 4]


@pytest.mark.parametrize("block", [None, 3])
def test_mmdet_equals_the_stock_tool_cell_by_cell(block, monkeypatch):
    if block:
        monkeypatch.setattr(assignment, "PAIRS_AT_ONCE", block)
    busy = 0
    for seed in SEEDS:
        batch, num_classes = random_batch(seed)
        score_threshold, iou_threshold = _thresholds(seed)
        result = match(
            batch.detections,
            batch.objects,
            num_classes=num_classes,
            protocol="mmdet",
            score_threshold=score_threshold,
            iou_threshold=iou_threshold,
        )
        expected = _stock_matrix(batch, num_classes, score_threshold, iou_threshold)
        np.testing.assert_array_equal(result.matrix, expected, err_msg=f"seed {seed}")
        assert result.matrix[:-1].sum() == result.objects + result.objects_counted_again
        assert result.matrix[:, :-1].sum() == result.detections + result.detections_counted_again
        busy += result.duplicates > 0
    assert busy > len(SEEDS) // 6  # the problems do hold what the protocols differ on


def _coco_flags(batch, num_classes, score_threshold, iou_threshold):
    """True positives, ignored detections and matched objects of pycocotools' ``evaluateImg``."""
    rows = np.flatnonzero(batch.detections.scores >= np.float32(score_threshold))
    evaluation = coco_eval(batch, num_classes, min_score=score_threshold)
    evaluation.params.iouThrs = np.array([iou_threshold])
    evaluation.params.maxDets = [10**6]
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.evaluate()
    # pycocotools also skips unmatched detections of negative area, that is inverted ones; here they are wrong.
    sides = batch.detections.boxes[:, 2:] - batch.detections.boxes[:, :2]
    inverted = sides[:, 0] * sides[:, 1] < 0
    tp, ignored = np.zeros(len(batch.detections), bool), np.zeros(len(batch.detections), bool)
    matched = np.full(len(batch.detections), -1)
    for image in evaluation.evalImgs:
        if image is None or image["aRng"] != evaluation.params.areaRng[0] or not image["dtIds"]:
            continue
        row = rows[np.array(image["dtIds"]) - 1]
        ids, skipped = image["dtMatches"][0].astype(int), image["dtIgnore"][0].astype(bool)
        tp[row], ignored[row], matched[row] = (ids > 0) & ~skipped, skipped, ids - 1
    return tp, ignored & ~inverted, matched


@pytest.mark.parametrize("block", [None, 3])
def test_coco_equals_evaluate_img(block, monkeypatch):
    if block:  # many blocks must give what one gives
        monkeypatch.setattr(assignment, "PAIRS_AT_ONCE", block)
        monkeypatch.setattr(assignment, "KEPT_AT_ONCE", block)
    ignored_seen = confusions = 0
    for seed in SEEDS:
        batch, num_classes = random_batch(seed)
        score_threshold, iou_threshold = _thresholds(seed)
        result = match(
            batch.detections,
            batch.objects,
            num_classes=num_classes,
            score_threshold=score_threshold,
            iou_threshold=iou_threshold,
        )
        tp, ignored, matched = _coco_flags(batch, num_classes, score_threshold, iou_threshold)
        np.testing.assert_array_equal(result.tp, tp, err_msg=f"seed {seed}")
        np.testing.assert_array_equal(result.ignored, ignored, err_msg=f"seed {seed}")
        in_class = tp | ignored
        np.testing.assert_array_equal(result.matched_object[in_class], matched[in_class], err_msg=f"seed {seed}")
        expected = np.bincount(batch.detections.labels[tp], minlength=num_classes)
        np.testing.assert_array_equal(np.diag(result.matrix)[:-1], expected)
        ignored_seen += ignored.any()
        confusions += (result.matrix[:-1, :-1].sum() - expected.sum()) > 0
    assert ignored_seen > len(SEEDS) // 6 and confusions > len(SEEDS) // 6


@pytest.mark.parametrize("protocol", ["coco", "agnostic"])
def test_rows_sum_to_objects_and_columns_to_detections(protocol):
    for seed in SEEDS:
        batch, num_classes = random_batch(seed)
        result = match(batch.detections, batch.objects, num_classes=num_classes, protocol=protocol)
        regular = batch.objects.labels[~batch.objects.crowd]
        np.testing.assert_array_equal(
            result.matrix[:-1].sum(axis=1), np.bincount(regular, minlength=num_classes), err_msg=f"seed {seed}"
        )
        np.testing.assert_array_equal(
            result.matrix[:, :-1].sum(axis=0), np.bincount(batch.detections.labels[result.used], minlength=num_classes)
        )
        assert result.matrix[-1, -1] == 0
        assert result.detections + result.detections_ignored + result.detections_below_threshold == len(
            batch.detections
        )
        assert result.objects + result.objects_ignored == len(batch.objects)
        taken = result.matched_object[result.used & (result.matched_object >= 0)]
        assert len(np.unique(taken)) == len(taken)


def test_leftover_pairs_across_classes_do_not_remain():
    for seed in SEEDS:
        batch, num_classes = random_batch(seed)
        result = match(batch.detections, batch.objects, num_classes=num_classes)
        free_objects = np.setdiff1d(np.flatnonzero(~batch.objects.crowd), result.matched_object)
        free = result.used & (result.matched_object < 0)
        again = match(batch.detections.take(free), batch.objects.take(free_objects), num_classes=num_classes)
        assert (again.matched_object < 0).all()


def _greedy_by_overlap(batch, iou_threshold):
    """The definition of ``agnostic`` by brute force: all pairs in order, each taken if both are free."""
    import supervision

    found, objects = batch.detections, batch.objects
    used = found.scores >= np.float32(0.3)
    matched = np.full(len(found), -1)
    pairs = []
    for row in np.flatnonzero(used):
        for thing in np.flatnonzero((objects.image == found.image[row]) & ~objects.crowd):
            iou = supervision.box_iou_batch(objects.boxes[[thing]], found.boxes[[row]].astype(float))[0, 0]
            if iou >= iou_threshold:
                pairs.append((-iou, -found.scores[row], row, thing))
    for _, _, row, thing in sorted(pairs):
        if matched[row] < 0 and thing not in matched:
            matched[row] = thing
    return matched


@pytest.mark.parametrize("block", [None, 2])
def test_agnostic_equals_its_definition(block, monkeypatch):
    if block:
        monkeypatch.setattr(assignment, "PAIRS_AT_ONCE", block)
        monkeypatch.setattr(assignment, "KEPT_AT_ONCE", block)
    for seed in SEEDS[:200]:
        batch, num_classes = random_batch(seed, odd_boxes=False)
        result = match(batch.detections, batch.objects, num_classes=num_classes, protocol="agnostic")
        expected = _greedy_by_overlap(batch, 0.5)
        np.testing.assert_array_equal(
            np.where(result.used, result.matched_object, -1), expected, err_msg=f"seed {seed}"
        )


def test_agnostic_equals_supervision_where_there_is_one_class():
    """Its matrix prefers pairs of the same class and takes IoU > threshold; with one class only the latter is left."""
    import supervision

    compared = 0
    for seed in SEEDS:
        batch, _ = random_batch(seed, crowds=False, ties=False)
        found, objects = batch.detections, batch.objects
        predictions, targets = [], []
        for image in range(batch.num_images):
            a, b = found.image == image, objects.image == image
            predictions.append(np.c_[found.boxes[a], np.zeros(a.sum()), found.scores[a]].astype(np.float64))
            targets.append(np.c_[objects.boxes[b], np.zeros(b.sum())])
        below = float(np.nextafter(0.5, 0))
        peer = supervision.ConfusionMatrix.from_tensors(predictions, targets, ["thing"], 0.3 + 1e-6, below)
        kept = found.take(found.scores >= 0.3 + 1e-6)
        one = match(
            Detections(kept.image, kept.boxes, kept.scores, kept.labels * 0),
            Objects(objects.image, objects.boxes, objects.labels * 0),
            num_classes=1,
            protocol="agnostic",
            score_threshold=0,
        )
        np.testing.assert_array_equal(one.matrix, peer.matrix, err_msg=f"seed {seed}")
        compared += one.matrix[0, 0] > 0
    assert compared > len(SEEDS) // 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_order_of_images_and_names_of_classes_change_nothing(protocol):
    for seed in range(100):
        batch, num_classes = random_batch(seed)
        random = np.random.default_rng(seed)
        result = match(batch.detections, batch.objects, num_classes=num_classes, protocol=protocol)

        images = random.permutation(batch.num_images)
        found = Detections(
            images[batch.detections.image], batch.detections.boxes, batch.detections.scores, batch.detections.labels
        )
        there = Objects(images[batch.objects.image], batch.objects.boxes, batch.objects.labels, batch.objects.crowd)
        moved = match(found, there, num_classes=num_classes, protocol=protocol)
        np.testing.assert_array_equal(moved.matrix, result.matrix)

        classes = random.permutation(num_classes)
        found = Detections(
            batch.detections.image, batch.detections.boxes, batch.detections.scores, classes[batch.detections.labels]
        )
        there = Objects(batch.objects.image, batch.objects.boxes, classes[batch.objects.labels], batch.objects.crowd)
        renamed = match(found, there, num_classes=num_classes, protocol=protocol)
        where = np.append(classes, num_classes)
        np.testing.assert_array_equal(renamed.matrix[np.ix_(where, where)], result.matrix)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_images_one_by_one_add_up_to_all_at_once(protocol):
    for seed in range(50):
        batch, num_classes = random_batch(seed)
        whole = match(batch.detections, batch.objects, num_classes=num_classes, protocol=protocol)
        parts = [batch.images(index, index + 1) for index in range(batch.num_images)]
        summed = sum(match(p.detections, p.objects, num_classes=num_classes, protocol=protocol).matrix for p in parts)
        np.testing.assert_array_equal(summed, whole.matrix)
        joined = DetectionBatch.concatenate(parts)
        again = match(joined.detections, joined.objects, num_classes=num_classes, protocol=protocol)
        np.testing.assert_array_equal(again.matrix, whole.matrix)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_at_all(protocol):
    batch = empty_batch()
    result = match(batch.detections, batch.objects, num_classes=2, protocol=protocol)
    np.testing.assert_array_equal(result.matrix, np.zeros((3, 3)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_empty_and_inverted_boxes_match_nothing_and_are_counted(protocol):
    found = Detections([0, 0], [[5, 5, 5, 9], [9, 9, 1, 1]], [0.9, 0.9], [0, 0])
    there = Objects([0, 0], [[5, 5, 5, 9], [1, 1, 9, 9]], [0, 0])
    result = match(found, there, num_classes=1, protocol=protocol)
    np.testing.assert_array_equal(result.matrix, [[0, 2], [2, 0]])
    assert (result.detections_without_area, result.objects_without_area) == (2, 1)


def _one_image(num_detections, num_objects, num_classes, seed=0, spread=300):
    random = np.random.default_rng(seed)
    corner = random.random((num_objects, 2)) * spread
    boxes = np.concatenate([corner, corner + 60], axis=1)
    near = boxes[random.integers(0, num_objects, num_detections)] + random.normal(0, 8, (num_detections, 4))
    return DetectionBatch.from_images(
        boxes=[near.astype(np.float32)],
        scores=[random.random(num_detections).astype(np.float32)],
        labels=[random.integers(0, num_classes, num_detections)],
        object_boxes=[boxes],
        object_labels=[random.integers(0, num_classes, num_objects)],
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("crowded", [False, True])
def test_memory_is_bounded_whatever_one_image_holds(protocol, crowded):
    """Far apart few of the 20 million pairs overlap, close together most of them do."""
    spread = 2000 if not crowded else 60 if protocol == "agnostic" else 3
    batch = _one_image(10_000, 2_000, 4, spread=spread)
    tracemalloc.start()
    try:
        result = match(batch.detections, batch.objects, num_classes=4, protocol=protocol, score_threshold=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 256 * 2**20
    assert result.matrix.sum() > 10_000 - 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"boxes": [[0, 0, np.nan, 1]]}, r"'boxes' of image 'a.jpg' must be finite \(found nan\)"),
        ({"scores": [np.inf]}, r"'scores' of image 'a.jpg' must be finite \(found inf\)"),
        ({"labels": [2]}, r"'labels' of image 'a.jpg' must be between 0 and 1 \(found 2\)"),
        ({"labels": [-1]}, r"'labels' of image 'a.jpg' must be between 0 and 1 \(found -1\)"),
        ({"scores": [0.5, 0.6]}, r"'scores' must have 1 rows, one a box \(found 2\)"),
    ],
)
def test_bad_detections_are_named(change, message):
    columns = {"image": [0], "boxes": [[0, 0, 1, 1]], "scores": [0.5], "labels": [0], **change}
    with pytest.raises(MetricInputError, match=message):
        match(Detections(**columns), Objects.empty(), num_classes=2, names=["a.jpg"])


def test_bad_objects_and_lengths_are_named():
    with pytest.raises(MetricInputError, match="'object boxes' of image 1 must be finite"):
        match(Detections.empty(), Objects([1], [[0, 0, np.inf, 1]], [0]), num_classes=2)
    with pytest.raises(MetricInputError, match=r"'scores' of image 'b' must have 1 rows, one a box \(found 2\)"):
        DetectionBatch.from_images(
            boxes=[[], [[0, 0, 1, 1]]],
            scores=[[], [0.1, 0.2]],
            labels=[[], [0]],
            object_boxes=[[], []],
            object_labels=[[], []],
            names=["a", "b"],
        )


def test_large_numbers_are_not_taken_for_infinite():
    boxes = np.array([[0, 0, 3e38, 3e38]], dtype=np.float32)
    result = match(Detections([0], boxes, [0.9], [0]), Objects.empty(), num_classes=1, protocol="mmdet")
    assert result.matrix[1, 0] == 1


def test_the_input_is_not_changed():
    batch, num_classes = random_batch(3)
    before = {name: value.copy() for name, value in vars(batch.detections).items() if isinstance(value, np.ndarray)}
    for protocol in PROTOCOLS:
        match(batch.detections, batch.objects, num_classes=num_classes, protocol=protocol)
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(batch.detections, name), value)


def test_wrong_options():
    batch = empty_batch()
    with pytest.raises(ValueError, match="protocol"):
        match(batch.detections, batch.objects, num_classes=1, protocol="voc")
    for threshold in (0, -0.5, 1.5, 2):
        with pytest.raises(ValueError, match="iou_threshold"):
            match(batch.detections, batch.objects, num_classes=1, iou_threshold=threshold)


def test_text_and_dict_say_why_protocols_differ():
    found = Detections([0, 0, 0], [[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 8]], [0.9, 0.8, 0.1], [0, 0, 1])
    there = Objects([0], [[0, 0, 10, 10]], [0])
    result = match(found, there, num_classes=2, protocol="mmdet")
    assert "1 duplicates counted as right, rows count 1 more than the objects" in str(result)
    assert "2 detections used, 1 below the threshold" in str(result)
    values = result.to_dict()
    assert (values["duplicates"], values["objects_counted_again"], values["detections_counted_again"]) == (1, 1, 0)
    assert values["matrix"] == [[2, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert "duplicates" not in str(match(found, there, num_classes=2))


def test_the_text_tells_right_confused_false_and_missed_apart():
    """Two right, three taken for another class, four on background, five missed, one on a crowd, one too weak."""
    places = np.arange(16) * 100.0
    boxes = np.stack([places, np.zeros(16), places + 10, np.full(16, 10)], axis=1)
    labels = np.arange(16) % 3
    there = [0, 1, 2, 3, 4, 9, 10, 11, 12, 13, 14]
    crowd = np.array(there) == 14
    objects = Objects(np.zeros(11, int), boxes[there], labels[there], crowd=crowd)
    said = [0, 1, 2, 3, 4, 5, 6, 7, 8, 14, 15]
    predicted = np.where(np.isin(said, [2, 3, 4]), (labels[said] + 1) % 3, labels[said])
    detections = Detections(np.zeros(11, int), boxes[said], np.where(np.array(said) == 15, 0.1, 0.9), predicted)
    coco = match(detections, objects, num_classes=3)
    assert str(coco).splitlines() == [
        "protocol coco, IoU >= 0.5, score >= 0.3",
        "9 detections used, 1 below the threshold, 1 ignored",
        "10 objects, 1 ignored",
        "2 on the diagonal, 3 between classes, 4 detections without a match, 5 objects without",
    ]
    assert (coco.objects_counted_again, coco.detections_counted_again, coco.duplicates) == (0, 0, None)
    mmdet = match(detections, objects, num_classes=3, protocol="mmdet")
    assert str(mmdet).splitlines()[1:] == [
        "10 detections used, 1 below the threshold, 0 ignored",
        "11 objects, 0 ignored",  # what is a crowd to others counts as an object
        # Of objects without a match, those that are confused as well.
        "3 on the diagonal, 3 between classes, 4 detections without a match, 8 objects without",
        "0 duplicates counted as right, rows count 3 more than the objects, columns 0 more than the detections",
    ]


def test_agnostic_turns_to_crowds_last():
    boxes = [[0, 0, 10, 10], [0, 0, 10, 9], [50, 0, 60, 10]]
    objects = Objects([0, 0], [[0, 0, 10, 10], [0, 0, 60, 10]], [0, 0], crowd=[False, True])
    matches = match(
        Detections([0, 0, 0], boxes, [0.9, 0.8, 0.7], [0, 0, 0]), objects, num_classes=1, protocol="agnostic"
    )
    assert matches.matched_object.tolist() == [0, 1, 1]
    assert matches.ignored.tolist() == [False, True, True]
    assert matches.matrix.tolist() == [[1, 0], [0, 0]]


def test_agnostic_parts_equal_overlaps_by_score_also_among_those_turned_away():
    """The first prefers an object that the second has a better claim to; on the other it ties with the third."""
    boxes = [[0, 0, 10, 6], [0, 0, 10, 8], [0, 0, 10, 1.5]]
    objects = Objects([0, 0], [[0, 0, 10, 10], [0, 0, 10, 3]], [0, 0])
    matches = match(
        Detections([0, 0, 0], boxes, [0.9, 0.8, 0.7], [0, 0, 0]), objects, num_classes=1, protocol="agnostic"
    )
    assert matches.matched_object.tolist() == [1, 0, -1]


def test_turns_are_taken_under_each_setting_by_itself():
    """Detection 0 may have the object under setting 1 only, so detection 1 gets it under 2 and 4, else the crowd."""
    pairs = assignment.Pairs(np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([0.9, 0.8, 0.7]))
    taken = np.zeros(2, dtype=np.uint8)
    shared = np.array([False, True])
    rows, gained = assignment.take_in_turn(pairs, np.zeros(2, int), np.array([1, 7, 7], dtype=np.uint8), taken, shared)
    assert sorted(zip(rows.tolist(), gained.tolist())) == [(0, 1), (1, 6), (2, 1)]
    assert taken.tolist() == [7, 0]


def test_formats_and_areas_are_not_mixed():
    plain = Objects([0], [[0, 0, 1, 1]], [0])
    with pytest.raises(ValueError, match="formats"):
        Objects.concatenate([plain, Objects([0], [[0, 0, 1, 1]], [0], box_format="xywh")])
    with pytest.raises(ValueError, match="areas"):
        Objects.concatenate([plain, Objects([0], [[0, 0, 1, 1]], [0], area=[1.0])])
    with pytest.raises(ValueError, match="box_format"):
        Objects([0], [[0, 0, 1, 1]], [0], box_format="cxcywh")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_boxes_by_width_match_as_boxes_by_edges(protocol):
    for seed in range(50):
        batch, num_classes = random_batch(seed)
        edges = batch.objects.boxes
        sizes = np.concatenate([edges[:, :2], edges[:, 2:] - edges[:, :2]], axis=1)  # exact: whole pixels or quarters
        if not np.array_equal(sizes[:, :2] + sizes[:, 2:], edges[:, 2:]):
            continue
        there = Objects(batch.objects.image, sizes, batch.objects.labels, batch.objects.crowd, box_format="xywh")
        one = match(batch.detections, batch.objects, num_classes=num_classes, protocol=protocol)
        other = match(batch.detections, there, num_classes=num_classes, protocol=protocol)
        np.testing.assert_array_equal(one.matrix, other.matrix)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(boxes=np.zeros((1, 5))), r"'boxes' must have shape \(N, 4\) \(found \(1, 5\)\)"),
        (dict(image=np.array([-1])), r"'image' must not be negative \(found -1\)"),
        (dict(labels=np.array([1e30])), r"'labels' of image 0 must be whole numbers \(found 1e\+30\)"),
        (dict(scores=np.zeros(2)), r"'scores' must have 1 rows, one a box \(found 2\)"),
    ],
)
def test_rows_that_make_no_sense_are_refused(change, message):
    rows = dict(image=np.array([0]), boxes=np.zeros((1, 4)), scores=np.ones(1), labels=np.array([0]))
    with pytest.raises(MetricInputError, match=message):
        check_rows(Detections(**{**rows, **change}), num_classes=2)
