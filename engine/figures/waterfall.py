"""log R as a waterfall of terms, a panel a context and mode; below, the step of each phase."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from engine.figures import marks, ratio_axis, style
from engine.figures.forest_rows import LABEL_MOST
from engine.figures.message import families_of, joined, lengths, of_two_machines
from engine.figures.sheet import Grid, Space, lay_out
from engine.figures.study import NothingToShow, Ratio, Study, main_verdict, qualified

_ROW, _ABOVE, _BELOW = 0.26, 0.26, 0.5
_WHOLE = "log_r"
_STEPS = "Steps between phases are over all families that both phases measured."
_APART = ("unexplained", "instrumentation")
_COSTS = {
    "acceptance": "rejected proposals",
    "verification": "verification",
    "repair": "repair forwards",
    "drafting": "drafting",
    "control": "control",
}


def draw(study: Study) -> tuple[Figure, str]:
    """The figure and its message."""
    panels = terms_of(study)
    said = message(main_verdict(study.verdict)["verdicts"], panels)
    steps = _steps(study)
    texts = [_label(term) for panel in panels.values() for term in panel]
    rows = [row for found in steps.values() for row in found]
    left = max(
        max(style.text_width(text, style.SMALL_PT) for text in texts) + 0.2,
        marks.left_of(rows) if rows else 0,
    )
    heights = [_ROW * (len(panel) + 0.3) for panel in panels.values()]
    heights += [marks.height(found) for found in steps.values()]
    figure, axes = lay_out(
        Grid(1, left, style.TALL_IN - left - 0.1, 0),
        [Space(_ABOVE, height, _BELOW) for height in heights],
        said,
        study.banners,
        _handles() + [marks.interval_handle(study.level)] * _has_interval(panels),
        [
            *_notes(panels),
            *[_STEPS] * bool(steps),
            *_apart(study),
        ],
    )
    limits = ratio_axis.limits([edge for panel in panels.values() for edge in _edges(panel)])
    for ax, ((context, mode), panel) in zip(axes, panels.items(), strict=False):
        _fall(ax, panel, limits, mode)
        style.head(ax, f"{mode}, {lengths([context])}")
    # Steps can be far larger than the terms, so their panels share an axis of their own.
    for ax, (context, found) in zip(axes[len(panels) :], steps.items(), strict=True):
        counted = marks.counts(row.ratio for row in found)
        marks.draw(ax, found, marks.span_of(rows), f"times as fast, log scale; {counted}")
        style.head(ax, f"Phase to phase, {lengths([context])}")
    return figure, said


def terms_of(study: Study) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The terms of each whole-grid (context, mode), in the table's order, R last.

    Modes that were measured on a part of the grid stand in where no other was instrumented.
    """
    table = study.tables["waterfall"]
    wanted = {(str(e["context"]), e["mode"]) for e in main_verdict(study.verdict)["verdicts"]}
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for term in table.to_dict("records"):
        found.setdefault((str(term["context"]), term["mode"]), []).append(term)
    panels = {key: terms for key, terms in found.items() if key in wanted}
    return panels or found


def message(entries: list[dict[str, Any]], panels: dict[tuple[str, str], Any]) -> str:
    """The cost that the verdict blames, by context and mode where they differ."""
    if not panels:
        raise NothingToShow("no instrumented run was measured together with its baseline")
    blamed: dict[tuple[str, ...], list[str]] = {}
    for entry in entries:
        if (str(entry["context"]), entry["mode"]) in panels and entry["cause"]:
            place = f"{entry['mode']} at {lengths([str(entry['context'])])}"
            blamed.setdefault(tuple(entry["cause"]["named"]), []).append(place)
    if not blamed:
        return f"Where the time of {joined(list(dict.fromkeys(m for _, m in panels)))} goes"
    clauses = []
    for costs, places in blamed.items():
        names = [_COSTS[cost] for cost in costs]
        where = f" ({joined(places)})" if len(blamed) > 1 or len(places) == 1 else ""
        clauses.append(f"{joined(names) if names else 'no single cost'}{where}")
    gated = all(panel[0]["gated"] for panel in panels.values())
    return qualified(f"The cost to blame: {'; '.join(clauses)}", gated)


