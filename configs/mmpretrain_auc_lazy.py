# The same as mmpretrain_auc.py in the new style: types are classes, so importing SingleLabelAUC is what registers it
# and custom_imports is not needed.
#   python demo/pictures.py data/pictures
#   mim train mmpretrain configs/mmpretrain_auc_lazy.py
from mmengine.dataset import DefaultSampler
from mmengine.hooks import CheckpointHook, DistSamplerSeedHook, IterTimerHook, LoggerHook, ParamSchedulerHook
from mmengine.visualization import LocalVisBackend
from mmpretrain.datasets import CustomDataset, LoadImageFromFile, PackInputs
from mmpretrain.evaluation import Accuracy
from mmpretrain.models import (
    CrossEntropyLoss,
    GlobalAveragePooling,
    ImageClassifier,
    LinearClsHead,
    ResNet_CIFAR,
)
from mmpretrain.visualization import UniversalVisualizer
from torch.optim import SGD

from mm_metrics_plugin import SingleLabelAUC

default_scope = "mmpretrain"

val_evaluator = [dict(type=Accuracy, topk=1), dict(type=SingleLabelAUC, classwise=True)]
test_evaluator = val_evaluator
default_hooks = dict(
    timer=dict(type=IterTimerHook),
    logger=dict(type=LoggerHook, interval=100),
    param_scheduler=dict(type=ParamSchedulerHook),
    checkpoint=dict(type=CheckpointHook, interval=1, save_best="single-label/auc"),
    sampler_seed=dict(type=DistSamplerSeedHook),
)

model = dict(
    type=ImageClassifier,
    backbone=dict(type=ResNet_CIFAR, depth=18, num_stages=4, out_indices=(3,), style="pytorch"),
    neck=dict(type=GlobalAveragePooling),
    head=dict(type=LinearClsHead, num_classes=4, in_channels=512, topk=(1,), loss=dict(type=CrossEntropyLoss)),
)
data_root = "data/pictures"
data_preprocessor = dict(num_classes=4, mean=[80, 80, 80], std=[60, 60, 60], to_rgb=True)
pipeline = [dict(type=LoadImageFromFile), dict(type=PackInputs)]
train_dataloader = dict(
    batch_size=16,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(type=CustomDataset, data_root=data_root, data_prefix="train", pipeline=pipeline),
    sampler=dict(type=DefaultSampler, shuffle=True),
)
val_dataloader = dict(
    batch_size=16,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(type=CustomDataset, data_root=data_root, data_prefix="val", pipeline=pipeline),
    sampler=dict(type=DefaultSampler, shuffle=False),
)
test_dataloader = val_dataloader

train_cfg = dict(by_epoch=True, max_epochs=2, val_interval=1)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(optimizer=dict(type=SGD, lr=0.02, momentum=0.9))
visualizer = dict(type=UniversalVisualizer, vis_backends=[dict(type=LocalVisBackend)])
randomness = dict(seed=0)
