"""Figures in TensorBoard and the local folder at the step of the scalars; checks before training starts."""

from __future__ import annotations

import io
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement, InstanceData
from mmengine.visualization import LocalVisBackend, WandbVisBackend
from mmengine.visualization.vis_backend import MLflowVisBackend
from PIL import Image
from torch import distributed

from mm_metrics_plugin import (
    CalibrationError,
    DetectionPRF,
    EvaluationCheckHook,
    FieldMean,
    MeanIoU,
    MetricFigureHook,
    MetricInputError,
    SingleLabelAUC,
    SingleLabelPRF,
    UndefinedMetricWarning,
)
from mm_metrics_plugin.metrics.base import FigureSpec
from mm_metrics_plugin.metrics.hooks import _name_for
from mm_metrics_plugin.metrics.runner_checks import check_evaluations, check_keys
from mm_metrics_plugin.render.figures import draw_figures
from mm_metrics_plugin.testing import run_processes
from tests.helpers.cases_detection import CLASSES, detections
from tests.helpers.runners import Dataset, log_text, runner_for

ROOT = Path(__file__).resolve().parent.parent.parent
FIGURES = ["single-label/curves", "single-label-prf/confusion_matrix", "single-label/reliability"]
COARSE = dict(type="MetricFigureHook", dpi=20)
# Slow imports are inside the functions that need them: the processes of a group import this file too.
# After one epoch some class may never be predicted.
pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")


# --- figures of training runs on digits -------------------------------------------------------------------------------


def digits(folder, **changes):
    """The Runner of the example config, with two epochs."""
    config = Config.fromfile(str(ROOT / "configs" / "digits_figures.py"))
    config.merge_from_dict({"train_cfg.max_epochs": 2, "work_dir": str(folder), **changes})
    config.experiment_name = f"{folder}".replace("/", "_")  # mmengine would confuse runs of the same second
    return Runner.from_cfg(config)


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (data,) = {file.parent for file in Path(folder).rglob("events.out.tfevents*")}
    accumulator = EventAccumulator(str(data), size_guidance={"images": 0, "scalars": 0})
    accumulator.Reload()
    return accumulator


def local_files(folder):
    return {path.name: path for path in Path(folder).rglob("vis_image/*.png")}


def pixels(source):
    return np.asarray(Image.open(source).convert("RGB"))


def colors(image):
    return len(np.unique(image @ np.array([1, 256, 65536])))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    runner = digits(folder)
    runner.train()
    return folder, runner


def test_every_backend_has_every_figure_at_the_steps_of_the_scalars(trained):
    folder, runner = trained
    for metric in runner.val_loop.evaluator.metrics:
        assert metric._evaluated is None and metric.figures_wanted == () and metric.results == []
    logged, files = events(folder), local_files(folder)
    assert logged.Tags()["images"] == FIGURES
    steps = [event.step for event in logged.Scalars("single-label/auc")]
    assert steps == [1, 2] and len(files) == 2 * len(FIGURES)
    for tag in FIGURES:
        assert [event.step for event in logged.Images(tag)] == steps
        for event in logged.Images(tag):
            image = pixels(io.BytesIO(event.encoded_image_string))
            assert min(image.shape[:2]) > 400 and colors(image) > 100  # not blank
            assert np.array_equal(image, pixels(files[f"{tag.replace('/', '_')}_{event.step}.png"]))


@pytest.mark.parametrize("log_metric_by_epoch", [False, True])
def test_steps_of_a_run_by_iterations(log_metric_by_epoch, tmp_path):
    runner = digits(
        tmp_path,
        train_cfg=dict(_delete_=True, by_epoch=False, max_iters=12, val_interval=6),
        default_hooks=dict(_delete_=True, logger=dict(type="LoggerHook", log_metric_by_epoch=log_metric_by_epoch)),
        custom_hooks=[COARSE],
    )
    runner.train()
    logged = events(tmp_path)
    for tag in FIGURES:
        assert [image.step for image in logged.Images(tag)] == [6, 12]
    # mmengine puts all scalars at step 0 if they are logged by epochs, which such a run does not have.
    steps = [event.step for event in logged.Scalars("single-label/auc")]
    assert steps == ([0, 0] if log_metric_by_epoch else [6, 12])


