"""Rows of ratios with their intervals, ours and the published ones below: a panel of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from engine.figures import ratio_axis, style
from engine.figures.forest_rows import LABEL_MOST
from engine.figures.message import families_of, joined
from engine.figures.published import Figure as Published
from engine.figures.study import Ratio, ratio_of

ROW = 0.34  # inches
PAD = 0.62  # rows above the middle of the first, and below the last
_OURS, _THEIRS = -0.16, 0.22  # rows off the middle, where both are there


@dataclass(frozen=True)
class Row:
    """One ratio; None where no family has one."""

    label: str
    mode: str
    ratio: Ratio | None
    beside: tuple[Published, ...] = ()

    @property
    def numbers(self) -> str:
        if self.ratio is None:
            return "no ratio"
        if self.ratio.ends is None:
            return f"{self.ratio.r:.2f}, no interval"
        low, high = self.ratio.ends
        # Two digits would hide on which side of 1 a narrow interval lies.
        digits = 2 if high - low >= 0.02 else 3
        return f"{self.ratio.r:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def verdict_row(entry: dict[str, Any], beside: Sequence[Published] = (), label: str = "") -> Row:
    """The row of an entry of verdict.json, labelled with its mode."""
    name = label or style.printable(entry["mode"], entry["mode"], LABEL_MOST)
    return Row(name, entry["mode"], ratio_of(entry), tuple(beside))


def left_of(rows: Iterable[Row]) -> float:
    """Inches that the labels take."""
    texts = itertools.chain.from_iterable((row.label, row.numbers) for row in rows)
    return max((style.text_width(text, style.SMALL_PT) for text in texts), default=1.0) + 0.2


def span_of(rows: Iterable[Row]) -> tuple[float, float]:
    """Limits of an axis that holds all rows."""
    rows = list(rows)
    own = [x for row in rows if row.ratio for x in (row.ratio.r, *(row.ratio.ends or ()))]
    return ratio_axis.limits(own, [value for row in rows for value in _reach(row.beside)])


def height(rows: Sequence[Row]) -> float:
    return ROW * (len(rows) - 1 + 2 * PAD)


def draw(ax: Axes, rows: Sequence[Row], span: tuple[float, float], label: str) -> None:
    """Draw the rows on a ratio axis between the limits `span`."""
    ratio_axis.apply(ax, *span)
    row_axis(ax, [f"{row.label}\n{row.numbers}" for row in rows])
    ax.tick_params(axis="x", labelsize=style.SMALL_PT + 0.5)
    ax.set_xlabel(label, fontsize=style.LABEL_PT)
    for y, row in enumerate(rows):
        at = y + (_OURS if row.beside else 0)
        if row.ratio:
            mark(ax, at, row.mode, row.ratio.r, row.ratio.ends)
        for theirs in row.beside:
            published(ax, y + _THEIRS, theirs, span)


def row_axis(ax: Axes, labels: Sequence[str]) -> None:
    """A row a label, from the top; every other one on a band."""
    ax.set_ylim(len(labels) - 1 + PAD, -PAD)
    ax.set_yticks(range(len(labels)), labels, fontsize=style.SMALL_PT)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    for y in range(0, len(labels), 2):
        ax.axhspan(y - 0.5, y + 0.5, color=style.BAND, linewidth=0, zorder=0)


def mark(ax: Axes, y: float, mode: str, value: float, ends: tuple[float, float] | None) -> None:
    """A point, hollow where it has no interval, and the interval with its ends."""
    colour, shape = style.mode_look(mode)
    if ends:
        ax.plot(ends, [y, y], color=colour, linewidth=1.6, marker="|", markersize=7,
                markeredgewidth=1.4, zorder=3)  # fmt: skip
    ax.plot([value], [y], shape, color=colour, markersize=5.2, zorder=4,
            markerfacecolor=colour if ends else "white")  # fmt: skip


def published(ax: Axes, y: float, ratio: Published, span: tuple[float, float]) -> None:
    """A published ratio: a hollow diamond, or its number at the edge where the axis ends before."""
    low, high = _reach([ratio])[1:]
    if low < span[0] or high > span[1]:
        numbers = f"{ratio.value:.2f}"
        if low < high:
            numbers += f" [{low:.2f}, {high:.2f}]"
        left = ratio.value < 1
        ax.text(
            0.01 if left else 0.99, y, f"← {numbers}" if left else f"{numbers} →",
            transform=ax.get_yaxis_transform(), size=style.SMALL_PT, color=style.OUT,
            ha="left" if left else "right", va="center_baseline",
        )  # fmt: skip
        return
    ax.plot([low, high], [y] * 2, color=style.OUT, linewidth=1.2, zorder=3)
    ax.plot([ratio.value], [y], "D", color=style.OUT, markerfacecolor="white", markersize=4.8,
            zorder=4)  # fmt: skip


def _reach(ratios: Iterable[Published]) -> list[float]:
    """Value, low and high of each."""
    return [
        ratio.value if end is None else end
        for ratio in ratios
        for end in (ratio.value, ratio.low, ratio.high)
    ]


def interval_handle(level: str) -> Artist:
    """For a legend."""
    return Line2D([], [], color=style.INK, marker="|", markersize=7, linewidth=1.6,
                  label=f"over families, with its {level} interval")  # fmt: skip


def hollow_handle() -> Artist:
    label = "no interval: too few families passed the gates"
    return Line2D([], [], color=style.INK, marker="o", markersize=5.2, linewidth=0,
                  markerfacecolor="white", label=label)  # fmt: skip


def published_handle(label: str = "published, other hardware") -> Artist:
    return Line2D([], [], color=style.OUT, marker="D", markersize=4.8, linewidth=0,
                  markerfacecolor="white", label=label)  # fmt: skip


def row_handles(rows: Iterable[Row], level: str) -> list[Artist]:
    """Legend entries of what the rows show."""
    rows = list(rows)
    handles = []
    if any(row.ratio and row.ratio.ends for row in rows):
        handles.append(interval_handle(level))
    if any(row.ratio and not row.ratio.ends for row in rows):
        handles.append(hollow_handle())
    if any(row.beside for row in rows):
        handles.append(published_handle())
    return handles


def counts(ratios: Iterable[Ratio | None]) -> str:
    """'14 families', or a range where modes differ."""
    return families_of(ratio.families for ratio in ratios if ratio)


def loose(rows: Iterable[Row]) -> list[str]:
    """A note if the ratio of a row is of families that failed a gate."""
    rows = [row for row in rows if row.ratio]
    firm = {row.mode for row in rows if row.ratio.gated}
    names = dict.fromkeys(row.mode for row in rows if not row.ratio.gated)
    if not names:
        return []
    always = [name for name in names if name not in firm]
    partly = [f"{name} in part" for name in names if name in firm]
    who = joined([*always, *partly])
    return [f"{who}: too few families passed the timing gates; R of all, no verdict."]