def _steps(study: Study) -> dict[str, list[marks.Row]]:
    found: dict[str, list[marks.Row]] = {}
    for step in study.tables["steps"].to_dict("records"):
        ends = math.exp(step["low"]), math.exp(step["high"])
        drawn = None if math.isnan(ends[0]) else ends
        ratio = Ratio(math.exp(step["mean"]), drawn, int(step["families"]), gated=True)
        label = f"{step['before']} → {step['after']}"
        label = style.printable(label, label, LABEL_MOST + 0.3)
        rows = found.setdefault(str(step["context"]), [])
        rows.append(marks.Row(label, step["after"], ratio))
    return {context: found[context] for context in study.contexts if context in found}


def _apart(study: Study) -> list[str]:
    return of_two_machines(study.tables["steps"].to_dict("records"))


def _label(term: dict[str, Any]) -> str:
    name = "R" if term["term"] == _WHOLE else term["term"]
    return f"{name} {'' if term['term'] == _WHOLE else '×'}{math.exp(term['mean']):.2f}"


def _edges(panel: list[dict[str, Any]]) -> list[float]:
    """Everything that a bar or an interval reaches, as ratios."""
    edges, at = [], 0.0
    for term in panel:
        start = 0.0 if term["term"] == _WHOLE else at
        edges += [start + term["mean"], *(start + term[end] for end in ("low", "high"))]
        at = start + term["mean"]
    return [math.exp(edge) for edge in edges if math.isfinite(edge)]


def _fall(ax: Axes, panel: list[dict[str, Any]], limits: tuple[float, float], mode: str) -> None:
    ratio_axis.apply(ax, *limits)
    colour, _ = style.mode_look(mode)
    at = 0.0
    for y, term in enumerate(panel):
        whole = term["term"] == _WHOLE
        start = 0.0 if whole else at
        end = start + term["mean"]
        ends = [math.exp(edge) for edge in (start, end)]
        look = {"color": style.INK} if whole else _look(term["term"], term["mean"], colour)
        ax.barh(y, ends[1] - ends[0], 0.62, left=ends[0], linewidth=0.8, zorder=2, **look)
        if math.isfinite(term["low"]):
            reach = [math.exp(start + term[side]) for side in ("low", "high")]
            # White behind, so that the line shows on its own bar.
            ax.plot(reach, [y, y], color="white", linewidth=2.8, zorder=3, solid_capstyle="butt")
            ax.plot(reach, [y, y], color=style.INK, linewidth=1.3, marker="|", markersize=7,
                    markeredgewidth=1.3, zorder=4, gid=f"interval-{term['term']}")  # fmt: skip
        if not whole:
            ax.plot([ends[1]] * 2, [y + 0.31, y + 1 - 0.31], color=style.QUIET, linewidth=0.7)
        at = end
    ax.set_ylim(len(panel) - 0.35, -0.65)
    ax.set_yticks(range(len(panel)), [_label(term) for term in panel], fontsize=style.SMALL_PT)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=style.SMALL_PT + 0.5)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel(f"R, log scale; {families_of([panel[-1]['families']])}", fontsize=style.LABEL_PT)


def _look(term: str, log_factor: float, colour: str) -> dict[str, Any]:
    if term in _APART:
        return {"facecolor": "white", "edgecolor": style.QUIET, "hatch": "//////"}
    if log_factor > 0:
        return {"facecolor": "white", "edgecolor": colour}
    return {"facecolor": colour, "edgecolor": style.INK}


def _handles() -> list[Artist]:
    return [
        Patch(facecolor="white", edgecolor=style.INK, label="saves time"),
        Patch(facecolor=style.QUIET, edgecolor=style.INK, label="costs time"),
        Patch(facecolor="white", edgecolor=style.QUIET, hatch="//////",
              label="not a cost of the mode: gaps of the timing"),
    ]  # fmt: skip


def _has_interval(panels: dict[tuple[str, str], list[dict[str, Any]]]) -> bool:
    return any(math.isfinite(term["low"]) for panel in panels.values() for term in panel)


def _notes(panels: dict[tuple[str, str], list[dict[str, Any]]]) -> list[str]:
    notes = [
        "Each bar starts where the one above it ends; R is their product, of the order blocks that "
        "were also timed phase by phase."
    ]
    loose = [f"{mode} at {lengths([at])}" for (at, mode), p in panels.items() if not p[0]["gated"]]
    if loose:
        notes.append(f"Families that failed a gate are in the costs of {joined(loose)}.")
    if any(math.isnan(term["low"]) for panel in panels.values() for term in panel):
        notes.append("Where no interval is drawn, families are too few for one.")
    return notes
