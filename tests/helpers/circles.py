"""A geometry that the package does not have, with its reader and its metric: all that a new geometry needs."""

from __future__ import annotations

import numpy as np

from mm_metrics_plugin import DetectionPRF
from mm_metrics_plugin.functional.detection.data import DetectionBatch, Detections, GroundTruths
from mm_metrics_plugin.functional.detection.geometry import Edges, Outlines
from mm_metrics_plugin.functional.detection.instances import flatten_instances, joined_rows, rows_of_images
from mm_metrics_plugin.io.detection_data import AnnotationSet, DetectionResults
from mm_metrics_plugin.io.formats import DETECTIONS, GROUND_TRUTH, Format, dict_with
from mm_metrics_plugin.metrics.detection_samples import image_keys
from mm_metrics_plugin.row_counts import RowCounts
from mm_metrics_plugin.states.detection import ImageBatch

CLASSES = ("coin", "plate")
CORNERS = np.linspace(0, 2 * np.pi, 17)


class Circles:
    """Circles (N, 3): center x and y, and radius."""

    field = "circles"
    score_field = "scores"
    options = ()
    overlap_name = "IoU"
    prefiltered = True

    def __init__(self, array):
        self.array = np.asarray(array, dtype=np.float64).reshape(-1, 3)

    @classmethod
    def empty(cls):
        return cls(np.empty((0, 3)))

    @classmethod
    def from_images(cls, values, to_array):
        arrays = rows_of_images(values, (3,), to_array)
        return cls(joined_rows(arrays)), [len(array) for array in arrays]

    def __len__(self):
        return len(self.array)

    def check(self):
        return None

    def first_invalid(self):
        return None

    def is_ignored(self):
        return np.zeros(len(self), dtype=bool)

    def mismatch(self, image, ground_truths, image_sizes=None):
        return None

    def drawn_like(self, other):
        return self

    def take(self, rows):
        return Circles(self.array[rows])

    def concatenate(self, others):
        return Circles(np.concatenate([part.array for part in (self, *others)]))

    def areas(self):
        return np.pi * self.array[:, 2] ** 2

    def ground_truth_areas(self):
        return self.areas()

    def is_empty(self):
        return self.array[:, 2] <= 0

    def bounding_boxes(self):
        x, y, radius = self.array.T
        return Edges(x - radius, y - radius, x + radius, y + radius)

    def scaled(self, factors):
        return Circles(self.array * np.append(factors, factors[:, :1], axis=1))

    def outlines(self):
        ring = np.stack([np.cos(CORNERS), np.sin(CORNERS)], axis=1)
        points = self.array[:, None, :2] + self.array[:, None, 2:] * ring
        return Outlines(points.reshape(-1, 2), np.full(len(self), len(CORNERS), dtype=np.int32))

    def to_arrays(self):
        return {"array": self.array}

    @classmethod
    def from_arrays(cls, arrays):
        return cls(arrays["array"])

    def overlaps(self, ground_truths, rows, gt_rows):
        """The lens of two circles over their union, or over the detection if the ground truth is a crowd."""
        first, second = self.array[rows], ground_truths.geometry.array[gt_rows]
        r, s = first[:, 2], second[:, 2]
        distance = np.hypot(*(first[:, :2] - second[:, :2]).T)
        d = np.clip(distance, np.abs(r - s) + 1e-12, None)
        parts = [a**2 * np.arccos(np.clip((d**2 + a**2 - b**2) / (2 * d * a), -1, 1)) for a, b in ((r, s), (s, r))]
        root = np.sqrt(np.clip((r + s - d) * (d + r - s) * (d - r + s) * (d + r + s), 0, None))
        lens = np.where(distance <= np.abs(r - s), np.pi * np.minimum(r, s) ** 2, sum(parts) - root / 2)
        lens[distance >= r + s] = 0
        areas, gt_areas = self.areas()[rows], ground_truths.geometry.areas()[gt_rows]
        return lens / np.where(ground_truths.crowd[gt_rows], areas, areas + gt_areas - lens)


class CirclePRF(DetectionPRF):
    """``DetectionPRF`` of samples with circles."""

    def read(self, samples):
        names = [self.sample_names(samples)(index) for index in range(len(samples))]
        batch = DetectionBatch(
            Detections.from_images([sample["found"] for sample in samples], geometry=Circles),
            GroundTruths.from_images([sample["truth"] for sample in samples], geometry=Circles),
            len(samples),
            {"groups": [sample["group"] for sample in samples]},
        )
        order, _ = image_keys(samples, self.dataset_indices(len(samples)), names)
        return ImageBatch(batch, order, None, names)


def _columns(images, part, fields):
    flat = flatten_instances([image[part] for image in images], "circles", fields, Circles.from_images)
    numbers = RowCounts(len(flat.image), len(flat.image))
    names = tuple(f"{image['img_id']}.jpg" for image in images)
    return flat, dict(
        image_ids=tuple(image["img_id"] for image in images),
        image_names=names,
        image_sizes=np.full((len(images), 2), 100),
        row_counts=numbers,
    )


def read_results(content, options):
    flat, common = _columns(content["circle results"], "found", ["scores", "labels"])
    detections = Detections(flat.image, flat.geometry, flat.columns["scores"], flat.columns["labels"])
    return DetectionResults(
        source=options.source, num_images=len(content["circle results"]), detections=detections, **common
    )


def read_truth(content, options):
    images = content["circle truth"]
    flat, common = _columns(images, "truth", ["labels", "crowd"])
    return AnnotationSet(
        source=options.source,
        objects=GroundTruths(flat.image, flat.geometry, **flat.columns),
        classes=CLASSES,
        image_columns={"groups": np.array([image["group"] for image in images])},
        **common,
    )


FORMATS = (
    Format("circle results", dict_with("circle results"), DETECTIONS, read_results),
    Format("circle annotations", dict_with("circle truth"), GROUND_TRUTH, read_truth),
)


def problem(images=9):
    """Samples with circles, found exactly, too small, moved or not at all; some objects are crowds."""
    random = np.random.default_rng(0)
    samples = []
    for index in range(images):
        number = int(random.integers(1, 5))
        truth = np.column_stack([random.uniform(20, 80, (number, 2)), random.uniform(4, 15, number)])
        chosen = random.integers(0, number, int(random.integers(0, 6)))
        found = truth[chosen] + random.normal(0, 0.5, (len(chosen), 3))
        labels = random.integers(0, 2, number)
        samples.append(
            dict(
                img_id=20 - index,
                group=["day", "night", "fog at dawn"][index % 3],
                found=dict(circles=found, scores=np.round(random.random(len(found)), 1), labels=labels[chosen]),
                truth=dict(circles=truth, labels=labels, crowd=random.random(number) < 0.2),
            )
        )
    return samples


def evaluate_share(world_size):
    """The log, and on the first process the groups of the table; several processes share the samples."""
    from torch import distributed

    rank = distributed.get_rank() if world_size > 1 else 0
    metric, seen = CirclePRF(ap=True, olrp=True, froc=True, score_thr=0.3), {}
    metric.dataset_meta = {"classes": CLASSES}
    compute = metric.compute

    def keep_table(state):
        seen["groups"] = state.table().image_columns["groups"].tolist()
        return compute(state)

    metric.compute = keep_table
    samples = problem()
    share = samples[rank::world_size]
    share += samples[:1] * (-(-len(samples) // world_size) - len(share))  # padded as by mmengine's sampler
    for sample in share:
        metric.process(None, [sample])
    return metric.evaluate(len(samples)), seen.get("groups")
