"""Checks that every streaming metric must pass, for this package's metrics and for yours.

    from mm_metrics_plugin.testing import MetricCase, check_metric

    def test_my_metric():
        check_metric(MetricCase(name="mine", build=MyMetric, samples=make_samples, reference=expected))

Each check raises AssertionError with the expected and the actual value. The functions of a case must be importable
(module level), because real processes are started.
"""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence

import numpy as np
import torch
from mmengine.dataset import DefaultSampler
from mmengine.evaluator import BaseMetric, Evaluator

from mm_metrics_plugin.exceptions import MetricInputError, UndefinedMetricWarning
from mm_metrics_plugin.metrics.runner_log import python_warnings
from mm_metrics_plugin.testing.processes import PRELOAD as PRELOAD
from mm_metrics_plugin.testing.processes import run_processes as run_processes

__all__ = ["InvalidInput", "MetricCase", "assert_same", "check_metric", "check_processes", "evaluate"]

Samples = List[Dict[str, Any]]


class InvalidInput(NamedTuple):
    """An invalid sample that a metric must refuse.

    Attributes:
        name: What is wrong.
        corrupt: Makes a sample invalid.
        words: What the message must contain besides the sample: at least the field.
    """

    name: str
    corrupt: Callable[[dict[str, Any]], Any]
    words: Sequence[str]


@dataclass(frozen=True)
class MetricCase:
    """A metric with samples and expected values.

    Attributes:
        name: Name of the case in messages.
        build: Makes the metric.
        samples: Makes a number of samples from a random generator.
        reference: The expected values of samples, by key without prefix; keys may be left out.
        tolerance: Allowed relative difference between batch sizes, orders and processes: 0 for states of counts or
            scores, 1e-12 for sums of floats.
        reference_tolerance: Allowed difference from the reference, absolute and relative.
        order_matters: Whether the order and the batches of the samples are part of the definition. Several processes
            are then compared with one process of larger batches, and only with padding.
        classes: The dataset's class names, if the metric needs them.
        invalid_inputs: Each an :class:`InvalidInput` or a tuple like it.
        rules: For which keys (without prefix; patterns with ``*``) greater is not better: ``'less'``, None where
            neither is better, as for counts, or ``'never'`` for keys that ``save_best`` should not use.
        dtypes: Dtypes of tensors that give the same result. Score thresholds of the metric should be numbers that all
            of them hold exactly, such as 0.5.
        counts: Numbers of samples that are compared with the reference. Some hundreds find a counter of 8 bits.
        many: Number of samples of :func:`check_many`, more than 16 bits can count; 0 where the reference is too slow.
    """

    name: str
    build: Callable[[], BaseMetric]
    samples: Callable[[np.random.Generator, int], Samples]
    reference: Callable[[Samples], Mapping[str, float]]
    tolerance: float = 0.0
    reference_tolerance: float = 1e-12
    order_matters: bool = False
    classes: Sequence[str] | None = None
    invalid_inputs: Sequence[tuple[str, Callable[[dict[str, Any]], Any], Sequence[str]]] = ()
    rules: Mapping[str, str | None] = field(default_factory=dict)
    dtypes: Sequence[str] = ("float16", "bfloat16", "float32", "float64", "int32", "numpy")
    counts: Sequence[int] = (64, 33, 300)
    many: int = 70_000

    def metric(self) -> BaseMetric:
        """A new metric that knows the class names."""
        metric = self.build()
        metric.dataset_meta = {} if self.classes is None else {"classes": list(self.classes)}
        return metric

    def draw(self, count: int, seed: int = 0) -> Samples:
        """Samples that are the same for the same seed."""
        return self.samples(np.random.default_rng(seed), count)


def evaluate(
    metric: BaseMetric, samples: Sequence[Any], batch_size: int = 7, size: int | None = None
) -> dict[str, float]:
    """The values of the samples, read in batches; without warnings of undefined values."""
    with warnings.catch_warnings(), python_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        for start in range(0, len(samples), batch_size):
            metric.process(None, samples[start : start + batch_size])
        values: dict[str, float] = metric.evaluate(len(samples) if size is None else size)
        return values


