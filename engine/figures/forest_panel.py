"""Draws one panel of the forest plot on its axes."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.patches import Polygon

from engine.figures import marks, ratio_axis, style
from engine.figures.forest_rows import FamilyMark, OverallMark, Panel
from engine.figures.message import short_word

_HEADING_LINE = 0.15  # inches
_FIRST = -0.7  # rows above the middle of the first


def above(panel: Panel, width: float) -> float:
    """Inches that the heading takes over the axes."""
    return 0.3 + _HEADING_LINE * len(_results(panel, width))


def rows(panel: Panel) -> float:
    """Height of the axes in rows."""
    return panel.rows - _FIRST


def draw(ax: Axes, panel: Panel, span: tuple[float, float], width: float, named: bool) -> None:
    """Draw the panel between the ratio limits `span`; `named` gives the rows their labels."""
    ratio_axis.apply(ax, *span)
    ax.set_ylim(panel.rows, _FIRST)
    ax.spines["left"].set_visible(False)
    heights, names = zip(*panel.labels, strict=True)
    ax.set_yticks(heights, names if named else [""] * len(names))
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=style.SMALL_PT + 0.5)
    for band in panel.bands:
        ax.axhspan(*band, color=style.BAND, linewidth=0, zorder=0)
    ax.axhline(panel.rule_y, color=style.QUIET, linewidth=0.8)
    ax.set_xlabel(panel.axis_label, fontsize=style.LABEL_PT)
    for mark in panel.families:
        _family(ax, mark, panel.context)
    for mark in panel.overall:
        _overall(ax, mark, panel.context)
    for mark in panel.published:
        marks.published(ax, mark.y, mark.ratio, span)
    _heading(ax, panel, width)


def _family(ax: Axes, mark: FamilyMark, context: str) -> None:
    colour, shape = style.mode_look(mark.mode)
    edge = colour if mark.admitted else style.OUT
    place = f"{context}-{mark.family}-{mark.mode}"
    if not mark.admitted:
        words = "out" if math.isfinite(mark.r) else "out, no R"
        ax.text(
            0.995, mark.y, words, transform=ax.get_yaxis_transform(), size=style.SMALL_PT - 0.5,
            color=style.OUT, style="italic", ha="right", va="center_baseline", gid=f"out-{place}",
        )  # fmt: skip
    seen = [r for r in mark.by_replicate if math.isfinite(r)]
    if seen:
        ends = [min(seen), max(seen)]
        ax.plot(ends, [mark.y] * 2, color=edge, linewidth=1.2, alpha=0.55, zorder=2)
        ax.plot(seen, [mark.y] * len(seen), "|", color=edge, markersize=9, markeredgewidth=1.0,
                zorder=3)  # fmt: skip
    if math.isfinite(mark.r):
        ax.plot(
            [mark.r], [mark.y], shape, color=edge, markersize=4.4, markeredgewidth=1.0, zorder=4,
            markerfacecolor=colour if mark.admitted else "white", gid=f"family-{place}",
        )  # fmt: skip


def _overall(ax: Axes, mark: OverallMark, context: str) -> None:
    colour, _ = style.mode_look(mark.mode)
    if mark.r is None or mark.interval is None:
        ax.text(
            0.5, mark.y, short_word(mark.word), transform=ax.get_yaxis_transform(),
            size=style.SMALL_PT, color=style.QUIET, ha="center", va="center_baseline",
        )  # fmt: skip
        return
    low, high = mark.interval
    corners = [(low, mark.y), (mark.r, mark.y - 0.36), (high, mark.y), (mark.r, mark.y + 0.36)]
    ax.add_patch(
        Polygon(corners, facecolor=colour, edgecolor=style.INK, linewidth=0.9, zorder=5,
                gid=f"overall-{context}-{mark.mode}")
    )  # fmt: skip


def _results(panel: Panel, width: float) -> list[tuple[str, str]]:
    return [
        (style.mode_look(mode)[0], line)
        for mode, text in panel.results
        for line in style.wrap(text, width, style.SMALL_PT + 0.5, "bold")
    ]


def _heading(ax: Axes, panel: Panel, width: float) -> None:
    def say(text: str, points: float, x: float = 0, **more: object) -> None:
        ax.annotate(text, (x, 1), (0, points), xycoords="axes fraction",
                    textcoords="offset points", va="bottom", **more)  # fmt: skip

    say("← slower", 1, size=style.SMALL_PT - 0.5, color=style.QUIET)
    say("faster →", 1, x=1, size=style.SMALL_PT - 0.5, color=style.QUIET, ha="right")
    lines = _results(panel, width)
    for place, (colour, text) in enumerate(reversed(lines)):
        say(text, 11.5 + 72 * _HEADING_LINE * place, size=style.SMALL_PT + 0.5, color=colour,
            weight="bold")  # fmt: skip
    say(panel.heading, 12.5 + 72 * _HEADING_LINE * len(lines), size=style.LABEL_PT + 0.5,
        weight="bold")  # fmt: skip
