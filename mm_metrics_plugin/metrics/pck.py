"""Percentage of correct key points."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Sequence

import numpy as np
from mmengine.registry import METRICS

from mm_metrics_plugin.exceptions import MetricInputError, pluralize, shortened
from mm_metrics_plugin.functional._arrays import unique_names
from mm_metrics_plugin.functional.keypoints import correct_keypoints, joint_distances, longer_sides, pck_of_counts
from mm_metrics_plugin.metrics.base import StreamingMetric
from mm_metrics_plugin.metrics.sample_fields import (
    SampleName,
    Samples,
    check_finite,
    field_values,
    real_values,
    to_host,
)
from mm_metrics_plugin.reports.base import class_values
from mm_metrics_plugin.settings import require
from mm_metrics_plugin.states.base import Batch
from mm_metrics_plugin.states.counts import JointCountState

_BOX = "bbox"
_PREDICTED, _TARGET, _VISIBLE = "pred_instances.keypoints", "gt_instances.keypoints", "gt_instances.keypoints_visible"
_BOXES = "gt_instances.bboxes"


@METRICS.register_module()
class PCK(StreamingMetric):
    """Percentage of correct key points: the share near the ground truth, relative to the size of the object.

    A key point is correct if its distance to the ground truth is below ``thr`` times the size of the object; key points
    that are not labeled are left out. Samples are those of mmpose: ``pred_instances`` with ``keypoints`` (objects,
    joints, 2), and ``gt_instances`` with ``keypoints``, ``keypoints_visible`` (0: not labeled) and ``bboxes``. The
    predicted objects are those of the ground truth, in the same order, as top-down models have it.

    Keys, with the prefix ``keypoints``; values lie in 0 to 1:

    - ``PCK``: the mean over the joints.
    - ``joints_averaged``: number of joints with labeled key points, which are those in the mean.
    - ``PCK/<joint>``: the share of one joint, with ``classwise``.
    - ``objects_without_size``: number of objects that are left out because their size is 0 or not labeled, if there
      are any.

    Args:
        thr: Distance / size of the object from which on a key point is wrong.
        norm: The size of an object: ``'bbox'`` for the longer side of its box, or the indices of two joints for the
            distance between them in the ground truth, such as ``(4, 5)`` of JHMDB for the torso.
        joints: Names of the joints; those of the dataset by default.
        classwise: Also one key per joint.
        **kwargs: ``collect_device`` and ``prefix``, as in mmengine.

    Example:
        >>> target = dict(keypoints=[[[5, 5], [9, 9]]], keypoints_visible=[[1, 1]], bboxes=[[0, 0, 10, 20]])
        >>> sample = dict(pred_instances=dict(keypoints=[[[5, 5], [9, 12]]]), gt_instances=target)
        >>> metric = PCK(thr=0.1, joints=("nose", "tail"), classwise=True)
        >>> metric.process(None, [sample])
        >>> metric.evaluate(size=1)["keypoints/PCK/nose"]
        1.0
    """

    default_prefix = "keypoints"
    _learned_joints: int | None = None

    def __init__(
        self,
        thr: float = 0.05,
        norm: str | Sequence[int] = _BOX,
        joints: Sequence[str] | None = None,
        classwise: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require(0 < thr < np.inf, f"thr must be a positive number (found {shortened(thr)})")
        pair = () if isinstance(norm, str) else tuple(norm)
        valid = len(pair) == len(set(pair)) == 2 and all(isinstance(joint, Integral) and joint >= 0 for joint in pair)
        require(norm == _BOX or valid, f"norm must be 'bbox' or the indices of two joints (found {shortened(norm)})")
        require(joints is None or len(joints) > 0, "joints must not be empty")
        self.thr = thr
        self.pair = pair
        self.joints = joints
        self.classwise = classwise
        self.fields = [_PREDICTED, _TARGET, _VISIBLE] + ([] if pair else [_BOXES])

    @property
    def target_fields(self) -> Sequence[str]:  # type: ignore[override]
        """The fields of the ground truth."""
        return self.fields[1:]

    def empty_state(self) -> JointCountState:
        """No key points."""
        return JointCountState()

    def _reset(self) -> None:
        super()._reset()
        self._learned_joints = None  # the next dataset may have other joints

    def read(self, samples: Samples) -> Batch:
        """The numbers of correct and of labeled key points of each sample, and of objects that are left out."""
        name = self.sample_names(samples)
        values = [real_values(field_values(samples, field, name), field, name) for field in self.fields]
        arrays = iter(to_host([value for column in values for value in column]))
        columns = [[next(arrays) for _ in samples] for _ in self.fields]
        lengths = self._check_shapes(columns, name)
        sample = np.repeat(np.arange(len(samples)), lengths)
        columns[2] = [array if array.ndim == 2 else array[..., 0] for array in columns[2]]  # mmpose adds weights
        predicted, target, visible, *boxes = (np.concatenate(column).astype(np.float64) for column in columns)
        for field, column in zip(self.fields, (predicted, target, visible, *boxes)):
            check_finite(column, field, lambda row: name(int(sample[row])))
        labeled = visible > 0
        scale = joint_distances(target, labeled, self.pair) if self.pair else longer_sides(boxes[0])
        correct, counted = correct_keypoints(predicted, target, labeled, scale, thr=self.thr)
        counts = np.zeros((len(samples), 2, target.shape[1]), dtype=np.int64)
        np.add.at(counts, sample, np.stack([correct, counted], axis=1))
        return Batch(counts, np.bincount(sample[~(scale > 0)], minlength=len(samples)))

    def _check_shapes(self, columns: Sequence[Sequence[np.ndarray]], name: SampleName) -> list[int]:
        """The number of objects of each sample."""
        lengths = []
        for index, arrays in enumerate(zip(*columns)):
            shape = arrays[1].shape
            if len(shape) != 3 or shape[2] != 2 or not shape[1]:
                raise MetricInputError(
                    f"'{_TARGET}' of {name(index)} must have shape (objects, joints, 2) (found {shape})"
                )
            self._learned_joints = self._learned_joints or (shape[1] if self.joints is None else len(self.joints))
            if shape[1] != self._learned_joints or max(self.pair, default=0) >= shape[1]:
                least = "" if shape[1] != self._learned_joints else f", and norm={self.pair} needs more"
                raise MetricInputError(
                    f"'{_TARGET}' of {name(index)} must hold {pluralize(self._learned_joints, 'joint')} "
                    f"(found {shape[1]}{least})"
                )
            for field, array, expected in zip(self.fields, arrays, (shape, shape, shape[:2], (shape[0], 4))):
                if array.shape != expected and not (field == _VISIBLE and array.shape[:-1] == expected):
                    raise MetricInputError(
                        f"'{field}' of {name(index)} must have shape {expected}, as '{_TARGET}' has {shape} "
                        f"(found {array.shape})"
                    )
            lengths.append(shape[0])
        return lengths

    def compute(self, state: JointCountState) -> dict[str, float]:
        """The mean, the shares of the joints and the number of objects that are left out."""
        empty = np.zeros((2, len(self._names())), dtype=np.int64)
        correct, labeled = empty if state.counts is None else state.counts
        result, names = pck_of_counts(correct, labeled), self._names(len(labeled))
        metrics = {"PCK": result.pck, "joints_averaged": float(result.joints_averaged)}
        if self.classwise:
            metrics.update(class_values("PCK", names, result.per_joint))
        self.warn_undefined_classes("PCK", "no key point is labeled", names, result.per_joint, skip=True)
        left_out = 0 if state.without_size is None else int(state.without_size)
        if left_out:
            reason = "the box has no side" if not self.pair else "the joints of norm are not labeled or equal"
            self.warn_undefined("The distance in object sizes", reason, [pluralize(left_out, "object")])
            metrics["objects_without_size"] = float(left_out)
        return metrics

    def _names(self, number: int | None = None) -> list[str]:
        """The names of the joints; their indices if there is another number of them."""
        by_index = (self.dataset_meta or {}).get("keypoint_id2name") or {}
        names = list(self.joints or [by_index[index] for index in sorted(by_index)])
        if number is not None and len(names) != number:
            names = list(map(str, range(number)))
        return unique_names(list(map(str, names)))
