"""Masks, boundaries, rotated boxes and key points compared with the packages that are the reference of each."""

from __future__ import annotations

import numpy as np
import pytest
import tidecv
from pycocotools import mask

from mm_metrics_plugin.functional.detection.average_precision import average_precision
from mm_metrics_plugin.functional.detection.geometry.boundaries import Boundaries
from mm_metrics_plugin.functional.detection.geometry.keypoints import COCO_SIGMAS
from mm_metrics_plugin.functional.detection.geometry.masks import Masks
from mm_metrics_plugin.functional.detection.geometry.rotated_boxes import RotatedBoxes, rotated_box_iou
from mm_metrics_plugin.functional.detection.matching import match_images
from mm_metrics_plugin.functional.detection.tide import tide_errors
from mm_metrics_plugin.settings import DetectionSettings
from tests.helpers import geometry_problems as problems
from tests.helpers.detection_problems import undefined_as_nan
from tests.parity.test_tidecv import check

COCO_RULE = DetectionSettings(matching=("coco",), score_thr=0.3)


def test_twelve_numbers_and_tp_of_masks_equal_pycocotools():
    undefined = between = 0
    for seed in range(40):
        batch, num_classes = problems.mask_batch(seed)
        matches = match_images(batch, COCO_RULE, num_classes=num_classes, keep="scores")
        expected = problems.evaluated(*problems.coco_of(batch, num_classes, problems.segmentations), "segm")
        numbers = list(average_precision(matches.table).to_dict().values())
        np.testing.assert_allclose(numbers, undefined_as_nan(expected.stats), rtol=0, atol=1e-10, err_msg=str(seed))
        tp = matches.rules["coco"].matrix.diagonal()[:-1]
        np.testing.assert_array_equal(tp, problems.true_positives(expected, num_classes, 0.3))
        undefined += np.isnan(numbers).any()
        between += 0 < numbers[0] < 1
    assert undefined > 10 and between > 15


@pytest.mark.parametrize("seed", range(30))
def test_masks_equal_pycocotools_bit_by_bit(seed):
    batch, _ = problems.mask_batch(seed)
    masks, gts = batch.detections.geometry, batch.ground_truths
    rles, gt_rles = problems.rles_of(masks), problems.rles_of(gts.geometry)
    np.testing.assert_array_equal(masks.areas(), mask.area(rles) if rles else [])
    left, top, right, bottom = masks.bounding_boxes()
    boxes = np.stack([left, top, right - left, bottom - top], axis=1)
    np.testing.assert_array_equal(boxes, np.reshape(mask.toBbox(rles), (-1, 4)))
    for image in range(batch.num_images):
        rows, gt_rows = (np.flatnonzero(part.image == image) for part in (batch.detections, gts))
        if len(rows) and len(gt_rows):
            crowd = gts.crowd[gt_rows].astype(int).tolist()
            expected = mask.iou([rles[row] for row in rows], [gt_rles[row] for row in gt_rows], crowd)
            pairs = np.repeat(rows, len(gt_rows)), np.tile(gt_rows, len(rows))
            np.testing.assert_array_equal(masks.overlaps(gts, *pairs), np.ravel(expected))


def test_any_notation_of_a_mask_is_read_alike():
    """Compressed strings, bytes and lists, with empty and touching runs, polygons and bitmaps."""
    random = np.random.default_rng(0)
    for seed in range(20):
        masks = problems.mask_batch(seed)[0].detections.geometry
        rles = []
        for rle, bitmap in zip(problems.rles_of(masks), problems.bitmaps_of(masks)):
            pixels = bitmap.ravel(order="F")
            cuts = np.flatnonzero(np.diff(pixels.astype(int), prepend=0) != 0).tolist()
            counts = np.diff([0, *cuts, len(pixels)]).tolist()
            if counts[0] > 1:  # the same pixels with an empty run
                counts = [1, 0, counts[0] - 1, *counts[1:]]
            kinds = (rle, {**rle, "counts": rle["counts"].decode()}, {**rle, "counts": counts})
            rles.append(kinds[random.integers(3)])
        for other in (Masks.from_rle(rles), Masks.from_segmentations(rles, masks.sizes)):
            for name, array in masks.to_arrays().items():
                np.testing.assert_array_equal(other.to_arrays()[name], array)


def test_polygons_equal_pycocotools():
    random = np.random.default_rng(0)
    polygons = [[(random.random(2 * n) * 60).tolist() for n in random.integers(3, 9, m)] for m in (1, 2, 3, 1)]
    drawn = [mask.merge(mask.frPyObjects(parts, 40, 50)) for parts in polygons]
    masks = Masks.from_segmentations([*polygons, []], [(40, 50)] * 5)
    np.testing.assert_array_equal(masks.runs, Masks.from_rle(drawn).runs)
    assert masks.is_empty().tolist() == [False] * 4 + [True]


