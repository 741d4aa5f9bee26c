# DetectionPRF on key points in mmpose beside the stock CocoMetric: a small top-down model on generated images of
# rectangles with five key points. Precision, recall, F1 and mAP by OKS (det-keypoints/...) are in the log.
#   python demo/rectangles.py data/rectangles
#   mim train mmpose configs/mmpose_prf.py

_base_ = "mmpose::body_2d_keypoint/topdown_heatmap/coco/td-hm_res50_8xb64-210e_coco-256x192.py"

custom_imports = dict(imports=["mm_metrics_plugin"], allow_failed_imports=False)
data_root = "data/rectangles/"
val_evaluator = [
    dict(type="CocoMetric", ann_file=data_root + "val/annotations.json"),
    dict(
        type="DetectionPRF", iou_type="keypoints", ann_file=data_root + "val/annotations.json", score_thr=0.3, ap=True
    ),
]
test_evaluator = val_evaluator

# The sigmas of key points other than COCO's 17 are those of the dataset's metainfo.
joints = ("a", "b", "c", "d", "center")
metainfo = dict(
    dataset_name="rectangles",
    classes=("plate", "beam"),
    keypoint_info={at: dict(name=name, id=at, color=[255, 128, 0], type="", swap="") for at, name in enumerate(joints)},
    skeleton_info={
        at: dict(link=link, id=at, color=[0, 255, 0])
        for at, link in enumerate([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])
    },
    joint_weights=[1.0] * 5,
    sigmas=[0.05, 0.05, 0.05, 0.05, 0.08],
)
codec = dict(type="MSRAHeatmap", input_size=(96, 96), heatmap_size=(24, 24), sigma=1.5)
model = dict(
    backbone=dict(depth=18, base_channels=16, init_cfg=None),
    head=dict(in_channels=128, out_channels=5, deconv_out_channels=(32, 32, 32), decoder=codec),
    test_cfg=dict(flip_test=False),
)
pipeline = [
    dict(type="LoadImage"),
    dict(type="GetBBoxCenterScale"),
    dict(type="TopdownAffine", input_size=codec["input_size"]),
]
train_dataloader = dict(
    batch_size=16,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_root=data_root + "train/",
        ann_file="annotations.json",
        data_prefix=dict(img="images/"),
        metainfo=metainfo,
        pipeline=[*pipeline, dict(type="GenerateTarget", encoder=codec), dict(type="PackPoseInputs")],
    ),
)
val_dataloader = dict(
    batch_size=16,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_root=data_root + "val/",
        ann_file="annotations.json",
        bbox_file=None,
        data_prefix=dict(img="images/"),
        metainfo=metainfo,
        pipeline=[*pipeline, dict(type="PackPoseInputs")],
    ),
)
test_dataloader = val_dataloader

max_epochs = 8
train_cfg = dict(max_epochs=max_epochs, val_interval=4)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=10),
    dict(type="CosineAnnealingLR", by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
optim_wrapper = dict(optimizer=dict(lr=0.002))
# mmengine does not know the direction of f1, so the rule is given.
default_hooks = dict(
    checkpoint=dict(type="CheckpointHook", interval=max_epochs, save_best="det-keypoints/f1", rule="greater"),
    logger=dict(type="LoggerHook", interval=10),
)
randomness = dict(seed=0)
