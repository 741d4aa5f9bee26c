"""Figures of the metrics where training is watched: TensorBoard, W&B, MLflow or the local folder."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

from mmengine.hooks import Hook, LoggerHook
from mmengine.registry import HOOKS
from mmengine.runner import BaseLoop, EpochBasedTrainLoop, IterBasedTrainLoop, Runner
from mmengine.visualization import BaseVisBackend, LocalVisBackend
from mmengine.visualization.vis_backend import MLflowVisBackend

from mm_metrics_plugin.metrics.base import Shown, StreamingMetric
from mm_metrics_plugin.metrics.check_hook import check_evaluations
from mm_metrics_plugin.render.figures import draw_figures
from mm_metrics_plugin.render.figures.confusion_matrix import DPI, to_rgb
from mm_metrics_plugin.settings import require


@HOOKS.register_module()
class MetricFigureHook(Hook):
    """Sends the metrics' figures to the backends of mmengine's visualizer at each validation and test.

    Drawn is what the metrics of the evaluator have: ``confusion_matrix`` (SingleLabelPRF, DetectionPRF, MeanIoU),
    ``curves``, which are ROC and precision-recall (SingleLabelAUC, MultiLabelAUC), ``pr_curves`` and
    ``confidence_curves``, which are precision, recall and F1 against confidence (DetectionPRF with
    ``matching='coco'``), and ``reliability`` (CalibrationError). A figure is called as the metric's keys are,
    ``det/confusion_matrix``, with ``test/`` before it in a test, and stands at the step of the scalars of the same
    validation.

    A figure that cannot be drawn or sent is a warning in the log, once, and never ends a training.

    Args:
        figures: Which ones, by their names with or without the prefix; ``*`` stands for anything. All if None.
        interval: Draw the first validation and every so many after it: with 5, the first, the sixth and so on. A
            training that is resumed goes on counting where it would have been.
        max_classes: Leave out figures with more classes than this, which nobody could read.
        dpi: Pixels an inch; more makes larger pictures.

    Example:
        >>> hook = HOOKS.build(dict(type="MetricFigureHook", figures=["confusion_matrix", "det/*"], interval=5))
        >>> hook.interval
        5
    """

    priority = "LOW"  # after the scalars, before the checkpoint

    def __init__(
        self,
        figures: Union[str, Sequence[str], None] = None,
        interval: int = 1,
        max_classes: int = 100,
        dpi: int = DPI,
    ) -> None:
        require(interval >= 1, f"interval must be at least 1 (found {interval!r})")
        require(max_classes >= 1, f"max_classes must be at least 1 (found {max_classes!r})")
        require(dpi >= 10, f"dpi must be at least 10 (found {dpi!r})")
        self.figures: Tuple[str, ...] = (figures,) if isinstance(figures, str) else tuple(figures or ("*",))
        self.interval = interval
        self.max_classes = max_classes
        self.dpi = dpi
        self._validations = 0
        self._said: Set[str] = set()

    def before_run(self, runner: Runner) -> None:
        """Checks the evaluation as :class:`EvaluationCheckHook` does, and warns: figures never end a training."""
        self._try(runner, "the evaluation will fail", partial(check_evaluations, runner))

    def before_val_epoch(self, runner: Runner) -> None:
        """Asks the metrics to keep what the figures need, if this validation is drawn."""
        earlier = _earlier_validations(runner)
        if (self._validations if earlier is None else earlier) % self.interval == 0:
            self._ask(runner.val_loop)
        self._validations += 1

    def after_val_epoch(self, runner: Runner, metrics: Optional[Dict[str, float]] = None) -> None:
        """Draws the validation."""
        self._show(runner, runner.val_loop, "")

    def before_test_epoch(self, runner: Runner) -> None:
        """Asks the metrics to keep what the figures need."""
        self._ask(runner.test_loop)

    def after_test_epoch(self, runner: Runner, metrics: Optional[Dict[str, float]] = None) -> None:
        """Draws the test."""
        self._show(runner, runner.test_loop, "test/")

    def _ask(self, loop: Any) -> None:
        # On every process: states must be the same on all, though only the main one keeps what they add up to.
        for _, metric in _metrics(loop):
            metric.figures_wanted = self.figures

    def _show(self, runner: Runner, loop: Any, prefix: str) -> None:
        asked = [(task, metric) for task, metric in _metrics(loop) if metric.figures_wanted]
        offered: List[str] = []
        for task, metric in asked:
            start = f"{prefix}{task}{metric.prefix}/" if metric.prefix else f"{prefix}{task}"
            for shown in self._try(runner, f"{type(metric).__name__} has no figures", metric.take_shown) or ():
                tags = [f"{start}{name}" for name in shown.names]
                # Metrics that share a prefix may have figures of the same name.
                tags = [tag if tag not in offered else f"{tag}_{offered.count(tag) + 1}" for tag in tags]
                offered += [f"{start}{name}" for name in shown.names]
                wanted = [tag if metric.wants(name) else None for tag, name in zip(tags, shown.names)]
                if any(wanted):
                    self._try(runner, f"{tags[0]} is not drawn", partial(self._draw, runner, shown, wanted))
            metric.figures_wanted = ()
        missing = [one for one in self.figures if offered and not _fits(one, offered)]
        if missing:
            self._say(runner, f"no metric has figures called {', '.join(missing)} (there are {', '.join(offered)})")

    def _draw(self, runner: Runner, shown: Shown, tags: Sequence[Optional[str]]) -> None:
        """Draws a result and sends the figures that have a tag."""
        if len(shown.classes) > self.max_classes:
            raise ValueError(f"it has {len(shown.classes)} classes, and max_classes={self.max_classes}")
        step = _step(runner)
        for tag, figure in zip(tags, draw_figures(shown.result(), shown.classes)):
            if tag is None:
                continue
            picture = to_rgb(figure, dpi=self.dpi)
            # Each backend by itself: one that fails must not keep the picture from the others.
            for backend in runner.visualizer._vis_backends.values():
                send = partial(backend.add_image, _name_for(backend, tag, step), picture, step)
                self._try(runner, f"{type(backend).__name__} does not take {tag}", send)

    def _try(self, runner: Runner, what: str, action: Callable[[], Any]) -> Any:
        """What an action gives; None, and a warning, if it fails: a training of hours is worth more than a figure."""
        try:
            return action()
        except Exception as error:
            self._say(runner, f"{what}: {str(error) or type(error).__name__}", once=what)
            return None

    def _say(self, runner: Runner, message: str, once: Optional[str] = None) -> None:
        if (once or message) not in self._said:
            self._said.add(once or message)
            runner.logger.warning(f"MetricFigureHook: {message}")


def _metrics(loop: Any) -> Iterator[Tuple[str, StreamingMetric]]:
    """The metrics of a loop that can show something, those inside mmpretrain's MultiTasksMetric with their task."""
    waiting = [("", metric) for metric in getattr(getattr(loop, "evaluator", None), "metrics", ())]
    while waiting:
        task, metric = waiting.pop(0)
        if isinstance(metric, StreamingMetric):
            yield task, metric
        elif type(metric).__name__ == "MultiTasksMetric":
            waiting += [(f"{task}{name}_", child) for name, children in metric._metrics.items() for child in children]


