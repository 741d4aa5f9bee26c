"""Small result files and annotations, and the command run on them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.detection_problem import make_problem
from mm_metrics_plugin.cli import main

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "demo" / "detections"
PNG_END = b"IEND\xaeB`\x82"  # the last bytes of every PNG file
CLASSES = ("cat", "dog", "traffic light", "a|b")


def command(*arguments, cwd, script=("-m", "mm_metrics_command"), env=None):
    """Run the command in its own process; ``cwd`` is never the repository."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *map(str, script), *map(str, arguments)],
        cwd=cwd,
        env={**environment, **(env or {})},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def printed(*arguments):
    """What the command prints, run in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(list(map(str, arguments))) == 0
    return out.getvalue()


def report_of(*arguments):
    """The content of report.json, by the command in this process."""
    return json.loads(printed(*arguments, "--format", "json"))


def error_of(capsys, *arguments):
    """The one line on stderr of a command that ends with exit code 2, run in this process."""
    capsys.readouterr()
    try:
        code = main(list(map(str, arguments)))
    except SystemExit as error:
        code = error.code
    out, line = capsys.readouterr()
    assert code == 2 and out == "" and line.startswith("mm-metrics") and line.count("\n") == 1, (code, out, line)
    return line


def succeeded(done):
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def refused(done):
    """The one line on stderr of a command that ended with exit code 2."""
    assert done.returncode == 2, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("\n"), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def coco_evaluation(path, rows):
    """The evaluation of COCO results by pycocotools, with undefined values as NaN in ``stats``."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(path))
        evaluation = COCOeval(truth, truth.loadRes(rows), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    evaluation.stats = np.where(evaluation.stats == -1, np.nan, evaluation.stats)
    return evaluation


def problem(images=40, seed=0):
    return make_problem(images, len(CLASSES), 20, 4.0, seed=seed)


def results_of(problem):
    """One dict per image, as mmdet writes them; ids from 1."""
    content = []
    for number in range(problem.num_images):
        rows = problem.image == number
        instances = {
            "bboxes": problem.boxes[rows],
            "scores": problem.scores[rows],
            "labels": problem.labels[rows],
        }
        content.append({"img_id": number + 1, "img_path": f"{number}.jpg", "pred_instances": instances})
    return content


def truth_of(problem, classes=CLASSES):
    """COCO annotations."""
    boxes = problem.gt_boxes.astype(float)
    boxes[:, 2:] -= boxes[:, :2]
    return {
        "images": [
            {"id": n + 1, "file_name": f"{n}.jpg", "height": 480, "width": 640} for n in range(problem.num_images)
        ],
        "categories": [{"id": label + 1, "name": name} for label, name in enumerate(classes)],
        "annotations": [
            {
                "id": row + 1,
                "image_id": int(problem.gt_image[row]) + 1,
                "category_id": int(problem.gt_labels[row]) + 1,
                "bbox": boxes[row].tolist(),
                "area": float(boxes[row, 2] * boxes[row, 3]),
                "iscrowd": int(problem.gt_crowd[row]),
            }
            for row in range(len(boxes))
        ],
    }


def with_ground_truth(problem, results):
    """Results that contain the ground truth, as mmyolo writes them: crowds are ignored instances."""
    content = []
    for number, image in enumerate(results):
        instances = {}
        for key, crowd in (("gt_instances", False), ("ignored_instances", True)):
            rows = (problem.gt_image == number) & (problem.gt_crowd == crowd)
            instances[key] = {"bboxes": problem.gt_boxes[rows], "labels": problem.gt_labels[rows]}
        content.append({**image, **instances})
    return content


def write_pickle(path, content):
    path.write_bytes(pickle.dumps(content, protocol=2))
    return path


def write_json(path, content):
    path.write_text(json.dumps(content))
    return path


def pair(folder, **options):
    """The files of annotations and results."""
    made = problem(**options)
    return write_json(folder / "truth.json", truth_of(made)), write_pickle(folder / "results.pkl", results_of(made))


def samples(number=60, classes=3, seed=0):
    """One dict per sample, as mmpretrain writes them."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, number)
    scores = random.random((number, classes)).astype(np.float32)
    scores[np.arange(number), labels] += 0.4
    scores /= scores.sum(axis=1, keepdims=True)
    return [
        {"pred_score": score, "pred_label": np.array([score.argmax()]), "gt_label": np.array([label])}
        for score, label in zip(scores, labels)
    ]
