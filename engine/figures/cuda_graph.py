"""What CUDA graphs do for one part of the round, what they take, and what they give in the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from engine.analysis import graph_parts
from engine.analysis.chain import CARD_GIB
from engine.analysis.graph_parts import Pool, family_gains
from engine.figures import marks, published, ratio_axis, style
from engine.figures.message import families_of, joined, lengths, span
from engine.figures.sheet import Grid, Space, lay_out
from engine.figures.study import NothingToShow, Study, qualified, ratio_of

_ABOVE, _BELOW = 0.26, 0.5
_PHASES = {"draft": "drafting", "verify": "verification"}


@dataclass(frozen=True)
class Gain:
    """How many times as fast a phase is with graphs as without; the middle half of families."""

    context: str
    mode: str
    phase: str
    ratio: float
    low: float
    high: float
    families: int


def draw(study: Study) -> tuple[Figure, str]:
    """The figure and its message."""
    gains, pools = gains_of(study), pools_of(study)
    # Modes that accept all, or draft for free, have figures of their own.
    modes = study.modes_that(lambda m: m["runtime"] == "graph" and m["acceptance"] == "exact")
    entries = [entry for entry in study.entries(modes) if ratio_of(entry)]
    said = message(gains, pools, entries)
    ratios = [
        marks.verdict_row(e, label=f"{e['mode']}, {lengths([str(e['context'])])}") for e in entries
    ]
    gain_labels = [_gain_label(gain) for gain in gains]
    pool_labels = [_pool_label(pool) for pool in pools]
    texts = [line for label in (*gain_labels, *pool_labels) for line in label.split("\n")]
    left = max(marks.left_of(ratios), 0.2 + max(style.text_width(t, style.SMALL_PT) for t in texts))
    blocks = [
        (gain_labels, "How many times as fast", _gains),
        (pool_labels, "Memory pools of the graphs", _pools),
    ]
    shown = [block for block in blocks if block[0]]
    spaces = [
        Space(_ABOVE, marks.ROW * (len(labels) - 1 + 2 * marks.PAD), _BELOW) for labels, *_ in shown
    ]
    if ratios:
        spaces.append(Space(_ABOVE, marks.height(ratios), _BELOW))
    figure, axes = lay_out(
        Grid(1, left, style.TALL_IN - left - 0.1, 0),
        spaces,
        said,
        study.banners,
        _legend(gains, pools, ratios, study),
        [*_notes(pools, ratios, study.published), *_of_two_machines(gains, study)],
    )
    for ax, (labels, title, panel) in zip(axes, shown, strict=False):
        panel(ax, labels, gains, pools, study.published)
        style.head(ax, title)
    if ratios:
        counted = marks.counts(row.ratio for row in ratios)
        marks.draw(axes[-1], ratios, marks.span_of(ratios), f"R, log scale; {counted}")
        style.head(axes[-1], "Whole rounds, decoding only")
    return figure, said


def gains_of(study: Study) -> list[Gain]:
    """Each phase that a mode graphs, against the same mode with the loop on the device."""
    found = []
    for (mode, phase, context), ratios in family_gains(
        study.tables["rows"], study.modes, study.contexts
    ).items():
        middle, low, high = np.quantile(ratios, [0.5, 0.25, 0.75])
        found.append(Gain(context, mode, phase, middle, low, high, len(ratios)))
    return found


def pools_of(study: Study) -> list[Pool]:
    """What the graphs of each mode held, plain modes included, at the context that took most."""
    return graph_parts.pools(study.tables["rows"], study.modes, study.contexts)


def message(gains: list[Gain], pools: list[Pool], entries: list[dict]) -> str:
    """The gain of each part, how far the naive way came, and R in the end."""
    parts = []
    for phase, name in _PHASES.items():
        of_phase = [g.ratio for g in gains if g.phase == phase]
        if of_phase:
            parts.append(f"{name} {span(of_phase, 1)} times as fast")
    sentence = f"Graphs make {joined(parts)}" if parts else ""
    short = [pool for pool in pools if pool.ended]
    if short:
        worst = max(short, key=lambda pool: pool.planned - pool.graphs)
        reason = "memory ends" if worst.out_of_memory else f"a cell {worst.ended}"
        told = f"ith one a position, {reason} after {worst.graphs} of {worst.planned}"
        sentence = f"{sentence}; w{told}" if sentence else f"W{told}"
    ratios = [ratio_of(entry) for entry in entries]
    if ratios:
        told = f"whole rounds as one graph reach R {span(ratio.r for ratio in ratios)}"
        sentence = f"{sentence}; {told}" if sentence else f"W{told[1:]}"
        return qualified(sentence, all(ratio.gated for ratio in ratios))
    if not sentence:
        raise NothingToShow("no mode that captures graphs was measured")
    return sentence


def _gain_label(gain: Gain) -> str:
    name = f"{gain.mode}: {_PHASES[gain.phase]}"
    return f"{name}\n{lengths([gain.context])}, {gain.ratio:.2f}"


def _pool_label(pool: Pool) -> str:
    size = f"{pool.gib:.2g} GiB" if pool.gib >= 0.01 else "under 0.01 GiB"
    some = f"{pool.graphs}" if pool.graphs == pool.planned else f"{pool.graphs} of {pool.planned}"
    return f"{pool.mode}, {lengths([pool.context])}\n{size}, {some} graphs"


def _gains(ax: Axes, labels: list[str], gains: list[Gain], _, table: pd.DataFrame) -> None:
    theirs = {phase: published.span_of(table, f"graph_{phase}_local_speedup") for phase in _PHASES}
    own = [x for gain in gains for x in (gain.low, gain.high)]
    ratio_axis.apply(ax, *ratio_axis.limits(own, [x for span_ in theirs.values() if span_
                                                  for x in span_]))  # fmt: skip
    marks.row_axis(ax, labels)
    edge = ax.get_xlim()[1]
    for y, gain in enumerate(gains):
        if theirs[gain.phase] and theirs[gain.phase][0] < edge:
            low, high = theirs[gain.phase]
            ax.plot([low, min(high, edge)], [y + 0.22] * 2, color=style.OUT, linewidth=5, alpha=0.5,
                    solid_capstyle="butt", zorder=2)  # fmt: skip
        marks.mark(ax, y - 0.12, gain.mode, gain.ratio, (gain.low, gain.high))
    ax.tick_params(axis="x", labelsize=style.SMALL_PT + 0.5)
    families = families_of(gain.families for gain in gains)
    ax.set_xlabel(f"times as fast, log; {families}", fontsize=style.LABEL_PT)


def _pools(ax: Axes, labels: list[str], _, pools: list[Pool], table: pd.DataFrame) -> None:
    marks.row_axis(ax, labels)
    for y, pool in enumerate(pools):
        colour, _ = style.mode_look(pool.mode)
        bar = {"edgecolor": style.INK, "linewidth": 0.6}
        ax.barh(y, pool.gib, 0.5, color=colour, alpha=0.75, **bar)
        if pool.out_of_memory and pool.graphs:
            rest = pool.whole - pool.gib
            ax.barh(y, rest, 0.5, left=pool.gib, color="white", hatch="////", **bar)
    most = max([pool.whole if pool.out_of_memory and pool.graphs else pool.gib for pool in pools])
    end = 1.08 * max(most, CARD_GIB)
    ax.axvline(CARD_GIB, color=style.ALARM, linestyle="--", linewidth=1.4)
    local = published.span_of(table, "graph_local_pool")
    naive = published.lookup(table, "graph_naive_pool_extrapolated", "")
    if local:
        ax.axvspan(*local, color=style.FAINT, linewidth=0, zorder=0.5)
    if naive and naive.value < end:
        ax.axvline(naive.value, color=style.OUT, linestyle=":", linewidth=1.4)
    ax.set_xlim(0, end)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.tick_params(axis="x", labelsize=style.SMALL_PT + 0.5)
    ax.set_xlabel("GiB", fontsize=style.LABEL_PT)


def _legend(gains: list[Gain], pools: list[Pool], ratios: list[marks.Row], study: Study) -> list:
    handles = []
    if gains:
        handles += [
            Line2D([], [], color=style.INK, marker="|", markersize=7, linewidth=1.6,
                   label="as fast: the middle half of the families"),
            Line2D([], [], color=style.OUT, linewidth=5, alpha=0.5,
                   label="published range, other hardware"),
        ]  # fmt: skip
    if pools:
        handles.append(Line2D([], [], color=style.ALARM, linestyle="--", label="an 8 GB card"))
    return [*handles, *marks.row_handles(ratios, study.level)]


def _of_two_machines(gains: list[Gain], study: Study) -> list[str]:
    modes = dict.fromkeys(gain.mode for gain in gains)
    pairs = {mode: graph_parts.counterpart(study.modes, mode) for mode in modes}
    rows = study.tables["rows"]
    told = [
        f"{mode} against {other}"
        for mode, other in pairs.items()
        if other and graph_parts.of_two_machines(rows, mode, other)
    ]
    return [f"Measured on two machines: {joined(told)}."] if told else []


def _notes(pools: list[Pool], ratios: list[marks.Row], table: pd.DataFrame) -> list[str]:
    notes = []
    if any(pool.out_of_memory and pool.graphs for pool in pools):
        notes.append("Hatched: what the graphs that were not captured would have taken as well.")
    local = published.span_of(table, "graph_local_pool")
    naive, captured = (
        published.lookup(table, f"graph_naive_{what}", "")
        for what in ("pool_extrapolated", "captured")
    )
    told = []
    if local:
        told.append(f"pools of {local[0]:g}-{local[1]:g} GiB for one part (grey)")
    if naive and captured:
        told.append(f"{naive.value:g} GiB extrapolated for one graph a position, of which "
                    f"{captured.value:g} were captured")  # fmt: skip
    if told:
        notes.append(f"Published ({published.SETTING}): {', and '.join(told)}.")
    return [*notes, *marks.loose(ratios)]
