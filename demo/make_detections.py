"""Makes the detections that ``make demo`` reports on: a small detector, really trained and really tested.

    python demo/make_detections.py

draws pictures of shapes, trains mmdet's stock RTMDet-tiny on them for a few epochs, runs mmdet's own
``tools/test.py --out``, and puts what that wrote, and the annotations it was tested on, into ``demo/detections``. Needs
mmdet and some minutes; the pictures are not kept.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Dict, List, Tuple

import cv2
import numpy as np

FOLDER = Path(__file__).resolve().parent / "detections"
CLASSES = ("disc", "ring", "square", "frame", "triangle")
RARITY = (0.3, 0.2, 0.25, 0.1, 0.15)
SIZE = 160

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


def mask_of(shape: str, side: int) -> np.ndarray:
    """Which pixels of a square belong to the shape. A frame is a square with a hole, a ring a disc with one."""
    down, across = np.mgrid[:side, :side] + 0.5 - side / 2
    far = np.hypot(down, across) if shape in ("disc", "ring") else np.maximum(abs(down), abs(across))
    if shape == "triangle":
        return abs(across) <= (down + side / 2) / 2
    mask = far <= side / 2
    return mask & (far >= side / 3.2) if shape in ("ring", "frame") else mask


def draw(generator: np.random.Generator) -> Tuple[np.ndarray, List[Dict]]:
    """A picture and its annotations: shapes that may hide one another, and now and then a crowd of small ones."""
    picture = generator.integers(0, 80, (SIZE, SIZE, 3))
    annotations: List[Dict] = []

    def paint(shape: str, left: int, top: int, side: int) -> None:
        window = picture[top : top + side, left : left + side]
        window[mask_of(shape, side)[: window.shape[0], : window.shape[1]]] = generator.integers(110, 256, 3)

    for _ in range(generator.integers(0, 6)):
        label = int(generator.choice(len(CLASSES), p=RARITY))
        side = int(np.exp(generator.uniform(np.log(12), np.log(60))))
        left, top = (int(place) for place in generator.integers(0, SIZE - side, 2))
        paint(CLASSES[label], left, top, side)
        annotations.append(dict(category_id=label + 1, bbox=[left, top, side, side], area=side * side, iscrowd=0))
    if generator.random() < 0.15:
        label, width, height = int(generator.choice(len(CLASSES), p=RARITY)), 54, 36
        left, top = int(generator.integers(0, SIZE - width)), int(generator.integers(0, SIZE - height))
        for down in range(0, height, 12):
            for across in range(0, width, 12):
                paint(CLASSES[label], left + across, top + down, 10)
        annotations.append(dict(category_id=label + 1, bbox=[left, top, width, height], area=width * height, iscrowd=1))
    return picture.astype(np.uint8), annotations


def write_part(folder: Path, part: str, count: int, generator: np.random.Generator) -> None:
    """Writes pictures and their COCO annotations."""
    (folder / part).mkdir()
    images: List[Dict] = []
    annotations: List[Dict] = []
    for number in range(1, count + 1):
        picture, found = draw(generator)
        name = f"{number:04d}.png"
        cv2.imwrite(str(folder / part / name), picture)
        images.append(dict(id=number, file_name=name, width=SIZE, height=SIZE))
        annotations += [dict(id=len(annotations) + 1 + at, image_id=number, **one) for at, one in enumerate(found)]
    categories = [dict(id=at + 1, name=name) for at, name in enumerate(CLASSES)]
    content = dict(images=images, annotations=annotations, categories=categories)
    (folder / f"{part}.json").write_text(json.dumps(content, separators=(",", ":")))


def run_tool(folder: Path, name: str, *arguments: str) -> None:
    """Runs one of mmdet's own tools in the folder, so that the results name files as seen from there."""
    script = Path(find_spec("mmdet").origin).parent / ".mim" / "tools" / name
    # mmengine cannot load its own checkpoints on torch >= 2.6 otherwise; this one was just made. So small a network is
    # as quick on one thread, and gives the same digits again.
    environment = {**os.environ, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(script), *arguments], cwd=folder, env=environment, check=True)


def main(train: int = 400, val: int = 300, epochs: int = 10) -> None:
    """Trains, tests, and keeps the results and the annotations."""
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_part(folder, "train", train, generator)
        write_part(folder, "val", val, generator)
        settings = dict(classes=CLASSES, number=len(CLASSES), size=(SIZE, SIZE), epochs=epochs)
        (folder / "config.py").write_text(CONFIG.format(**settings))
        run_tool(folder, "train.py", "config.py", "--work-dir", "work")
        run_tool(
            folder, "test.py", "config.py", f"work/epoch_{epochs}.pth", "--work-dir", "work", "--out", "results.pkl"
        )
        FOLDER.mkdir(exist_ok=True)
        shutil.copy(folder / "results.pkl", FOLDER / "results.pkl")
        shutil.copy(folder / "val.json", FOLDER / "annotations.json")
    for path in sorted(FOLDER.iterdir()):
        print(f"{path.relative_to(FOLDER.parent.parent)}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
