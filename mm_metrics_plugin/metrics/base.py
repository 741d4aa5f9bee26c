"""A metric that accumulates batch by batch and gives the same number on any number of processes."""

from __future__ import annotations

import logging
from abc import abstractmethod
from contextlib import ExitStack, contextmanager, nullcontext
from fnmatch import fnmatchcase
from typing import Any, Callable, ContextManager, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
from mmengine.dist import get_dist_info, is_main_process
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log

from mm_metrics_plugin.exceptions import MetricInputError, MetricWarning, UndefinedMetricWarning
from mm_metrics_plugin.functional._arrays import unique_names
from mm_metrics_plugin.metrics.log import class_table, in_runner, warn
from mm_metrics_plugin.metrics.sample_fields import SampleName, check_samples
from mm_metrics_plugin.metrics.sampling import (
    ELSEWHERE,
    Entry,
    Padding,
    Share,
    cumulative_sizes,
    find_padding,
    sample_identity,
    split_by_dataset,
    whole_entries,
)
from mm_metrics_plugin.settings import require
from mm_metrics_plugin.states.base import Batch, State, merge_all
from mm_metrics_plugin.states.distributed import all_gather_or_raise, all_reduce_state


def check_num_classes(num_classes: int | None) -> None:
    """Raises a ValueError unless it is a whole number of at least 1, or None."""
    valid = num_classes is None or (isinstance(num_classes, (int, np.integer)) and num_classes >= 1)
    require(valid, f"num_classes must be a whole number of at least 1 (found {num_classes!r})")


class FigureSpec(NamedTuple):
    """Figures of an evaluation that can be drawn.

    Attributes:
        names: Of the figures, in the order of :func:`~mm_metrics_plugin.render.figures.draw_figures`.
        classes: Names of the classes in the figures.
        result: Computes the result to draw; only called if it is drawn.
    """

    names: tuple[str, ...]
    classes: Sequence[str]
    result: Callable[[], Any]


class _Results(list):
    """``results``, always true.

    mmpretrain's MultiTasksMetric evaluates a metric only where ``results`` is true, but a process without samples must
    evaluate too: the others wait for it.
    """

    def __bool__(self) -> bool:
        return True