def eroded_by_opencv(bitmap, distance):
    """Erosion as in the boundary IoU API."""
    import cv2

    padded = cv2.copyMakeBorder(bitmap.astype(np.uint8), 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    return cv2.erode(padded, np.ones((3, 3), dtype=np.uint8), iterations=distance)[1:-1, 1:-1] != 0


@pytest.mark.parametrize("block", [1 << 21, 2000])
def test_boundary_iou_equals_erosion_by_opencv(block, monkeypatch):
    from mm_metrics_plugin.functional.detection.geometry import boundaries

    monkeypatch.setattr(boundaries, "_BLOCK_PIXELS", block)
    for seed in range(10):
        batch, _ = problems.mask_batch(seed, geometry=Boundaries, max_side=300)
        expected = []
        for instances in (batch.detections, batch.ground_truths):
            bitmaps = list(problems.bitmaps_of(instances.geometry))
            edges = [
                bitmap & ~eroded_by_opencv(bitmap, max(1, round(0.02 * np.hypot(*bitmap.shape)))) for bitmap in bitmaps
            ]
            rings = list(problems.bitmaps_of(instances.geometry.boundaries))
            assert len(rings) == len(edges) and all(map(np.array_equal, rings, edges))
            expected.append((bitmaps, edges))
        dets, gts = batch.detections, batch.ground_truths
        rows, gt_rows = np.nonzero(dets.image[:, None] == gts.image)
        actual = dets.geometry.overlaps(gts, rows, gt_rows)
        for row, gt, overlap in zip(rows, gt_rows, actual):
            values = []
            for shapes, gt_shapes in zip(*expected):
                both = np.count_nonzero(shapes[row] & gt_shapes[gt])
                either = np.count_nonzero(shapes[row] if gts.crowd[gt] else shapes[row] | gt_shapes[gt])
                values.append(both / max(either, 1))
            assert overlap == (values[0] if gts.crowd[gt] else min(values))


def numbers_of(batch, num_classes):
    """The 12 numbers of COCO."""
    table = match_images(batch, COCO_RULE, num_classes=num_classes, keep="scores").table
    return list(average_precision(table).to_dict().values())


def test_boundary_ap_equals_faster_coco_eval():
    from faster_coco_eval import COCO, COCOeval_faster

    between = 0
    for seed in range(40):
        batch, num_classes = problems.mask_batch(seed, geometry=Boundaries, max_side=300)
        sizes = np.concatenate([part.geometry.sizes for part in (batch.detections, batch.ground_truths)])
        # Distances of x.5 pixels are rounded in another way there.
        assert (np.abs(0.02 * np.hypot(*sizes.T) % 1 - 0.5) > 1e-9).all()
        files = problems.coco_of(batch, num_classes, problems.segmentations)
        expected = problems.evaluated(*files, "boundary", api=COCO, evaluator=COCOeval_faster).stats[:12]
        numbers = numbers_of(batch, num_classes)
        np.testing.assert_allclose(numbers, undefined_as_nan(expected), rtol=0, atol=1e-10, err_msg=str(seed))
        between += 0 < numbers[0] < 1
    assert between > 20


def rotated_pairs(number):
    """Pairs of boxes, equal, nearly parallel, touching, thin, nested, on whole pixels, and others."""
    random = np.random.default_rng(0)
    first, second = (problems.random_rotated_boxes(random, number) for _ in range(2))
    equal, parallel, touching, thin, nested, whole = np.split(np.arange(number), 8)[:6]
    second[equal] = first[equal]
    second[parallel] = first[parallel]
    second[parallel, 4] += random.choice([1e-3, 1e-6, 1e-9, 1e-12, np.pi, np.pi / 2], len(parallel))
    angle, width = first[touching, 4], first[touching, 2]
    second[touching] = first[touching]
    second[touching, :2] += np.stack([np.cos(angle), np.sin(angle)], axis=1) * width[:, None]
    second[thin, 2] = random.choice([0, 1e-9, 1e-3], len(thin))
    second[nested] = first[nested] * [1, 1, 0.5, 0.5, 1]
    first[whole], second[whole] = np.round(first[whole]), np.round(second[whole])
    first[whole, 4] = second[whole, 4] = 0
    return first, second, equal, touching


def test_iou_of_rotated_boxes_equals_shapely():
    from shapely import area, intersection, polygons

    first, second, equal, touching = rotated_pairs(10_000)
    actual = rotated_box_iou(first, second)
    shapes = [polygons(RotatedBoxes(boxes).corners()) for boxes in (first, second)]
    both = area(intersection(*shapes))
    union = area(shapes[0]) + area(shapes[1]) - both
    expected = np.divide(both, union, out=np.zeros(len(both)), where=union > 0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9)
    assert set(actual[equal]) == {0.0, 1.0} and (actual[equal] == (first[equal, 2:4] > 0).all(axis=1)).all()
    assert not actual[touching].any() and (np.delete(actual, equal) > 0.1).mean() > 0.05
    corners = [RotatedBoxes(boxes).corners() for boxes in (first, second)]
    turned = rotated_box_iou(corners[0][:, ::-1].reshape(-1, 8), corners[1].reshape(-1, 8))
    np.testing.assert_allclose(turned, expected, rtol=0, atol=1e-9)


def test_iou_of_quadrilaterals_equals_shapely():
    from shapely import area, convex_hull, get_coordinates, get_num_coordinates, intersection, multipoints, polygons

    random = np.random.default_rng(1)
    hulls = convex_hull(multipoints(random.uniform(0, 50, (8000, 4, 2))))
    quads = get_coordinates(hulls[get_num_coordinates(hulls) == 5]).reshape(-1, 5, 2)[:, :4]
    first, second = quads[: len(quads) // 2], quads[len(quads) // 2 :][: len(quads) // 2]
    shapes = [polygons(first), polygons(second)]
    both = area(intersection(*shapes))
    expected = both / (area(shapes[0]) + area(shapes[1]) - both)
    actual = rotated_box_iou(first.reshape(-1, 8), second[:, ::-1].reshape(-1, 8))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9)
    assert len(actual) > 1000


@pytest.mark.filterwarnings("ignore:hotcoco:UserWarning")
def test_twelve_numbers_of_rotated_boxes_equal_hotcoco():
    from hotcoco import COCO, COCOeval

    undefined = between = 0
    for seed in range(60):
        batch, num_classes = problems.rotated_batch(seed, max_side=150)
        files = problems.coco_of(batch, num_classes, problems.rotated_fields)
        expected = problems.evaluated(*files, "obb", api=COCO, evaluator=COCOeval).stats
        numbers = numbers_of(batch, num_classes)
        np.testing.assert_allclose(numbers, undefined_as_nan(expected), rtol=0, atol=1e-6, err_msg=str(seed))
        undefined += np.isnan(numbers).any()
        between += 0 < numbers[0] < 1
    assert undefined > 10 and between > 50


OTHER_SIGMAS = (0.05, 0.1, 0.03, 0.08, 0.02)


@pytest.mark.parametrize("sigmas", [COCO_SIGMAS, OTHER_SIGMAS])
def test_ten_numbers_of_key_points_equal_pycocotools(sigmas):
    settings = DetectionSettings(matching=("coco",), max_dets=20)
    undefined = between = 0
    for seed in range(40):
        batch = problems.keypoint_batch(seed, sigmas=sigmas, num_classes=2)
        table = match_images(batch, settings, num_classes=2, keep="scores").table
        expected = problems.evaluated(
            *problems.coco_of(batch, 2, problems.keypoint_fields), "keypoints", kpt_oks_sigmas=np.array(sigmas)
        )
        values = average_precision(table)
        numbers = []
        for kind in (values.ap, values.recall[:, -1]):  # by area range: all, small, medium, large
            chosen = [kind[0], kind[0, 0], kind[0, 5], kind[2], kind[3]]
            numbers += [np.nanmean(part) if np.isfinite(part).any() else np.nan for part in chosen]
        np.testing.assert_allclose(numbers, undefined_as_nan(expected.stats), rtol=0, atol=1e-10, err_msg=str(seed))
        undefined += np.isnan(numbers).any()
        between += 0 < numbers[0] < 1
    assert undefined > 3 and between > 20


def test_error_types_of_masks_equal_tidecv():
    compared = 0
    for seed in range(40):
        batch, num_classes = problems.mask_batch(seed, crowds=seed % 2 == 0, max_side=60)
        dets, gts = batch.detections, batch.ground_truths
        if len(dets) < 15 or len(gts) < 8:  # tidecv divides by the number of classes left, which can be 0
            continue
        data = [tidecv.Data(name, max_dets=100) for name in ("ground truth", "detections")]
        for image in range(batch.num_images):
            data[0].add_image(image, str(image))
        for image, label, crowd, rle in zip(gts.image, gts.labels, gts.crowd, problems.rles_of(gts.geometry)):
            (data[0].add_ignore_region if crowd else data[0].add_ground_truth)(int(image), int(label), mask=rle)
        for image, label, score, rle in zip(dets.image, dets.labels, dets.scores, problems.rles_of(dets.geometry)):
            data[1].add_detection(int(image), int(label), float(score), mask=rle)
        table = match_images(batch, COCO_RULE, num_classes=num_classes).table
        check(tide_errors(table, absent="zero"), tidecv.TIDE().evaluate(*data, mode=tidecv.TIDE.MASK))
        compared += 1
    assert compared >= 10
