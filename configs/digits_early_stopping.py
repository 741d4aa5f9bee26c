# When to stop, and which checkpoints to keep: EarlyStoppingHook and save_best on this package's keys.
#   python tools/train.py configs/digits_early_stopping.py

_base_ = ["./digits.py"]

val_evaluator = [
    dict(type="SingleLabelAUC"),
    dict(type="SingleLabelPRF"),
    dict(type="CalibrationError"),
]

default_hooks = dict(
    # mmengine guesses the direction of keys with "auc" in them; f1 and nll need the rule. One rule per key.
    checkpoint=dict(
        interval=-1,
        save_best=["single-label/auc", "single-label-prf/f1", "single-label/nll"],
        rule=["greater", "greater", "less"],
    ),
)
custom_hooks = [
    dict(
        type="EarlyStoppingHook",
        monitor="single-label-prf/f1",
        rule="greater",
        # Its default of 0.1 is a tenth of the whole scale: training would stop while the model still improves.
        min_delta=0.001,
        patience=3,
    ),
]
train_cfg = dict(max_epochs=60)
work_dir = "work_dirs/digits_early_stopping"
