"""Keys before the first evaluation, monitored keys that no metric gives, and options that do not exist."""

from __future__ import annotations

import inspect
import itertools
import warnings

import numpy as np
import pytest
import torch
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.hooks import CheckpointHook, EarlyStoppingHook
from mmengine.registry import METRICS
from mmengine.structures import BaseDataElement

import mm_metrics_plugin
from mm_metrics_plugin import DetectionPRF, EvaluationCheckHook, MeanIoU, SingleLabelAUC, SingleLabelPRF
from mm_metrics_plugin.metrics.runner_checks import keys_of, missing_key
from mm_metrics_plugin.testing import evaluate
from tests.helpers.cases import CASES
from tests.helpers.cases_classification import multi_label
from tests.helpers.cases_detection import CLASSES, detections
from tests.helpers.cases_segmentation import label_maps
from tests.helpers.cases_single_label import NAMES, only_predicted_labels, single_label
from tests.helpers.runners import log_text, runner_for
from tests.metrics.test_concatenated import multi
from tests.test_docs_metrics import metric_classes

pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")

# --- keys -------------------------------------------------------------------------------------------------------------

AVERAGES = ("macro", "micro", "weighted")
AUC = dict(average=(*AVERAGES, None), curve=("roc", "pr"), max_fpr=(None, 0.5), num_thresholds=(None, 64))
PRF = dict(
    average=(*AVERAGES, ("macro", "micro"), None),
    beta=(1.0, 2.0),
    convention=("default", "mmpretrain", "paddlerec"),
    zero_division=("skip", 0),
    counts=(False, True),
)
ABSENT, CLASSWISE = dict(absent=("skip", "nan", "error")), dict(classwise=(False, True))
# For each metric its samples, class names and options that may change the keys.
OPTIONS = {
    "SingleLabelAUC": (
        single_label,
        NAMES,
        dict(AUC, **ABSENT, **CLASSWISE, multi_class=("ovr", "ovo"), thrs=(None, 0.5, (0.3, 0.5)), ci=(None, 0.9))
        | dict(slide_steps=(None, 0, 2)),
    ),
    "SingleLabelPRF": (single_label, NAMES, dict(PRF, **CLASSWISE, thrs=(None, 0.3, (None, 0.3)), topk=(None, (1, 2)))),
    "SingleLabelKS": (
        single_label,
        NAMES,
        dict(positive_label=(None, 1), num_thresholds=(None, 64), **ABSENT, **CLASSWISE),
    ),
    "CalibrationError": (single_label, NAMES, dict(binning=("equal-width", "equal-mass"), num_thresholds=(None, 64))),
    "RecallAtK": (single_label, NAMES, dict(topk=(1, (1, 3)))),
    "MultiLabelAUC": (multi_label, NAMES, dict(AUC, **ABSENT, **CLASSWISE)),
    "MultiLabelPRF": (multi_label, NAMES, dict(PRF, **CLASSWISE, thr=(None, 0.3), topk=(None, 2))),
    "DetectionPRF": (
        detections,
        CLASSES,
        dict(average=AVERAGES, matching=("coco", "mmdet"), zero_division=("skip", 0), ap=(False, True), **CLASSWISE)
        | dict(ci=(None, 0.9), operating_point=(None, "f1", "precision=0.9"), resamples=(20,)),
    ),
    "MeanIoU": (label_maps, NAMES, dict(**ABSENT, **CLASSWISE)),
    "DiceScore": (
        label_maps,
        NAMES,
        dict(over=("sample", "dataset"), empty=(1.0, "skip"), convention=(None, "mindspore"), **CLASSWISE),
    ),
}


def combinations(name, most=60):
    """Option combinations that the metric accepts, at random if there are many."""
    options = OPTIONS[name][2]
    rows = [dict(zip(options, values)) for values in itertools.product(*options.values())]
    for index in np.random.default_rng(0).permutation(len(rows)).tolist():
        try:
            yield getattr(mm_metrics_plugin, name)(**rows[index])
        except ValueError:  # options that do not go together
            continue
        most -= 1
        if not most:
            return