class StreamingMetric(BaseMetric):
    """The base of every metric here: it never keeps the data set, and never counts padding.

    A subclass writes three methods: :meth:`empty_state`, :meth:`read` (samples to arrays) and :meth:`compute`
    (state to named numbers). It gets streaming, exact evaluation on several processes, and errors that reach all.

    ``results`` holds the accumulated state and the last batch, whose last sample may be padding. For mmdet's
    ConcatDataset, which MultiDatasetsEvaluator slices, it holds one entry per sample instead: the first sample of a
    data set holds its state, and the others a placeholder.

    Args:
        collect_device: Accepted for mmengine. States are sent on the device of the process group's backend.
        prefix: Prefix of every key; the class's ``default_prefix`` if None.

    Attributes:
        target_fields: Ground-truth fields that every sample must have, for :class:`EvaluationCheckHook`.
        figures_wanted: Patterns of the figures to keep data for; :class:`MetricFigureHook` sets it on every process.
    """

    target_fields: Sequence[str] = ()
    figures_wanted: Sequence[str] = ()
    _evaluated: State | None = None
    _metas: Sequence[Mapping] = ()  # of concatenated data sets whose metainfo differs
    _only_dataset: int | None = None  # the one of them that is evaluated; None for all
    _current_meta: Mapping | None = None  # of the data set whose samples are read

    def __init__(self, collect_device: str = "cpu", prefix: str | None = None) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        self.results: list[Any] = _Results()
        self._seen = 0
        self._state_index = 0  # in results, of the state of the current data set
        self._dataset: int | None = None  # the current one of concatenated data sets
        self._first: str | None = None
        self._last: str | None = None
        self._warned: list[str] = []

    @abstractmethod
    def empty_state(self) -> State:
        """A state without samples."""

    @abstractmethod
    def read(self, samples: Sequence[Mapping]) -> Batch:
        """The arrays of a batch of samples (at least one), checked; they must not share memory with the samples."""

    @abstractmethod
    def compute(self, state: State) -> dict[str, float]:
        """The numbers by key, the headline first. An empty state gives NaN."""

    @property
    def in_one_state(self) -> bool:
        """Whether concatenated data sets share one state, because the order or the batches of samples matter."""
        return False

    @property
    def dataset_meta(self) -> Any:
        """The metainfo of the data set; of several, that of the one whose samples are read, else of the first."""
        if self._current_meta is not None:
            return self._current_meta
        return self._dataset_meta[0] if isinstance(self._dataset_meta, Sequence) else self._dataset_meta

    @dataset_meta.setter
    def dataset_meta(self, dataset_meta: Any) -> None:
        # mmdet's MultiDatasetsEvaluator first sets a list of all, and at the first evaluation that of the metric.
        if isinstance(dataset_meta, Sequence):
            self._metas, self._only_dataset = list(dataset_meta), None
        else:
            same = [index for index, meta in enumerate(self._metas) if meta is dataset_meta]
            self._metas, self._only_dataset = (self._metas, same[0]) if same else ((), None)
        self._dataset_meta = dataset_meta

    def process(self, data_batch: Any, data_samples: Sequence[Mapping]) -> None:
        """Adds one batch of samples; mmengine calls it."""
        if not len(self.results):  # also where somebody else than evaluate() cleared them
            self._reset()
        try:
            check_samples(data_samples, self.sample_name)
            if not len(data_samples):
                return
            if not self._seen:
                self._first = sample_identity(data_samples[0])
            ends = cumulative_sizes(self._dataset_meta)
            if ends is None:
                self._process(data_samples)
            else:
                self._process_concatenated(data_samples, ends)
            self._last = sample_identity(data_samples[-1])
        except MetricInputError as error:
            name = type(self).__name__
            raise error if name in str(error) else MetricInputError(f"{name}: {error}") from None

    def _reset(self) -> None:
        self.results.clear()
        self._seen = 0
        self._first = self._last = self._dataset = None

    def _process(self, samples: Sequence[Mapping]) -> None:
        batch = self.read(samples)
        if not self._seen:
            self.results.append(self.empty_state())  # not before: the number of classes may come from samples
        self._flush()
        self.results.append(batch)
        self._seen += len(samples)

    def _process_concatenated(self, samples: Sequence[Mapping], ends: Sequence[int]) -> None:
        """Adds samples of several data sets: one entry per sample, one state per data set."""
        if self.in_one_state:
            if self._metas:
                raise MetricInputError(
                    f"{type(self).__name__} with these options cannot evaluate each of several data sets, because the "
                    "batches of all of them count together: evaluate each data set in a run of its own"
                )
            ends = [ends[-1]]
        rank, world_size = get_dist_info()
        indices = (self._seen + np.arange(len(samples))) * world_size + rank
        for dataset, start, stop in split_by_dataset(ends, indices):
            # The last sample is apart, so that it can be dropped; batches stay whole where they matter.
            borders = (start, stop) if self.in_one_state else (start, max(start, stop - 1), stop)
            for first, last in zip(borders, borders[1:]):
                if first < last:
                    self._process_run(dataset, samples[first:last])

    def _process_run(self, dataset: int, samples: Sequence[Mapping]) -> None:
        """Adds samples of one of several data sets, unless another one is evaluated."""
        batch = None
        if self._only_dataset in (None, dataset):
            with self._metainfo_of(dataset):
                batch = self.read(samples)
        self._flush()
        if dataset != self._dataset:
            self._dataset, self._state_index = dataset, len(self.results)
        self.results.extend([ELSEWHERE] * len(samples))
        if batch is not None:
            self.results[-1] = Entry(batch, len(samples))
        self._seen += len(samples)

    @contextmanager
    def _metainfo_of(self, dataset: int | None) -> Iterator[None]:
        """Inside it, ``dataset_meta`` is that of one of several data sets, where they differ."""
        self._current_meta = None if dataset is None or not self._metas else self._metas[dataset]
        try:
            yield
        finally:
            self._current_meta = None

    def _flush(self) -> None:
        """Adds the waiting batch, if there is one, to its state."""
        waiting = self.results[-1] if len(self.results) else ELSEWHERE
        if isinstance(waiting, Entry) and isinstance(waiting.content, Batch):
            self.results[-1] = ELSEWHERE
            if self.results[self._state_index] == ELSEWHERE:
                with self._metainfo_of(self._dataset):
                    self.results[self._state_index] = Entry(self.empty_state(), 0)
            entry = self.results[self._state_index]
            entry.content.update(*waiting.content.columns)
            entry.samples += waiting.samples
        elif len(self.results) > 1 and isinstance(waiting, Batch):
            self.results[0].update(*self.results.pop().columns)

    def compute_metrics(self, results: list[Any]) -> dict[str, float]:
        """The numbers of states and waiting batches.

        Evaluators that collect ``results`` themselves, as mmdet's MultiDatasetsEvaluator, call it on the main process.
        """
        entries = whole_entries(results, type(self).__name__)
        contents = results if entries is None else [entry.content for entry in entries]
        states = [
            content if isinstance(content, State) else self.empty_state().update(*content.columns)
            for content in contents
        ]
        state = merge_all(states) if states else self.empty_state()
        metrics = {key: float(value) for key, value in self.compute(state).items()}
        if entries is not None:
            with self._outputs(state, metrics):
                self._evaluated = state if self.figures_wanted else None
        return metrics

    def evaluate(self, size: int) -> dict[str, float]:
        """The numbers of the whole data set of ``size`` samples, the same on every process; mmengine calls it."""
        try:
            state, samples, error = None, 0, None
            if not len(self.results):
                self._reset()
            padding = find_padding(all_gather_or_raise(Share(self._seen, self._first, self._last)), size)
            try:
                state, samples = self._local(drop_last=get_dist_info()[0] in padding.ranks)
            except Exception as caught:  # raised on every rank below
                error = caught
            state, total = all_reduce_state(state, samples, error)
            metrics: dict[str, float] = {}
            with ExitStack() as outputs:
                if is_main_process():
                    try:
                        self._warn_of_padding(padding, total + len(padding.ranks), size)
                        values = self.compute_metrics([state])
                        outputs.enter_context(self._outputs(state, values))
                        self._evaluated = state if self.figures_wanted else None
                        prefix = f"{self.prefix}/" if self.prefix else ""
                        metrics = {f"{prefix}{key}": value for key, value in values.items()}
                    except Exception as caught:  # likewise
                        error = caught
                return all_gather_or_raise(metrics, error)[0]
        finally:
            self._reset()

    def _local(self, *, drop_last: bool) -> tuple[State, int]:
        """The state of this process and its number of samples; without the last sample, if that is padding."""
        samples = self._seen
        if len(self._metas) and self._only_dataset is None:
            classes = [tuple(meta.get("classes") or ()) for meta in self._metas]
            if any(names != classes[0] for names in classes):
                raise MetricInputError(
                    f"{type(self).__name__} cannot evaluate data sets with different classes as one: evaluate each of "
                    "them with mmdet's MultiDatasetsEvaluator, or in a run of its own"
                )
        if drop_last:
            samples -= 1
            waiting = self.results[-1]
            if isinstance(waiting, Entry):
                waiting.content, waiting.samples = waiting.content.without_last(), waiting.samples - 1
            else:
                self.results[-1] = waiting.without_last()
        self._flush()
        states = [item.content if isinstance(item, Entry) else item for item in self.results if item != ELSEWHERE]
        return (merge_all(states) if states else self.empty_state()), samples

    def _warn_of_padding(self, padding: Padding, total: int, size: int) -> None:
        if padding.doubt is not None:
            self.warn(
                f"saw {total} samples of a data set of {size} on {get_dist_info()[1]} processes. "
                f"{padding.doubt}. Use a data set size that the number of processes divides, or a sampler with "
                "round_up=False"
            )

    @contextmanager
    def _outputs(self, state: Any, metrics: Mapping[str, float]) -> Iterator[None]:
        """:meth:`outputs_written`, and inside a Runner a table of the values per class in the log."""
        with self.outputs_written(state):
            yield
        per_class = getattr(self, "classwise", False) or getattr(self, "counts", False)
        table = class_table(metrics) if per_class and in_runner() else ""
        if table:
            print_log(f"{type(self).__name__}, results per class:\n{table}", logger="current", level=logging.INFO)

    def outputs_written(self, state: Any) -> ContextManager[None]:
        """A context manager that writes files and logs besides the numbers; none by default.

        It is entered on the main process to prepare them, and left once every process has agreed, or with the error:
        nothing is written of an evaluation that failed somewhere.
        """
        return nullcontext()

    def figures(self, state: Any) -> list[FigureSpec]:
        """The figures of the state of the whole data set; none by default."""
        return []

    def pop_figures(self) -> list[FigureSpec]:
        """The figures of the last evaluation, on the main process, if some were wanted; its state is then dropped."""
        state, self._evaluated = self._evaluated, None
        return [] if state is None else self.figures(state)

    def wants(self, figure: str) -> bool:
        """Whether this figure is wanted, by its name with or without the prefix."""
        names = (figure, f"{self.prefix}/{figure}")
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.figures_wanted)

    def sample_name(self, sample: Mapping, index: int) -> str:
        """The name in messages of the ``index``-th sample of the batch: its index in the data set, and its file."""
        rank, world_size = get_dist_info()
        name = f"sample {(self._seen + index) * world_size + rank}"
        file = next((sample[key] for key in ("img_path", "img_id") if sample.get(key) is not None), None)
        return name if file is None else f"{name} ({file})"

    def namer(self, samples: Sequence[Mapping]) -> SampleName:
        """The names in messages of the samples of this batch, by index."""
        return lambda index: self.sample_name(samples[index], index)

    def class_names(self, num_classes: int) -> list[str]:
        """The data set's class names if it has this many, else numbers; each once."""
        names = [str(name) for name in (self.dataset_meta or {}).get("classes") or ()]
        if len(names) != num_classes:
            if (names or in_runner()) and num_classes and "class names" not in self._warned:
                self._warned.append("class names")
                self.warn(
                    f"{num_classes} classes are named by their numbers, because the data set has "
                    f"{len(names)} class names: give the dataset metainfo=dict(classes=(...)) with {num_classes} names"
                )
            return [str(index) for index in range(num_classes)]
        return unique_names(names)

    def warn(self, message: str, category: type[MetricWarning] = MetricWarning) -> None:
        """Warns with the metric's name: in mmengine's log inside a Runner, else as Python does."""
        warn(f"{type(self).__name__}: {message}", category, stacklevel=4)

    def warn_undefined(
        self, what: str, reason: str, classes: Sequence[str], *, mean_of: int = 0, remedy: str = ""
    ) -> None:
        """Warns, once for each ``what``, that it is undefined for these classes (if there are any).

        Args:
            what: The name of the value.
            reason: Why it is undefined.
            classes: For which classes.
            mean_of: Number of classes of the data set, if a mean leaves out the undefined ones; 0 otherwise.
            remedy: What this means for ``save_best``, and what to do.
        """
        if classes and what not in self._warned:
            self._warned.append(what)
            named = ", ".join(classes[:10]) + (f" and {len(classes) - 10} more" if len(classes) > 10 else "")
            message = f"{what} is undefined for {named}: {reason}"
            defined = mean_of - len(classes)
            if defined > 0:
                message += f". The mean is over {defined} of {mean_of} classes, also in save_best{remedy}"
            self.warn(message, UndefinedMetricWarning)
