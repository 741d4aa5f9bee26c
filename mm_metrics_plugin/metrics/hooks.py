"""Hooks: checks of the evaluation before training starts, and figures in TensorBoard, W&B, MLflow or a local folder."""

from __future__ import annotations

from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, Iterator, Sequence

from mmengine.hooks import Hook, LoggerHook
from mmengine.registry import HOOKS
from mmengine.runner import BaseLoop, IterBasedTrainLoop, Runner
from mmengine.visualization import BaseVisBackend, LocalVisBackend
from mmengine.visualization.vis_backend import MLflowVisBackend

from mm_metrics_plugin.metrics.base import FigureSpec
from mm_metrics_plugin.metrics.runner_checks import check_evaluations, describe_keys, metrics_of
from mm_metrics_plugin.render.figures import draw_figures
from mm_metrics_plugin.render.figures.confusion_matrix import DPI, to_rgb
from mm_metrics_plugin.settings import require


@HOOKS.register_module()
class EvaluationCheckHook(Hook):  # type: ignore[misc]  # mmengine has no types
    """Stops a run before training starts if its evaluation would fail after the first epoch.

    It writes the keys of the metrics of this package to the log, and checks that no two of them give the same key, that
    they give the keys of ``save_best`` (CheckpointHook) and ``monitor`` (EarlyStoppingHook,
    ReduceOnPlateauParamScheduler), and that the first sample of the dataset has the ground truth that they read.
    :class:`MetricFigureHook` checks the same and warns.

    At the start of every validation and test it drops the samples of an interrupted one.

    Example:
        >>> HOOKS.build(dict(type="EvaluationCheckHook")).priority
        'NORMAL'
    """

    def before_run(self, runner: Runner) -> None:
        """Log the keys of the evaluators that are already built, and check them."""
        for name, loop in (("validation", runner._val_loop), ("test", runner._test_loop)):
            described = describe_keys(loop)
            if described:
                runner.logger.info(f"EvaluationCheckHook: the {name} logs {described}")
        check_evaluations(runner)

    def before_val_epoch(self, runner: Runner) -> None:
        """Drop the samples of an interrupted validation."""
        _drop_samples(runner.val_loop)

    def before_test_epoch(self, runner: Runner) -> None:
        """Drop the samples of an interrupted test."""
        _drop_samples(runner.test_loop)


def _drop_samples(loop: Any) -> None:
    for _, metric in metrics_of(loop):
        metric.results.clear()