def test_interval_patterns_and_the_test_loop(tmp_path):
    hook = dict(COARSE, figures=["confusion_matrix", "single-label/rel*", "confusoin"], interval=2)
    runner = digits(tmp_path, custom_hooks=[hook], **{"default_hooks.checkpoint.save_best": None})
    for _ in range(3):
        runner.val()
    runner.test()
    names = ["single-label-prf/confusion_matrix", "single-label/reliability"]
    logged = events(tmp_path)
    assert sorted(logged.Tags()["images"]) == sorted([*names, *(f"test/{name}" for name in names)])
    assert [len(logged.Images(name)) for name in names] == [2, 2]  # of three validations, the first and the third
    warning = "no metric has figures called confusoin (there are single-label/curves, single-label-prf/confusion_matrix"
    assert log_text(tmp_path).count(warning) == 1


# --- figures without training -----------------------------------------------------------------------------------------


def images(count=40):
    return detections(np.random.default_rng(3), count)


def detection_runner(folder, metrics, hooks, count=8):
    return runner_for(folder, images(count), metrics, hooks, classes=CLASSES)


DETECTION_FILES = ["det_confidence_curves_0.png", "det_confusion_matrix_0.png", "det_pr_curves_0.png"]


def test_figures_of_a_detector_do_not_change_its_values(tmp_path):
    plain, drawn = (
        detection_runner(tmp_path / name, [DetectionPRF(ap=True, classwise=True)], hooks, 40)
        for name, hooks in (("plain", []), ("drawn", [dict(type="MetricFigureHook")]))
    )
    assert repr(plain.val()) == repr(drawn.val())
    assert not local_files(tmp_path / "plain")
    files = local_files(tmp_path / "drawn")
    assert sorted(files) == DETECTION_FILES and all(colors(pixels(file)) > 100 for file in files.values())
    tags = ["det/confusion_matrix", "det/pr_curves", "det/confidence_curves"]
    assert events(tmp_path / "drawn").Tags()["images"] == tags


def evaluated(metric, samples, wanted=("*",), **meta):
    """The values of an evaluation and the figures that are wanted."""
    metric.dataset_meta = meta
    metric.figures_wanted = wanted
    metric.process(None, samples)
    values = metric.evaluate(len(samples))
    specs = metric.pop_figures()
    assert metric._evaluated is None and metric.pop_figures() == []
    return values, specs


def test_the_froc_curve_of_a_detector_has_its_values():
    values, specs = evaluated(DetectionPRF(froc=True), images(), ("froc_curves",), classes=CLASSES)
    (curve,) = (spec for spec in specs if spec.names == ("froc_curves",))
    (figure,) = draw_figures(curve.result(), CLASSES)
    (axes,) = figure.axes
    x, y = axes.lines[0].get_data()
    shown = np.interp([0.125, 1, 8], x, y)
    expected = [values[f"det/sensitivity@{fps}"] for fps in ("0.125", "1", "8")]
    assert shown == pytest.approx(expected, abs=5e-3)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [*CLASSES, "all (pooled)"]
    others = evaluated(DetectionPRF(), images(), classes=CLASSES)[1]
    assert others and not [spec for spec in others if "froc_curves" in spec.names]


def test_curves_of_a_detector_at_its_threshold_are_its_values():
    values, (matrix, curves) = evaluated(DetectionPRF(), images(), ("pr_curves",), classes=CLASSES)
    counted, drawn = matrix.result(), curves.result()
    assert counted.labels == (*CLASSES, "background") and counted.matrix[:-1, :-1].trace() == values["det/tp"]
    index = int(np.abs(drawn.confidence - 0.3).argmin())
    assert drawn.mean_precision[index] == pytest.approx(values["det/precision"], abs=1e-15)
    assert drawn.mean_recall[index] == pytest.approx(values["det/recall"], abs=1e-15)


@pytest.mark.parametrize("matching", ["coco", "mmdet"])
def test_detections_are_kept_for_curves_only(matching):
    for wanted, names in (((), []), (("confusion_matrix",), [("confusion_matrix",)])):
        metric = DetectionPRF(matching=matching, num_classes=3)
        metric.figures_wanted = wanted
        assert metric.empty_state().keep == "matrix"
        assert [spec.names for spec in evaluated(metric, images(), wanted)[1]] == names


def scored(scores, labels):
    return [dict(pred_score=torch.tensor(s), gt_label=torch.tensor([y])) for s, y in zip(scores, labels)]


def test_curves_of_binned_scores_are_points_of_the_exact_curves():
    generator = np.random.default_rng(0)
    samples = scored(generator.dirichlet(np.ones(3), 200).astype(np.float32), generator.integers(0, 3, 200))
    exact, binned = (
        evaluated(SingleLabelAUC(num_thresholds=bins, slide_steps=1), samples)[1][0].result() for bins in (None, 4096)
    )
    for all_points, some in zip(exact.per_class, binned.per_class):
        points = set(zip(all_points.tp.tolist(), all_points.fp.tolist()))
        assert 50 < len(some.tp) < len(all_points.tp) and set(zip(some.tp.tolist(), some.fp.tolist())) <= points
        assert (some.positives, some.negatives) == (all_points.positives, all_points.negatives)


