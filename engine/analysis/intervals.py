"""The interval of the mean log ratio over families, and the two that are shown beside it.

The headline is a studentised bootstrap whose resamples weight families by Beta(1/2, 3/2) instead
of drawing them with replacement (A. B. Owen, Better bootstrap t confidence intervals for the
mean, 2025, arXiv:2508.10083). These weights have the variance and the skewness of the drawn
counts, so the interval is as accurate for skewed data; but no resample is without spread, so
none has to be thrown away and no interval is infinite. In tests/simulation.py it is narrower
than drawing, at the same coverage, where families are few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from engine.limits import Inference

Method = Literal["studentised bootstrap", "student t", "none"]
Bounds = tuple[np.ndarray, np.ndarray]

# Studies a matrix product, so that the resamples of many studies do not fill the memory.
_CHUNK = 100
# Log ratios closer than this differ by rounding alone.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Interval:
    """An interval of the geometric mean ratio; low and high are None where there is none."""

    low: float | None
    high: float | None
    method: str
    n: int
    level: float


def headline_interval(log_r: np.ndarray, inference: Inference, seed: int) -> Interval:
    """Interval of exp(mean log R) from `log_r` [families], by the method that their number allows.

    The same families in any order, with the same seed, give the same interval; swapping the
    arms (-log_r) inverts it.
    """
    log_r = np.asarray(log_r, dtype=float)
    low, high = headline_bounds(log_r[None, :], inference, seed)
    return _interval(low, high, headline_method(log_r.size, inference), log_r.size, inference)


def percentile_interval(log_r: np.ndarray, inference: Inference, seed: int) -> Interval:
    """Percentile bootstrap interval of exp(mean log R), shown beside the headline's."""
    log_r = np.asarray(log_r, dtype=float)
    low, high = bootstrap_bounds(log_r[None, :], inference, seed, "percentile")
    return _interval(low, high, "percentile", log_r.size, inference)


def bca_interval(log_r: np.ndarray, inference: Inference, seed: int) -> Interval:
    """Bias-corrected and accelerated bootstrap interval, shown beside the headline's."""
    log_r = np.asarray(log_r, dtype=float)
    low, high = bootstrap_bounds(log_r[None, :], inference, seed, "BCa")
    return _interval(low, high, "bca", log_r.size, inference)


def headline_method(families: int, inference: Inference) -> Method:
    """Which interval this number of families can carry."""
    if families >= inference.bootstrap_from:
        return "studentised bootstrap"
    return "student t" if families >= inference.student_t_from else "none"


def headline_bounds(log_r: np.ndarray, inference: Inference, seed: int) -> Bounds:
    """Headline bounds, on the log scale, of `log_r` [studies, families]; NaN where none."""
    method = headline_method(log_r.shape[1], inference)
    if method == "studentised bootstrap":
        return studentised_bounds(log_r, inference, seed)
    if method == "student t":
        return student_t_bounds(log_r, inference)
    return _no_bounds(len(log_r))


def student_t_bounds(log_r: np.ndarray, inference: Inference) -> Bounds:
    """mean -/+ t * sd / sqrt(n), [studies] each, of `log_r` [studies, families]."""
    n = log_r.shape[1]
    quantile = stats.t.ppf((1 + inference.level) / 2, n - 1)
    half = quantile * _spread(log_r) / math.sqrt(n)
    mean = log_r.mean(axis=1)
    return mean - half, mean + half


def studentised_bounds(log_r: np.ndarray, inference: Inference, seed: int) -> Bounds:
    """Equal-tailed bounds [studies] from the quantiles of t* = (mean* - mean) / sd*.

    `log_r` is [studies, families]; mean* and sd* are the weighted mean and standard deviation of
    a resample. All studies share the resamples, as each would have drawn them alone.
    """
    log_r = np.sort(log_r, axis=1)
    weights = _weights(log_r.shape[1], inference.resamples, seed)
    mean = log_r.mean(axis=1)
    tails = [(1 + inference.level) / 2, (1 - inference.level) / 2]
    low, high = np.empty(len(log_r)), np.empty(len(log_r))
    for begin in range(0, len(log_r), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        spread = _spread(log_r[part], ddof=0)
        scale = np.where(spread > 0, spread, 1.0)[:, None]
        standard = (log_r[part] - mean[part, None]) / scale
        shift = standard @ weights.T
        variance = standard**2 @ weights.T - shift**2
        # Rounding can take a variance of next to nothing below zero.
        t = shift / np.sqrt(np.maximum(variance, np.finfo(float).tiny))
        upper, lower = np.quantile(t, tails, axis=1, overwrite_input=True)
        low[part], high[part] = mean[part] - upper * spread, mean[part] - lower * spread
    return low, high


def bootstrap_bounds(
    log_r: np.ndarray, inference: Inference, seed: int, method: Literal["percentile", "BCa"]
) -> Bounds:
    """Percentile or BCa bounds, on the log scale, of `log_r` [studies, families]."""
    if headline_method(log_r.shape[1], inference) == "none":
        return _no_bounds(len(log_r))
    mean = log_r.mean(axis=1)
    low, high = mean.copy(), mean.copy()
    spread = _spread(log_r) > 0
    if spread.any():
        found = stats.bootstrap(
            (np.sort(log_r[spread], axis=1),),
            np.mean,
            axis=1,
            n_resamples=inference.resamples,
            batch=max(1, 2_000_000 // log_r.size),
            confidence_level=inference.level,
            method=method,
            rng=np.random.default_rng(seed),
        ).confidence_interval
        low[spread], high[spread] = found.low, found.high
    return low, high


def _weights(families: int, resamples: int, seed: int) -> np.ndarray:
    """Resampling weights [2 * resamples, families], each row summing to 1.

    Every resample is used with its mirror image: families come sorted, so an interval of -log_r
    is the interval of log_r turned round, and not another draw.
    """
    drawn = np.random.default_rng(seed).beta(0.5, 1.5, (resamples, families))
    drawn /= drawn.sum(axis=1, keepdims=True)
    return np.concatenate([drawn, drawn[:, ::-1]])


def _spread(log_r: np.ndarray, ddof: int = 1) -> np.ndarray:
    """Standard deviation over families [studies]; exactly 0 where only rounding is left."""
    spread = log_r.std(axis=1, ddof=ddof)
    return np.where(np.ptp(log_r, axis=1) > _ROUNDING, spread, 0.0)


def _no_bounds(studies: int) -> Bounds:
    return np.full(studies, np.nan), np.full(studies, np.nan)


def _interval(
    low: np.ndarray, high: np.ndarray, method: str, n: int, inference: Inference
) -> Interval:
    bounds = [math.exp(x) if math.isfinite(x) else None for x in (float(low[0]), float(high[0]))]
    return Interval(bounds[0], bounds[1], method, n, inference.level)
