# Every classification metric at once, in mmpretrain, beside its own ones; the best checkpoint is kept by F1, whose
# direction mmengine cannot guess, so the rule is given.
#   python demo/pictures.py data/pictures
#   mim train mmpretrain configs/mmpretrain_classification.py

_base_ = ["mmpretrain_auc.py"]

val_evaluator = [
    dict(type="Accuracy", topk=(1, 2)),
    dict(type="SingleLabelMetric"),
    dict(type="SingleLabelAUC", classwise=True),
    dict(
        type="SingleLabelPRF",
        average=("macro", "micro", "weighted"),
        topk=(1, 2),
        convention="mmpretrain",
        classwise=True,
        counts=True,
    ),
    dict(type="SingleLabelKS", classwise=True),
    dict(type="RecallAtK", topk=(1, 2)),
    dict(type="CalibrationError"),
    # A sample with one class is a sample with a list of one.
    dict(type="MultiLabelAUC", num_thresholds=4095),
    dict(type="MultiLabelPRF", topk=1, convention="mmpretrain"),
]
test_evaluator = val_evaluator
default_hooks = dict(checkpoint=dict(save_best="single-label-prf/f1", rule="greater"))
