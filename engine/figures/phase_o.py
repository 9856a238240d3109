"""The control plane on the host against on the device: R, time saved, synchronisations."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from engine.analysis.graph_parts import same_round
from engine.figures import marks, published, style
from engine.figures.message import families_of, joined, lengths, of_two_machines
from engine.figures.sheet import Grid, Space, lay_out
from engine.figures.study import NothingToShow, Study

_ABOVE, _BELOW = 0.26, 0.5


def draw(study: Study) -> tuple[Figure, str]:
    """The figure and its message."""
    steps = control_steps(study)
    said = message(steps)
    ratios = [
        marks.verdict_row(entry, label=f"{mode}, {lengths([step['context']])}")
        for step in steps
        for mode in (step["before"], step["after"])
        if (entry := study.entry(step["context"], mode))
    ]
    places = [lengths([step["context"]]) for step in steps]
    saved = [f"{at}\n{_percent(s['mean'])}{_ends(s)}" for at, s in zip(places, steps, strict=True)]
    syncs = _synchronisations(study, steps)
    labels = [*saved, *(label for label, *_ in syncs)]
    left = max(
        marks.left_of(ratios),
        0.2 + max(style.text_width(line, style.SMALL_PT) for t in labels for line in t.split("\n")),
    )
    range_ = published.span_of(study.published, "phase_o_latency_saving")
    theirs = [
        published.lookup(study.published, f"phase_o_syncs_{end}", "") for end in ("before", "after")
    ]
    figure, axes = lay_out(
        Grid(1, left, style.TALL_IN - left - 0.1, 0),
        [
            Space(_ABOVE, marks.height(ratios), _BELOW),
            Space(_ABOVE, marks.ROW * (len(saved) - 1 + 2 * marks.PAD), _BELOW),
            Space(_ABOVE, marks.ROW * (len(syncs) - 1 + 2 * marks.PAD), _BELOW),
        ],
        said,
        study.banners,
        [*marks.row_handles(ratios, study.level), marks.published_handle()],
        [
            *marks.loose(ratios),
            "R: each against the plain decoding of its own runtime. Time saved: over all families "
            "that both modes measured.",
            *of_two_machines(steps),
            published.note([], []),
        ],
    )
    counted = marks.counts(row.ratio for row in ratios)
    marks.draw(axes[0], ratios, marks.span_of(ratios), f"R, log scale; {counted}")
    style.head(axes[0], "R before and after")
    _saving(axes[1], saved, steps, range_)
    style.head(axes[1], "Time saved")
    _counts(axes[2], syncs, theirs)
    style.head(axes[2], "Host-device synchronisations")
    return figure, said


def control_steps(study: Study) -> list[dict[str, Any]]:
    """Steps that move the loop to the device and change nothing else, with their intervals."""
    steps = study.tables["steps"]
    return [
        step
        for step in steps.to_dict("records")
        if step["before"] in study.modes
        and study.modes[step["before"]]["runtime"] != "device"
        and study.modes[step["after"]]["runtime"] == "device"
        and same_round(study.modes[step["before"]], study.modes[step["after"]])
    ]


def message(steps: list[dict[str, Any]]) -> str:
    """The share of time that each step saves or costs, as firmly as its interval allows."""
    if not steps:
        raise NothingToShow("no pair of modes with and without it was measured")
    parts, open_ = [], []
    for step in steps:
        where = f"at {lengths([step['context']])}"
        share = saved_share(step["mean"])
        if step["low"] > 0:
            parts.append(f"saves {share:.1%} {where}")
        elif step["high"] < 0:
            parts.append(f"costs {-share:.1%} {where}")
        else:
            open_.append(f"by {-share:+.1%} {where}")
    if open_:
        parts.append(f"changes the time {joined(open_)}, which may be chance")
    names = dict.fromkeys(step["after"] for step in steps)
    return f"Control on the device ({joined(list(names))}) {joined(parts)}"


def saved_share(log_step: float) -> float:
    """1 - T_after / T_before from log(T_before / T_after)."""
    return 1 - math.exp(-log_step)


def _percent(log_step: float) -> str:
    return f"{saved_share(log_step):.1%}"


def _ends(step: dict[str, Any]) -> str:
    if math.isnan(step["low"]):
        return ", no interval"
    return f" [{_percent(step['low'])}, {_percent(step['high'])}]"


def _synchronisations(
    study: Study, steps: list[dict[str, Any]]
) -> list[tuple[str, str, float, float]]:
    """(label, mode, synchronisations a round, copies to the device a round)."""
    rows = study.tables["rows"]
    rows = rows[rows["status"].eq("ok") & ~rows["warmup"].eq(True) & ~rows["instrumented"].eq(True)]
    found = []
    for mode in dict.fromkeys(mode for step in steps for mode in (step["before"], step["after"])):
        runs = rows[rows["mode"].eq(mode) & rows["rounds"].gt(0)]
        syncs, copies = (
            float((runs[name] / runs["rounds"]).median()) for name in ("host_syncs", "h2d_copies")
        )
        if not math.isnan(syncs):
            found.append((f"{mode}\n{syncs:.1f}, and {copies:.1f} copies", mode, syncs, copies))
    return found


def _saving(
    ax: Axes, labels: list[str], steps: list[dict[str, Any]], theirs: tuple[float, float] | None
) -> None:
    marks.row_axis(ax, labels)
    if theirs:
        ax.axvspan(*(100 * end for end in theirs), color=style.FAINT, linewidth=0, zorder=0.5)
        ax.text(100 * theirs[1], -marks.PAD + 0.08, " published", size=style.SMALL_PT - 0.5,
                color=style.OUT, va="top")  # fmt: skip
    for y, step in enumerate(steps):
        value, low, high = (100 * saved_share(step[name]) for name in ("mean", "low", "high"))
        marks.mark(ax, y, step["after"], value, None if math.isnan(low) else (low, high))
    ax.axvline(0, color=style.INK, linewidth=1.0, zorder=1)
    ax.margins(x=0.12)
    ax.tick_params(axis="x", labelsize=style.SMALL_PT + 0.5)
    counted = families_of(int(step["families"]) for step in steps)
    ax.set_xlabel(f"% of the time before; {counted}", fontsize=style.LABEL_PT)


def _counts(
    ax: Axes,
    syncs: list[tuple[str, str, float, float]],
    theirs: list[published.Figure | None],
) -> None:
    marks.row_axis(ax, [label for label, *_ in syncs])
    for y, (_, mode, value, _) in enumerate(syncs):
        colour, _ = style.mode_look(mode)
        ax.barh(y, value, 0.5, color=colour, edgecolor=style.INK, linewidth=0.6, alpha=0.75)
        if y < len(theirs) and theirs[y]:
            ax.plot([theirs[y].value], [y], "D", color=style.OUT, markerfacecolor="white",
                    markersize=4.8, zorder=4)  # fmt: skip
    most = max([value for *_, value, _ in syncs] + [t.value for t in theirs if t], default=1)
    ax.set_xlim(0, 1.1 * max(most, 1))
    ax.tick_params(axis="x", labelsize=style.SMALL_PT + 0.5)
    ax.set_xlabel("a round, median over runs", fontsize=style.LABEL_PT)
