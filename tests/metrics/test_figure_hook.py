"""Figures of real runs reach TensorBoard and the local folder at the step of the numbers, and cost nothing when off."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop, Runner
from mmengine.runner.utils import calc_dynamic_intervals
from mmengine.visualization import LocalVisBackend, WandbVisBackend
from mmengine.visualization.vis_backend import MLflowVisBackend
from PIL import Image
from torch import distributed

from mm_metrics_plugin import CalibrationError, DetectionPRF, SingleLabelAUC, SingleLabelPRF
from mm_metrics_plugin.functional.classification.confusion_matrix import matrix_view
from mm_metrics_plugin.metrics.base import FigureSpec
from mm_metrics_plugin.metrics.hooks import _earlier_validations, _name_for
from mm_metrics_plugin.render.figures import draw_figures
from mm_metrics_plugin.render.figures.confusion_matrix import to_rgb
from mm_metrics_plugin.states.detection import DetectionState
from mm_metrics_plugin.testing import run_processes
from tests.helpers.cases_detection import CLASSES, detections

ROOT = Path(__file__).resolve().parent.parent.parent
FIGURES = ["single-label/curves", "single-label-prf/confusion_matrix", "single-label/reliability"]
COARSE = dict(type="MetricFigureHook", dpi=20)
# Slow imports stand where they are used: the processes of a group import this file too.
# After one epoch some class may never be predicted.
pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning")
BACKENDS = ["LocalVisBackend", "TensorboardVisBackend"]


# --- real training runs on digits -------------------------------------------------------------------------------------


def digits(folder, **changes):
    """The runner of the example config, two epochs long."""
    config = Config.fromfile(str(ROOT / "configs" / "digits_figures.py"))
    config.merge_from_dict({"train_cfg.max_epochs": 2, "work_dir": str(folder), **changes})
    config.experiment_name = f"{folder}".replace("/", "_")  # mmengine's managers would mix up runs of one second
    return Runner.from_cfg(config)


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (data,) = {file.parent for file in Path(folder).rglob("events.out.tfevents*")}
    found = EventAccumulator(str(data), size_guidance={"images": 0, "scalars": 0})
    found.Reload()
    return found


def local_files(folder):
    return {path.name: path for path in Path(folder).rglob("vis_image/*.png")}


def pixels(source):
    return np.asarray(Image.open(source).convert("RGB"))


def colors(picture):
    return len(np.unique(picture @ np.array([1, 256, 65536])))


def logged(folder):
    return "\n".join(path.read_text(encoding="utf-8") for path in Path(folder).rglob("*.log"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    runner = digits(folder)
    runner.train()
    return folder, runner


def test_tensorboard_has_every_figure_at_the_steps_of_the_numbers(trained):
    for metric in trained[1].val_loop.evaluator.metrics:
        assert metric._evaluated is None and metric.figures_wanted == () and metric.results == []
    found = events(trained[0])
    assert found.Tags()["images"] == FIGURES
    steps = [event.step for event in found.Scalars("single-label/auc")]
    assert steps == [1, 2]
    for tag in FIGURES:
        images = found.Images(tag)
        assert [image.step for image in images] == steps
        for image in images:
            picture = pixels(io.BytesIO(image.encoded_image_string))
            assert picture.shape == (image.height, image.width, 3) and min(picture.shape[:2]) > 400
            assert colors(picture) > 100  # not blank


def test_the_local_folder_has_the_same_pictures(trained):
    folder, found = trained[0], events(trained[0])
    files = local_files(folder)
    assert sorted(files) == sorted(f"{tag.replace('/', '_')}_{step}.png" for tag in FIGURES for step in (1, 2))
    for tag in FIGURES:
        for image in found.Images(tag):
            other = pixels(files[f"{tag.replace('/', '_')}_{image.step}.png"])
            assert np.array_equal(pixels(io.BytesIO(image.encoded_image_string)), other)


def test_the_matrix_drawn_is_that_of_scikit_learn(trained):
    from sklearn.metrics import confusion_matrix

    folder, runner = trained
    data = runner.val_dataloader.dataset
    with torch.no_grad():
        decided = runner.model.layers(data.inputs).argmax(dim=1)
    matrix = confusion_matrix(data.labels, decided)
    view = matrix_view(matrix, data.metainfo["classes"], title=f"accuracy {matrix.trace() / matrix.sum():.4f}")
    (expected,) = draw_figures(view, view.labels)
    assert np.array_equal(pixels(local_files(folder)["single-label-prf_confusion_matrix_2.png"]), to_rgb(expected))


@pytest.mark.parametrize("log_metric_by_epoch", [False, True])
def test_steps_of_a_run_by_iterations(log_metric_by_epoch, tmp_path):
    runner = digits(
        tmp_path,
        train_cfg=dict(_delete_=True, by_epoch=False, max_iters=12, val_interval=6),
        default_hooks=dict(_delete_=True, logger=dict(type="LoggerHook", log_metric_by_epoch=log_metric_by_epoch)),
        custom_hooks=[COARSE],
    )
    runner.train()
    found = events(tmp_path)
    for tag in FIGURES:
        assert [image.step for image in found.Images(tag)] == [6, 12]
    # mmengine itself puts all numbers at step 0 when they are to be logged by epochs that such a run does not have.
    steps = [event.step for event in found.Scalars("single-label/auc")]
    assert steps == ([0, 0] if log_metric_by_epoch else [6, 12])


def test_interval_choice_and_the_test_loop(tmp_path):
    hook = dict(COARSE, figures=["confusion_matrix", "single-label/rel*", "confusoin"], interval=2)
    runner = digits(tmp_path, custom_hooks=[hook], **{"default_hooks.checkpoint.save_best": None})
    for _ in range(3):
        runner.val()
    runner.test()
    names = ["single-label-prf/confusion_matrix", "single-label/reliability"]
    found = events(tmp_path)
    assert sorted(found.Tags()["images"]) == sorted([*names, *(f"test/{name}" for name in names)])
    assert [len(found.Images(name)) for name in names] == [2, 2]  # of three validations, the first and the third
    warning = "no metric has figures called confusoin (there are single-label/curves, single-label-prf/confusion_matrix"
    assert logged(tmp_path).count(warning) == 1


def figure_steps(folder):
    """At which epochs a figure was drawn."""
    return [image.step for image in events(folder).Images("single-label-prf/confusion_matrix")]


def test_interval_goes_on_after_a_resume(tmp_path, monkeypatch):
    # mmengine's checkpoints hold more than weights, which torch.load refuses by default; this one is made right here.
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    changes = {
        "custom_hooks": [dict(COARSE, figures=["confusion_matrix"], interval=2)],
        "default_hooks.checkpoint": dict(type="CheckpointHook", interval=1),
    }
    first, second = tmp_path / "first", tmp_path / "second"
    digits(first, **changes, **{"train_cfg.max_epochs": 3}).train()
    resumed = {"train_cfg.max_epochs": 5, "load_from": str(first / "epoch_3.pth"), "resume": True}
    digits(second, **changes, **resumed).train()
    # Epoch 4 is the first validation of the second run, but the fourth of the training.
    assert (figure_steps(first), figure_steps(second)) == ([1, 3], [5])


@pytest.mark.parametrize("by_epoch", [True, False])
@pytest.mark.parametrize("begin", [1, 4, 7])
@pytest.mark.parametrize("interval, changes", [(1, None), (3, None), (5, [(12, 2)]), (4, [(9, 3), (20, 1)])])
def test_validations_are_counted_as_the_loop_runs_them(by_epoch, begin, interval, changes):
    """The loops' own ``run``, with a training step that does nothing."""
    counted = []
    cls = EpochBasedTrainLoop if by_epoch else IterBasedTrainLoop
    milestones, intervals = calc_dynamic_intervals(interval, changes)

    class Loop(cls):
        dataloader_iterator = iter(int, 1)

        def __init__(self, start):
            self._epoch = self._iter = start
            self._max_epochs = self._max_iters = 23
            self._runner, self.stop_training, self.val_begin, self.val_interval = runner, False, begin, interval
            self.dynamic_milestones, self.dynamic_intervals = milestones, intervals

        def run_epoch(self):
            self._epoch += 1

        def run_iter(self, data_batch):
            self._iter += 1

    model = SimpleNamespace(train=lambda: None)
    loop = SimpleNamespace(run=lambda: counted.append(_earlier_validations(runner)))
    runner = SimpleNamespace(call_hook=lambda name: None, val_loop=loop, model=model)
    runner._train_loop = Loop(0)
    runner._train_loop.run()
    whole = list(counted)
    assert whole == list(range(len(whole)))
    for start in (3, 10, 19):
        counted.clear()
        runner._train_loop = Loop(start)
        runner._train_loop.run()
        assert counted == whole[len(whole) - len(counted) :]


