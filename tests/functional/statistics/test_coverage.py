"""95 % confidence intervals contain the true value about 95 times in 100, also for few objects.

Every test allows three standard errors of the simulation beyond the promised range. ``python -m benchmarks coverage``
prints the same with more datasets.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import bench_coverage, coverage, equal_runs
from mm_metrics_plugin.functional.statistics.bootstrap import bootstrap_counts

PROPORTION, F1_AND_AP, AUC = (0.93, 0.985), (0.925, 0.98), (0.93, 0.985)
UNEQUAL = (0.93, 1.0)  # of images of very unequal size; without an interval there are too few


def check(actual, promised, *, least=200):
    assert actual.number >= least, "the setting has too few datasets with an interval"
    low, high = (end + sign * 3 * np.sqrt(end * (1 - end) / actual.number) for end, sign in zip(promised, (-1, 1)))
    assert low <= actual.share <= high, actual


@pytest.mark.parametrize("setting", coverage.PROPORTIONS, ids=str)
def test_proportions(setting):
    check(coverage.proportion_coverage(setting, datasets=1500), PROPORTION)


@pytest.mark.parametrize("setting", coverage.UNEQUAL_PROPORTIONS, ids=str)
def test_proportions_of_images_of_unequal_size(setting):
    check(coverage.proportion_coverage(setting, datasets=1500), UNEQUAL)


@pytest.mark.parametrize("setting", coverage.UNEQUAL_DETECTORS, ids=str)
def test_f1_of_images_of_unequal_size(setting):
    check(coverage.f1_coverage(setting, datasets=1500), UNEQUAL)


@pytest.mark.parametrize("setting", coverage.UNEQUAL_CLASSES, ids=lambda one: f"{one.images}-{one.shape}-{one.sizes}")
def test_means_of_images_of_unequal_size(setting):
    for actual in coverage.mean_coverage(setting, datasets=250).values():
        check(actual, UNEQUAL, least=80)


def test_proportions_of_one_object_per_image_at_every_share():
    """Exact: the sum of the binomial probabilities of the counts whose interval contains the share."""
    from scipy import stats

    for number in (10, 13, 20, 50):
        hits = np.arange(number + 1)
        order = np.arange(number)[None] < hits[:, None]
        counts = coverage.stacked(order.astype(int), np.zeros_like(order, dtype=int), (~order).astype(int))
        recall = bootstrap_counts(counts).per_class["recall"]
        share = np.linspace(0.001, 0.999, 1999)[:, None]
        held = (recall.low <= share) & (share <= recall.high)
        covered = (stats.binom.pmf(hits, number, share) * held).sum(axis=1)
        assert covered.min() >= 0.93, number
        assert (recall.high > recall.low).all()
        assert (recall.low <= recall.value).all() and (recall.value <= recall.high).all()


@pytest.mark.parametrize("setting", coverage.DETECTORS, ids=str)
def test_f1(setting):
    check(coverage.f1_coverage(setting, datasets=1500), F1_AND_AP)


@pytest.mark.parametrize(("kind", "number"), [("even", 5), ("zipf", 10), ("rare", 10), ("rare", 30)])
@pytest.mark.parametrize("images", [40, 150])
def test_means_over_classes_some_of_them_rare(kind, number, images):
    for actual in coverage.mean_coverage(coverage.classes(kind, number, images), datasets=250).values():
        check(actual, F1_AND_AP)


@pytest.mark.parametrize(
    ("kind", "number", "images"), [("even", 1, 45), ("even", 3, 100), ("zipf", 10, 60), ("rare", 10, 60)]
)
def test_average_precision(kind, number, images):
    mean, each, basic = coverage.ap_coverage(
        coverage.classes(kind, number, images), datasets=200, resamples=100, images=60_000
    )
    check(mean, F1_AND_AP, least=150)
    if each.number >= 150:
        check(each, F1_AND_AP, least=150)
    assert mean.share > basic.share


@pytest.mark.parametrize("sizes", coverage.UNEQUAL[1:3], ids=str)
def test_average_precision_of_images_of_unequal_size(sizes):
    setting = coverage.classes("zipf", 5, 100)._replace(sizes=sizes)
    mean, each, basic = coverage.ap_coverage(setting, datasets=200, resamples=100, images=60_000)
    check(mean, (F1_AND_AP[0], 1.0), least=150)
    check(each, (F1_AND_AP[0], 1.0), least=150)
    assert mean.share > basic.share


@pytest.mark.parametrize("setting", coverage.SCORES, ids=str)
def test_auc(setting):
    actual, delong = coverage.auc_coverage(setting, datasets=1000)
    check(actual, AUC)
    if min(setting.positives, setting.negatives) < 50 and setting.auc > 0.9:
        assert delong.share < 0.9  # without the correction


@pytest.mark.parametrize("setting", coverage.ALIKE, ids=str)
def test_auc_of_few_positives_of_which_some_look_like_negatives(setting):
    check(coverage.auc_coverage(setting, datasets=1000)[0], (0.93, 1.0))


def test_auc_near_1_of_many_samples_has_no_excess_coverage():
    """The full variance of the exponential model would give a coverage of 0.994."""
    check(coverage.auc_coverage(coverage.Scores(0.99, 300, 300), datasets=4000)[0], AUC)


@pytest.mark.parametrize("spread", [0.5, 2.0])
@pytest.mark.parametrize("auc", [0.7, 0.9])
def test_auc_of_unequal_spreads(auc, spread):
    check(coverage.auc_coverage(coverage.Scores(auc, 8, 40, spread), datasets=1000)[0], AUC)


def test_mean_auc_with_classes_of_one_sample():
    shares = np.array([0.3, 0.3, 0.3, 0.05, 0.025, 0.025])
    check(coverage.macro_auc_coverage(60, shares, distance=1.5, datasets=400), (0.93, 1.0))


@pytest.mark.filterwarnings("ignore:Mean of empty slice:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_benchmark_prints_its_tables(monkeypatch, capsys):
    """``python -m benchmarks coverage``, with few datasets."""
    quick = {
        "proportion_coverage": {"datasets": 20},
        "percentile_proportion_coverage": {"datasets": 2},
        "f1_coverage": {"datasets": 20},
        "percentile_f1_coverage": {"datasets": 2},
        "mean_coverage": {"datasets": 2},
        "ap_coverage": {"datasets": 2, "resamples": 2, "images": 2000},
        "auc_coverage": {"datasets": 2},
    }
    for name, fewer in quick.items():
        function = getattr(coverage, name)
        monkeypatch.setattr(coverage, name, lambda one, call=function, fewer=fewer, **_: call(one, **fewer))
    rates = dict.fromkeys(("precision_micro", "recall_micro", "f1_micro", "any"), 0.05)
    monkeypatch.setattr(equal_runs, "rejection_rates", lambda *setting, **options: rates)
    bench_coverage.main()
    tables = [table.splitlines() for table in capsys.readouterr().out.split("\n## ")[1:]]
    assert len(tables) == 10
    for title, _, *rows in tables:
        assert len(rows) > 3 and len({row.count("|") for row in rows if row}) == 1, title
