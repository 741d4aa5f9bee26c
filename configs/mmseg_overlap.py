# MeanIoU and DiceScore in mmseg beside its own IoUMetric: a small U-Net on generated images of shapes. The values are
# those of IoUMetric without its factor of 100 and its rounding. MeanIoU and the second DiceScore have keys per class.
#   python -m demo.scenes data/scenes
#   mim train mmsegmentation configs/mmseg_overlap.py

_base_ = ["mmseg::_base_/default_runtime.py"]

custom_imports = dict(imports=["mm_metrics_plugin"], allow_failed_imports=False)
val_evaluator = [
    dict(type="IoUMetric", iou_metrics=["mIoU", "mDice"]),
    dict(type="MeanIoU", classwise=True, prefix="overlap"),  # overlap/mIoU; the default prefix is sem-seg
    dict(type="DiceScore", over="dataset", empty="skip", prefix="overlap"),  # the mDice of IoUMetric
    dict(type="DiceScore", classwise=True, prefix="per-image"),  # one Dice per image, then the mean
]
test_evaluator = val_evaluator
default_hooks = dict(
    checkpoint=dict(type="CheckpointHook", by_epoch=False, interval=100, save_best="overlap/mIoU"),
    logger=dict(type="LoggerHook", interval=20, log_metric_by_epoch=False),
)

classes = ("background", "disc", "frame", "triangle")
norm = dict(type="BN")
model = dict(
    type="EncoderDecoder",
    data_preprocessor=dict(
        type="SegDataPreProcessor",
        mean=[80, 80, 80],
        std=[60, 60, 60],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(48, 48),
    ),
    backbone=dict(
        type="UNet",
        base_channels=8,
        num_stages=3,
        strides=(1, 1, 1),
        enc_num_convs=(1, 1, 1),
        dec_num_convs=(1, 1),
        downsamples=(True, True),
        enc_dilations=(1, 1, 1),
        dec_dilations=(1, 1),
        norm_cfg=norm,
    ),
    decode_head=dict(
        type="FCNHead",
        in_channels=8,
        in_index=2,
        channels=8,
        num_convs=1,
        concat_input=False,
        num_classes=len(classes),
        norm_cfg=norm,
    ),
    test_cfg=dict(mode="whole"),
)

data_root = "data/scenes"
metainfo = dict(classes=classes, palette=[[0, 0, 0], [200, 0, 0], [0, 200, 0], [0, 0, 200]])
pipeline = [dict(type="LoadImageFromFile"), dict(type="LoadAnnotations"), dict(type="PackSegInputs")]
dataset = dict(type="BaseSegDataset", data_root=data_root, metainfo=metainfo, img_suffix=".png", pipeline=pipeline)
train_dataloader = dict(
    batch_size=8,
    num_workers=0,
    persistent_workers=False,
    sampler=dict(type="InfiniteSampler", shuffle=True),
    dataset=dict(**dataset, data_prefix=dict(img_path="train", seg_map_path="masks/train")),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    persistent_workers=False,
    sampler=dict(type="DefaultSampler", shuffle=False),
    dataset=dict(**dataset, data_prefix=dict(img_path="val", seg_map_path="masks/val")),
)
test_dataloader = val_dataloader

train_cfg = dict(type="IterBasedTrainLoop", max_iters=100, val_interval=50)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
optim_wrapper = dict(type="OptimWrapper", optimizer=dict(type="Adam", lr=0.01))
randomness = dict(seed=0)