def assert_same(actual: Mapping[str, float], expected: Mapping[str, float], tolerance: float, what: str) -> None:
    """Raises AssertionError unless keys and values agree; NaN equals NaN."""
    if list(actual) != list(expected):
        raise AssertionError(f"{what}: keys {list(actual)} differ from {list(expected)}")
    _assert_values(actual, expected, tolerance, what)


def _assert_values(actual: Mapping[str, float], expected: Mapping[str, float], tolerance: float, what: str) -> None:
    for key, value in expected.items():
        same = actual[key] == value or (math.isnan(actual[key]) and math.isnan(value))
        if not same and not (tolerance and math.isclose(actual[key], value, rel_tol=tolerance, abs_tol=tolerance)):
            raise AssertionError(f"{what}: {key} is {actual[key]!r}, expected {value!r}")


def check_reference(case: MetricCase) -> None:
    """The metric agrees with the reference, for a few and for some hundred samples."""
    for seed, count in enumerate(case.counts):
        _assert_reference(case, case.draw(count, seed), case.reference_tolerance, batch_size=7)


def check_many(case: MetricCase) -> None:
    """The metric agrees with the reference for more samples than 16 bits can count.

    71 samples are repeated. No round number is a multiple of 71, so a metric that ignores all samples after one fails.
    """
    if not case.many:
        return
    few = case.draw(71)
    samples = [few[index % len(few)] for index in range(case.many)]
    tolerance = max(case.reference_tolerance, 1e-9)  # the reference may be a plain sum of as many floats
    _assert_reference(case, samples, tolerance, batch_size=7 if case.order_matters else 5000)


def _assert_reference(case: MetricCase, samples: Samples, tolerance: float, *, batch_size: int) -> None:
    metric = case.metric()
    actual = evaluate(metric, samples, batch_size)
    prefix = f"{metric.prefix}/" if metric.prefix else ""
    expected = {prefix + key: value for key, value in case.reference(samples).items()}
    if not expected:
        raise AssertionError(f"{case.name}: the reference gives no value")
    _assert_values(actual, expected, tolerance, f"{case.name} against its reference, {len(samples)} samples")


def check_values(case: MetricCase) -> None:
    """Every value is a plain float, and no key contains 'loss' or 'time'."""
    values = evaluate(case.metric(), case.draw(40))
    _assert_floats(values, case.name)
    for key in values:
        if "loss" in key or "time" in key:
            raise AssertionError(f"{case.name}: mmengine would log {key} as a mean over a window")


def _assert_floats(values: Mapping[str, float], what: str) -> None:
    for key, value in values.items():
        if type(value) is not float:
            raise AssertionError(f"{what}: {key} is a {type(value).__name__}, expected a plain float")


def check_batches(case: MetricCase) -> None:
    """The values depend neither on the batch size nor on the order of the samples."""
    if case.order_matters:
        return
    samples = case.draw(41)
    expected = evaluate(case.metric(), samples, batch_size=41)
    for batch_size in (1, 5, 40):
        actual = evaluate(case.metric(), samples, batch_size=batch_size)
        assert_same(actual, expected, case.tolerance, f"{case.name} in batches of {batch_size}")
    order = np.random.default_rng(1).permutation(len(samples))
    actual = evaluate(case.metric(), [samples[index] for index in order])
    assert_same(actual, expected, case.tolerance, f"{case.name} in another order")


def check_reuse(case: MetricCase) -> None:
    """A second evaluation, a deep copy and a pickled copy all give the values of a new metric."""
    first, second = case.draw(30, seed=1), case.draw(31, seed=2)
    expected = evaluate(case.metric(), second)
    metric = case.metric()
    evaluate(metric, first)
    assert_same(evaluate(metric, second), expected, 0.0, f"{case.name} in its second evaluation")
    half = case.metric()
    half.process(None, second[:7])
    for copied, how in ((copy.deepcopy(half), "deep-copied"), (pickle.loads(pickle.dumps(half)), "pickled")):
        actual = evaluate(copied, second[7:], size=len(second))
        assert_same(actual, expected, 0.0, f"{case.name} {how} half-way")


