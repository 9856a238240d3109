"""The forest plot: R of every family and over families, one panel a context."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle

from engine.figures import forest_panel, ratio_axis, style
from engine.figures.forest_rows import Panel, panels
from engine.figures.message import joined, lengths, message
from engine.figures.published import SETTING, contexts_of, ratio_of
from engine.figures.sheet import Grid, Space, lay_out
from engine.figures.study import main_verdict

# Inches.
_ROW, _BELOW, _WIDE_PANEL, _WIDE_GAP, _MOST_COLUMNS = 0.18, 0.5, 2.7, 0.22, 3


def draw(
    ratios: pd.DataFrame,
    verdict: dict[str, Any],
    published: pd.DataFrame,
    out_svg: str | Path,
    out_png: str | Path,
    out_wide_svg: str | Path | None = None,
) -> None:
    """Write the forest plot of what the study set out to judge: see `main_verdict`.

    Parameters
    ----------
    ratios : one row per (context, family, mode with a drafter).
    verdict : the contents of verdict.json.
    published : config/published.csv, as `pandas.read_csv` gives it.
    out_svg : tall, panels below one another, legible at the width of a phone.
    out_png, out_wide_svg : the same with up to three panels side by side.
    """
    verdict = main_verdict(verdict)
    shown = panels(ratios, verdict, published)
    notes = ["R = time of the baseline / time of the mode; above 1 the mode is faster."]
    notes += filter(None, [published_note(verdict, published)])
    with style.look():
        style.save(_figure(shown, verdict, notes, columns=1), out_svg)
        wide = _figure(shown, verdict, notes, columns=min(len(shown), _MOST_COLUMNS))
        style.save(wide, out_png, out_wide_svg)


def published_note(verdict: dict[str, Any], published: pd.DataFrame) -> str:
    """What the published marks are, and why some are missing; '' if no mode was published."""
    ours = {str(context) for context in verdict["settings"]["contexts"]}
    modes = dict.fromkeys(entry["mode"] for entry in verdict["verdicts"])
    drawn, apart = [], []
    for mode in modes:
        theirs = contexts_of(published, mode)
        if ours & set(theirs):
            drawn.append(mode)
        elif theirs:
            numbers = [f"{ratio_of(published, mode, context).value:.3g}" for context in theirs]
            apart.append(f"{mode} R {joined(numbers)} at {lengths(theirs)}")
    sentences = []
    if drawn:
        sentences.append(f"Published: other hardware and another model pair ({SETTING}).")
    if apart:
        sentences.append(
            f"Published on other hardware with another pair ({SETTING}): {'; '.join(apart)}. "
            "Not drawn, because this study has other contexts."
        )
    return " ".join(sentences)


def _figure(shown: list[Panel], verdict: dict[str, Any], notes: list[str], columns: int) -> Figure:
    labels = {text for panel in shown for _, text in panel.labels}
    left = max(style.text_width(text, style.LABEL_PT) for text in labels) + 0.2
    tall = columns == 1
    width = style.TALL_IN - left - 0.1 if tall else _WIDE_PANEL
    grid = Grid(columns, left, width, _WIDE_GAP)
    spaces = [
        Space(forest_panel.above(p, width), _ROW * forest_panel.rows(p), _BELOW) for p in shown
    ]
    figure, axes = lay_out(
        grid, spaces, message(verdict), style.banners(verdict), _legend(shown, verdict), notes
    )
    span = ratio_axis.limits(_own(shown), _published(shown))
    for index, (ax, panel) in enumerate(zip(axes, shown, strict=True)):
        forest_panel.draw(ax, panel, span, width, named=index % columns == 0)
    return figure


def _own(shown: list[Panel]) -> list[float]:
    families = [family for panel in shown for family in panel.families]
    intervals = [mark.interval for panel in shown for mark in panel.overall if mark.interval]
    return [
        *(r for family in families for r in (family.r, *family.by_replicate)),
        *itertools.chain.from_iterable(intervals),
    ]


def _published(shown: list[Panel]) -> list[float]:
    ratios = [mark.ratio for panel in shown for mark in panel.published]
    values = itertools.chain.from_iterable((r.value, r.low, r.high) for r in ratios)
    return [value for value in values if value is not None]


def _legend(shown: list[Panel], verdict: dict[str, Any]) -> list[Artist]:
    def mark(label: str, colour: str, shape: str, **more: object) -> Line2D:
        style_of_mark = {"markersize": 4.6, "linewidth": 1.2, **more}
        return Line2D([], [], color=colour, marker=shape, label=label, **style_of_mark)

    modes = dict.fromkeys(mode for panel in shown for mode, _ in panel.results)
    handles: list[Artist] = [mark(mode, *style.mode_look(mode), linewidth=0) for mode in modes]
    # A tick at each end, as beside a family's mark.
    handles.append(mark("a family's R; ticks: its order blocks", style.INK, "|", markersize=9))
    if any(not family.admitted for panel in shown for family in panel.families):
        handles.append(
            mark("out of the inference", style.OUT, "o", linewidth=0, markerfacecolor="white")
        )
    drawn = any(mark.interval for panel in shown for mark in panel.overall)
    for level in {entry["interval"]["level"] for entry in verdict["verdicts"] if drawn}:
        handles.append(
            mark(f"R over families and its {100 * level:g}% interval", style.INK,
                 MarkerStyle("d").rotated(deg=90), markersize=9, linewidth=0,
                 markerfacecolor=style.QUIET)
        )  # fmt: skip
    if any(panel.published for panel in shown):
        handles.append(mark("published, other hardware", style.OUT, "D", markerfacecolor="white"))
    return handles
