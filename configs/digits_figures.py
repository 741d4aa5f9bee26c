# The figures of the metrics beside their values: configs/digits.py with MetricFigureHook, a few seconds on a CPU.
#   python tools/train.py configs/digits_figures.py
#   tensorboard --logdir work_dirs/digits_figures       # or look into its vis_data/vis_image
# The confusion matrix, the ROC and precision-recall curves and the reliability diagram of every epoch are in it.

_base_ = ["./digits.py"]

val_evaluator = [
    dict(type="SingleLabelAUC"),
    dict(type="SingleLabelPRF"),
    dict(type="CalibrationError"),
]
test_evaluator = val_evaluator
test_dataloader = _base_.val_dataloader
test_cfg = dict()

# The one thing to take into a config of your own. Figures go to the backends that the values go to.
custom_hooks = [dict(type="MetricFigureHook")]

visualizer = dict(
    type="Visualizer",
    vis_backends=[dict(type="LocalVisBackend"), dict(type="TensorboardVisBackend")],
)
work_dir = "work_dirs/digits_figures"
