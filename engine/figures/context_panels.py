"""A figure of ratios, published ones beside ours, with one panel a context on one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from engine.figures import marks, style
from engine.figures.message import lengths
from engine.figures.sheet import Grid, Space, lay_out
from engine.figures.study import Study

_ABOVE, _BELOW = 0.26, 0.5  # inches of a panel for its head and for its axis


def draw(
    study: Study, panels: Mapping[str, Sequence[marks.Row]], said: str, notes: Sequence[str]
) -> Figure:
    """`panels` holds the rows of each context; `said` is the title, `notes` stand at the foot."""
    rows = [row for panel in panels.values() for row in panel]
    left = marks.left_of(rows)
    figure, axes = lay_out(
        Grid(1, left, style.TALL_IN - left - 0.1, 0),
        [Space(_ABOVE, marks.height(panel), _BELOW) for panel in panels.values()],
        said,
        study.banners,
        marks.row_handles(rows, study.level),
        [*marks.loose(rows), *notes],
    )
    limits = marks.span_of(rows)
    for ax, (context, panel) in zip(axes, panels.items(), strict=True):
        families = marks.counts(row.ratio for row in panel)
        marks.draw(ax, panel, limits, f"R, log scale; {families}")
        style.head(ax, lengths([context]))
    return figure
