"""Pairs of scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from mm_metrics_plugin.functional.ranking import count_pairs, pos_neg_ratio


def test_all_pairs_without_ties_are_mann_whitneys_u():
    generator = np.random.default_rng(0)
    positive, negative = generator.normal(0.5, 1, 40), generator.normal(0, 1, 30)
    grid = np.broadcast_arrays(positive[:, None], negative[None, :])
    assert count_pairs(*grid)[0] == mannwhitneyu(positive, negative, alternative="two-sided").statistic


def test_no_pairs():
    assert math.isnan(pos_neg_ratio(*count_pairs(np.zeros(0), np.zeros(0))))
    assert pos_neg_ratio(0, 1) == pytest.approx(0.5)
