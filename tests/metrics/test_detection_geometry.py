"""DetectionPRF with masks, rotated boxes and key points: forms of samples, options, keys and messages."""

from __future__ import annotations

import contextlib
import io
import json
import pickle

import numpy as np
import pytest
import torch
from mmdet.structures.mask import BitmapMasks, PolygonMasks
from mmengine.evaluator import Evaluator
from mmengine.structures import InstanceData

from mm_metrics_plugin import DetectionEvaluator, DetectionPRF
from mm_metrics_plugin.exceptions import MetricInputError
from mm_metrics_plugin.functional.detection.geometry.keypoints import COCO_SIGMAS
from mm_metrics_plugin.functional.detection.geometry.masks import Masks
from mm_metrics_plugin.functional.detection.geometry.rotated_boxes import RotatedBoxes
from mm_metrics_plugin.functional.detection.keypoint_scores import SCORE_MODES
from mm_metrics_plugin.testing import assert_same, evaluate
from tests.helpers.cases_geometry import mask_samples, person_samples, rotated_samples
from tests.helpers.geometry_problems import bitmaps_of, keypoint_batch, mask_batch, rles_of, rotated_batch


def bitmap_forms(masks, index):
    """Masks of an image in one of the forms that models and datasets give."""
    arrays = np.array(list(bitmaps_of(masks)), dtype=np.uint8)
    forms = (torch.tensor, lambda array: torch.tensor(array != 0), lambda array: array, lambda array: rles_of(masks))
    if index % 5 == 4 or not len(arrays):
        return BitmapMasks(arrays, *masks.sizes[0]) if len(arrays) else BitmapMasks([], 4, 4)
    return forms[index % 5](arrays)


def one_image(batch, image, shapes_of):
    """A sample of mmdet or mmrotate, and the dicts of the evaluator."""
    dets, gts = (rows.take(np.flatnonzero(rows.image == image)) for rows in (batch.detections, batch.ground_truths))
    field, parts = {"boxes": "bboxes"}.get(dets.geometry.field, dets.geometry.field), {}
    for part, rows in (
        ("pred_instances", dets),
        ("gt_instances", gts.take(~gts.crowd)),
        ("ignored_instances", gts.take(gts.crowd)),
    ):
        parts[part] = {field: shapes_of(rows.geometry, image), "labels": torch.tensor(rows.labels)}
    parts["pred_instances"]["scores"] = torch.tensor(dets.scores)
    order = np.argsort(gts.crowd, kind="stable")  # as the samples have them
    shapes = {"masks": rles_of} if dets.geometry.field == "masks" else {"boxes": lambda boxes: boxes.array}
    (name, plain), crowd = next(iter(shapes.items())), gts.crowd[order]
    prediction = {name: plain(dets.geometry), "scores": dets.scores, "labels": dets.labels}
    return (
        dict(parts, img_id=image),
        prediction,
        {name: plain(gts.geometry.take(order)), "labels": gts.labels[order], "crowd": crowd},
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("iou_type", ["segm", "boundary", "rbox"])
@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5])
def test_values_are_those_of_the_evaluator(iou_type, seed):
    batch, num_classes = rotated_batch(seed) if iou_type == "rbox" else mask_batch(seed)

    def shapes_of(geometry, image):
        return torch.tensor(geometry.array) if iou_type == "rbox" else bitmap_forms(geometry, image + seed)

    images = [one_image(batch, image, shapes_of) for image in range(batch.num_images)]
    samples, predictions, targets = zip(*images)
    classes, options = [str(index) for index in range(num_classes)], dict(operating_point="f1", ci=0.9, resamples=10)
    metric = DetectionPRF(iou_type=iou_type, ap=True, classwise=True, **options)
    metric.dataset_meta = {"classes": classes}
    evaluator = DetectionEvaluator(classes, iou_type=iou_type, olrp=False, froc=False, **options)
    evaluator.update(predictions, targets)
    values = evaluator.compute().log_values(classwise=True)
    expected = {f"det-{iou_type}/{key}": value for key, value in values.items()}
    assert_same(evaluate(metric, samples, batch_size=2), expected, 0.0, iou_type)