@pytest.mark.filterwarnings("ignore:.*named by their indices")
@pytest.mark.parametrize("name", OPTIONS)
def test_keys_are_known_before_the_first_evaluation(name):
    build, classes, _ = OPTIONS[name]
    samples = build(np.random.default_rng(0), 24)
    for metric in combinations(name):
        metric.dataset_meta = {"classes": classes}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            keys = metric.log_keys()
        assert not caught and keys == list(evaluate(metric, samples)), vars(metric)
        assert metric.log_keys() == keys


@pytest.mark.filterwarnings("ignore:.*named by their indices")
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name != "regression-zero-target"], ids=lambda c: c.name
)
def test_keys_of_every_case_are_known(case):
    metric = case.metric()
    of_regions = type(metric).__name__ == "DiceScore"  # channels are not the classes of the dataset
    if case.classes is None and hasattr(metric, "num_classes") and not of_regions:  # keys per class need the classes
        metric.dataset_meta = {"classes": NAMES}
    keys = metric.log_keys()
    assert keys == list(evaluate(metric, case.draw(30)))
    if type(metric).__name__ not in OPTIONS:  # the options change no keys
        assert type(metric).__name__ in ("RegressionError", "PosNegRatio", "FieldMean", "FieldSum", "PCK")


def test_samples_without_scores_do_not_change_the_keys():
    metric = SingleLabelAUC(thrs=(0.3, 0.5), num_classes=4)
    values = evaluate(metric, only_predicted_labels(np.random.default_rng(0), 20))
    assert list(values) == metric.log_keys() and len(set(values.values())) == 2  # AUC and the number of classes


def test_keys_of_evaluators():
    from mmpretrain.evaluation import MultiTasksMetric

    tasks = MultiTasksMetric(task_metrics={"animal": [dict(type="SingleLabelAUC"), dict(type="mmpretrain.Accuracy")]})
    auc, accuracy = keys_of(Evaluator([tasks]))
    assert auc.keys == ["animal_single-label/auc", "animal_single-label/classes_averaged"]
    assert (accuracy.prefix, accuracy.keys) == ("animal_accuracy/", None)
    metas = [{"classes": names, "cumulative_sizes": [1, 2]} for names in (("cat",), ("dog", "cow"))]
    found = keys_of(multi([MeanIoU(classwise=True), MeanIoU(classwise=True)], metas))
    per_class = [[key for key in one.keys if key.startswith(f"{one.prefix}IoU/")] for one in found]
    assert per_class == [["set0/sem-seg/IoU/cat"], ["set1/sem-seg/IoU/dog", "set1/sem-seg/IoU/cow"]]


# --- monitored keys ---------------------------------------------------------------------------------------------------


class Foreign(BaseMetric):
    """A metric of another package."""

    default_prefix = "other"

    def process(self, data_batch, data_samples):
        self.results += [0] * len(data_samples)

    def compute_metrics(self, results):
        return {"value": 1.0}


def message_for(metrics, key, classes=("cat", "dog")):
    evaluator = Evaluator(metrics)
    evaluator.dataset_meta = {"classes": classes}
    return missing_key(keys_of(evaluator), "save_best", key)


@pytest.mark.parametrize(
    ("metrics", "key", "words"),
    [
        ([SingleLabelAUC()], "auc", "did you mean 'single-label/auc'?"),
        ([SingleLabelAUC(), Foreign()], "auc", "did you mean 'single-label/auc'?"),
        ([SingleLabelPRF()], "single-label/f1", "did you mean 'single-label-prf/f1'?"),
        ([DetectionPRF(ap=True)], "coco/bbox_mAP", "no metric gives this key"),
        ([DetectionPRF(ap=True)], "bbox_mAP_50", "did you mean 'det/mAP_50'?"),
        ([SingleLabelAUC(average=None)], "single-label/auc", "per class only, such as 'single-label/auc/cat' (average"),
        ([SingleLabelPRF(average=None)], "single-label-prf/f1", "per class only, such as 'single-label-prf/f1/cat'"),
        ([DetectionPRF()], "det/f1/cat", "did you mean 'det/f1'? (the keys are det/f1, det/precision,"),
        ([DetectionPRF(classwise=True)], "det/f1/cow", "det/classes_averaged, det/f1/<class>, det/precision/<class>"),
    ],
)
def test_the_nearest_key_is_named(metrics, key, words):
    message = message_for(metrics, key)
    assert message.startswith(f"save_best={key!r}: no metric gives this key") and words in message


