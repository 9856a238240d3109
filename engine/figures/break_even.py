"""R over the acceptance of a token and the cost of drafting, a map a context and mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from engine.analysis.break_even import acceptance_needed, committed
from engine.figures import marks, published, style
from engine.figures.message import families_of, joined, lengths
from engine.figures.sheet import Grid, Space, lay_out
from engine.figures.study import NothingToShow, Study, main_verdict, qualified

_LEFT, _BODY, _ABOVE, _BELOW, _GAP = 0.62, 1.6, 0.42, 0.62, 0.28
_LEVELS = [0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8]


@dataclass(frozen=True)
class Place:
    """Where a mode stands: `p` the acceptance of a token at which a round commits what it did,
    `quartiles` its middle half over families, `draft` and `other` the round's costs in plain steps.
    """

    context: str
    mode: str
    k: int
    bonus: bool
    p: float
    quartiles: tuple[float, float]
    draft: float
    other: float
    families: int
    even: dict[str, Any]
    gated: bool


def draw(study: Study) -> tuple[Figure, str]:
    """The figure and its message."""
    shown = places(study)
    said = message(shown)
    theirs = published_place(study)
    beside = [place for place in shown if theirs and _alike(place, theirs)]
    columns = min(len(shown), 2)
    width = (style.TALL_IN - _LEFT - 0.12 - (columns - 1) * _GAP) / columns
    highest = max(p.draft for p in [*shown, *([theirs] if beside else [])])
    handles = [
        Line2D([], [], color=style.INK, linewidth=2, label="R = 1"),
        Patch(facecolor=style.FAINT, label="faster than plain decoding"),
        Line2D([], [], color=style.INK, marker="o", markersize=6, linewidth=2,
               label="measured; bar: middle half of families"),
    ]  # fmt: skip
    notes = ["A block's drafting and the rest of its round are counted in plain steps."]
    if beside:
        handles.append(marks.published_handle("published, with its own R = 1 (dashed)"))
        notes.append(
            f"{published.note([], [])} Placed from its example task's seconds, drafting share and "
            f"rounds; the rest of its round costs {theirs.other:.1f} steps, so its line is another."
        )
    figure, axes = lay_out(
        Grid(columns, _LEFT, width, _GAP),
        [Space(_ABOVE, _BODY, _BELOW)] * len(shown),
        said,
        study.banners,
        handles,
        notes,
    )
    for index, (ax, place) in enumerate(zip(axes, shown, strict=True)):
        _map(ax, place, highest, width)
        if place in beside:
            _beside(ax, theirs, highest)
        if index % columns == 0:
            ax.set_ylabel("drafting, plain steps a round", fontsize=style.LABEL_PT)
        else:
            ax.set_yticklabels([])
        style.head(ax, f"{place.mode}\n{lengths([place.context])}")
    return figure, said


def places(study: Study) -> list[Place]:
    """The whole-grid modes that draft k tokens with a model and were instrumented, not all-accept.

    Where rounds differ in length, the acceptance of a token says nothing of what they commit.
    """
    wanted = {(str(e["context"]), e["mode"]): e for e in main_verdict(study.verdict)["verdicts"]}
    found = []
    for (context, name), entry in wanted.items():
        mode = study.modes[name]
        fits = (mode["drafter"], mode["policy"]) == ("model", "fixed")
        if fits and mode["acceptance"] != "all" and entry["cause"]:
            found.append(_place(study, context, name, entry["cause"]))
    return found


def message(shown: list[Place]) -> str:
    """What acceptance would do, where one would; else that none does, and whether a draft would."""
    if not shown:
        raise NothingToShow("no instrumented run was measured together with its baseline")
    return qualified(_claim(shown), all(place.gated for place in shown))


def _claim(shown: list[Place]) -> str:
    groups: dict[str, list[str]] = {}
    for place in shown:
        groups.setdefault(_needs(place), []).append(place.mode)
    if len(groups) == 1:
        ((needs, modes),) = groups.items()
        return f"R = 1 for {joined(list(dict.fromkeys(modes)))}: {needs}"
    if len(shown) == 2:
        return f"R = 1 {'; '.join(_alone(place) for place in shown)}"
    none = sum(place.even["acceptance_needed"] is None for place in shown)
    if not none:
        return f"In all {len(shown)} cases some acceptance gives R = 1"
    rest = "; in the others some does" if none < len(shown) else ""
    return f"No acceptance alone gives R = 1 in {none} of {len(shown)} cases{rest}"


def _alone(place: Place) -> str:
    where, needed = f"{place.mode} at {lengths([place.context])}", place.even["acceptance_needed"]
    if needed is None:
        return f"for {where} is out of reach of any acceptance"
    return f"for {where} takes a token acceptance of {needed:.2f}, here {place.p:.2f}"


def _needs(place: Place) -> str:
    needed, allowed = place.even["acceptance_needed"], place.even["draft_cost_allowed"]
    first = (
        "no acceptance suffices"
        if needed is None
        else f"takes a token acceptance of {needed:.2f}, here {place.p:.2f}"
    )
    second = (
        "not even a free draft would do"
        if allowed is None
        else f"drafting may cost {allowed:.1f} steps, here {place.draft:.1f}"
    )
    return f"{first}; {second}"


def _place(study: Study, context: str, name: str, cause: dict[str, Any]) -> Place:
    mode, even = study.modes[name], cause["break_even"]
    k, bonus = mode["k"], mode["bonus"]
    ratios = study.tables["ratios"]
    rows = ratios[(ratios["context"] == context) & (ratios["mode"] == name)]
    if cause["gated"]:
        rows = rows[rows["admitted"]]
    tokens = study.verdict["settings"]["new_tokens"]
    by_family = [token_acceptance(tokens / n, k, bonus) for n in rows["rounds"].dropna()]
    low, high = np.quantile(
        by_family or [token_acceptance(even["committed"], k, bonus)], [0.25, 0.75]
    )
    return Place(
        context, name, k, bonus,
        token_acceptance(even["committed"], k, bonus), (float(low), float(high)),
        even["draft_cost_steps"], even["round_cost_steps"] - even["draft_cost_steps"],
        cause["families"], even, cause["gated"],
    )  # fmt: skip


def token_acceptance(tokens: float, k: int, bonus: bool) -> float:
    """The acceptance of a token at which a round commits so many; 1 if it commits all or more."""
    needed = acceptance_needed(tokens, k, bonus)
    return 1.0 if needed is None else needed


def published_place(study: Study) -> Place | None:
    """The published example task on the map, as far as its numbers were published."""
    look = [
        published.lookup(study.published, name, "")
        for name in ("example_ar_latency", "example_spec_latency", "draft_share_of_spec")
    ]
    rounds = published.span_of(study.published, "rounds")
    if not all(look) or not rounds:
        return None
    plain, whole, share = (figure.value for figure in look)
    tokens, k = 64, 4
    turns = sum(rounds) / 2
    cost = (whole / turns) / (plain / tokens)
    p = token_acceptance(tokens / turns, k, bonus=False)
    return Place("", "spec", k, False, p, (p, p), share * cost, (1 - share) * cost, 1, {}, True)


def _alike(place: Place, theirs: Place) -> bool:
    """A point belongs on a map of the same block only."""
    return (place.mode, place.k, place.bonus) == (theirs.mode, theirs.k, theirs.bonus)


def _map(ax: Axes, place: Place, highest: float, width: float) -> None:
    top = 1.25 * max(highest, 0.5)
    p, draft = np.meshgrid(np.linspace(0, 1, 61), np.linspace(0, top, 41))
    r = committed(p, place.k, place.bonus) / (place.other + draft)
    ax.contourf(p, draft, r, [1, 1e9], colors=[style.FAINT], alpha=0.8)
    others = [level for level in _LEVELS if level != 1 and r.min() < level < r.max()]
    if others:
        thin = ax.contour(p, draft, r, others, colors=style.QUIET, linewidths=0.7)
        named = [level for level in others if _long(thin, level, top)]
        for text in ax.clabel(thin, named, fmt="%g", fontsize=style.SMALL_PT - 0.5):
            text.set(zorder=6, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})
    if r.min() < 1 < r.max():
        ax.contour(p, draft, r, [1], colors=style.INK, linewidths=2)
    colour, shape = style.mode_look(place.mode)
    ax.plot(place.quartiles, [place.draft] * 2, color=colour, linewidth=2, marker="|",
            markersize=6, zorder=4)  # fmt: skip
    ax.plot([place.p], [place.draft], shape, color=style.INK, markerfacecolor=colour,
            markersize=6.4, zorder=5, gid=f"place-{place.context}-{place.mode}")  # fmt: skip
    ax.set_xlim(0, 1)
    ax.set_ylim(0, top)
    ax.set_xticks([0, 0.5, 1] if width < 2 else [0, 0.25, 0.5, 0.75, 1])
    ax.xaxis.set_major_formatter(lambda tick, _: f"{tick:g}")
    ax.tick_params(labelsize=style.SMALL_PT + 0.5)
    ax.set_xlabel(
        f"acceptance of a token\n({families_of([place.families])})", fontsize=style.LABEL_PT
    )


def _long(lines: ContourSet, level: float, top: float) -> bool:
    """Whether a contour leaves room for its label, in shares of the map's sides."""
    segments = lines.allsegs[list(lines.levels).index(level)]
    spans = [np.ptp(line / [1, top], axis=0).max() for line in segments if len(line) > 1]
    return max(spans, default=0) > 0.5


def _beside(ax: Axes, theirs: Place, highest: float) -> None:
    p = np.linspace(0, 1, 101)
    even = committed(p, theirs.k, theirs.bonus) - theirs.other
    ax.plot(p[even >= 0], even[even >= 0], color=style.OUT, linewidth=1.3, linestyle="--")
    ax.plot([theirs.p], [theirs.draft], "D", color=style.OUT, markerfacecolor="white",
            markersize=5.4, zorder=5)  # fmt: skip