def pose(number, image, dets, annotations):
    """A sample of mmpose with any number of detections and annotations."""
    shape = (len(dets), dets.geometry.array.shape[1])
    return dict(
        id=number,
        img_id=image,
        category_id=7 + int(dets.labels[0]) if len(dets) else 7,
        raw_ann_info=annotations or None,
        gt_instances={},
        pred_instances=dict(
            keypoints=dets.geometry.array[..., :2], keypoint_scores=np.ones(shape), bbox_scores=dets.scores
        ),
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("top_down", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_values_of_key_points_are_those_of_the_evaluator(seed, top_down):
    sigmas, num_classes = [0.05, 0.1, 0.07, 0.2], 2 if top_down else 1
    batch = keypoint_batch(seed, sigmas=sigmas, num_classes=num_classes)
    samples, predictions, targets = [], [], []
    for image in range(batch.num_images):
        dets, gts = (rows.take(np.flatnonzero(rows.image == image)) for rows in (batch.detections, batch.ground_truths))
        shapes = dict(keypoints=gts.geometry.array, boxes=gts.geometry.boxes)
        predictions.append(dict(keypoints=dets.geometry.array, scores=dets.scores, labels=dets.labels))
        targets.append(dict(keypoints=shapes, labels=gts.labels, crowd=gts.crowd, area=gts.areas()))
        columns = (gts.labels + 7, gts.geometry.array.reshape(len(gts), 12), gts.geometry.boxes, gts.areas(), gts.crowd)
        fields = ("category_id", "keypoints", "bbox", "area", "iscrowd")
        annotations = [
            dict(zip(fields, values), id=row) for row, values in enumerate(zip(*(one.tolist() for one in columns)))
        ]
        if top_down:  # every object has its own sample; those with an annotation have no detection
            samples += [pose(row, image, dets.take([row]), []) for row in range(len(dets))]
            samples += [pose(99 + row, image, dets.take([]), [one]) for row, one in enumerate(annotations)]
        samples += [pose([one["id"] for one in annotations], image, dets.take([]) if top_down else dets, annotations)]
    options = dict(operating_point="f1", ci=0.9, resamples=10)
    metric = DetectionPRF(iou_type="keypoints", nms_iou_thr=1.0, ap=True, classwise=True, **options)
    categories = [{"id": 7 + label, "name": str(label)} for label in range(num_classes)]
    metric.dataset_meta = {"CLASSES": categories, "sigmas": np.array(sigmas)}
    values = evaluate(metric, [samples[index] for index in np.random.default_rng(0).permutation(len(samples))], 3)
    options = {"olrp": False, "froc": False, **options}
    evaluator = DetectionEvaluator(list("01")[:num_classes], iou_type="keypoints", sigmas=sigmas, **options)
    evaluator.update(predictions, targets)
    expected = {f"det-keypoints/{key}": value for key, value in evaluator.compute().log_values(classwise=True).items()}
    assert_same(values, expected, 0.0, "key points")


def test_types_in_one_evaluator_have_keys_of_their_own():
    samples = [
        dict(boxed, pred_instances={**boxed["pred_instances"], "masks": mask}, gt_instances=gts)
        for boxed, mask, gts in (
            (
                dict(pred_instances=dict(bboxes=torch.eye(4)[:1], scores=torch.ones(1), labels=torch.zeros(1).long())),
                torch.ones(1, 4, 4, dtype=torch.bool),
                dict(bboxes=torch.eye(4)[:1], masks=torch.ones(1, 4, 4) > 0, labels=torch.zeros(1).long()),
            ),
        )
    ]
    types = ("bbox", "segm", "boundary")
    evaluator = Evaluator([DetectionPRF(iou_type=one, ap=True, classwise=True, num_classes=1) for one in types])
    evaluator.process(samples)
    values = evaluator.evaluate(1)
    assert [key for key in values if key.endswith("AP/0")] == ["det/AP/0", "det-segm/AP/0", "det-boundary/AP/0"]
    assert DetectionPRF(iou_type="segm", prefix="mine").full_key("f1") == "mine/f1"


def test_polygons_of_mmdet_and_mask_scores():
    square = [np.array([2.0, 2, 10, 2, 10, 10, 2, 10])]
    masks = PolygonMasks([square, square], 20, 30)
    sample = dict(
        ori_shape=(20, 30),
        gt_instances=dict(masks=masks, labels=np.array([0, 1])),
        pred_instances=dict(
            masks=torch.from_numpy(masks.to_ndarray()), scores=np.zeros(2), mask_scores=np.ones(2), labels=[0, 1]
        ),
    )
    nothing = dict(masks=np.zeros((0, 20, 30), bool), scores=np.zeros(0), labels=np.zeros(0, int))
    samples = [sample, dict(gt_instances=nothing, pred_instances=InstanceData(**nothing))]
    values = evaluate(DetectionPRF(iou_type="segm", num_classes=2, ap=True, score_thr=0.5), samples)
    assert values["det-segm/tp"] == 2 and values["det-segm/mAP"] == 1


def test_masks_take_the_memory_of_their_rle():
    bitmaps = np.zeros((20, 300, 400), dtype=bool)
    for index, bitmap in enumerate(bitmaps):
        bitmap[10 : 20 + index, 30:80] = True  # a run in each of 50 columns
    masks = Masks.from_bitmaps(bitmaps)
    assert sum(array.nbytes for array in masks.to_arrays().values()) == 20 * (50 * 2 * 4 + 24)
    metric = DetectionPRF(iou_type="segm", num_classes=1, ap=True)
    instances = dict(masks=torch.from_numpy(bitmaps), labels=torch.zeros(20, dtype=torch.int64))
    metric.process(None, [dict(pred_instances=dict(instances, scores=torch.ones(20)), gt_instances=instances)])
    assert len(pickle.dumps(metric.results)) < bitmaps.nbytes / 20


def test_repeated_samples_of_a_person_count_once():
    samples = person_samples(np.random.default_rng(0), 40)
    values = [evaluate(DetectionPRF(iou_type="keypoints", ap=True), part) for part in (samples, samples + samples[:9])]
    assert_same(values[1], values[0], 0.0, "repeated persons")


def test_rotated_boxes_of_mmrotate_and_resized_ground_truths():
    class Boxes:  # as the box objects of mmrotate
        def __init__(self, tensor):
            self.tensor = tensor

    samples = rotated_samples(np.random.default_rng(1), 30)
    plain = evaluate(DetectionPRF(iou_type="rbox", num_classes=3), samples)
    for sample in samples:
        corners = RotatedBoxes(sample["pred_instances"]["bboxes"].double()).corners().reshape(-1, 8)
        sample["pred_instances"]["bboxes"] = Boxes(torch.from_numpy(corners))
    assert evaluate(DetectionPRF(iou_type="rbox", num_classes=3), samples) == plain
    for sample in samples:
        sample.update(scale_factor=(2.0, 2.0), ori_shape=(90, 90))
        sample["gt_instances"]["bboxes"] = sample["gt_instances"]["bboxes"] * torch.tensor([2, 2, 2, 2, 1])
    with pytest.warns(UserWarning, match="put LoadAnnotations after Resize"):
        evaluate(DetectionPRF(iou_type="rbox", num_classes=3), samples)


@pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.MetricWarning")
@pytest.mark.parametrize("mode", SCORE_MODES)
def test_average_precision_of_key_points_is_that_of_mmposes_coco_metric(tmp_path, mode):
    stock = pytest.importorskip("mmpose.evaluation.metrics").CocoMetric
    random = np.random.default_rng(len(mode))
    samples = person_samples(random, 60)
    for sample in samples:
        sample["pred_instances"] = dict(
            keypoints=sample["pred_instances"]["keypoints"].numpy(),
            keypoint_scores=random.random((1, 17)).astype(np.float32),
            bbox_scores=random.random(1).astype(np.float32),
        )
        sample["raw_ann_info"]["num_keypoints"] = sum(value > 0 for value in sample["raw_ann_info"]["keypoints"][2::3])
    samples += [
        dict(sample, id=900 + at, pred_instances=dict(sample["pred_instances"], bbox_scores=np.float32([at / 20])))
        for at, sample in enumerate(samples[:20])
    ]
    annotations = [sample["raw_ann_info"] for sample in samples[:60]]
    annotations.append(dict(annotations[1], id=999, image_id=500))  # of an image without samples
    meta = dict(
        dataset_name="coco",
        num_keypoints=17,
        sigmas=np.array(COCO_SIGMAS, np.float32),
        CLASSES=[{"id": 1, "name": "person"}],
    )
    file = tmp_path / "annotations.json"
    images = [{"id": image} for image in sorted({one["image_id"] for one in annotations})]
    file.write_text(json.dumps(dict(images=images, annotations=annotations, categories=meta["CLASSES"])))
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = stock(ann_file=str(file), score_mode=mode)
        theirs.dataset_meta = meta
        theirs.process({}, [dict(sample) for sample in samples])
        expected = theirs.evaluate(len(samples))
    ours = DetectionPRF(iou_type="keypoints", ap=True, ann_file=str(file), score_mode=mode)
    ours.dataset_meta = meta
    values = evaluate(ours, samples)
    for key, name in (("mAP", "AP"), ("mAP_50", "AP .5"), ("mAP_75", "AP .75")):
        assert values[f"det-keypoints/{key}"] == pytest.approx(expected[f"coco/{name}"], abs=1e-12)
    with pytest.raises(MetricInputError, match=r"'img_id' of sample 0 \(7777\) must be an image of annotations.json"):
        ours.process(None, [dict(samples[0], img_id=7777)])


# --- messages ---------------------------------------------------------------------------------------------------------


def refused(samples, meta=None, **options):
    metric = DetectionPRF(**options)
    if meta is not None:
        metric.dataset_meta = meta
    with pytest.raises(MetricInputError) as caught:
        evaluate(metric, samples)
    return str(caught.value)


def test_key_points_need_sigmas_that_fit():
    (sample,) = person_samples(np.random.default_rng(0), 1)
    fields = sample["pred_instances"]
    fewer = dict(sample, pred_instances={key: fields[key][:, :9] for key in ("keypoints", "keypoint_scores")})
    assert refused([fewer], iou_type="keypoints").startswith(
        "DetectionPRF: key points other than COCO's 17 need their sigmas"
    )
    for options in (dict(sigmas=[0.1] * 9), dict(meta={"sigmas": [0.1] * 9})):
        assert refused([sample], iou_type="keypoints", **options) == (
            "DetectionPRF: 'pred_instances.keypoints' of sample 0 (0) must have shape (1, 9, 2), with one key point "
            "for each of 9 sigmas (found (1, 17, 2))"
        )
    for options, message in (
        (dict(iou_type="keypoints", sigmas=[0.1, -1]), "sigmas must be above 0"),
        (dict(iou_type="segm", sigmas=[0.1]), "sigmas needs iou_type='keypoints'"),
        (dict(score_mode="bbox"), "score_mode needs iou_type='keypoints'"),
        (dict(iou_type="keypoints", score_mode="best"), "score_mode must be one of 'bbox'"),
        (dict(iou_type="segm", matching="mmdet"), "matching='mmdet' is not defined for iou_type='segm'"),
        (dict(iou_type="mask"), "iou_type must be one of 'bbox', 'segm'"),
    ):
        with pytest.raises(ValueError, match=message):
            DetectionPRF(**options)


def test_key_points_without_annotations_and_unknown_categories_are_refused():
    (sample,) = person_samples(np.random.default_rng(0), 1)
    # As mmpose has them with a bbox_file.
    detected = dict(sample, gt_instances=dict(keypoints=np.zeros((1, 17, 2)), bboxes=np.ones((1, 4))))
    del detected["raw_ann_info"]
    message = "'gt_instances.keypoints' of sample 0 (0) must be annotated (found zeros only): give ann_file=..."
    assert message in refused([detected], iou_type="keypoints")
    with pytest.raises(MetricInputError, match="must be annotated"):  # as EvaluationCheckHook checks it
        DetectionPRF(iou_type="keypoints").check_targets([detected])
    with pytest.raises(MetricInputError, match=r"'gt_instances.masks'.*with_mask=True"):
        DetectionPRF(iou_type="segm").check_targets([dict(gt_instances={})])
    detected["gt_instances"] = dict(
        keypoints=sample["pred_instances"]["keypoints"].numpy(),
        keypoints_visible=np.ones((1, 17)),
        bboxes=np.array([[0, 0, 200, 200]]),
    )
    other = dict(detected, id=2)  # another person of the image
    for key in ("gt_instances", "pred_instances"):
        other[key] = {field: value + 500 if value.ndim == 3 else value for field, value in detected[key].items()}
    assert evaluate(DetectionPRF(iou_type="keypoints", score_thr=0.01), [detected, other])["det-keypoints/tp"] == 2
    categories = [{"id": 1, "name": "cat"}, {"id": 3, "name": "dog"}]
    message = refused([dict(sample, category_id=2)], {"CLASSES": categories}, iou_type="keypoints")
    assert "'category_id' of sample 0 (0) must be one of the categories [1, 3] (found 2)" in message


def test_masks_of_different_sizes_are_refused():
    sample = mask_samples(np.random.default_rng(0), 2)[1]
    sample["gt_instances"]["masks"] = np.ones((len(sample["gt_instances"]["labels"]), 50, 60), dtype=bool)
    del sample["ori_shape"]
    assert "must have one size (found 50 x 60 of ground truth 0" in refused([sample], iou_type="segm", num_classes=3)