@HOOKS.register_module()
class MetricFigureHook(Hook):  # type: ignore[misc]  # mmengine has no types
    """Sends the metrics' figures to the backends of mmengine's visualizer at each validation and test.

    Figures: ``confusion_matrix`` (SingleLabelPRF, DetectionPRF, MeanIoU), ``curves``, which are ROC and
    precision-recall (SingleLabelAUC, MultiLabelAUC), ``pr_curves`` and ``confidence_curves``, which are precision,
    recall and F1 against the score threshold (DetectionPRF with ``matching='coco'``), ``froc_curves`` (DetectionPRF
    with ``froc``) and ``reliability`` (CalibrationError).
    A figure has the prefix of the metric's keys, as ``det/confusion_matrix``, with ``test/`` before it in a test, and
    the step of the scalars of the same validation.

    A figure that cannot be drawn or sent gives one warning in the log and never stops a training.

    Args:
        figures: Patterns of names, with or without the prefix; ``*`` matches anything. All if None.
        interval: Draw the first of this many validations: with 5, the first, the sixth and so on.
        max_classes: Leave out figures with more classes than this.
        dpi: Pixels per inch of the figures.

    Example:
        >>> hook = HOOKS.build(dict(type="MetricFigureHook", figures=["confusion_matrix", "det/*"], interval=5))
        >>> hook.interval
        5
    """

    priority = "LOW"  # after the scalars, before the checkpoint

    def __init__(
        self,
        figures: str | Sequence[str] | None = None,
        interval: int = 1,
        max_classes: int = 100,
        dpi: int = DPI,
    ) -> None:
        require(interval >= 1, f"interval must be at least 1 (found {interval!r})")
        require(max_classes >= 1, f"max_classes must be at least 1 (found {max_classes!r})")
        require(dpi >= 10, f"dpi must be at least 10 (found {dpi!r})")
        self.figures: tuple[str, ...] = (figures,) if isinstance(figures, str) else tuple(figures or ("*",))
        self.interval = interval
        self.max_classes = max_classes
        self.dpi = dpi
        self._validations = 0
        self._logged: set[str] = set()

    def before_run(self, runner: Runner) -> None:
        """Check the evaluation as :class:`EvaluationCheckHook` does, and warn."""
        with self._errors_logged(runner, "the evaluation will fail"):
            check_evaluations(runner)

    def before_val_epoch(self, runner: Runner) -> None:
        """Make the metrics keep the data of the figures, if this validation is drawn."""
        if self._validations % self.interval == 0:
            self._request(runner.val_loop)
        self._validations += 1

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Draw the validation."""
        self._send_figures(runner, runner.val_loop, "")

    def before_test_epoch(self, runner: Runner) -> None:
        """Make the metrics keep the data of the figures."""
        self._request(runner.test_loop)

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Draw the test."""
        self._send_figures(runner, runner.test_loop, "test/")

    def _request(self, loop: Any) -> None:
        # On every process: all must have the same states, though only the main one keeps the merged state.
        for _, metric in metrics_of(loop):
            metric.figures_wanted = self.figures

    def _send_figures(self, runner: Runner, loop: Any, prefix: str) -> None:
        available: list[str] = []
        for task, metric in metrics_of(loop):
            specs: list[FigureSpec] = []
            with self._errors_logged(runner, f"{type(metric).__name__} has no figures"):
                specs = metric.pop_figures()
            for spec in specs:
                names = [f"{prefix}{task}{metric.full_key(name)}" for name in spec.names]
                # Metrics that share a prefix may have figures of the same name.
                tags = [name if name not in available else f"{name}_{available.count(name) + 1}" for name in names]
                available += names
                wanted = [tag if metric.wants(name) else None for tag, name in zip(tags, spec.names)]
                if any(wanted):
                    with self._errors_logged(runner, f"{tags[0]} is not drawn"):
                        self._draw(runner, spec, wanted)
            metric.figures_wanted = ()
        missing = [
            pattern
            for pattern in self.figures
            if not any(fnmatchcase(name, pattern) or fnmatchcase(name, f"*/{pattern}") for name in available)
        ]
        if available and missing:
            self._warn(runner, f"no metric has figures called {', '.join(missing)} (there are {', '.join(available)})")

    def _draw(self, runner: Runner, spec: FigureSpec, tags: Sequence[str | None]) -> None:
        """Draw a result and send the figures that have a tag."""
        if len(spec.classes) > self.max_classes:
            raise ValueError(f"it has {len(spec.classes)} classes, and max_classes={self.max_classes}")
        step = _step(runner)
        for tag, figure in zip(tags, draw_figures(spec.result(), spec.classes)):
            if tag is None:
                continue
            image = to_rgb(figure, dpi=self.dpi)
            # If one backend fails, the others still get the figure.
            for backend in runner.visualizer._vis_backends.values():
                with self._errors_logged(runner, f"{type(backend).__name__} does not take {tag}"):
                    backend.add_image(_name_for(backend, tag, step), image, step)

    @contextmanager
    def _errors_logged(self, runner: Runner, what: str) -> Iterator[None]:
        """Turns an error inside it into one warning in the log."""
        try:
            yield
        except Exception as error:
            self._warn(runner, f"{what}: {str(error) or type(error).__name__}", once=what)

    def _warn(self, runner: Runner, message: str, once: str | None = None) -> None:
        if (once or message) not in self._logged:
            self._logged.add(once or message)
            runner.logger.warning(f"MetricFigureHook: {message}")


def _step(runner: Runner) -> int:
    """The step of the scalars of this validation in LoggerHook."""
    loop = runner._train_loop  # train_loop would build one for a test
    if not isinstance(loop, BaseLoop):
        return 0
    by_epoch = all(hook.log_metric_by_epoch for hook in runner.hooks if isinstance(hook, LoggerHook))
    # A loop by iterations stays in epoch 0, where every validation would overwrite the one before.
    return int(loop.epoch if by_epoch and not isinstance(loop, IterBasedTrainLoop) else loop.iter)


def _name_for(backend: BaseVisBackend, tag: str, step: int) -> str:
    """The name of the figures of a tag in a backend."""
    if isinstance(backend, LocalVisBackend):
        return tag.replace("/", "_")  # it creates no folders, and fails silently
    if isinstance(backend, MLflowVisBackend):
        return f"{tag}_{step}.png"  # a file name in MLflow
    return tag
