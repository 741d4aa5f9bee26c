# DetectionPRF on rotated boxes in mmrotate beside the stock DOTAMetric: a small rotated FCOS on generated images of
# rectangles. Precision, recall, F1 and COCO's mAP by the IoU of rotated boxes (det-rbox/...) are in the log.
#   python demo/rectangles.py data/rectangles
#   mim train mmrotate configs/mmrotate_prf.py

_base_ = "mmrotate::rotated_fcos/rotated-fcos-hbox-le90_r50_fpn_1x_dota.py"

custom_imports = dict(imports=["mm_metrics_plugin"], allow_failed_imports=False)
data_root = "data/rectangles/"
val_evaluator = [
    dict(type="DOTAMetric", metric="mAP"),
    dict(type="DetectionPRF", iou_type="rbox", score_thr=0.1, classwise=True, ap=True),
]
test_evaluator = val_evaluator

metainfo = dict(classes=("plate", "beam"))
model = dict(
    backbone=dict(depth=18, base_channels=32, frozen_stages=-1, norm_eval=False, init_cfg=None),
    neck=dict(in_channels=[32, 64, 128, 256], out_channels=32),
    bbox_head=dict(num_classes=2, in_channels=32, stacked_convs=2, feat_channels=32),
    test_cfg=dict(nms_pre=300, max_per_img=100),
)
train_pipeline = [
    dict(type="mmdet.LoadImageFromFile"),
    dict(type="mmdet.LoadAnnotations", with_bbox=True, box_type="qbox"),
    dict(type="ConvertBoxType", box_type_mapping=dict(gt_bboxes="rbox")),
    dict(type="mmdet.RandomFlip", prob=0.75, direction=["horizontal", "vertical", "diagonal"]),
    dict(type="mmdet.PackDetInputs"),
]
# LoadAnnotations comes after Resize, so that ground truths stay in the coordinates of the original image, as
# detections do.
test_pipeline = [
    dict(type="mmdet.LoadImageFromFile"),
    dict(type="mmdet.Resize", scale=(160, 160), keep_ratio=True),
    dict(type="mmdet.LoadAnnotations", with_bbox=True, box_type="qbox"),
    dict(type="ConvertBoxType", box_type_mapping=dict(gt_bboxes="rbox")),
    dict(type="mmdet.PackDetInputs", meta_keys=("img_id", "img_path", "ori_shape", "img_shape", "scale_factor")),
]
train_dataloader = dict(
    batch_size=2,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_root=data_root,
        ann_file="train/labelTxt/",
        data_prefix=dict(img_path="train/images/"),
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
        ann_file="val/labelTxt/",
        data_prefix=dict(img_path="val/images/"),
        metainfo=metainfo,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader

max_epochs = 8
train_cfg = dict(max_epochs=max_epochs, val_interval=4)
optim_wrapper = dict(
    optimizer=dict(_delete_=True, type="AdamW", lr=0.001, weight_decay=0.01),
    clip_grad=dict(max_norm=5),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=10),
    dict(type="CosineAnnealingLR", by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
# mmengine does not know the direction of f1, so the rule is given.
default_hooks = dict(
    checkpoint=dict(type="CheckpointHook", interval=max_epochs, save_best="det-rbox/f1", rule="greater"),
    logger=dict(type="LoggerHook", interval=10),
)
randomness = dict(seed=0)