# --- validation only, without training --------------------------------------------------------------------------------


class Samples(torch.utils.data.Dataset):
    """Samples that are made already."""

    def __init__(self, samples, classes):
        self.samples, self.metainfo = samples, dict(classes=list(classes))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


class Answers(BaseModel):
    """A model that predicts what the samples say it did."""

    def forward(self, samples, mode):
        return samples


def as_they_are(batch):
    return dict(samples=batch)


def validator(folder, samples, classes, metrics, hooks):
    loader = dict(
        dataset=Samples(samples, classes),
        batch_size=8,
        num_workers=0,
        sampler=dict(type="DefaultSampler", shuffle=False),
        collate_fn=as_they_are,
    )
    return Runner(
        model=Answers(),
        work_dir=str(folder),
        val_dataloader=loader,
        val_evaluator=metrics,
        val_cfg=dict(),
        custom_hooks=hooks,
        visualizer=dict(type="Visualizer", vis_backends=[dict(type=name) for name in BACKENDS]),
        experiment_name=f"{folder}".replace("/", "_"),
    )


def images(count=40):
    return detections(np.random.default_rng(3), count)


def test_a_detector(tmp_path):
    plain, drawn = (
        validator(tmp_path / name, images(), CLASSES, [DetectionPRF(ap=True, classwise=True)], hooks)
        for name, hooks in (("plain", []), ("drawn", [dict(type="MetricFigureHook")]))
    )
    assert repr(plain.val()) == repr(drawn.val())
    assert not local_files(tmp_path / "plain")
    files = local_files(tmp_path / "drawn")
    assert sorted(files) == ["det_confidence_curves_0.png", "det_confusion_matrix_0.png", "det_pr_curves_0.png"]
    found = events(tmp_path / "drawn")
    assert found.Tags()["images"] == ["det/confusion_matrix", "det/pr_curves", "det/confidence_curves"]
    assert all(colors(pixels(file)) > 100 for file in files.values())


