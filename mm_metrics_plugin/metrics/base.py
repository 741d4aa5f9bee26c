"""The base class of all metrics: streaming, exact on any number of processes."""

from __future__ import annotations

import copy
import inspect
import logging
import warnings
from abc import abstractmethod
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Callable, ContextManager, Iterator, List, Mapping, NamedTuple, Sequence

import numpy as np
from mmengine.dist import get_dist_info, is_main_process
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log

from mm_metrics_plugin.exceptions import MetricInputError, pluralize
from mm_metrics_plugin.functional._arrays import unique_names
from mm_metrics_plugin.metrics.padding import SamplesOfRank, find_padding, sample_identity, too_many_samples
from mm_metrics_plugin.metrics.runner_log import NamedWarnings, class_table, in_runner, python_warnings
from mm_metrics_plugin.metrics.sample_fields import Sample, SampleName, Samples, check_samples
from mm_metrics_plugin.settings import require_known_options
from mm_metrics_plugin.states.base import Batch, State, merge_all
from mm_metrics_plugin.states.distributed import all_gather_or_raise, all_reduce_state

# The entry in ``results`` of a sample that is counted in another entry. Not None, which mmengine removes.
_PLACEHOLDER = 0


@dataclass
class _Entry:
    """A state or a batch in ``results``, in the place of the first of its samples."""

    content: Any
    samples: int


class FigureSpec(NamedTuple):
    """Figures of an evaluation that can be drawn.

    Attributes:
        names: Names of the figures, in the order of :func:`~mm_metrics_plugin.render.figures.draw_figures`.
        classes: Names of the classes in the figures.
        result: Computes the result to draw. It is called only if a figure is drawn.
    """

    names: tuple[str, ...]
    classes: Sequence[str]
    result: Callable[[], Any]


def _option_names(metric: type[StreamingMetric]) -> list[str]:
    """The names of the options of a metric and of its base classes in this package."""
    names: dict[str, None] = {}
    for base in metric.__mro__[: metric.__mro__.index(StreamingMetric) + 1]:
        init = vars(base).get("__init__")
        parameters = [] if init is None else list(inspect.signature(init).parameters.values())[1:]
        names.update((one.name, None) for one in parameters if one.kind is not one.VAR_KEYWORD)
    return list(names)


class _Results(List[Any]):
    """``results``, always true.

    mmpretrain's MultiTasksMetric evaluates a metric only if ``results`` is true, but a process without samples must
    evaluate too: the other processes wait for it.
    """

    def __bool__(self) -> bool:
        return True


