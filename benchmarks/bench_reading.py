"""Safe reading of a result pickle, compared with pickle.load."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.detection_problem import Problem, make_problem
from benchmarks.timing import heading, seconds, versus
from mm_metrics_plugin.evaluation.joining import join
from mm_metrics_plugin.io.readers import read_detections, read_ground_truth
from mm_metrics_plugin.io.safe_pickle import read_pickle

MEASURE_PEAK = """
import sys
from benchmarks.timing import peak_bytes
from mm_metrics_plugin.io.readers import read_detections
read_detections(sys.argv[1])
print(peak_bytes())
"""


def write_results(problem: Problem, path: Path) -> None:
    """Write results like mmdet's ``tools/test.py --out``: a list of dicts of tensors, protocol 2."""
    images = []
    for number in range(problem.num_images):
        rows = slice(*problem.image.searchsorted([number, number + 1]))
        images.append(
            {
                "img_id": number + 1,
                "img_path": f"data/coco/val2017/{number + 1:012d}.jpg",
                "ori_shape": (480, 640),
                "img_shape": (800, 1067),
                "scale_factor": (1.6671875, 1.6666666666666667),
                "batch_input_shape": (800, 1088),
                "pad_shape": (800, 1088),
                "pred_instances": {
                    "bboxes": torch.from_numpy(problem.boxes[rows].copy()),
                    "scores": torch.from_numpy(problem.scores[rows].copy()),
                    "labels": torch.from_numpy(problem.labels[rows].copy()),
                },
            }
        )
    path.write_bytes(pickle.dumps(images, protocol=2))


def write_truth(problem: Problem, path: Path) -> None:
    """Write COCO annotations."""
    boxes = problem.gt_boxes.astype(float)
    boxes[:, 2:] -= boxes[:, :2]
    content = {
        "images": [
            {"id": number + 1, "file_name": f"{number + 1:012d}.jpg", "height": 480, "width": 640}
            for number in range(problem.num_images)
        ],
        "categories": [{"id": number + 1, "name": f"class {number}"} for number in range(problem.num_classes)],
        "annotations": [
            {"id": row + 1, "image_id": image + 1, "category_id": label + 1, "bbox": box, "area": box[2] * box[3]}
            for row, (image, label, box) in enumerate(
                zip(problem.gt_image.tolist(), problem.gt_labels.tolist(), boxes.tolist())
            )
        ],
    }
    path.write_text(json.dumps(content))


def plain(path: Path) -> object:
    with open(path, "rb") as file:
        return pickle.load(file)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        results, truth = Path(folder, "results.pkl"), Path(folder, "instances.json")
        problem = make_problem()
        write_results(problem, results)
        write_truth(problem, truth)
        size = results.stat().st_size
        heading(f"Reading: {problem.num_images:,} images, {len(problem.image):,} detections, {size / 1e6:.1f} MB")
        ours, _ = seconds(lambda: read_pickle(results), repeat=3)
        print(f"{'read_pickle':<44}{ours:9.3f} s")
        theirs, _ = seconds(lambda: plain(results), repeat=3)
        versus(ours, theirs, "pickle.load, torch already imported", 2)
        flattened, detections = seconds(lambda: read_detections(results), repeat=3)
        print(f"{'read_detections (read and flattened)':<44}{flattened:9.3f} s")
        read, ground_truth = seconds(lambda: read_ground_truth(truth), repeat=3)
        print(f"{'read_ground_truth':<44}{read:9.3f} s")
        joined, _ = seconds(lambda: join(ground_truth, detections), repeat=3)
        print(f"{'join':<44}{joined:9.3f} s")
        command = [sys.executable, "-c", MEASURE_PEAK, str(results)]
        peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        target = 3 * size + 400 * 2**20
        verdict = "met" if peak <= target else "MISSED"
        print(f"{'peak memory of a process that reads it':<44}{peak / 1e6:9.1f} MB", end=" ")
        print(f"(target {target / 1e6:.0f}: {verdict})")
