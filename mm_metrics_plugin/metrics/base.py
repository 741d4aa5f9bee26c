"""A metric that adds up as it goes and gives the same number on any number of processes."""

from __future__ import annotations

import logging
from abc import abstractmethod
from contextlib import ExitStack, contextmanager, nullcontext
from fnmatch import fnmatchcase
from typing import (
    Any,
    Callable,
    ContextManager,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
)

import numpy as np
from mmengine.dist import get_dist_info, is_main_process
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log

from mm_metrics_plugin.exceptions import MetricInputError, MetricWarning, UndefinedMetricWarning
from mm_metrics_plugin.functional._arrays import unique_names
from mm_metrics_plugin.metrics.concatenated import ELSEWHERE, Entry, cumulative_sizes, split_places, whole_entries
from mm_metrics_plugin.metrics.keys import class_table
from mm_metrics_plugin.metrics.messages import in_runner, warn
from mm_metrics_plugin.metrics.padding import Padding, Share, find_padding, sample_identity
from mm_metrics_plugin.metrics.sample_fields import check_samples
from mm_metrics_plugin.states.base import State, merge_all
from mm_metrics_plugin.states.batch import Batch
from mm_metrics_plugin.states.distributed import all_gather_or_raise, all_reduce_state


class Shown(NamedTuple):
    """Something of an evaluation that can be drawn.

    Attributes:
        names: Of the figures, in the order of :func:`~mm_metrics_plugin.render.figures.draw_figures`.
        classes: Names of the classes they show.
        result: Makes the result that is drawn. It is called only if it is.
    """

    names: Tuple[str, ...]
    classes: Sequence[str]
    result: Callable[[], Any]


class _Results(list):
    """``results``, always true.

    mmpretrain's MultiTasksMetric evaluates a metric only where ``results`` is true. A process without samples must
    evaluate too: the others wait for it.
    """

    def __bool__(self) -> bool:
        return True