def _earlier_validations(runner: Runner) -> Optional[int]:
    """How many validations mmengine's training loops run before this one; None outside of such a loop.

    The number follows from the progress of the training, not from a count, so that it is the same after a resume.
    """
    loop = runner._train_loop  # not train_loop, which would build one for a validation alone
    if isinstance(loop, EpochBasedTrainLoop):
        now = loop.epoch
    elif isinstance(loop, IterBasedTrainLoop):
        now = loop.iter
    else:
        return None
    # An interval is in force from its milestone less one on; a validation is due at the multiples of the interval.
    starts = [milestone - 1 for milestone in loop.dynamic_milestones[1:]]
    earlier = 0
    for start, stop, interval in zip([1, *starts], [*starts, now], loop.dynamic_intervals):
        first, last = max(start, loop.val_begin, 1), min(stop, now) - 1
        earlier += max(0, last // interval - (first - 1) // interval)
    return earlier


def _fits(pattern: str, tags: Sequence[str]) -> bool:
    return any(fnmatchcase(tag, pattern) or fnmatchcase(tag, f"*/{pattern}") for tag in tags)


def _step(runner: Runner) -> int:
    """The step at which LoggerHook puts the scalars of this validation."""
    loop = runner._train_loop  # not train_loop, which would build one for a test
    if not isinstance(loop, BaseLoop):
        return 0
    by_epoch = all(hook.log_metric_by_epoch for hook in runner.hooks if isinstance(hook, LoggerHook))
    # A loop by iterations stays in epoch 0, where every validation would overwrite the one before.
    return int(loop.epoch if by_epoch and not isinstance(loop, IterBasedTrainLoop) else loop.iter)


def _name_for(backend: BaseVisBackend, tag: str, step: int) -> str:
    """The name under which a backend keeps all pictures of a tag."""
    if isinstance(backend, LocalVisBackend):
        return tag.replace("/", "_")  # it makes no folders, and does not say so where one is missing
    if isinstance(backend, MLflowVisBackend):
        return f"{tag}_{step}.png"  # for MLflow it is the name of a file, which needs an ending, and a step of its own
    return tag
