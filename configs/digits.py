# SingleLabelAUC in a plain mmengine run: scikit-learn's digits, a small classifier, a few seconds on a CPU.
# Run it with `python tools/train.py configs/digits.py`, or with explanations with `make demo`.

# The two things to take into a config of your own: this import ...
custom_imports = dict(imports=["mm_metrics_plugin", "demo.digits"], allow_failed_imports=False)

# ... and the metrics by their names. The second one keeps histograms instead of scores and bounds its own error.
val_evaluator = [
    dict(type="SingleLabelAUC", classwise=True),
    dict(type="SingleLabelAUC", num_thresholds=4096, prefix="binned"),
]

model = dict(type="DigitsClassifier")

train_dataloader = dict(
    batch_size=64,
    num_workers=0,
    dataset=dict(type="Digits", train=True),
    sampler=dict(type="DefaultSampler", shuffle=True),
)
val_dataloader = dict(
    batch_size=64,
    num_workers=0,
    dataset=dict(type="Digits", train=False),
    sampler=dict(type="DefaultSampler", shuffle=False),
)

train_cfg = dict(by_epoch=True, max_epochs=5, val_interval=1)
val_cfg = dict()
optim_wrapper = dict(optimizer=dict(type="SGD", lr=0.2, momentum=0.9))

default_hooks = dict(
    logger=dict(type="LoggerHook", interval=10),
    checkpoint=dict(type="CheckpointHook", interval=1, save_best="single-label/auc", max_keep_ckpts=1),
)
randomness = dict(seed=0)
work_dir = "work_dirs/digits"
