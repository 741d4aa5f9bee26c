# MultiLabelAUC and MultiLabelPRF in mmpretrain, where an image has several classes, beside mmpretrain's own
# AveragePrecision; the best checkpoint is kept by AUC.
#   python -m demo.scenes data/scenes
#   mim train mmpretrain configs/mmpretrain_multi_label.py

_base_ = ["mmpretrain_auc.py"]

val_evaluator = [
    dict(type="AveragePrecision"),
    dict(type="MultiLabelAUC", classwise=True),  # multi-label/auc and multi-label/auc/disc ...
    dict(type="MultiLabelAUC", curve="pr", prefix="average-precision"),
    dict(type="MultiLabelPRF", thr=0.5, average=("macro", "micro"), classwise=True, counts=True),
]
test_evaluator = val_evaluator
default_hooks = dict(checkpoint=dict(save_best="multi-label/auc"))

data_root = "data/scenes"
model = dict(
    head=dict(
        _delete_=True,
        type="MultiLabelLinearClsHead",
        num_classes=3,
        in_channels=512,
        loss=dict(type="CrossEntropyLoss", use_sigmoid=True),
    )
)
data_preprocessor = dict(num_classes=3, to_onehot=True)
train_dataloader = dict(
    dataset=dict(type="MultiLabelDataset", data_root=data_root, ann_file="multi_label_train.json", data_prefix="")
)
val_dataloader = dict(
    dataset=dict(type="MultiLabelDataset", data_root=data_root, ann_file="multi_label_val.json", data_prefix="")
)
test_dataloader = val_dataloader
