"""Relaxed acceptance: R and the share of the text that stays, against delta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from engine.figures import marks, published, style
from engine.figures.message import lengths, span
from engine.figures.sheet import Grid, Space, lay_out
from engine.figures.study import NothingToShow, Ratio, Study, qualified, ratio_of

_LEFT, _BODY, _ABOVE, _BELOW = 0.62, 1.35, 0.26, 0.46
# A composition but for these is the exact twin.
_FREE = {"acceptance", "delta", "measured_on"}


@dataclass(frozen=True)
class Point:
    """One mode at one context; `delta` is 0 for exact acceptance."""

    context: str
    mode: str
    delta: float
    ratio: Ratio
    kept: float

    @property
    def r(self) -> float:
        return self.ratio.r


def draw(study: Study) -> tuple[Figure, str]:
    """The figure and its message."""
    points = points_of(study)
    said = message(points)
    at = [context for context in study.contexts if any(p.context == context for p in points)]
    beside = {
        context: published.beside(study.published, "relaxed_ratio", context) for context in at
    }
    theirs = list(dict.fromkeys(pair for found in beside.values() for pair in found))
    handles = [
        Line2D([], [], color=colour, marker=shape, markersize=4.6, linestyle=dash, linewidth=1.2,
               label=lengths([context]))
        for n, context in enumerate(at)
        for colour, shape, dash in [style.context_look(n)]
    ]  # fmt: skip
    if any(point.ratio.ends for point in points):
        handles.append(marks.interval_handle(study.level))
    if not all(point.ratio.ends for point in points):
        handles.append(marks.hollow_handle())
    if theirs:
        handles.append(marks.published_handle("published, other hardware, delta not stated"))
    notes = ["Text kept: new tokens before the first that differs from plain decoding."]
    notes += marks.loose(marks.Row("", p.mode, p.ratio) for p in points)
    figure, (upper, lower) = lay_out(
        Grid(1, _LEFT, style.TALL_IN - _LEFT - 0.12, 0),
        [Space(_ABOVE, _BODY, _BELOW)] * 2,
        said,
        study.banners,
        handles,
        notes + ([published.note(study.contexts, [c for c, _ in theirs])] if theirs else []),
    )
    counted = marks.counts(point.ratio for point in points)
    most = max(point.delta for point in points)
    for ax, value in ((upper, "r"), (lower, "kept")):
        for n, context in enumerate(at):
            _curve(ax, [p for p in points if p.context == context], value, n, len(at), most)
        ax.set_xlim(-0.12 * most, (1.32 if theirs and ax is upper else 1.12) * most)
        ax.set_xticks(sorted({point.delta for point in points}))
        ax.xaxis.set_major_formatter(lambda tick, _: "exact" if tick == 0 else f"{tick:g}")
        ax.tick_params(labelsize=style.SMALL_PT + 0.5)
        ax.set_xlabel(f"delta, logits; {counted}", fontsize=style.LABEL_PT)
        ax.grid(axis="y", color=style.FAINT, linewidth=0.5)
        ax.set_axisbelow(True)
    for place, (_, ratio) in enumerate(theirs):
        upper.plot([(1.2 + 0.04 * place) * most], [ratio.value], "D", color=style.OUT,
                   markerfacecolor="white", markersize=4.8)  # fmt: skip
    upper.axhline(1, color=style.INK, linewidth=1.0, zorder=1)
    style.head(upper, "R")
    lower.set_ylim(-0.03, 1.06)
    lower.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25%", "50%", "75%", "100%"])
    style.head(lower, "Text kept")
    return figure, said


def points_of(study: Study) -> list[Point]:
    """Points of the relaxed modes and, where these are, of exact twins, by context and delta."""
    relaxed = study.modes_that(lambda mode: mode["delta"] is not None)
    shapes = [_shape(study.modes[mode]) for mode in relaxed]
    exact = study.modes_that(lambda m: m["acceptance"] == "exact" and _shape(m) in shapes)
    points = [
        Point(
            str(entry["context"]), entry["mode"], study.modes[entry["mode"]]["delta"] or 0.0,
            ratio, entry["tokens_kept"]["share"],
        )
        for entry in study.entries([*exact, *relaxed])
        if entry["tokens_kept"] and (ratio := ratio_of(entry))
    ]  # fmt: skip
    places = {point.context for point in points if point.mode in relaxed}
    points = [point for point in points if point.context in places]
    return sorted(points, key=lambda p: (study.contexts.index(p.context), p.delta))


def message(points: list[Point]) -> str:
    """What the largest delta does to R and to the text, beside exact acceptance if it is there."""
    relaxed = [point for point in points if point.delta > 0]
    if not relaxed:
        raise NothingToShow("no relaxed mode was measured with its baseline")
    most = max(point.delta for point in relaxed)
    far = [point for point in relaxed if point.delta == most]
    exact = [point for point in points if point.delta == 0]
    kept = span((100 * point.kept for point in far), 0)
    gated = all(point.ratio.gated for point in [*exact, *far])
    if not exact:
        sentence = (
            f"With delta {most:g}, R is {span(p.r for p in far)} and {kept}% of the text stays"
        )
        return qualified(sentence, gated)
    before = span((100 * point.kept for point in exact), 0)
    return qualified(
        f"From exact acceptance to delta {most:g}, R goes from {span(p.r for p in exact)} to "
        f"{span(p.r for p in far)} and the text kept from {before}% to {kept}%",
        gated,
    )


def _shape(mode: dict[str, Any]) -> list[Any]:
    return [value for key, value in sorted(mode.items()) if key not in _FREE]


def _curve(ax: Axes, points: list[Point], value: str, n: int, of: int, most: float) -> None:
    colour, shape, dash = style.context_look(n)
    shift = 0.025 * most * (n - (of - 1) / 2)
    at = [point.delta + shift for point in points]
    ax.plot(at, [getattr(point, value) for point in points], color=colour, linestyle=dash,
            linewidth=1.2)  # fmt: skip
    for x, point in zip(at, points, strict=True):
        face = colour if point.ratio.ends or value == "kept" else "white"
        ax.plot([x], [getattr(point, value)], shape, color=colour, markersize=4.8, zorder=4,
                markerfacecolor=face)  # fmt: skip
        if value == "r" and point.ratio.ends:
            ax.plot([x, x], point.ratio.ends, color=colour, linewidth=1.4, marker="_", markersize=6)