class StreamingMetric(NamedWarnings, BaseMetric):  # type: ignore[misc]  # mmengine has no types
    """Base class of all metrics. It never keeps the dataset in memory and never counts padding.

    A subclass implements three methods: :meth:`empty_state`, :meth:`read` (samples to arrays) and :meth:`compute`
    (state to values by key). Streaming, exact distributed evaluation and errors that are raised on every process come
    with the base class.

    ``results`` holds the accumulated state and the last batch, whose last sample may be padding. For mmdet's
    ConcatDataset, whose results MultiDatasetsEvaluator slices, it holds one entry per sample instead: the entry of the
    first sample of a dataset is its state, the entries of the other samples are placeholders.

    Args:
        collect_device: Accepted for mmengine. States are sent on the device of the process group's backend.
        prefix: Prefix of every key; the ``default_prefix`` of the class if None.

    Attributes:
        target_fields: Ground-truth fields that every sample must have, for :class:`EvaluationCheckHook`.
        figures_wanted: Patterns of the figures to keep data for; :class:`MetricFigureHook` sets it on every process.
    """

    target_fields: Sequence[str] = ()
    figures_wanted: Sequence[str] = ()
    _evaluated: State | None = None
    _metas: Sequence[Mapping[str, Any]] = ()  # of concatenated datasets whose metainfo differs
    _only_dataset: int | None = None  # the one of them that is evaluated; None for all
    _current_meta: Mapping[str, Any] | None = None  # of the dataset whose samples are read

    def __init__(self, collect_device: str = "cpu", prefix: str | None = None, **unknown: Any) -> None:
        require_known_options(unknown, _option_names(type(self)), owner=type(self).__name__)
        super().__init__(collect_device=collect_device, prefix=prefix)
        self.results: list[Any] = _Results()
        self._seen = 0
        self._state_index = 0  # in results, of the state of the current dataset
        self._dataset: int | None = None  # the current one of concatenated datasets
        self._first_batch: list[str | None] = []  # the identities of its samples
        self._last: str | None = None
        self._earlier: State | None = None  # of the samples that were read before the first batch came again
        self._earlier_samples = 0

    @abstractmethod
    def empty_state(self) -> State:
        """A state without samples."""

    @abstractmethod
    def read(self, samples: Samples) -> Batch:
        """Read and check the arrays of a batch of at least one sample; they must not share memory with the samples."""

    @abstractmethod
    def compute(self, state: Any) -> dict[str, float]:
        """Compute the values by key, the most important first. An empty state gives NaN."""

    @property
    def in_one_state(self) -> bool:
        """Whether concatenated datasets share one state, because the order or the batches of samples matter."""
        return False

    @property
    def dataset_meta(self) -> Any:
        """The metainfo of the dataset; of several datasets, the one whose samples are read, else the first."""
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
            dataset_meta = self.read_metainfo(dataset_meta)
        self._dataset_meta = dataset_meta

    def read_metainfo(self, dataset_meta: Any) -> Any:
        """The metainfo of a dataset as the metric uses it; unchanged by default."""
        return dataset_meta

    @property
    def dataset_classes(self) -> list[str]:
        """The class names of the dataset; empty if it has none."""
        return [str(name) for name in (self.dataset_meta or {}).get("classes") or ()]

    def process(self, data_batch: Any, data_samples: Samples) -> None:
        """Add one batch of samples; mmengine calls it."""
        if not len(self.results):  # also if the caller cleared them instead of evaluate()
            self._reset()
        with self._named_errors():
            check_samples(data_samples, self.sample_name)
            if not len(data_samples):
                return
            metas = self._dataset_meta if isinstance(self._dataset_meta, Sequence) else [self._dataset_meta]
            ends = (metas[0] or {}).get("cumulative_sizes") if metas else None  # of mmdet's ConcatDataset
            ends = ends if ends and ends[-1] else None
            if self._seen and self._is_first_batch(data_samples):
                self._begin_again(ends)
            if not self._seen:
                self._first_batch = [sample_identity(sample) for sample in data_samples]
            if ends is not None:
                self._process_concatenated(data_samples, ends)
            else:
                self._process(data_samples)
            self._last = sample_identity(data_samples[-1])

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Put the name of the metric before the message of an error that does not have it."""
        try:
            yield
        except MetricInputError as error:
            name = type(self).__name__
            raise error if name in str(error) else MetricInputError(f"{name}: {error}") from None

    def _reset(self) -> None:
        self.results.clear()
        self._seen = self._earlier_samples = 0
        self._first_batch = []
        self._last = self._dataset = self._earlier = None

    def _is_first_batch(self, samples: Samples) -> bool:
        """Whether a batch has the samples of the first batch, as that of a new evaluation after an interrupted one."""
        first = sample_identity(samples[0])
        if first is None or first != self._first_batch[0] or self.in_one_state:
            return False
        return [sample_identity(sample) for sample in samples] == self._first_batch

    def _begin_again(self, ends: Sequence[int] | None) -> None:
        """Set aside the samples so far, which are of an interrupted evaluation unless the dataset repeats samples.

        At the end, the number of samples tells. Of concatenated datasets the position tells: samples may come again
        where a dataset begins.
        """
        if ends is None:
            state, samples = self._local_state(drop_last=False)
            earlier = state if self._earlier is None else self._earlier.merge(state)
            samples += self._earlier_samples
            self._reset()
            self._earlier, self._earlier_samples = earlier, samples
        elif self._seen * get_dist_info()[1] not in ends[:-1]:
            self._warn_left_out(self._seen)
            self._reset()

    def _warn_left_out(self, samples: int) -> None:
        number = pluralize(samples, "sample")
        self.warn(f"left out {number} of an interrupted evaluation, because the first batch was read again")

    def _process(self, samples: Samples) -> None:
        batch = self.read(samples)
        if not self._seen:
            self.results.append(self.empty_state())  # not before: the number of classes may come from samples
        self._flush()
        self.results.append(batch)
        self._seen += len(samples)

    def _process_concatenated(self, samples: Samples, ends: Sequence[int]) -> None:
        """Add samples of several datasets: one entry per sample, one state per dataset."""
        if self.in_one_state:
            if self._metas:
                raise MetricInputError(
                    f"{type(self).__name__} with these options cannot evaluate several datasets one by one, because "
                    "its batches span datasets: evaluate each dataset in a separate run"
                )
            ends = ends[-1:]
        read, share = self._seen + len(samples), -(-ends[-1] // get_dist_info()[1])
        if read > share:
            self._reset()
            raise too_many_samples(f"{read} samples on this process", f"{share} for it")
        # After the last dataset there is padding, which starts over.
        datasets = np.searchsorted(ends, self.dataset_indices(len(samples)) % ends[-1], side="right")
        borders = {0, *(np.flatnonzero(np.diff(datasets)) + 1).tolist(), len(samples)}
        if not self.in_one_state:  # the last sample of a dataset is a batch that can be dropped
            borders |= {border - 1 for border in borders if border}
        for start, stop in zip(sorted(borders), sorted(borders)[1:]):
            self._process_run(int(datasets[start]), samples[start:stop])

    def _process_run(self, dataset: int, samples: Samples) -> None:
        """Add consecutive samples of one of several datasets, unless another one is evaluated."""
        batch = None
        if self._only_dataset in (None, dataset):
            with self._metainfo_of(dataset):
                batch = self.read(samples)
        self._flush()
        if dataset != self._dataset:
            self._dataset, self._state_index = dataset, len(self.results)
        self.results.extend([_PLACEHOLDER] * len(samples))
        if batch is not None:
            self.results[-1] = _Entry(batch, len(samples))
        self._seen += len(samples)

    @contextmanager
    def _metainfo_of(self, dataset: int | None) -> Iterator[None]:
        """Make ``dataset_meta`` that of one of several datasets, if they differ."""
        self._current_meta = None if dataset is None or not self._metas else self._metas[dataset]
        try:
            yield
        finally:
            self._current_meta = None

    def _flush(self) -> None:
        """Add the waiting batch, if there is one, to its state."""
        waiting = self.results[-1] if len(self.results) else _PLACEHOLDER
        if isinstance(waiting, _Entry) and isinstance(waiting.content, Batch):
            self.results[-1] = _PLACEHOLDER
            if self.results[self._state_index] == _PLACEHOLDER:
                with self._metainfo_of(self._dataset):
                    self.results[self._state_index] = _Entry(self.empty_state(), 0)
            entry = self.results[self._state_index]
            entry.content.update(*waiting.content.columns)
            entry.samples += waiting.samples
        elif len(self.results) > 1 and isinstance(waiting, Batch):
            self.results[0].update(*self.results.pop().columns)

    def compute_metrics(self, results: list[Any]) -> dict[str, float]:
        """Compute the values of states and waiting batches.

        Evaluators that collect ``results`` themselves, as mmdet's MultiDatasetsEvaluator, call it on the main process.
        """
        contents = results
        concatenated = any(isinstance(result, _Entry) or result == _PLACEHOLDER for result in results)
        if concatenated:
            entries = [result for result in results if isinstance(result, _Entry)]
            contents, counted = [entry.content for entry in entries], sum(entry.samples for entry in entries)
            if counted != len(results):
                raise MetricInputError(
                    f"{type(self).__name__} cannot evaluate a part of the samples: the part has {len(results)} "
                    f"samples, but its states hold {counted}. Use mmengine's Evaluator, or evaluate each dataset in a "
                    "separate run"
                )
        states = [
            content if isinstance(content, State) else self.empty_state().update(*content.columns)
            for content in contents
        ]
        state = merge_all(states) if states else self.empty_state()
        metrics = {key: float(value) for key, value in self.compute(state).items()}
        if concatenated:
            with self._outputs(state, metrics):
                self._evaluated = state if self.figures_wanted else None
        return metrics

    def evaluate(self, size: int) -> dict[str, float]:
        """Compute the values of the whole dataset of ``size`` samples, the same on every process; mmengine calls it."""
        try:
            state, samples, error = None, 0, None
            if not len(self.results):
                self._reset()
            first = self._first_batch[0] if self._first_batch else None
            shares = all_gather_or_raise(SamplesOfRank(self._seen, first, self._last, self._earlier_samples))
            with self._named_errors():
                padding = find_padding(shares, size)
            try:
                state, samples = self._local_state(drop_last=get_dist_info()[0] in padding.ranks)
                if padding.counts_earlier and self._earlier is not None:
                    state, samples = self._earlier.merge(state), samples + self._earlier_samples
            except Exception as caught:  # raised on every rank below
                error = caught
            state, total = all_reduce_state(state, samples, error)
            metrics: dict[str, float] = {}
            with ExitStack() as outputs:
                if is_main_process():
                    try:
                        earlier = sum(other.earlier for other in shares)
                        if earlier and not padding.counts_earlier:
                            self._warn_left_out(earlier)
                        if padding.warning is not None:
                            self.warn(
                                f"read {total + len(padding.ranks)} samples of a dataset of {size} on "
                                f"{get_dist_info()[1]} processes. {padding.warning}. Use a dataset size that the "
                                "number of processes divides, or a sampler with round_up=False"
                            )
                        values = self.compute_metrics([state])
                        outputs.enter_context(self._outputs(state, values))
                        self._evaluated = state if self.figures_wanted else None
                        metrics = {self.full_key(key): value for key, value in values.items()}
                    except Exception as caught:  # likewise
                        error = caught
                gathered: list[dict[str, float]] = all_gather_or_raise(metrics, error)
                return gathered[0]
        finally:
            self._reset()

    def _local_state(self, *, drop_last: bool) -> tuple[State, int]:
        """The state of this process and its number of samples; without the last sample if that is padding."""
        samples = self._seen
        if len(self._metas) and self._only_dataset is None:
            classes = [tuple(meta.get("classes") or ()) for meta in self._metas]
            if any(names != classes[0] for names in classes):
                raise MetricInputError(
                    f"{type(self).__name__} cannot evaluate datasets with different classes as one: evaluate each of "
                    "them with mmdet's MultiDatasetsEvaluator, or in a separate run"
                )
        if drop_last:
            samples -= 1
            waiting = self.results[-1]
            if isinstance(waiting, _Entry):
                waiting.content, waiting.samples = waiting.content.without_last(), waiting.samples - 1
            else:
                self.results[-1] = waiting.without_last()
        self._flush()
        states = [item.content if isinstance(item, _Entry) else item for item in self.results if item != _PLACEHOLDER]
        return (merge_all(states) if states else self.empty_state()), samples

    @contextmanager
    def _outputs(self, state: Any, metrics: Mapping[str, float]) -> Iterator[None]:
        """Enter :meth:`outputs_written`, and inside a Runner write a table of the values per class to the log."""
        with self.outputs_written(state):
            yield
        per_class = getattr(self, "classwise", False) or getattr(self, "counts", False)
        table = class_table(metrics) if per_class and in_runner() else ""
        if table:
            print_log(f"{type(self).__name__}, results per class:\n{table}", logger="current", level=logging.INFO)

    def outputs_written(self, state: Any) -> ContextManager[None]:
        """A context manager that writes files and logs besides the values; none by default.

        It is entered on the main process to prepare them, and left once every process has agreed, or with the error:
        nothing is written if the evaluation failed on any process.
        """
        return nullcontext()

    def figures(self, state: Any) -> list[FigureSpec]:
        """The figures of the state of the whole dataset; none by default."""
        return []

    def pop_figures(self) -> list[FigureSpec]:
        """The figures of the last evaluation on the main process, if some were wanted; its state is then dropped."""
        state, self._evaluated = self._evaluated, None
        return [] if state is None else self.figures(state)

    def wants(self, figure: str) -> bool:
        """Whether this figure is wanted, by its name with or without the prefix."""
        names = (figure, self.full_key(figure))
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.figures_wanted)

    def full_key(self, key: str) -> str:
        """The key with the prefix."""
        return f"{self.prefix}/{key}" if self.prefix else key

    def log_keys(self, dataset_meta: Any = None) -> list[str] | None:
        """The keys that an evaluation logs, with the prefix: those of an evaluation without samples.

        Keys per class need the number of classes, from the options or the dataset (by default that of this metric).

        Returns:
            The keys in their order; None if they cannot be known without samples.

        Example:
            >>> from mm_metrics_plugin import SingleLabelAUC
            >>> SingleLabelAUC(average=None).log_keys({"classes": ("cat", "dog")})
            ['single-label/auc/cat', 'single-label/auc/dog']
        """
        metric = copy.copy(self)  # the metric itself must still warn in its evaluation
        if getattr(metric, "absent", None) == "error":
            metric.absent = "skip"  # no class has samples
        try:
            with warnings.catch_warnings(), python_warnings():
                warnings.simplefilter("ignore")
                if dataset_meta is not None:
                    metric.dataset_meta = dataset_meta
                return [metric.full_key(key) for key in metric.compute(metric.empty_state())]
        except Exception:  # the evaluation raises it
            return None

    def dataset_indices(self, count: int) -> np.ndarray:
        """The indices in the dataset of the next ``count`` samples of this process."""
        rank, world_size = get_dist_info()
        first = (self._earlier_samples + self._seen) * world_size + rank
        return np.arange(first, first + count * world_size, world_size, dtype=np.int64)

    def sample_name(self, sample: Sample, index: int) -> str:
        """The name in messages of the sample at ``index`` of the batch: its index in the dataset, and its file."""
        rank, world_size = get_dist_info()
        name = f"sample {(self._seen + index) * world_size + rank}"
        file = next((sample[key] for key in ("img_path", "img_id") if sample.get(key) is not None), None)
        return name if file is None else f"{name} ({file})"

    def sample_names(self, samples: Samples) -> SampleName:
        """A function from the index of a sample of this batch to its name in messages."""
        return lambda index: self.sample_name(samples[index], index)

    def class_names(self, num_classes: int) -> list[str]:
        """The unique class names of the dataset if there are ``num_classes``, else class indices."""
        names = self.dataset_classes
        if len(names) == num_classes:
            return unique_names(names)
        if (names or in_runner()) and num_classes:
            self.warn_once(
                "class names",
                f"{num_classes} classes are named by their indices, because the dataset has {len(names)} class names: "
                f"give the dataset metainfo=dict(classes=(...)) with {num_classes} names",
            )
        return [str(index) for index in range(num_classes)]