def test_no_curves_without_scores_or_samples():
    samples = scored([[0.7, 0.3]] * 2, (0, 1))
    for metric, given in ((SingleLabelAUC(thrs=0.5), samples), (SingleLabelAUC(), []), (CalibrationError(), [])):
        assert evaluated(metric, given)[1] == []


def test_one_confusion_matrix_per_threshold():
    _, (plain, strict) = evaluated(SingleLabelPRF(thrs=[None, 0.6]), scored([[0.55, 0.45]] * 2, (0, 1)))
    assert (plain.names, strict.names) == (("confusion_matrix_no-thr",), ("confusion_matrix_thr-0.60",))
    assert plain.result().matrix.tolist() == [[1, 0], [1, 0]]
    assert strict.result().matrix.tolist() == [[0, 0, 1], [0, 0, 1], [0, 0, 0]]
    assert strict.result().labels == ("0", "1", "no decision")


class InvalidFigure(DetectionPRF):
    """Declares a figure that cannot be drawn."""

    default_prefix = "bad"

    def figures(self, state):
        return [FigureSpec(("nothing",), (), lambda: object()), *super().figures(state)]


class FullBackend(LocalVisBackend):
    """A backend that accepts nothing."""

    def add_image(self, *arguments, **options):
        raise OSError("no space left")


def test_figures_and_backends_that_fail_give_one_warning_each(tmp_path):
    runner = detection_runner(tmp_path, [InvalidFigure()], [COARSE])
    runner.visualizer._vis_backends["Full"] = FullBackend(str(tmp_path))
    first, second = runner.val(), runner.val()
    assert repr(first) == repr(second)
    assert sorted(local_files(tmp_path)) == [name.replace("det_", "bad_") for name in DETECTION_FILES]
    text = log_text(tmp_path)
    assert text.count("MetricFigureHook: bad/nothing is not drawn: there is no figure of a object") == 1
    assert text.count("MetricFigureHook: FullBackend does not take bad/confusion_matrix: no space left") == 1


def test_errors_and_too_many_classes_are_warnings(tmp_path, monkeypatch):
    hook = dict(COARSE, max_classes=2)
    assert detection_runner(tmp_path / "classes", [DetectionPRF()], [hook]).val()["det/f1"] > 0
    assert "det/confusion_matrix is not drawn: it has 3 classes, and max_classes=2" in log_text(tmp_path)
    monkeypatch.setattr(DetectionPRF, "figures", lambda *_: 1 / 0)
    assert detection_runner(tmp_path / "error", [DetectionPRF()], [hook]).val()["det/f1"] > 0
    assert "MetricFigureHook: DetectionPRF has no figures: division by zero" in log_text(tmp_path)
    assert not local_files(tmp_path)


def test_metrics_with_the_same_prefix_and_tasks(tmp_path):
    from mmpretrain.evaluation import MultiTasksMetric

    samples = scored([[0.3, 0.7]] * 8, [0, 1] * 4)
    for sample in samples:
        sample["color"] = dict(pred_score=torch.tensor([0.8, 0.2]), gt_label=torch.tensor([0]), eval_mask=True)
    tasks = MultiTasksMetric(task_metrics=dict(color=[dict(type="CalibrationError")]))
    metrics = [tasks, SingleLabelAUC(), SingleLabelAUC(prefix="single-label")]
    runner = runner_for(tmp_path, samples, metrics, [COARSE], classes="ab")
    metrics[1]._keys = lambda *_: {}  # mmengine would refuse equal keys
    runner.val()
    names = ["color_single-label_reliability", "single-label_curves", "single-label_curves_2"]
    assert sorted(local_files(tmp_path)) == [f"{name}_0.png" for name in names]


def validate_on_this_process(folder):
    own, metric = Path(folder, f"rank{distributed.get_rank()}"), DetectionPRF()
    values = detection_runner(own, [metric], [COARSE], 25).val()
    return values, sorted(local_files(own)), metric._evaluated is None


def test_only_the_main_process_draws(tmp_path):
    ((first, second),) = run_processes(2, validate_on_this_process, [str(tmp_path)])
    assert first[0] == second[0] == detection_runner(tmp_path / "alone", [DetectionPRF()], [], 25).val()
    assert (first[1:], second[1:]) == ((DETECTION_FILES, True), ([], True))


