# Metrics of two tasks at once, inside mmpretrain's MultiTasksMetric: the AUC of one task and the F1 of the other, under
# the keys `largest_single-label/auc` and `count_single-label-prf/f1`. The best checkpoint is kept by the first.
#   python -m demo.scenes data/scenes
#   mim train mmpretrain configs/mmpretrain_multi_task.py

_base_ = ["mmpretrain_auc.py"]

val_evaluator = dict(
    _delete_=True,
    type="MultiTasksMetric",
    task_metrics=dict(
        largest=[dict(type="SingleLabelAUC", classwise=True), dict(type="Accuracy", topk=1)],
        count=[dict(type="SingleLabelPRF", average=("macro", "micro"))],
    ),
)
test_evaluator = val_evaluator
default_hooks = dict(checkpoint=dict(save_best="largest_single-label/auc"))

data_root = "data/scenes"
head = dict(type="LinearClsHead", num_classes=3, in_channels=512, loss=dict(type="CrossEntropyLoss"))
model = dict(head=dict(_delete_=True, type="MultiTaskHead", task_heads=dict(largest=head, count=head)))
data_preprocessor = dict(_delete_=True, type="ClsDataPreprocessor", mean=[80, 80, 80], std=[60, 60, 60], to_rgb=True)
pipeline = [
    dict(type="LoadImageFromFile"),
    dict(
        type="PackMultiTaskInputs",
        multi_task_fields=["gt_label"],
        task_handlers={task: dict(type="PackInputs") for task in ("largest", "count")},
    ),
]
loader = dict(batch_size=16, num_workers=0, persistent_workers=False)
train_dataloader = dict(
    _delete_=True,
    **loader,
    dataset=dict(type="MultiTaskDataset", data_root=data_root, ann_file="multi_task_train.json", pipeline=pipeline),
    sampler=dict(type="DefaultSampler", shuffle=True),
)
val_dataloader = dict(
    _delete_=True,
    **loader,
    dataset=dict(type="MultiTaskDataset", data_root=data_root, ann_file="multi_task_val.json", pipeline=pipeline),
    sampler=dict(type="DefaultSampler", shuffle=False),
)
test_dataloader = val_dataloader
