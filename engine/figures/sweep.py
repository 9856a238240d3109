"""A sweep: R of every mode, and what another source claims beside what was measured."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from engine.analysis.claims import OPEN
from engine.figures import marks, style
from engine.figures.forest_rows import LABEL_MOST
from engine.figures.message import lengths
from engine.figures.published import Figure as Published
from engine.figures.sheet import Grid, Space, lay_out
from engine.figures.study import NothingToShow, Ratio, Study

_ABOVE, _BELOW = 0.26, 0.5  # inches of a panel for its head and for its axis
_BAND = "#cfe6dc"


def draw(study: Study) -> tuple[Figure, str]:
    """The figure, and every claim in a sentence; the title has room for their number only."""
    claims = study.tables["claims"]
    title, said = headline(claims), "; ".join(claims["sentence"])
    modes = study.modes_that(lambda _: True)
    panels: list[tuple[str, list[marks.Row], pd.DataFrame | None]] = []
    for context in study.contexts:
        measured = [marks.verdict_row(entry) for entry in study.entries(modes)
                    if str(entry["context"]) == context]  # fmt: skip
        if measured:
            panels.append((f"R, {lengths([context])}", measured, None))
        here = claims[claims["context"].astype(str) == context]
        # Where no claim has a ratio, what the sentences say is all there is.
        if here["families"].any():
            told = [_row(claim) for claim in here.to_dict("records")]
            panels.append((f"Claims, {lengths([context])}", told, here))
    rows = [row for _, panel, _ in panels for row in panel]
    left = marks.left_of(rows)
    bare = [dataclasses.replace(row, beside=()) for row in rows]
    handles = marks.row_handles(bare, study.level)
    if claims.loc[claims["families"] > 0, "claimed"].notna().any():
        handles.append(marks.published_handle("the other source's own number"))
    if claims["families"].any():
        handles.append(Patch(facecolor=_BAND, label="where the claim puts the ratio"))
    figure, axes = lay_out(
        Grid(1, left, style.TALL_IN - left - 0.1, 0),
        [Space(_ABOVE, marks.height(panel), _BELOW) for _, panel, _ in panels],
        title,
        study.banners,
        handles,
        [*marks.loose(rows), *(f"{row}." for row in claims["sentence"])],
    )
    for ax, (head, panel, told) in zip(axes, panels, strict=True):
        label = "R" if told is None else "ratio"
        families = marks.counts(row.ratio for row in panel)
        marks.draw(ax, panel, marks.span_of(panel), f"{label}, log scale; {families}")
        if told is not None:
            _bands(ax, told.to_dict("records"))
        style.head(ax, head)
    return figure, said


def headline(claims: pd.DataFrame) -> str:
    """How many claims held, did not, or cannot be told; what was found of a single one."""
    # Of times on two machines there is no ratio; their sentences say so, and R of each is there.
    if claims.empty or not claims[["families", "left_out"]].any(axis=None):
        raise NothingToShow("no mode that a claim is about was measured with its baseline")
    if len(claims) == 1:
        only = claims.iloc[0]
        found = "" if np.isnan(only["value"]) else f" is {only['value']:.2f}"
        return f"{only['what']}{found}: the claim {only['outcome']}"
    count = Counter(claims["outcome"])
    if set(count) == {OPEN}:
        return f"None of {len(claims)} claims can be told"
    parts = [f"{n} {outcome}" for outcome, n in sorted(count.items())]
    return f"Of {len(claims)} claims {', '.join(parts)}"


def _row(claim: dict[str, Any]) -> marks.Row:
    """A claim as a row of the forest; its colour is that of the mode that it is about."""
    ratio = None
    if claim["families"]:
        known = claim["gated"] and not np.isnan(claim["low"])
        ends = (claim["low"], claim["high"]) if known else None
        ratio = Ratio(claim["value"], ends, int(claim["families"]), bool(claim["gated"]))
    beside = () if np.isnan(claim["claimed"]) else (Published(claim["claimed"], None, None),)
    label = style.printable(claim["claim"], claim["claim"], LABEL_MOST)
    return marks.Row(label, claim["mode"], ratio, beside)


def _bands(ax: Axes, claims: list[dict[str, Any]]) -> None:
    """Where each claim puts its ratio, as far as the axis goes."""
    low, high = ax.get_xlim()
    for y, claim in enumerate(claims):
        start, end = max(claim["holds_from"], low), min(claim["holds_to"], high)
        if start < end:
            ax.fill_betweenx([y - 0.5, y + 0.5], start, end, color=_BAND, linewidth=0, zorder=0.5)
    ax.set_xlim(low, high)