@pytest.mark.parametrize(
    ("metrics", "key", "classes"),
    [
        ([SingleLabelAUC()], "single-label/auc", ()),
        ([SingleLabelAUC()], "auto", ()),
        ([SingleLabelAUC(classwise=True)], "single-label/auc/7", ()),  # the samples tell the number of classes
        ([SingleLabelAUC(classwise=True)], "single-label/auc/dog", ("cat", "dog")),
        ([SingleLabelAUC(), Foreign()], "other/valeu", ()),  # unknown, so it may exist
        ([SingleLabelAUC()], "val_loss", ()),  # mmengine adds the losses of the model
        ([DetectionPRF()], "det/any", ()),  # without classes there are no keys
    ],
)
def test_keys_that_may_exist_have_no_message(metrics, key, classes):
    assert message_for(metrics, key, classes) is None


def validated(folder, metrics, hooks):
    """The log of a run of one epoch, and its error."""
    samples = [
        BaseDataElement(metainfo=dict(sample_idx=index), pred_score=torch.rand(2), gt_label=torch.tensor([index % 2]))
        for index in range(8)
    ]
    runner = runner_for(folder, samples, metrics, hooks, epochs=1, classes=("cat", "dog"))
    try:
        runner.train()
    except Exception as error:
        return log_text(folder), error
    return log_text(folder), None


RULE = dict(rule="greater")


@pytest.mark.parametrize(
    ("hooks", "option"),
    [
        ([CheckpointHook(save_best="auc")], "save_best='auc'"),
        ([CheckpointHook(save_best=["single-label/auc", "auc"])], "save_best='auc'"),
        ([EarlyStoppingHook("auc", strict=True, **RULE)], "monitor of EarlyStoppingHook='auc'"),
    ],
)
def test_a_run_stops_before_training(tmp_path, hooks, option):
    log, error = validated(tmp_path, [SingleLabelAUC(classwise=True)], [*hooks, EvaluationCheckHook()])
    assert isinstance(error, ValueError) and str(error).startswith(f"{option}: no metric gives this key; did you mean")
    keys = "single-label/auc, single-label/classes_averaged, single-label/auc/<class>"
    assert f"EvaluationCheckHook: the validation logs {keys}" in log and "Epoch(train)" not in log
    log, error = validated(tmp_path / "without", [SingleLabelAUC()], hooks)
    assert "Epoch(val)" in log and isinstance(error, (KeyError, RuntimeError))  # mmengine's, after the first epoch


def test_a_key_that_only_disables_a_hook_gives_a_warning(tmp_path):
    hooks = [EarlyStoppingHook("auc", **RULE), EvaluationCheckHook()]
    with pytest.warns(UserWarning, match="Skip early stopping"):
        log, error = validated(tmp_path, [SingleLabelAUC()], hooks)
    assert error is None and "monitor of EarlyStoppingHook='auc': no metric gives this key; did you mean" in log


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(metric_classes()))
def test_the_nearest_option_is_named(name):
    required = {"field": "x"} if name.startswith("Field") else {}
    options = [*inspect.signature(metric_classes()[name]).parameters, "collect_device", "prefix"]
    for option in set(options) - {"kwargs"}:
        typo = f"{option}s" if option != "thr" else "thrr"
        if typo in options:
            continue
        with pytest.raises(TypeError, match=f"'{typo}' is not an option of {name}; did you mean '{option}'"):
            METRICS.build({"type": name, typo: 1, **required})
    with pytest.raises(TypeError, match=rf"'xyz' is not an option of {name}; options are .*prefix$"):
        METRICS.build({"type": name, "xyz": 1, **required})


def test_options_of_other_metrics_are_refused():
    with pytest.raises(TypeError, match="'class_wise' is not an option of SingleLabelAUC; did you mean 'classwise'"):
        SingleLabelAUC(class_wise=True)
    with pytest.raises(TypeError, match="'num_thresholds' is not an option of SingleLabelPRF"):
        SingleLabelPRF(num_thresholds=100)
