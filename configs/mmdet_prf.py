# DetectionPRF in mmdet beside the stock CocoMetric, as a classic config: RTMDet-tiny on generated images of shapes.
# Precision, recall and F1 of the detector are in the log of every validation, with mAP from the same pass.
#   python demo/shapes.py data/shapes
#   mim train mmdet configs/mmdet_prf.py

_base_ = "mmdet::rtmdet/rtmdet_tiny_8xb32-300e_coco.py"

custom_imports = dict(imports=["mm_metrics_plugin"], allow_failed_imports=False)
data_root = "data/shapes/"
val_evaluator = [
    dict(type="CocoMetric", ann_file=data_root + "val.json", metric="bbox"),
    dict(type="DetectionPRF", score_thr=0.3, classwise=True, ap=True, convention="mmdet"),  # the same digits
]
test_evaluator = val_evaluator

metainfo = dict(classes=("disc", "ring", "square", "frame", "triangle"))
norm = dict(type="BN")
model = dict(
    backbone=dict(init_cfg=None, norm_cfg=norm),
    neck=dict(norm_cfg=norm),
    bbox_head=dict(num_classes=5, norm_cfg=norm),
    test_cfg=dict(max_per_img=100),
)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PackDetInputs"),
]
# LoadAnnotations comes after Resize, so that ground truths stay in the coordinates of the original image, as
# detections do.
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(192, 192), keep_ratio=True),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(type="PackDetInputs", meta_keys=("img_id", "img_path", "ori_shape", "img_shape", "scale_factor")),
]
train_dataloader = dict(
    batch_size=4,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_root=data_root,
        ann_file="train.json",
        data_prefix=dict(img="train/"),
        metainfo=metainfo,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=8,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_root=data_root,
        ann_file="val.json",
        data_prefix=dict(img="val/"),
        metainfo=metainfo,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader

max_epochs = 12
train_cfg = dict(max_epochs=max_epochs, val_interval=6, dynamic_intervals=None)
optim_wrapper = dict(optimizer=dict(lr=0.004))
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=10),
    dict(type="CosineAnnealingLR", by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
# mmengine does not know the direction of f1, so the rule is given.
default_hooks = dict(
    checkpoint=dict(type="CheckpointHook", interval=max_epochs, save_best="det/f1", rule="greater"),
    logger=dict(type="LoggerHook", interval=10),
)
custom_hooks = [dict(type="EvaluationCheckHook")]  # raises before training starts if samples have no ground truth
randomness = dict(seed=0)
