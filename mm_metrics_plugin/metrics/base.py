"""A metric that adds up as it goes and gives the same number on any number of processes."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from contextlib import ExitStack, nullcontext
from fnmatch import fnmatchcase
from typing import Any, Callable, ContextManager, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from mmengine.dist import get_dist_info, is_main_process
from mmengine.evaluator import BaseMetric

from mm_metrics_plugin.exceptions import UndefinedMetricWarning
from mm_metrics_plugin.metrics.distributed import add_up, exchange
from mm_metrics_plugin.states.base import State, merge_all
from mm_metrics_plugin.states.batch import Batch


class Shown(NamedTuple):
    """Something of an evaluation that can be drawn.

    Attributes:
        names: Of the figures, in the order of :func:`~mm_metrics_plugin.report.pictures.draw_figures`.
        classes: Names of the classes they show.
        result: Makes the result that is drawn. It is called only if it is.
    """

    names: Tuple[str, ...]
    classes: Sequence[str]
    result: Callable[[], Any]


class StreamingMetric(BaseMetric):
    """The base of every metric here: it never keeps the data set, and never counts padding.

    A subclass writes three methods: :meth:`empty_state`, :meth:`read` (samples to arrays) and :meth:`compute`
    (state to named numbers). It gets streaming, exact evaluation on several processes, and errors that reach all.

    ``results`` holds the state of everything up to the last batch, and the last batch itself. The batch waits
    because its last sample may be padding: samplers give sample ``i`` of rank ``r`` the place
    ``i * world_size + r``, and places from ``size`` on repeat the first samples to make the ranks equally long.

    Args:
        collect_device: Accepted for mmengine's sake. States travel on the device of the process group's backend.
        prefix: Stands before every key; the class's ``default_prefix`` if None.

    Attributes:
        figures_wanted: Patterns of the names of figures, set (on every process alike) before an evaluation by who
            wants to draw it afterwards: :class:`MetricFigureHook`. Without any, nothing is kept for figures.
    """

    figures_wanted: Sequence[str] = ()
    _evaluated: Optional[State] = None

    def __init__(self, collect_device: str = "cpu", prefix: Optional[str] = None) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        self._seen = 0
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

    def process(self, data_batch: Any, data_samples: Sequence[Mapping]) -> None:
        """Takes in one batch of samples; mmengine calls it."""
        batch = self.read(data_samples) if len(data_samples) else None
        if not self._seen:
            # Made anew after empty batches: only samples tell how many classes there are.
            self.results[:] = [self.empty_state()]
        if batch is not None:
            self._flush()
            self.results.append(batch)
            self._seen += len(data_samples)

    def _flush(self) -> None:
        """Adds the waiting batch, if there is one, to the state."""
        if len(self.results) > 1:
            self.results[0].update(*self.results.pop().columns)

    def compute_metrics(self, results: List[Any]) -> Dict[str, float]:
        """The numbers of whatever states and waiting batches are handed over."""
        states = [part if isinstance(part, State) else self.empty_state().update(*part.columns) for part in results]
        found = self.compute(merge_all(states) if states else self.empty_state())
        return {key: float(value) for key, value in found.items()}

    def evaluate(self, size: int) -> Dict[str, float]:
        """The numbers of the whole data set, the same on every process; mmengine calls it.

        Args:
            size: How many samples the data set has.
        """
        try:
            state, samples, error = None, 0, None
            try:
                state, samples = self._local(size)
            except Exception as caught:  # it is raised on every rank below
                error = caught
            state, total = add_up(state, samples, error)
            metrics: Dict[str, float] = {}
            with ExitStack() as agreed:
                if is_main_process():
                    try:
                        self._check_total(total, size)
                        found = self.compute_metrics([state])
                        agreed.enter_context(self.published(state))
                        self._evaluated = state if self.figures_wanted else None
                        prefix = f"{self.prefix}/" if self.prefix else ""
                        metrics = {f"{prefix}{key}": value for key, value in found.items()}
                    except Exception as caught:  # likewise
                        error = caught
                return exchange(metrics, error)[0]
        finally:
            self.results.clear()
            self._seen = 0

    def _local(self, size: int) -> Tuple[State, int]:
        """What this process has added up, padding left out, and of how many samples."""
        rank, world_size = get_dist_info()
        samples = self._seen
        if len(self.results) > 1 and (samples - 1) * world_size + rank >= size > 0 and world_size > 1:
            self.results[1] = self.results[1].without_last()
            samples -= 1
        self._flush()
        return (self.results[0] if self.results else self.empty_state()), samples

    def _check_total(self, total: int, size: int) -> None:
        world_size = get_dist_info()[1]
        if world_size > 1 and total != size and size % world_size:
            warnings.warn(
                f"{type(self).__name__} saw {total} samples of a data set of {size} on {world_size} processes, so it "
                "cannot tell which samples were padding and may have counted some twice; use a data set size that "
                "the number of processes divides, or a sampler with round_up=False"
            )

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
            return [str(index) for index in range(num_classes)]
        return [name if names.count(name) == 1 else f"{name}_{index}" for index, name in enumerate(names)]

    def warn_undefined(self, what: str, reason: str, classes: Sequence[str]) -> None:
        """Announces, once for each ``what``, that it has no value for these classes."""
        if classes and what not in self._warned:
            self._warned.append(what)
            named = ", ".join(classes[:10]) + (f" and {len(classes) - 10} more" if len(classes) > 10 else "")
            warnings.warn(f"{what} is undefined for {named}: {reason}", UndefinedMetricWarning)
