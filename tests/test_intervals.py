"""Intervals: which method when, what they must not depend on, and data without spread."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from engine.analysis.intervals import (
    bca_interval,
    bootstrap_bounds,
    headline_bounds,
    headline_interval,
    percentile_interval,
    student_t_bounds,
)
from engine.limits import Inference

INFERENCE = Inference()
QUICK = Inference(resamples=1000)
ALL = [headline_interval, percentile_interval, bca_interval]

log_ratios = st.lists(
    st.integers(-2000, 2000).map(lambda thousandth: thousandth / 1000), min_size=4, max_size=20
).map(np.array)


def _normal(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(-0.3, 0.12, n)


@pytest.mark.parametrize(
    ("families", "method"),
    [
        (0, "none"),
        (3, "none"),
        (4, "student t"),
        (7, "student t"),
        (8, "studentised bootstrap"),
        (16, "studentised bootstrap"),
    ],
)
def test_number_of_families_decides_the_method(families, method):
    interval = headline_interval(_normal(families), INFERENCE, seed=1)
    assert (interval.method, interval.n, interval.level) == (method, families, 0.95)
    assert (interval.low is None) == (interval.high is None) == (method == "none")


def test_student_t_is_the_textbook_interval():
    log_r = _normal(5)
    expected = stats.ttest_1samp(log_r, 0).confidence_interval(0.95)
    interval = headline_interval(log_r, INFERENCE, seed=1)
    assert (interval.low, interval.high) == pytest.approx(np.exp(expected))


def test_studentised_interval_agrees_with_plain_resampling():
    # A loop over drawn families: what the weights stand in for, alike when families are many.
    log_r, n = _normal(60), 60
    rng, t = np.random.default_rng(2), []
    for _ in range(20_000):
        drawn = rng.choice(log_r, n)
        t.append((drawn.mean() - log_r.mean()) / drawn.std(ddof=1))
    upper, lower = np.quantile(t, [0.975, 0.025])
    spread = log_r.std(ddof=1)
    expected = [math.exp(log_r.mean() - q * spread) for q in (upper, lower)]
    interval = headline_interval(log_r, INFERENCE, seed=1)
    assert (interval.low, interval.high) == pytest.approx(expected, abs=0.003)


def test_studentised_interval_reaches_further_into_the_tail():
    log_r = -np.random.default_rng(3).exponential(0.1, 16)
    low, high = (bound[0] for bound in headline_bounds(log_r[None], INFERENCE, 1))
    assert log_r.mean() - low > 1.3 * (high - log_r.mean())


def test_a_higher_level_is_wider():
    narrow = headline_interval(_normal(16), Inference(level=0.8), 1)
    wide = headline_interval(_normal(16), INFERENCE, 1)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_seed_decides_and_matters_little():
    log_r = _normal(16)
    first, again = (headline_interval(log_r, INFERENCE, 7) for _ in range(2))
    other = headline_interval(log_r, INFERENCE, 8)
    assert first == again != other
    assert (other.low, other.high) == pytest.approx((first.low, first.high), rel=0.01)


def test_many_studies_at_once_are_the_studies_one_by_one():
    studies = np.random.default_rng(4).normal(0, 0.1, (230, 9))
    low, high = headline_bounds(studies, QUICK, 5)
    for at in (0, 99, 100, 229):
        alone = headline_bounds(studies[at : at + 1], QUICK, 5)
        assert (low[at], high[at]) == pytest.approx([bound[0] for bound in alone])


@pytest.mark.parametrize("interval_of", ALL)
@pytest.mark.parametrize("families", [4, 7, 8, 16])
def test_families_without_spread_give_an_interval_of_no_width(interval_of, families):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # 0.1 is not exact, so that the mean of equal values may differ from them by rounding.
        interval = interval_of(np.full(families, 0.1), INFERENCE, 1)
    assert interval.low == interval.high == pytest.approx(math.exp(0.1))


@pytest.mark.parametrize("families", [8, 16])
def test_one_family_apart_from_equal_ones_gives_a_finite_interval(families):
    log_r = np.zeros(families)
    log_r[-1] = 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interval = headline_interval(log_r, INFERENCE, 1)
    assert 0.98 < interval.low < 1 < math.exp(log_r.mean()) < interval.high < 2


@pytest.mark.parametrize("families", [0, 1, 3])
@pytest.mark.parametrize("interval_of", ALL)
def test_too_few_families_have_no_interval(interval_of, families):
    interval = interval_of(_normal(families), INFERENCE, 1)
    assert interval.low is None
    assert interval.high is None


def test_percentile_and_bca_lie_within_the_data_and_inside_the_headline():
    log_r = _normal(16)
    headline = headline_interval(log_r, INFERENCE, 1)
    for interval_of in (percentile_interval, bca_interval):
        interval = interval_of(log_r, INFERENCE, 1)
        assert math.exp(log_r.min()) < interval.low < interval.high < math.exp(log_r.max())
        assert headline.low < interval.low < interval.high < headline.high


@settings(max_examples=30, deadline=None)
@given(log_ratios, st.randoms(use_true_random=False))
def test_order_of_families_changes_nothing(log_r, random):
    shuffled = log_r.tolist()
    random.shuffle(shuffled)
    for bounds in (headline_bounds, student_t_bounds_seeded, percentile_bounds):
        expected = np.ravel(bounds(log_r[None], QUICK, 1))
        assert np.ravel(bounds(np.array([shuffled]), QUICK, 1)) == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(log_ratios)
def test_swapping_the_arms_turns_the_interval_round(log_r):
    low, high = (bound[0] for bound in headline_bounds(log_r[None], QUICK, 1))
    swapped = [bound[0] for bound in headline_bounds(-log_r[None], QUICK, 1)]
    assert swapped == pytest.approx([-high, -low], abs=1e-9, rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(log_ratios, st.floats(-1, 1), st.floats(0.1, 3))
def test_a_shift_or_stretch_of_the_families_is_one_of_the_interval(log_r, shift, stretch):
    low, high = (bound[0] for bound in headline_bounds(log_r[None], QUICK, 1))
    moved = [bound[0] for bound in headline_bounds(stretch * log_r[None] + shift, QUICK, 1)]
    expected = [stretch * low + shift, stretch * high + shift]
    assert moved == pytest.approx(expected, abs=1e-9, rel=1e-6)


def student_t_bounds_seeded(log_r, inference, _seed):
    return student_t_bounds(log_r, inference)


def percentile_bounds(log_r, inference, seed):
    return bootstrap_bounds(log_r, inference, seed, "percentile")