def test_names_of_figures_in_each_backend(tmp_path):
    tag = "det/confusion_matrix"
    assert _name_for(LocalVisBackend(str(tmp_path)), tag, 7) == "det_confusion_matrix"
    assert _name_for(MLflowVisBackend(str(tmp_path)), tag, 7) == "det/confusion_matrix_7.png"
    assert _name_for(WandbVisBackend(str(tmp_path)), tag, 7) == tag


# --- checks before training starts ------------------------------------------------------------------------------------


class RandomNumbers(Hook):
    """Records the random numbers at the start of the training."""

    def __init__(self):
        self.drawn = []

    def before_train(self, runner):
        self.drawn = [random.random(), float(np.random.rand()), float(torch.rand(1))]  # noqa: NPY002


def image(**gt):
    boxes, labels = torch.tensor([[0.0, 0, 8, 8]]), torch.tensor([0])
    predictions = InstanceData(bboxes=boxes, labels=labels, scores=torch.tensor([0.5]))
    metainfo = dict(img_path="a.jpg", img_id=7)
    return BaseDataElement(metainfo=metainfo, pred_instances=predictions, gt_instances=InstanceData(**gt))


def train(folder, sample, metrics, hooks):
    runner_for(folder, [sample] * 2, metrics, hooks, epochs=1, classes=("cat", "dog")).train()


def test_missing_ground_truth_raises_before_training(tmp_path):
    numbers = RandomNumbers()
    with pytest.raises(MetricInputError) as caught:
        train(tmp_path, image(), [DetectionPRF()], [EvaluationCheckHook(), numbers])
    assert str(caught.value) == (
        "DetectionPRF: sample 0 (a.jpg) must have a field 'gt_instances.bboxes' (found nothing): add "
        "dict(type='LoadAnnotations', with_bbox=True) after Resize in the test pipeline"
    )
    assert not numbers.drawn


def test_the_figure_hook_warns_before_training(tmp_path):
    with pytest.raises(MetricInputError):
        train(tmp_path, image(), [DetectionPRF()], [MetricFigureHook()])
    warning, training = map(log_text(tmp_path).find, ("the evaluation will fail: DetectionPRF", "Epoch(train)"))
    assert warning > 0 and (training < 0 or warning < training)


@pytest.mark.parametrize("metric", [SingleLabelAUC, MeanIoU, CalibrationError])
def test_remedies_for_missing_ground_truth(tmp_path, metric):
    with pytest.raises(MetricInputError, match=r"test dataset must have labels|LoadAnnotations"):
        train(tmp_path, BaseDataElement(other=1), [metric()], [EvaluationCheckHook()])


def test_the_check_does_not_change_random_states(tmp_path):
    sample = image(bboxes=torch.tensor([[0.0, 0, 8, 8]]), labels=torch.tensor([0]))
    drawn = []
    for hooks in ([], [EvaluationCheckHook()]):
        numbers = RandomNumbers()
        train(tmp_path / str(len(hooks)), sample, [DetectionPRF(zero_division=0)], [*hooks, numbers])
        drawn.append(numbers.drawn)
    assert drawn[0] == drawn[1] and len(drawn[0]) == 3


class MissingFiles(Dataset):
    """A dataset that cannot be read."""

    def __getitem__(self, index):
        raise OSError("no such file")


@pytest.mark.parametrize(
    "dataset", [None, [], [torch.zeros(3)], [dict(data_samples=[dict()])], Dataset([dict(x=1)]), MissingFiles([1])]
)
def test_other_datasets_are_not_checked(dataset):
    """The model may create the samples, and the loop reports what cannot be loaded."""
    loop = SimpleNamespace(evaluator=Evaluator([SingleLabelAUC()]), dataloader=SimpleNamespace(dataset=dataset))
    runner = SimpleNamespace(_val_loop=loop, _test_loop=dict(type="TestLoop"), hooks=[], param_schedulers=None)
    check_evaluations(runner)


def test_duplicate_keys_raise_before_training(tmp_path):
    numbers, metrics = RandomNumbers(), [SingleLabelAUC(), SingleLabelAUC(curve="pr")]
    with pytest.raises(ValueError, match="both give the key 'single-label/auc': give one of them another prefix="):
        train(tmp_path, BaseDataElement(gt_label=torch.tensor([0])), metrics, [EvaluationCheckHook(), numbers])
    assert not numbers.drawn
    check_keys(Evaluator([FieldMean("a"), FieldMean("b", key="b")]))


def test_the_check_does_not_use_up_the_warning():
    metric = SingleLabelAUC()
    check_keys(Evaluator([metric]))
    with pytest.warns(UndefinedMetricWarning):
        metric.evaluate(0)
