"""A logarithmic axis of ratios around 1, with ticks that a reader can name."""

from __future__ import annotations

import math
from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

# From coarse to fine; each keeps 1 among its ticks.
_STEPS = (
    [2.0**n for n in range(-10, 11)],
    [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10],
    [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.6, 1.8, 2],
    [1 + 0.1 * n for n in range(-5, 11)],
    [1 + 0.05 * n for n in range(-10, 11)],
    [1 + 0.02 * n for n in range(-10, 11)],
    [1 + 0.01 * n for n in range(-10, 11)],
    [1 + 0.005 * n for n in range(-10, 11)],
)
_LEAST_TICKS = 4
_PAD = 0.06
_NARROWEST = math.log(1.06)
_MOST_STRETCH = 3.0


def limits(own: Iterable[float], beside: Iterable[float] = ()) -> tuple[float, float]:
    """Axis limits that hold 1 and all values of `own`, with a margin at both ends.

    Those of `beside` are held as well if they leave the own ones at least a third of the axis.
    """
    low, high = _reach([1.0, *own])
    wide = _reach([1.0, *own, *beside])
    if wide[1] - wide[0] <= _MOST_STRETCH * max(high - low, _NARROWEST):
        low, high = wide
    span = max(high - low, _NARROWEST)
    spare = (span - (high - low)) / 2
    # The right edge holds the word 'out' beside families out of the inference.
    return math.exp(low - spare - _PAD * span), math.exp(high + spare + 2 * _PAD * span)


def _reach(values: list[float]) -> tuple[float, float]:
    logs = [math.log(value) for value in values if math.isfinite(value) and value > 0]
    return min(logs), max(logs)


def ticks(low: float, high: float) -> list[float]:
    """The coarsest list with enough ticks inside the limits."""
    for steps in _STEPS:
        inside = [tick for tick in steps if low <= tick <= high]
        if len(inside) >= _LEAST_TICKS:
            return inside
    return [1.0]


def apply(ax: Axes, low: float, high: float) -> None:
    """Make `ax` a ratio axis between the limits, with its line at R = 1."""
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    ax.xaxis.set_major_locator(FixedLocator(ticks(low, high)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:.3g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.axvline(1, color="#1a1a1a", linewidth=1.0, zorder=1)
