# DetectionPRF on masks in mmdet beside the stock CocoMetric: a small Mask R-CNN on generated images of shapes.
# Precision, recall, F1 and mAP of boxes (det/...) and masks (det-segm/...) are in the log of every validation.
#   python demo/shapes.py data/shapes
#   mim train mmdet configs/mmdet_mask_rcnn.py

_base_ = "mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py"

custom_imports = dict(imports=["mm_metrics_plugin"], allow_failed_imports=False)
data_root = "data/shapes/"
val_evaluator = [
    dict(type="CocoMetric", ann_file=data_root + "val.json", metric=["bbox", "segm"]),
    dict(type="DetectionPRF", score_thr=0.1, ap=True),
    dict(type="DetectionPRF", iou_type="segm", score_thr=0.1, classwise=True, ap=True),
]
test_evaluator = val_evaluator

metainfo = dict(classes=("disc", "ring", "square", "frame", "triangle"))
model = dict(
    backbone=dict(depth=18, base_channels=32, frozen_stages=-1, norm_eval=False, init_cfg=None),
    neck=dict(in_channels=[32, 64, 128, 256], out_channels=32),
    rpn_head=dict(in_channels=32, feat_channels=32, anchor_generator=dict(scales=[4])),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=32),
        bbox_head=dict(in_channels=32, fc_out_channels=128, num_classes=5),
        mask_roi_extractor=dict(out_channels=32),
        mask_head=dict(num_convs=2, in_channels=32, conv_out_channels=32, num_classes=5),
    ),
    train_cfg=dict(rpn_proposal=dict(nms_pre=500, max_per_img=200), rcnn=dict(sampler=dict(num=128))),
    test_cfg=dict(rpn=dict(nms_pre=300, max_per_img=100)),
)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", with_bbox=True, with_mask=True),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PackDetInputs"),
]
# LoadAnnotations comes after Resize, so that ground truths stay in the coordinates of the original image, as
# detections do.
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(192, 192), keep_ratio=True),
    dict(type="LoadAnnotations", with_bbox=True, with_mask=True),
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
        filter_cfg=dict(min_size=0),
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

max_epochs = 8
train_cfg = dict(max_epochs=max_epochs, val_interval=4)
optim_wrapper = dict(optimizer=dict(_delete_=True, type="AdamW", lr=0.003, weight_decay=0.01))
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=10),
    dict(type="CosineAnnealingLR", by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
# mmengine does not know the direction of f1, so the rule is given.
default_hooks = dict(
    checkpoint=dict(type="CheckpointHook", interval=max_epochs, save_best="det-segm/f1", rule="greater"),
    logger=dict(type="LoggerHook", interval=10),
)
randomness = dict(seed=0)
