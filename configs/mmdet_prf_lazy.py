# The same as mmdet_prf.py in the new style: types are classes, so importing DetectionPRF is what registers it and
# custom_imports is not needed.
#   python demo/shapes.py data/shapes
#   mim train mmdet configs/mmdet_prf_lazy.py
from mmcv.transforms import LoadImageFromFile
from mmdet.datasets import AspectRatioBatchSampler, CocoDataset
from mmdet.datasets.transforms import LoadAnnotations, PackDetInputs, RandomFlip, Resize
from mmdet.evaluation import CocoMetric
from mmdet.models import (
    CSPNeXt,
    CSPNeXtPAFPN,
    DetDataPreprocessor,
    GIoULoss,
    QualityFocalLoss,
    RTMDet,
    RTMDetSepBNHead,
)
from mmdet.models.task_modules import DistancePointBBoxCoder, DynamicSoftLabelAssigner, MlvlPointGenerator
from mmdet.visualization import DetLocalVisualizer
from mmengine.dataset import DefaultSampler
from mmengine.hooks import CheckpointHook, DistSamplerSeedHook, IterTimerHook, LoggerHook, ParamSchedulerHook
from mmengine.optim import CosineAnnealingLR, LinearLR, OptimWrapper
from mmengine.runner import EpochBasedTrainLoop, TestLoop, ValLoop
from mmengine.visualization import LocalVisBackend
from torch.nn import BatchNorm2d, SiLU
from torch.optim import AdamW

from mm_metrics_plugin import DetectionPRF

default_scope = "mmdet"
data_root = "data/shapes/"
val_evaluator = [
    dict(type=CocoMetric, ann_file=data_root + "val.json", metric="bbox"),
    dict(type=DetectionPRF, score_thr=0.3, classwise=True, ap=True, convention="mmdet"),
]
test_evaluator = val_evaluator

metainfo = dict(classes=("disc", "ring", "square", "frame", "triangle"))
norm = dict(type=BatchNorm2d)
act = dict(type=SiLU, inplace=True)
model = dict(
    type=RTMDet,
    data_preprocessor=dict(
        type=DetDataPreprocessor, mean=[103.53, 116.28, 123.675], std=[57.375, 57.12, 58.395], bgr_to_rgb=False
    ),
    backbone=dict(
        type=CSPNeXt,
        arch="P5",
        expand_ratio=0.5,
        deepen_factor=0.167,
        widen_factor=0.375,
        channel_attention=True,
        norm_cfg=norm,
        act_cfg=act,
    ),
    neck=dict(
        type=CSPNeXtPAFPN,
        in_channels=[96, 192, 384],
        out_channels=96,
        num_csp_blocks=1,
        expand_ratio=0.5,
        norm_cfg=norm,
        act_cfg=act,
    ),
    bbox_head=dict(
        type=RTMDetSepBNHead,
        num_classes=5,
        in_channels=96,
        stacked_convs=2,
        feat_channels=96,
        anchor_generator=dict(type=MlvlPointGenerator, offset=0, strides=[8, 16, 32]),
        bbox_coder=dict(type=DistancePointBBoxCoder),
        loss_cls=dict(type=QualityFocalLoss, use_sigmoid=True, beta=2.0, loss_weight=1.0),
        loss_bbox=dict(type=GIoULoss, loss_weight=2.0),
        with_objectness=False,
        exp_on_reg=False,
        share_conv=True,
        pred_kernel_size=1,
        norm_cfg=norm,
        act_cfg=act,
    ),
    train_cfg=dict(assigner=dict(type=DynamicSoftLabelAssigner, topk=13), allowed_border=-1, pos_weight=-1),
    test_cfg=dict(
        nms_pre=30000, min_bbox_size=0, score_thr=0.001, nms=dict(type="nms", iou_threshold=0.65), max_per_img=100
    ),
)
train_pipeline = [
    dict(type=LoadImageFromFile),
    dict(type=LoadAnnotations, with_bbox=True),
    dict(type=RandomFlip, prob=0.5),
    dict(type=PackDetInputs),
]
# LoadAnnotations comes after Resize, so that ground truths stay in the coordinates of the original image, as
# detections do.
test_pipeline = [
    dict(type=LoadImageFromFile),
    dict(type=Resize, scale=(192, 192), keep_ratio=True),
    dict(type=LoadAnnotations, with_bbox=True),
    dict(type=PackDetInputs, meta_keys=("img_id", "img_path", "ori_shape", "img_shape", "scale_factor")),
]
train_dataloader = dict(
    batch_size=4,
    num_workers=0,
    persistent_workers=False,
    sampler=dict(type=DefaultSampler, shuffle=True),
    batch_sampler=dict(type=AspectRatioBatchSampler),
    dataset=dict(
        type=CocoDataset,
        data_root=data_root,
        ann_file="train.json",
        data_prefix=dict(img="train/"),
        filter_cfg=dict(filter_empty_gt=True, min_size=8),
        metainfo=metainfo,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=8,
    num_workers=0,
    persistent_workers=False,
    sampler=dict(type=DefaultSampler, shuffle=False),
    dataset=dict(
        type=CocoDataset,
        data_root=data_root,
        ann_file="val.json",
        data_prefix=dict(img="val/"),
        test_mode=True,
        metainfo=metainfo,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader

max_epochs = 12
train_cfg = dict(type=EpochBasedTrainLoop, max_epochs=max_epochs, val_interval=6)
val_cfg = dict(type=ValLoop)
test_cfg = dict(type=TestLoop)
optim_wrapper = dict(type=OptimWrapper, optimizer=dict(type=AdamW, lr=0.004, weight_decay=0.05))
param_scheduler = [
    dict(type=LinearLR, start_factor=0.01, by_epoch=False, begin=0, end=10),
    dict(type=CosineAnnealingLR, by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
# mmengine does not know the direction of f1, so the rule is given.
default_hooks = dict(
    timer=dict(type=IterTimerHook),
    logger=dict(type=LoggerHook, interval=10),
    param_scheduler=dict(type=ParamSchedulerHook),
    checkpoint=dict(type=CheckpointHook, interval=max_epochs, save_best="det/f1", rule="greater"),
    sampler_seed=dict(type=DistSamplerSeedHook),
)
visualizer = dict(type=DetLocalVisualizer, vis_backends=[dict(type=LocalVisBackend)], name="visualizer")
env_cfg = dict(cudnn_benchmark=False, mp_cfg=dict(mp_start_method="fork", opencv_num_threads=0))
randomness = dict(seed=0)
