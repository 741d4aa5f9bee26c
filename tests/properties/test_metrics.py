"""Properties of every metric in ``tests/helpers/cases.py``."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given

from mm_metrics_plugin import (
    DetectionPRF,
    MultiLabelAUC,
    MultiLabelPRF,
    PosNegRatio,
    RecallAtK,
    SingleLabelAUC,
    SingleLabelKS,
    SingleLabelPRF,
)
from tests.helpers.cases import CASES
from tests.helpers.checks import (
    SCORE_FIELDS,
    batches_of,
    check_classes,
    check_merging,
    check_ranked,
    check_rates,
    check_sharded,
    check_split,
    numbers,
)
from tests.helpers.strategies import (
    cut_at,
    feeding_of,
    rolls,
    samples_of,
    score_map_of,
    shared_by,
    small_metric,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::mm_metrics_plugin.exceptions.UndefinedMetricWarning"),
    # Samples without names, or drawn twice, look like padding; tests/metrics/test_padding.py covers this.
    pytest.mark.filterwarnings("ignore:.* samples of a dataset of:mm_metrics_plugin.exceptions.MetricWarning"),
    pytest.mark.filterwarnings("ignore:.* scores are:mm_metrics_plugin.exceptions.MetricWarning"),  # mapped or equal
]


def over(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


CASES_OF = Counter(type(case.metric()) for case in CASES)


def tried(case):
    """Runs the decorated property over the examples, which the cases of one metric share."""
    return lambda check: shared_by(CASES_OF[type(case.metric())])(given(rolls)(check))()


@over(CASES)
def test_batches_order_and_ranks_do_not_change_values(case):
    """Any batches, order, ranks and order of merging give the same values."""

    @tried(case)
    def _(roll):
        samples = samples_of(roll, case)
        feeding = feeding_of(roll, len(samples), padded=case.order_matters)
        if case.order_matters:
            # The batches of all ranks form one batch, so all ranks need equally many.
            batches = batches_of(samples, feeding.batch_size * feeding.world_size)
            expected = numbers(small_metric(case), batches, len(samples))
        else:
            expected = numbers(small_metric(case), [samples], len(samples))
            check_split(case, samples, expected, feeding)
        check_rates(expected)
        check_sharded(case, samples, expected, feeding)
        check_merging(case, cut_at(samples, feeding.ends), None if case.order_matters else expected)


def num_classes(case):
    """Number of classes of the metric; 0 without classes."""
    metric, sample = case.metric(), case.draw(1)[0]
    if getattr(metric, "positive_label", None) is not None:
        return 0
    known = len(case.classes or ()) or getattr(metric, "num_classes", None)
    if known:
        return known
    target = sample.get("gt_score", sample.get("gt_label"))
    return len(sample["pred_score"]) if target is not None and not target.is_floating_point() else 0


@over([case for case in CASES if num_classes(case) and "keypoints" not in case.name])  # of one class
def test_classes_may_be_permuted(case):
    classes = num_classes(case)

    @tried(case)
    def _(roll):
        samples = samples_of(roll, case, rows_differ=True)
        check_classes(case, samples, roll.order(classes))


def ranked_keys(case):
    """The keys that depend only on the order of the scores; none if scores are compared with a threshold."""
    metric = case.metric()
    if getattr(metric, "num_thresholds", None) or any(thr is not None for thr in getattr(metric, "thrs", None) or ()):
        return ()
    if isinstance(metric, DetectionPRF):
        if "scores" not in case.draw(1)[0]["pred_instances"]:
            return ()
        return ("mAP*", "operating_[!t]*", "cross_fitted*") if metric.ap or metric.settings.operating_point else ()
    if isinstance(metric, MultiLabelPRF) and metric.topk is None:
        return ()
    if not any(field in case.draw(1)[0] for field in SCORE_FIELDS):
        return ()
    if isinstance(metric, SingleLabelKS):
        return ("ks", "ks/*", "classes*")
    ranked = (SingleLabelAUC, MultiLabelAUC, SingleLabelPRF, MultiLabelPRF, RecallAtK, PosNegRatio)
    return ("*",) if isinstance(metric, ranked) else ()


@over([case for case in CASES if ranked_keys(case)])
def test_monotonic_score_maps_do_not_change_ranks(case):
    keys = ranked_keys(case)

    @tried(case)
    def _(roll):
        check_ranked(case, samples_of(roll, case), score_map_of(roll), keys)