def check_offline(case: MetricCase) -> None:
    """Mmengine's offline evaluation gives the same values."""
    samples = case.draw(23)
    expected = evaluate(case.metric(), samples, batch_size=4)
    actual = Evaluator(case.metric()).offline_evaluate(samples, chunk_size=4)
    assert_same(actual, expected, case.tolerance, f"{case.name} evaluated offline")


def check_inputs_unchanged(case: MetricCase) -> None:
    """The metric does not change the samples, and changing them afterwards changes no value."""
    samples = case.draw(12)
    before = copy.deepcopy(samples)
    # On a copy: a metric that changes its input would change the expected values alike.
    expected = evaluate(case.metric(), copy.deepcopy(samples), batch_size=4)
    metric = case.metric()
    for start in range(0, len(samples), 4):
        metric.process(None, samples[start : start + 4])
        if not _equal(samples[start : start + 4], before[start : start + 4]):
            raise AssertionError(f"{case.name} changed its input")
        _map_tensors(samples[start : start + 4], torch.Tensor.zero_)
    assert_same(metric.evaluate(len(samples)), expected, 0.0, f"{case.name} after its input was overwritten")


def check_memory(case: MetricCase) -> None:
    """``results`` never holds more than a state and the waiting batch."""
    metric = case.metric()
    samples = case.draw(20)
    for sample in samples:
        metric.process(None, [sample])
        if not 1 <= len(metric.results) <= 2:
            raise AssertionError(f"{case.name} keeps {len(metric.results)} results")
    metric.evaluate(len(samples))
    if len(metric.results):
        raise AssertionError(f"{case.name} keeps results after the evaluation")


def check_empty(case: MetricCase) -> None:
    """Without samples every value is NaN (or 0, for counts), with a warning."""
    metric = case.metric()
    with warnings.catch_warnings(record=True) as caught, python_warnings():
        warnings.simplefilter("always")
        metric.process(None, [])
        actual = metric.evaluate(0)
    if not actual:
        raise AssertionError(f"{case.name} gives no key for an empty dataset")
    _assert_floats(actual, f"{case.name} of an empty dataset")
    for key, value in actual.items():
        if not (math.isnan(value) or value == 0):
            raise AssertionError(f"{case.name}: {key} of an empty dataset is {value!r}, expected NaN or 0")
    announced = any(issubclass(warning.category, UndefinedMetricWarning) for warning in caught)
    if any(map(math.isnan, actual.values())) and not announced:
        raise AssertionError(f"{case.name} is NaN for an empty dataset and does not warn")


def check_single_sample(case: MetricCase) -> None:
    """One sample gives plain floats, which an empty batch before it does not change."""
    samples = case.draw(1)
    expected = evaluate(case.metric(), samples)
    _assert_floats(expected, f"{case.name} of one sample")
    metric = case.metric()
    metric.process(None, [])
    assert_same(evaluate(metric, samples), expected, 0.0, f"{case.name} of one sample after an empty batch")


def check_dtypes(case: MetricCase) -> None:
    """Tensors of every dtype, and arrays, give the values of float64 and int64."""
    samples = case.draw(30)
    for form in case.dtypes:
        if form == "numpy":
            shaped, plain = _map_tensors(samples, lambda tensor: tensor.numpy()), samples
        else:
            dtype = getattr(torch, form)
            shaped = _map_tensors(samples, lambda tensor, dtype=dtype: _cast(tensor, dtype))  # type: ignore[misc]
            wide = torch.float64 if dtype.is_floating_point else torch.int64
            plain = _map_tensors(shaped, lambda tensor, wide=wide: _cast(tensor, wide))  # type: ignore[misc]
        expected = evaluate(case.metric(), plain)
        assert_same(evaluate(case.metric(), shaped), expected, case.tolerance, f"{case.name} from {form}")