class StreamingMetric(BaseMetric):
    """The base of every metric here: it never keeps the data set, and never counts padding.

    A subclass writes three methods: :meth:`empty_state`, :meth:`read` (samples to arrays) and :meth:`compute`
    (state to named numbers). It gets streaming, exact evaluation on several processes, and errors that reach all.

    ``results`` holds the state of everything up to the last batch, and the last batch itself. The batch waits
    because its last sample may be padding (:func:`~mm_metrics_plugin.metrics.padding.find_padding`). For mmdet's
    ConcatDataset, of which MultiDatasetsEvaluator takes parts, it has one entry a sample instead: the first sample of
    a data set holds the state of that data set, and the others a placeholder.

    Args:
        collect_device: Accepted for mmengine's sake. States travel on the device of the process group's backend.
        prefix: Stands before every key; the class's ``default_prefix`` if None.

    Attributes:
        target_fields: Fields of the ground truth that every sample of the data set must have, for
            :class:`EvaluationCheckHook`.
        figures_wanted: Patterns of the names of figures, set (on every process alike) before an evaluation by who
            wants to draw it afterwards: :class:`MetricFigureHook`. Without any, nothing is kept for figures.
    """

    target_fields: Sequence[str] = ()
    figures_wanted: Sequence[str] = ()
    _evaluated: Optional[State] = None
    _metas: Sequence[Mapping] = ()  # of concatenated data sets that differ in theirs
    _own: Optional[int] = None  # which of them this metric is evaluated on; None as long as nobody said
    _reading: Optional[Mapping] = None  # that of the data set whose samples are read

    def __init__(self, collect_device: str = "cpu", prefix: Optional[str] = None) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        self.results: List[Any] = _Results()
        self._seen = 0
        self._run = 0  # where in results the state of the data set stands whose samples come now
        self._dataset: Optional[int] = None  # which one that is
        self._first: Optional[str] = None
        self._last: Optional[str] = None
        self._warned: List[str] = []

    @abstractmethod
    def empty_state(self) -> State:
        """A state that has seen nothing."""

    @abstractmethod
    def read(self, samples: Sequence[Mapping]) -> Batch:
        """The arrays of a batch of samples (at least one), checked; they must not share memory with the samples."""

    @abstractmethod
    def compute(self, state: State) -> Dict[str, float]:
        """The numbers by key, the headline first. An empty state gives NaN."""

    @property
    def in_one_state(self) -> bool:
        """Whether samples of all data sets must be added up in one state, because their order or batches matter."""
        return False

    @property
    def dataset_meta(self) -> Any:
        """The metainfo of the data set; of several, that of the one whose samples are read, else of the first."""
        if self._reading is not None:
            return self._reading
        return self._dataset_meta[0] if isinstance(self._dataset_meta, Sequence) else self._dataset_meta

    @dataset_meta.setter
    def dataset_meta(self, dataset_meta: Any) -> None:
        # mmdet's MultiDatasetsEvaluator first sets all of a list, and at the first evaluation the metric's own one.
        if isinstance(dataset_meta, Sequence):
            self._metas, self._own = list(dataset_meta), None
        else:
            own = [index for index, meta in enumerate(self._metas) if meta is dataset_meta]
            self._metas, self._own = (self._metas, own[0]) if own else ((), None)
        self._dataset_meta = dataset_meta

    def process(self, data_batch: Any, data_samples: Sequence[Mapping]) -> None:
        """Takes in one batch of samples; mmengine calls it."""
        if not len(self.results):  # also where somebody else than evaluate() cleared them
            self._reset()
        try:
            self._take_in(data_samples)
        except MetricInputError as error:
            name = type(self).__name__
            raise error if name in str(error) else MetricInputError(f"{name}: {error}") from None

    def _take_in(self, data_samples: Sequence[Mapping]) -> None:
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

    def _reset(self) -> None:
        self.results.clear()
        self._seen = 0
        self._first = self._last = self._dataset = None

    def _process(self, samples: Sequence[Mapping]) -> None:
        batch = self.read(samples)
        if not self._seen:
            self.results.append(self.empty_state())  # not before: only samples tell how many classes there are
        self._flush()
        self.results.append(batch)
        self._seen += len(samples)

    def _process_concatenated(self, samples: Sequence[Mapping], ends: Sequence[int]) -> None:
        """Takes in samples of several data sets: one entry a sample, one state a data set."""
        if self.in_one_state:
            if self._metas:
                raise MetricInputError(
                    f"{type(self).__name__} with these options cannot evaluate each of several data sets, because the "
                    "batches of all of them count together: evaluate each data set in a run of its own"
                )
            ends = [ends[-1]]
        rank, world_size = get_dist_info()
        places = (self._seen + np.arange(len(samples))) * world_size + rank
        for dataset, start, stop in split_places(ends, places):
            # The last sample stands alone, so that it can be cut off; batches stay whole where they matter.
            borders = (start, stop) if self.in_one_state else (start, max(start, stop - 1), stop)
            for first, last in zip(borders, borders[1:]):
                if first < last:
                    self._process_run(dataset, samples[first:last])

    def _process_run(self, dataset: int, samples: Sequence[Mapping]) -> None:
        """Takes in samples of one of several data sets. Those of others than the metric's own are left out."""
        batch = None
        if self._own in (None, dataset):
            with self._metainfo_of(dataset):
                batch = self.read(samples)
        self._flush()
        if dataset != self._dataset:
            self._dataset, self._run = dataset, len(self.results)
        self.results.extend([ELSEWHERE] * len(samples))
        if batch is not None:
            self.results[-1] = Entry(batch, len(samples))
        self._seen += len(samples)

    @contextmanager
    def _metainfo_of(self, dataset: Optional[int]) -> Iterator[None]:
        """While it lasts, ``dataset_meta`` is that of one of several data sets, where they differ."""
        self._reading = None if dataset is None or not self._metas else self._metas[dataset]
        try:
            yield
        finally:
            self._reading = None

    def _flush(self) -> None:
        """Adds the waiting batch, if there is one, to its state."""
        waiting = self.results[-1] if len(self.results) else ELSEWHERE
        if isinstance(waiting, Entry) and isinstance(waiting.content, Batch):
            self.results[-1] = ELSEWHERE
            if self.results[self._run] == ELSEWHERE:
                with self._metainfo_of(self._dataset):
                    self.results[self._run] = Entry(self.empty_state(), 0)
            held = self.results[self._run]
            held.content.update(*waiting.content.columns)
            held.samples += waiting.samples
        elif len(self.results) > 1 and isinstance(waiting, Batch):
            self.results[0].update(*self.results.pop().columns)

    def compute_metrics(self, results: List[Any]) -> Dict[str, float]:
        """The numbers of whatever states and waiting batches are handed over.

        Evaluators that collect ``results`` themselves, as mmdet's MultiDatasetsEvaluator, call it on the main process.
        """
        entries = whole_entries(results, type(self).__name__)
        parts = results if entries is None else [entry.content for entry in entries]
        states = [part if isinstance(part, State) else self.empty_state().update(*part.columns) for part in parts]
        state = merge_all(states) if states else self.empty_state()
        found = {key: float(value) for key, value in self.compute(state).items()}
        if entries is not None:
            with self._outputs(state, found):
                self._evaluated = state if self.figures_wanted else None
        return found

    def evaluate(self, size: int) -> Dict[str, float]:
        """The numbers of the whole data set, the same on every process; mmengine calls it.

        Args:
            size: How many samples the data set has.
        """
        try:
            state, samples, error = None, 0, None
            if not len(self.results):
                self._reset()
            padding = find_padding(all_gather_or_raise(Share(self._seen, self._first, self._last)), size)
            try:
                state, samples = self._local(drop_last=get_dist_info()[0] in padding.ranks)
            except Exception as caught:  # it is raised on every rank below
                error = caught
            state, total = all_reduce_state(state, samples, error)
            metrics: Dict[str, float] = {}
            with ExitStack() as agreed:
                if is_main_process():
                    try:
                        self._announce(padding, total + len(padding.ranks), size)
                        found = self.compute_metrics([state])
                        agreed.enter_context(self._outputs(state, found))
                        self._evaluated = state if self.figures_wanted else None
                        prefix = f"{self.prefix}/" if self.prefix else ""
                        metrics = {f"{prefix}{key}": value for key, value in found.items()}
                    except Exception as caught:  # likewise
                        error = caught
                return all_gather_or_raise(metrics, error)[0]
        finally:
            self._reset()

    def _local(self, *, drop_last: bool) -> Tuple[State, int]:
        """What this process has added up, and of how many samples; without the last sample, if that is padding."""
        samples = self._seen
        if len(self._metas) and self._own is None:
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
        states = [part.content if isinstance(part, Entry) else part for part in self.results if part != ELSEWHERE]
        return (merge_all(states) if states else self.empty_state()), samples

    def _announce(self, padding: Padding, total: int, size: int) -> None:
        if padding.doubt is not None:
            self.warn(
                f"saw {total} samples of a data set of {size} on {get_dist_info()[1]} processes. "
                f"{padding.doubt}. Use a data set size that the number of processes divides, or a sampler with "
                "round_up=False"
            )

    @contextmanager
    def _outputs(self, state: Any, metrics: Mapping[str, float]) -> Iterator[None]:
        """What :meth:`published` writes, and inside a Runner the values per class as a table in the log."""
        with self.published(state):
            yield
        per_class = getattr(self, "classwise", False) or getattr(self, "counts", False)
        table = class_table(metrics) if per_class and in_runner() else ""
        if table:
            print_log(f"{type(self).__name__}, results per class:\n{table}", logger="current", level=logging.INFO)

    def published(self, state: Any) -> ContextManager[None]:
        """Whatever tells the world of an evaluation besides its numbers; nothing, unless a subclass says otherwise.

        It is entered on the main process to get ready, which may fail, and left when every process has agreed, or with
        the error: nothing is told of an evaluation that failed somewhere. What fails then is raised there alone.
        """
        return nullcontext()

    # --- figures ---

    def shown(self, state: Any) -> List[Shown]:
        """What can be drawn of the state of the whole data set; nothing, unless a subclass says otherwise."""
        return []

    def take_shown(self) -> List[Shown]:
        """What can be drawn of the last evaluation, on the main process, if figures were wanted; not kept further."""
        state, self._evaluated = self._evaluated, None
        return [] if state is None else self.shown(state)

    def wants(self, figure: str) -> bool:
        """Whether somebody wants this figure, by its name or with the prefix before it."""
        names = (figure, f"{self.prefix}/{figure}")
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.figures_wanted)

    # --- help for subclasses ---

    def sample_name(self, sample: Mapping, index: int) -> str:
        """How messages speak of the ``index``-th sample of the batch: its place in the data set, and its file."""
        rank, world_size = get_dist_info()
        name = f"sample {(self._seen + index) * world_size + rank}"
        found = next((sample[key] for key in ("img_path", "img_id") if sample.get(key) is not None), None)
        return name if found is None else f"{name} ({found})"

    def class_names(self, num_classes: int) -> List[str]:
        """The data set's names of the classes where it has as many, else their numbers; never one twice."""
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

    def warn(self, message: str, category: Type[MetricWarning] = MetricWarning) -> None:
        """Warns behind the metric's name: in mmengine's log inside a Runner, else as Python does."""
        warn(f"{type(self).__name__}: {message}", category, stacklevel=4)

    def warn_undefined(
        self, what: str, reason: str, classes: Sequence[str], *, mean_of: int = 0, remedy: str = ""
    ) -> None:
        """Announces, once for each ``what``, that it has no value for these classes.

        Args:
            what: What has no value.
            reason: Why.
            classes: For which classes. Nothing is announced if there are none.
            mean_of: How many classes the data set has, if a mean leaves out those without a value; 0 otherwise.
            remedy: What follows for ``save_best``, and what to do about it.
        """
        if classes and what not in self._warned:
            self._warned.append(what)
            named = ", ".join(classes[:10]) + (f" and {len(classes) - 10} more" if len(classes) > 10 else "")
            message = f"{what} is undefined for {named}: {reason}"
            defined = mean_of - len(classes)
            if defined > 0:
                message += f". The mean is over {defined} of {mean_of} classes, also in save_best{remedy}"
            self.warn(message, UndefinedMetricWarning)
