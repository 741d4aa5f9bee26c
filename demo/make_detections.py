"""Train and test the small detector whose results ``make demo`` evaluates: ``python -m demo.make_detections``.

Draws images of shapes, trains mmdet's RTMDet-tiny on them for a few epochs, runs mmdet's ``tools/test.py --out``, and
copies the results and the annotations to ``demo/detections``. The same detector is tested on enlarged images; these
results go to ``demo/comparison``. Needs mmdet and some minutes. The images are not kept; ``--redraw`` draws them again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from demo.shapes import CLASSES, SIZE, write_shapes
from mm_metrics_plugin.io.readers import read_detections

FOLDER = Path(__file__).resolve().parent / "detections"
OTHER = FOLDER.parent / "comparison"
LARGER = SIZE * 6 // 5
TRAIN, VAL, SEED = 400, 300, 0  # number of training and test images, random seed of the images

CONFIG = """
_base_ = 'mmdet::rtmdet/rtmdet_tiny_8xb32-300e_coco.py'
metainfo = dict(classes={classes!r})
norm = dict(type='BN')
model = dict(
    backbone=dict(init_cfg=None, norm_cfg=norm),
    neck=dict(norm_cfg=norm),
    bbox_head=dict(num_classes={number}, norm_cfg=norm),
    test_cfg=dict(score_thr=0.05, max_per_img=30))
load = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations', with_bbox=True)]
train_pipeline = [*load, dict(type='RandomFlip', prob=0.5), dict(type='PackDetInputs')]
meta_keys = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')
test_pipeline = [
    load[0], dict(type='Resize', scale={size}, keep_ratio=True), load[1],
    dict(type='PackDetInputs', meta_keys=meta_keys)]
train_dataloader = dict(batch_size=8, num_workers=0, persistent_workers=False, dataset=dict(
    data_root='', ann_file='train.json', data_prefix=dict(img='train/'), metainfo=metainfo, pipeline=train_pipeline))
val_dataloader = dict(batch_size=16, num_workers=0, persistent_workers=False, dataset=dict(
    data_root='', ann_file='val.json', data_prefix=dict(img='val/'), metainfo=metainfo, pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file='val.json')
test_evaluator = val_evaluator
train_cfg = dict(max_epochs={epochs}, val_interval={epochs}, dynamic_intervals=None)
optim_wrapper = dict(optimizer=dict(lr=0.002))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=30),
    dict(type='CosineAnnealingLR', by_epoch=True, begin=0, end={epochs}, convert_to_iter_based=True)]
default_hooks = dict(checkpoint=dict(interval={epochs}), logger=dict(interval=10))
custom_hooks = []
randomness = dict(seed=0)
"""


def run_tool(folder: Path, name: str, *arguments: str) -> None:
    """Run one of mmdet's tools in the folder, so that the results contain paths relative to it."""
    script = Path(find_spec("mmdet").origin).parent / ".mim" / "tools" / name
    # mmengine needs the first variable to load checkpoints with torch >= 2.6. One thread makes results reproducible.
    environment = {**os.environ, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(script), *arguments], cwd=folder, env=environment, check=True)


def write_coco_results(pickled: Path, path: Path) -> None:
    """Write the same detections as COCO results, a third of the size, in the precision of float32."""
    results = read_detections(pickled)
    rows = []
    for index, box, score, label in zip(
        results.detections.image, results.detections.boxes, results.detections.scores, results.detections.labels
    ):
        left, top, right, bottom = (float(edge) for edge in box)
        bbox = [float(str(np.float32(number))) for number in (left, top, right - left, bottom - top)]
        image_id = results.image_ids[index]
        rows.append(dict(image_id=image_id, category_id=int(label) + 1, bbox=bbox, score=float(str(score))))
    path.write_text(json.dumps(rows, separators=(",", ":")) + "\n", encoding="utf-8")


def redraw_images(folder: Path) -> Path:
    """Draw the test images of the bundled results again.

    Returns:
        The folder of the images.

    Raises:
        RuntimeError: This version of NumPy draws other images.
    """
    write_shapes(folder, TRAIN, VAL, seed=SEED, masks=False)
    if (folder / "val.json").read_bytes() != (FOLDER / "annotations.json").read_bytes():
        raise RuntimeError("this version of NumPy draws other images than those of the bundled results")
    return folder / "val"


def main(train: int = TRAIN, val: int = VAL, epochs: int = 10) -> None:
    """Train, test, and copy the results and the annotations."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shapes(folder, train, val, seed=SEED, masks=False)
        settings = dict(classes=CLASSES, number=len(CLASSES), size=(SIZE, SIZE), epochs=epochs)
        (folder / "config.py").write_text(CONFIG.format(**settings))
        run_tool(folder, "train.py", "config.py", "--work-dir", "work")
        run_tool(
            folder, "test.py", "config.py", f"work/epoch_{epochs}.pth", "--work-dir", "work", "--out", "results.pkl"
        )
        FOLDER.mkdir(exist_ok=True)
        shutil.copy(folder / "results.pkl", FOLDER / "results.pkl")
        shutil.copy(folder / "val.json", FOLDER / "annotations.json")
        # The same detector on images that are 20 % larger.
        larger = f"test_dataloader.dataset.pipeline.1.scale=({LARGER},{LARGER})"
        checkpoint = f"work/epoch_{epochs}.pth"
        run_tool(
            folder,
            "test.py",
            "config.py",
            checkpoint,
            "--work-dir",
            "work",
            "--out",
            "larger.pkl",
            "--cfg-options",
            larger,
        )
        OTHER.mkdir(exist_ok=True)
        write_coco_results(folder / "larger.pkl", OTHER / "larger.json")
    for path in sorted([*FOLDER.iterdir(), *OTHER.iterdir()]):
        print(f"{path.relative_to(FOLDER.parent.parent)}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redraw", metavar="DIR", type=Path, help="only draw the images of the results, to DIR/val")
    folder = parser.parse_args().redraw
    if folder is None:
        main()
    else:
        redraw_images(folder)