def test_the_curves_of_a_detector_are_those_of_the_report():
    metric = DetectionPRF()
    metric.dataset_meta = dict(classes=CLASSES)
    metric.figures_wanted = ("pr_curves",)
    metric.process(None, images())
    found = metric.evaluate(size=40)
    matrix, curves = metric.pop_figures()
    assert metric.pop_figures() == []
    counted, drawn = matrix.result(), curves.result()
    assert counted.labels == (*CLASSES, "background") and counted.matrix[:-1, :-1].trace() == found["det/tp"]
    # At the metric's own threshold the curve gives the metric's own numbers.
    at = int(np.abs(drawn.confidence - metric.settings.score_thr).argmin())
    assert drawn.mean_precision[at] == pytest.approx(found["det/precision"], abs=1e-15)
    assert drawn.mean_recall[at] == pytest.approx(found["det/recall"], abs=1e-15)


@pytest.mark.parametrize("matching", ["coco", "mmdet"])
def test_without_the_hook_no_more_is_kept(matching):
    metric = DetectionPRF(matching=matching)
    metric.dataset_meta = dict(classes=CLASSES)
    metric.process(None, images())
    assert type(metric.results[0]) is DetectionState
    metric.evaluate(size=40)
    assert metric._evaluated is None and metric.pop_figures() == []
    metric.figures_wanted = ("confusion_matrix",)  # for which the counts suffice
    metric.process(None, images())
    assert type(metric.results[0]) is DetectionState
    metric.evaluate(size=40)
    assert [one.names for one in metric.pop_figures()] == [("confusion_matrix",)]


def test_binned_scores_have_curves_too():
    random = np.random.default_rng(0)
    scores = random.dirichlet(np.ones(3), 200).astype(np.float32)
    labels = random.integers(0, 3, 200)
    drawn = {}
    for bins in (None, 4096):
        metric = SingleLabelAUC(num_thresholds=bins, slide_steps=1)
        metric.figures_wanted = ("*",)
        samples = [dict(pred_score=torch.tensor(s), gt_label=torch.tensor([y])) for s, y in zip(scores, labels)]
        metric.process(None, samples)
        metric.evaluate(size=200)
        (one,) = metric.pop_figures()
        drawn[bins] = one.result()
    for exact, binned in zip(drawn[None].per_class, drawn[4096].per_class):
        points = set(zip(exact.tp.tolist(), exact.fp.tolist()))
        assert 50 < len(binned.tp) < len(exact.tp) and set(zip(binned.tp.tolist(), binned.fp.tolist())) <= points
        assert (binned.positives, binned.negatives) == (exact.positives, exact.negatives)


def test_decisions_without_scores_and_no_samples_have_no_curves():
    samples = [dict(pred_score=torch.tensor([0.7, 0.3]), gt_label=torch.tensor([y])) for y in (0, 1)]
    for metric, seen in ((SingleLabelAUC(thrs=0.5), samples), (SingleLabelAUC(), []), (CalibrationError(), [])):
        metric.figures_wanted = ("*",)
        metric.process(None, seen)
        metric.evaluate(size=len(seen))
        assert metric.pop_figures() == []