def check_bad_input(case: MetricCase) -> None:
    """Every invalid input is refused with a message that names the sample and the field."""
    for name, corrupt, words in case.invalid_inputs:
        samples = case.draw(8)
        corrupt(samples[5])
        metric = case.metric()
        metric.process(None, samples[:4])
        try:
            metric.process(None, samples[4:])
        except MetricInputError as error:
            for word in ("sample 5", *words):
                if word not in str(error):
                    raise AssertionError(f"{case.name}, {name}: '{word}' is not in the message '{error}'") from error
        else:
            raise AssertionError(f"{case.name} accepts a sample with {name}")


def check_directions(case: MetricCase) -> None:
    """Mmengine's ``save_best`` guesses no key in the wrong direction."""
    metric = case.metric()
    prefix = f"{metric.prefix}/" if metric.prefix else ""
    for key in evaluate(metric, case.draw(40)):
        bare = key[len(prefix) :]
        better = next((rule for pattern, rule in case.rules.items() if fnmatchcase(bare, pattern)), "greater")
        guess = guessed_rule(key)
        if better != "never" and guess not in (None, better):
            raise AssertionError(f"{case.name}: save_best takes {key} for '{guess}', but the rule is {better!r}")


def guessed_rule(key: str) -> str | None:
    """The direction that mmengine's ``save_best`` infers from a key without a ``rule``; None if it cannot."""
    # Importing it takes as long as importing torch, and most checks do not need it.
    from mmengine.hooks import CheckpointHook

    try:
        return str(CheckpointHook(save_best=key).rules[0])
    except ValueError:
        return None


LOCAL_CHECKS: tuple[Callable[[MetricCase], None], ...] = (
    check_reference,
    check_values,
    check_batches,
    check_reuse,
    check_offline,
    check_inputs_unchanged,
    check_memory,
    check_empty,
    check_single_sample,
    check_dtypes,
    check_bad_input,
    check_directions,
)


def check_metric(case: MetricCase, world_sizes: Sequence[int] = (2, 3)) -> None:
    """Run every check on one case, 70,000 samples and real processes included."""
    for check in (*LOCAL_CHECKS, check_many):
        check(case)
    for world_size in world_sizes:
        check_processes([case], world_size)


# --- real processes -------------------------------------------------------------------------------------------------

SIZES = (24, 25, 23, 3, 1)


def check_processes(cases: Sequence[MetricCase], world_size: int, sizes: Sequence[int] = SIZES) -> None:
    """Real gloo processes give the values of one process.

    The number of processes divides some of the dataset sizes and not others; samplers pad and do not.
    """
    # Invalid inputs are often lambdas, which cannot be sent to another process.
    jobs = [
        (replace(case, invalid_inputs=()), size, round_up)
        for case in cases
        for size in sizes
        for round_up in (True, False)
        if round_up or not case.order_matters
    ]
    for job, outcomes in zip(jobs, run_processes(world_size, _evaluate_share, jobs)):
        case, size, round_up = job
        expected = evaluate(case.metric(), case.draw(size), batch_size=4 * world_size if case.order_matters else 7)
        for rank, actual in enumerate(outcomes):
            what = f"{case.name}, {size} samples, round_up={round_up}, rank {rank} of {world_size}"
            assert_same(actual, expected, case.tolerance, what)


def _evaluate_share(job: tuple[MetricCase, int, bool]) -> dict[str, float]:
    case, size, round_up = job
    samples = case.draw(size)
    share = [samples[index] for index in DefaultSampler(samples, shuffle=False, round_up=round_up)]
    return evaluate(case.metric(), share, batch_size=4, size=size)


def _map_tensors(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: _map_tensors(item, function) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_tensors(item, function) for item in value]
    return value


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor in another precision, if it is of that kind; booleans stay."""
    same_kind = tensor.dtype is not torch.bool and tensor.is_floating_point() == dtype.is_floating_point
    return tensor.to(dtype) if same_kind else tensor


def _equal(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return bool(left.dtype == right.dtype and torch.equal(left, right))
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)
