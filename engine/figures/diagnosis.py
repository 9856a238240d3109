"""What the draft gets wrong: rank and gap of its token in the target's logits, cumulated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from engine.figures import published, style
from engine.figures.marks import published_handle
from engine.figures.message import families_of, lengths, span
from engine.figures.sheet import Grid, Space, lay_out
from engine.figures.study import NothingToShow, Study

_LEFT, _BODY, _ABOVE, _BELOW = 0.62, 1.5, 0.26, 0.5
RANK, GAP = 5, 1.0  # where the published study looked
_RANKS = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100])
_GAPS = np.linspace(0, 6, 61)


@dataclass(frozen=True)
class Curve:
    """Share of positions up to each value of `at`, positions pooled over the families; `within`
    is that share at the published limit and `quartiles` its middle half over families.
    """

    context: str
    families: int
    at: np.ndarray
    share: np.ndarray
    within: float
    quartiles: tuple[float, float]


def draw(study: Study) -> tuple[Figure, str]:
    """The figure and its message."""
    trace = study.tables["trace"]
    ranks = curves(trace, study.contexts, "rank", _RANKS, RANK)
    gaps = curves(trace, study.contexts, "gap", _GAPS, GAP)
    said = message(ranks, gaps)
    looks = {curve.context: style.context_look(n) for n, curve in enumerate(ranks)}
    handles = [
        Line2D([], [], color=colour, marker=shape, markersize=4.4, linestyle=dash, linewidth=1.4,
               label=lengths([context]))
        for context, (colour, shape, dash) in looks.items()
    ]  # fmt: skip
    bar = Line2D([], [], color=style.INK, alpha=0.4, linewidth=4, label="middle half of families")
    figure, (upper, lower) = lay_out(
        Grid(1, _LEFT, style.TALL_IN - _LEFT - 0.12, 0),
        [Space(_ABOVE, _BODY, _BELOW)] * 2,
        said,
        study.banners,
        [*handles, bar, published_handle()],
        [*_traced_elsewhere(trace, study), published.note([], [])],
    )
    counted = families_of(curve.families for curve in ranks)
    theirs = [
        published.lookup(study.published, quantity, "")
        for quantity in ("rank_within_5", "gap_within_1")
    ]
    upper.set_xscale("log")
    _panel(upper, ranks, looks, RANK, theirs[0])
    ticks = [1, 2, 5, 10, 20, 50, 100]
    upper.xaxis.set_major_locator(FixedLocator(ticks))
    upper.xaxis.set_minor_locator(NullLocator())
    upper.set_xticklabels([str(tick) for tick in ticks])
    upper.xaxis.set_minor_formatter(NullFormatter())
    upper.set_xlim(0.92, 105)
    upper.set_xlabel(f"rank n in the target; {counted}", fontsize=style.LABEL_PT)
    style.head(upper, "Draft tokens of rank n or better")
    _panel(lower, gaps, looks, GAP, theirs[1])
    lower.set_xlim(-0.12, _GAPS[-1])
    lower.set_xlabel(f"gap to the target's best, logits; {counted}",
                     fontsize=style.LABEL_PT)  # fmt: skip
    style.head(lower, "Positions with at most this gap")
    return figure, said


def curves(
    trace: pd.DataFrame, contexts: list[str], column: str, at: np.ndarray, limit: float
) -> list[Curve]:
    """One curve a context that has a trace."""
    found = []
    for context in contexts:
        here = trace[trace["context"] == context]
        if here.empty:
            continue
        values = np.sort(here[column].to_numpy(dtype=float))
        by_family = (here[column] <= limit).groupby(here["family"]).mean()
        low, high = by_family.quantile([0.25, 0.75])
        share = np.searchsorted(values, [*at, limit], side="right") / len(values)
        found.append(Curve(context, len(by_family), at, share[:-1], float(share[-1]), (low, high)))
    return found


def message(ranks: list[Curve], gaps: list[Curve]) -> str:
    """The two shares at the published limits."""
    if not ranks:
        raise NothingToShow("no position was traced")
    near = span((100 * curve.within for curve in ranks), 0)
    close = span((100 * curve.within for curve in gaps), 0)
    return (
        f"{near}% of the draft's tokens are among the target's best {RANK}, "
        f"{close}% within {GAP:g} logit of its best"
    )


def _traced_elsewhere(trace: pd.DataFrame, study: Study) -> list[str]:
    """A note if the trace was made where the design did not run: others round otherwise."""
    devices = set(trace["device"]) if "device" in trace else set()
    apart = sorted(devices - {study.verdict["settings"]["device"]})
    return [f"The trace was made on another device ({', '.join(apart)})."] if apart else []


def _panel(
    ax: Axes,
    shown: list[Curve],
    looks: dict[str, tuple[str, str, str]],
    limit: float,
    theirs: published.Figure | None,
) -> None:
    ax.axvline(limit, color=style.QUIET, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    for place, curve in enumerate(shown):
        colour, shape, dash = looks[curve.context]
        ax.step(curve.at, curve.share, where="post", color=colour, linestyle=dash, linewidth=1.4)
        # Beside one another, so that one context does not hide another's bar.
        shift = place - (len(shown) - 1) / 2
        x = limit * 1.06**shift if ax.get_xscale() == "log" else limit + 0.07 * shift
        ax.plot([x, x], curve.quartiles, color=colour, linewidth=3.6, alpha=0.4)
        ax.plot([x], [curve.within], shape, color=colour, markersize=4.6, zorder=4)
    if theirs:
        ax.plot([limit], [theirs.value], "D", color=style.OUT, markerfacecolor="white",
                markersize=5.2, zorder=5)  # fmt: skip
    ax.set_ylim(0, 1.03)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25%", "50%", "75%", "100%"])
    ax.grid(axis="y", color=style.FAINT, linewidth=0.5)
    ax.set_axisbelow(True)
    ax.tick_params(axis="x", labelsize=style.SMALL_PT + 0.5)