def test_every_threshold_has_its_matrix():
    metric = SingleLabelPRF(thrs=[None, 0.6])
    metric.figures_wanted = ("*",)
    metric.process(None, [dict(pred_score=torch.tensor([0.55, 0.45]), gt_label=torch.tensor([y])) for y in (0, 1)])
    metric.evaluate(size=2)
    plain, strict = metric.pop_figures()
    assert (plain.names, strict.names) == (("confusion_matrix_no-thr",), ("confusion_matrix_thr-0.60",))
    assert plain.result().matrix.tolist() == [[1, 0], [1, 0]]
    assert strict.result().matrix.tolist() == [[0, 0, 1], [0, 0, 1], [0, 0, 0]]
    assert strict.result().labels == ("0", "1", "no decision")


# --- when something goes wrong ----------------------------------------------------------------------------------------


class Unshowable(DetectionPRF):
    """Promises a figure that cannot be drawn."""

    default_prefix = "bad"

    def figures(self, state):
        return [FigureSpec(("nothing",), (), lambda: object()), *super().figures(state)]


def test_a_figure_that_fails_is_a_warning_once_and_nothing_else_suffers(tmp_path):
    runner = validator(tmp_path, images(8), CLASSES, [Unshowable()], [COARSE])
    runner.visualizer._vis_backends["Full"] = Full(str(tmp_path))
    first, second = runner.val(), runner.val()
    assert repr(first) == repr(second)
    assert sorted(local_files(tmp_path)) == [
        f"bad_{name}_0.png" for name in ("confidence_curves", "confusion_matrix", "pr_curves")
    ]
    text = logged(tmp_path)
    assert text.count("MetricFigureHook: bad/nothing is not drawn: there is no figure of a object") == 1
    assert text.count("MetricFigureHook: Full does not take bad/confusion_matrix: no space left") == 1


class Full(LocalVisBackend):
    """A backend that takes nothing."""

    def add_image(self, *arguments, **options):
        raise OSError("no space left")


def test_an_error_in_figures_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(DetectionPRF, "figures", lambda *_: 1 / 0)
    runner = validator(tmp_path, images(8), CLASSES, [DetectionPRF()], [COARSE])
    assert runner.val()["det/f1"] > 0
    assert logged(tmp_path).count("MetricFigureHook: DetectionPRF has no figures: division by zero") == 1


def test_too_many_classes(tmp_path):
    runner = validator(tmp_path, images(8), CLASSES, [DetectionPRF()], [dict(COARSE, max_classes=2)])
    runner.val()
    assert not local_files(tmp_path)
    assert "det/confusion_matrix is not drawn: it has 3 classes, and max_classes=2" in logged(tmp_path)


# --- several metrics, several processes, several backends -------------------------------------------------------------


def test_metrics_of_the_same_prefix_and_of_tasks(tmp_path):
    from mmpretrain.evaluation import MultiTasksMetric

    samples = [
        dict(
            color=dict(pred_score=torch.tensor([0.8, 0.2]), gt_label=torch.tensor([0]), eval_mask=True),
            pred_score=torch.tensor([0.3, 0.7]),
            gt_label=torch.tensor([index % 2]),
        )
        for index in range(8)
    ]
    tasks = MultiTasksMetric(task_metrics=dict(color=[dict(type="CalibrationError")]))
    runner = validator(
        tmp_path, samples, "ab", [tasks, SingleLabelAUC(), SingleLabelAUC(prefix="single-label")], [COARSE]
    )
    runner.val_loop.evaluator.metrics[1]._keys = lambda *_: {}  # or their keys, which are the same, would be refused
    runner.val()
    names = ["color_single-label_reliability", "single-label_curves", "single-label_curves_2"]
    assert sorted(local_files(tmp_path)) == [f"{name}_0.png" for name in names]


def validate_on_this_process(folder):
    rank = distributed.get_rank()
    own = Path(folder, f"rank{rank}")
    metric = DetectionPRF()
    runner = validator(own, images(25), CLASSES, [metric], [COARSE])
    numbers = runner.val()
    return numbers, sorted(local_files(own)), metric._evaluated is None


def test_only_the_first_process_draws(tmp_path):
    ((first, second),) = run_processes(2, validate_on_this_process, [str(tmp_path)])
    assert first[0] == second[0] == validator(tmp_path / "alone", images(25), CLASSES, [DetectionPRF()], []).val()
    assert first[1:] == (["det_confidence_curves_0.png", "det_confusion_matrix_0.png", "det_pr_curves_0.png"], True)
    assert second[1:] == ([], True)


def test_names_of_figures_in_each_backend(tmp_path):
    tag = "det/confusion_matrix"
    assert _name_for(LocalVisBackend(str(tmp_path)), tag, 7) == "det_confusion_matrix"
    assert _name_for(MLflowVisBackend(str(tmp_path)), tag, 7) == "det/confusion_matrix_7.png"
    assert _name_for(WandbVisBackend(str(tmp_path)), tag, 7) == tag
