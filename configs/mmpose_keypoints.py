# DetectionPRF and PCK on key points in mmpose beside its CocoMetric: a small heatmap model on generated stick figures.
# Precision, recall, F1 and AP by OKS (det-keypoints/...) and PCK (keypoints/...) are in the log of every validation.
#   python demo/skeletons.py data/skeletons
#   mim train mmpose configs/mmpose_keypoints.py

_base_ = "mmpose::_base_/default_runtime.py"

custom_imports = dict(imports=["mm_metrics_plugin"], allow_failed_imports=False)
data_root = "data/skeletons/"
# The samples have only objects with key points, so the ground truth is that of the annotation file.
val_evaluator = [
    dict(type="CocoMetric", ann_file=data_root + "val.json"),
    dict(type="DetectionPRF", iou_type="keypoints", ann_file=data_root + "val.json", ap=True),
    dict(type="PCK", thr=0.1, classwise=True),
]
test_evaluator = val_evaluator

# The joints and their sigmas: how far annotators differ, relative to the size of the object.
joints = ("head", "left_hand", "right_hand", "left_foot", "right_foot")
swapped = ("", "right_hand", "left_hand", "right_foot", "left_foot")
metainfo = dict(
    dataset_name="skeletons",
    keypoint_info={
        index: dict(name=name, id=index, color=[0, 255, 0], type="upper", swap=other)
        for index, (name, other) in enumerate(zip(joints, swapped))
    },
    skeleton_info={
        index: dict(link=("head", name), id=index, color=[0, 255, 0]) for index, name in enumerate(joints[1:])
    },
    joint_weights=[1.0] * 5,
    sigmas=[0.04, 0.07, 0.07, 0.09, 0.09],
)
codec = dict(type="MSRAHeatmap", input_size=(64, 64), heatmap_size=(16, 16), sigma=1)
model = dict(
    type="TopdownPoseEstimator",
    data_preprocessor=dict(
        type="PoseDataPreprocessor", mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], bgr_to_rgb=True
    ),
    backbone=dict(
        type="ResNet", depth=18, base_channels=32, num_stages=2, strides=(1, 2), dilations=(1, 1), out_indices=(1,)
    ),
    head=dict(
        type="HeatmapHead",
        in_channels=64,
        out_channels=5,
        deconv_out_channels=(32,),
        deconv_kernel_sizes=(4,),
        loss=dict(type="KeypointMSELoss", use_target_weight=True),
        decoder=codec,
    ),
    test_cfg=dict(flip_test=False),
)
train_pipeline = [
    dict(type="LoadImage"),
    dict(type="GetBBoxCenterScale"),
    dict(type="RandomFlip", direction="horizontal"),
    dict(type="TopdownAffine", input_size=codec["input_size"]),
    dict(type="GenerateTarget", encoder=codec),
    dict(type="PackPoseInputs"),
]
val_pipeline = [
    dict(type="LoadImage"),
    dict(type="GetBBoxCenterScale"),
    dict(type="TopdownAffine", input_size=codec["input_size"]),
    dict(type="PackPoseInputs"),
]
dataset = dict(type="CocoDataset", data_root=data_root, data_mode="topdown", metainfo=metainfo)
train_dataloader = dict(
    batch_size=16,
    num_workers=0,
    sampler=dict(type="DefaultSampler", shuffle=True),
    dataset=dict(**dataset, ann_file="train.json", data_prefix=dict(img="train/"), pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=8,
    num_workers=0,
    sampler=dict(type="DefaultSampler", shuffle=False, round_up=False),
    dataset=dict(**dataset, ann_file="val.json", data_prefix=dict(img="val/"), test_mode=True, pipeline=val_pipeline),
)
test_dataloader = val_dataloader

max_epochs = 12
train_cfg = dict(max_epochs=max_epochs, val_interval=6)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(optimizer=dict(type="Adam", lr=0.002))
param_scheduler = [dict(type="CosineAnnealingLR", by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True)]
default_hooks = dict(
    checkpoint=dict(type="CheckpointHook", interval=max_epochs, save_best="keypoints/PCK", rule="greater"),
    logger=dict(type="LoggerHook", interval=10),
)
randomness = dict(seed=0)
