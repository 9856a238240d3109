"""Plain decoding against perfect drafts that cost nothing: seconds, and R."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from engine.figures import marks, published, style
from engine.figures.message import joined, lengths, span
from engine.figures.sheet import Grid, Space, lay_out
from engine.figures.study import NothingToShow, Study, qualified, ratio_of

_ABOVE, _BELOW, _BAR_ROW = 0.26, 0.5, 0.3


def draw(study: Study) -> tuple[Figure, str]:
    """The figure and its message."""
    modes = study.modes_that(lambda m: m["drafter"] != "model" and m["acceptance"] == "all")
    entries = [entry for entry in study.entries(modes) if ratio_of(entry)]
    said = message(study, entries)
    beside = [
        published.beside(study.published, f"{e['mode']}_ratio", str(e["context"])) for e in entries
    ]
    rows = [
        marks.verdict_row(e, [r for _, r in found], f"{e['mode']}, {lengths([str(e['context'])])}")
        for e, found in zip(entries, beside, strict=True)
    ]
    bars = [bar for entry in entries for bar in _bars(study, entry)]
    names = [marks.Row(label, mode, None) for label, mode, *_ in bars]
    left = max(marks.left_of(rows), marks.left_of(names))
    theirs = [at for found in beside for at, _ in found]
    figure, (upper, lower) = lay_out(
        Grid(1, left, style.TALL_IN - left - 0.1, 0),
        [
            Space(_ABOVE, _BAR_ROW * (len(bars) - 1 + 2 * marks.PAD), _BELOW),
            Space(_ABOVE, marks.height(rows), _BELOW),
        ],
        said,
        study.banners,
        [*marks.row_handles(rows, study.level)],
        [
            f"Seconds: median over families for {study.verdict['settings']['new_tokens']} tokens; "
            "thin line: the middle half of the families.",
            *marks.loose(rows),
            *([published.note(study.contexts, theirs)] if theirs else []),
        ],
    )
    _seconds(upper, bars)
    style.head(upper, "Decoding time")
    marks.draw(
        lower, rows, marks.span_of(rows), f"R, log scale; {marks.counts(row.ratio for row in rows)}"
    )
    style.head(lower, "R")
    return figure, said


def message(study: Study, entries: list[dict[str, Any]]) -> str:
    """R with perfect and free drafts."""
    if not entries:
        raise NothingToShow("no mode that replays the reference was measured with its baseline")
    blocks = joined(list(dict.fromkeys(f"k = {study.modes[e['mode']]['k']}" for e in entries)))
    ratios = [ratio_of(entry) for entry in entries]
    sentence = f"With perfect drafts at no cost and {blocks}, R is {span(r.r for r in ratios)}"
    return qualified(sentence, all(ratio.gated for ratio in ratios))


def _bars(study: Study, entry: dict[str, Any]) -> list[tuple[str, str, float, float, float]]:
    """(label, mode, median seconds, quartiles over families) of the two arms."""
    ratios = study.tables["ratios"]
    here = ratios[(ratios["context"] == str(entry["context"])) & (ratios["mode"] == entry["mode"])]
    if ratio_of(entry).gated:
        here = here[here["admitted"]]
    where = lengths([str(entry["context"])])
    return [
        (f"{mode}, {where}", mode, *np.nanquantile(here[column], [0.5, 0.25, 0.75]))
        for mode, column in ((entry["baseline"], "baseline_s"), (entry["mode"], "mode_s"))
    ]


def _seconds(ax: Axes, bars: list[tuple[str, str, float, float, float]]) -> None:
    marks.row_axis(ax, [f"{label}\n{median:.3g} s" for label, _, median, *_ in bars])
    for y, (_, mode, median, *quartiles) in enumerate(bars):
        colour, _ = style.mode_look(mode)
        ax.barh(y, median, 0.56, color=colour, edgecolor=style.INK, linewidth=0.6, alpha=0.75)
        ax.plot(quartiles, [y, y], color=style.INK, linewidth=1.4, marker="|", markersize=6)
    ax.set_xlim(0, None)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.tick_params(axis="x", labelsize=style.SMALL_PT + 0.5)
    ax.set_xlabel("seconds", fontsize=style.LABEL_PT)
