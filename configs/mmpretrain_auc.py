# SingleLabelAUC in mmpretrain, as a classic config: the stock ResNet-18 for small images, validated by AUC, the best
# checkpoint kept by it.
#   python demo/pictures.py data/pictures
#   mim train mmpretrain configs/mmpretrain_auc.py

_base_ = ["mmpretrain::_base_/models/resnet18_cifar.py", "mmpretrain::_base_/default_runtime.py"]

custom_imports = dict(imports=["mm_metrics_plugin"], allow_failed_imports=False)
val_evaluator = [
    dict(type="Accuracy", topk=1),
    dict(type="SingleLabelAUC", classwise=True),
]
test_evaluator = val_evaluator
default_hooks = dict(checkpoint=dict(type="CheckpointHook", interval=1, save_best="single-label/auc"))

data_root = "data/pictures"
model = dict(head=dict(num_classes=4, topk=(1,)))
data_preprocessor = dict(num_classes=4, mean=[80, 80, 80], std=[60, 60, 60], to_rgb=True)
pipeline = [dict(type="LoadImageFromFile"), dict(type="PackInputs")]
train_dataloader = dict(
    batch_size=16,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(type="CustomDataset", data_root=data_root, data_prefix="train", pipeline=pipeline),
    sampler=dict(type="DefaultSampler", shuffle=True),
)
val_dataloader = dict(
    batch_size=16,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(type="CustomDataset", data_root=data_root, data_prefix="val", pipeline=pipeline),
    sampler=dict(type="DefaultSampler", shuffle=False),
)
test_dataloader = val_dataloader

train_cfg = dict(by_epoch=True, max_epochs=2, val_interval=1)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(optimizer=dict(type="SGD", lr=0.02, momentum=0.9))
randomness = dict(seed=0)
