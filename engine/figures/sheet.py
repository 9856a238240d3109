"""The page of a figure: title, panels in a grid, legend and notes, placed in inches.

Automatic layouts move with every label; here the height follows from the number of rows, so that
type and row pitch are the same with four families or sixteen, one context or six.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from engine.figures import style

_MARGIN, _TITLE_LINE, _BANNER_LINE, _NOTE_LINE, _LEGEND_LINE = 0.1, 0.19, 0.17, 0.145, 0.175
_HANDLE = 0.4  # beside a legend's label


@dataclass(frozen=True)
class Space:
    """Height in inches of one panel: its heading, its axes, its axis labels."""

    above: float
    body: float
    below: float


@dataclass(frozen=True)
class Grid:
    """Columns of panels; `left` is the room for row labels before the first column."""

    columns: int
    left: float
    panel: float
    gap: float

    @property
    def width(self) -> float:
        return self.left + self.columns * self.panel + (self.columns - 1) * self.gap + _MARGIN


def lay_out(
    grid: Grid,
    panels: list[Space],
    title: str,
    banners: Sequence[str],
    legend: list[Artist],
    notes: list[str],
) -> tuple[Figure, list[Axes]]:
    """An empty figure with everything around the panels, and one axes a panel.

    `banners` stand under the title: what must be known of the data wherever the figure is shown.
    """
    width, inner = grid.width, grid.width - 2 * _MARGIN
    head = [(line, _TITLE_LINE, style.TITLE_PT, style.INK) for line in _bold(title, inner, 10.5)]
    for banner in banners:
        lines = _bold(banner, inner, style.LABEL_PT)
        head += [(line, _BANNER_LINE, style.LABEL_PT, style.ALARM) for line in lines]
    foot = [line for note in notes for line in style.wrap(note, inner, style.SMALL_PT)]
    legend_columns = 1 if width <= style.TALL_IN + 0.01 else 2
    legend_height = -(-len(legend) // legend_columns) * _LEGEND_LINE + 0.08

    rows = [panels[i : i + grid.columns] for i in range(0, len(panels), grid.columns)]
    tall = [[max(getattr(p, part) for p in row) for row in rows] for part in ("above", "body")]
    pitch = [a + b + max(p.below for p in row) for a, b, row in zip(*tall, rows, strict=True)]
    top = _MARGIN + sum(line[1] for line in head) + 0.06
    height = top + sum(pitch) + legend_height + _NOTE_LINE * len(foot) + _MARGIN

    figure = Figure(figsize=(width, height))
    at = height - _MARGIN
    for text, line, size, colour in head:
        _text(figure, at, text, size, colour, weight="bold")
        at -= line
    axes = []
    for index, panel in enumerate(panels):
        row, column = divmod(index, grid.columns)
        upper = height - top - sum(pitch[:row]) - tall[0][row]
        left = grid.left + column * (grid.panel + grid.gap)
        box = (left / width, (upper - panel.body) / height, grid.panel / width, panel.body / height)
        axes.append(figure.add_axes(box))
    at = height - top - sum(pitch)
    _legend(figure, at, legend, legend_columns)
    at -= legend_height
    for line in foot:
        _text(figure, at, line, style.SMALL_PT, style.QUIET)
        at -= _NOTE_LINE
    return figure, axes


def _bold(text: str, width: float, size: float) -> list[str]:
    return style.wrap(text, width, size, "bold")


def _text(figure: Figure, at: float, text: str, size: float, colour: str, **more: str) -> None:
    width, height = figure.get_size_inches()
    where = (_MARGIN / width, at / height)
    figure.text(*where, text, size=size, color=colour, va="top", ha="left", **more)


def _legend(figure: Figure, at: float, handles: list[Artist], columns: int) -> None:
    width, height = figure.get_size_inches()
    column = (width - 2 * _MARGIN) / columns - _HANDLE
    for handle in handles:
        label = str(handle.get_label())
        handle.set_label(style.printable(label, label, column, style.SMALL_PT))
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(_MARGIN / width, at / height),
        ncols=columns,
        fontsize=style.SMALL_PT,
        frameon=False,
        borderaxespad=0,
        borderpad=0,
        labelspacing=0.45,
        handlelength=2.2,
        columnspacing=1.5,
    )
