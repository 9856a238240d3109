"""Weights and caches of one model and of two, by context, beside a card of 8 GB."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from engine.analysis.chain import CARD_GIB
from engine.figures import marks, style
from engine.figures.message import lengths, span
from engine.figures.sheet import Grid, Space, lay_out
from engine.figures.study import NothingToShow, Study

_ROW, _ABOVE, _BELOW = 0.3, 0.26, 0.5
_GIB = 2.0**30


@dataclass(frozen=True)
class Held:
    """What one mode holds at one context, GiB; the largest of its runs."""

    context: str
    mode: str
    models: int
    weights: float
    caches: float
    peak: float

    @property
    def whole(self) -> float:
        return self.weights + self.caches


def draw(study: Study) -> tuple[Figure, str]:
    """The figure and its message."""
    held = memory_of(study)
    said = message(held)
    contexts = list(dict.fromkeys(h.context for h in held))
    labels = [f"{h.mode}\n{_size(h.whole)} GiB" for h in held]
    left = 0.2 + max(style.text_width(t, style.SMALL_PT) for x in labels for t in x.split("\n"))
    handles = [
        Patch(facecolor="#8fa3b3", edgecolor=style.INK, linewidth=0.6, label="weights"),
        Patch(facecolor="white", edgecolor=style.INK, linewidth=0.6, hatch="////", label="caches"),
    ]
    if any(h.peak > 0 for h in held):
        look = {"marker": "|", "markersize": 10, "linewidth": 0, "markeredgewidth": 1.6}
        handles.append(Line2D([], [], color=style.INK, label="most held at once", **look))
    per_context = {c: [h for h in held if h.context == c] for c in contexts}
    most = max(max(h.whole, h.peak) for h in held)
    # Far from the card, its line would leave the bars no room to be told apart.
    end = 1.12 * max(most, CARD_GIB if most > CARD_GIB / 3 else 0)
    if end > CARD_GIB:
        handles.append(Line2D([], [], color=style.ALARM, linestyle="--", label="an 8 GB card"))
    notes = ["The most held at once counts working memory, and on a CPU the process itself."]
    if end <= CARD_GIB:
        notes.append("8 →: what an 8 GB card holds lies beyond the axis.")
    figure, axes = lay_out(
        Grid(1, left, style.TALL_IN - left - 0.16, 0),
        [
            Space(_ABOVE, _ROW * (len(here) - 1 + 2 * marks.PAD), _BELOW)
            for here in per_context.values()
        ],
        said,
        study.banners,
        handles,
        notes,
    )
    for ax, (context, here) in zip(axes, per_context.items(), strict=True):
        _panel(ax, here, end)
        style.head(ax, lengths([context]))
    return figure, said


def memory_of(study: Study) -> list[Held]:
    """The first mode that drafts with a model and ran, and its baseline, at each context."""
    rows = study.tables["rows"]
    rows = rows[rows["status"].eq("ok")]
    found = []
    for context in study.contexts:
        here = rows[rows["context"] == context]
        ran = [m for m in study.modes_that(_drafts) if here["mode"].eq(m).any()]
        if not ran:
            continue
        for mode, models in ((study.modes[ran[0]]["baseline"], 1), (ran[0], 2)):
            of_mode = here[here["mode"] == mode]
            if len(of_mode) and of_mode["weights_bytes"].notna().any():
                found.append(_held(of_mode, context, mode, models))
    return found


def message(held: list[Held]) -> str:
    """How much more two models hold than one, and on which side of the card that is."""
    pairs = [
        (one, two)
        for one in held
        for two in held
        if (one.context, one.models, two.models) == (two.context, 1, 2)
    ]
    if not pairs:
        raise NothingToShow("no run with and without a draft model reported its memory")
    more = span(two.whole / one.whole for one, two in pairs)
    ends = [_size(end(two.whole for _, two in pairs)) for end in (min, max)]
    sizes = "-".join(dict.fromkeys(ends))
    sentence = f"Two models and their caches take {sizes} GiB, {more} times what one takes"
    above = [two.whole > CARD_GIB for _, two in pairs]
    if all(above):
        return f"{sentence}: more than an 8 GB card has"
    return sentence if any(above) else f"{sentence}: within an 8 GB card"


def _drafts(mode: dict) -> bool:
    return mode["drafter"] == "model"


def _held(rows: pd.DataFrame, context: str, mode: str, models: int) -> Held:
    weights, caches, peak = (
        float(rows[f"{name}_bytes"].fillna(0).max()) / _GIB for name in ("weights", "kv", "peak")
    )
    return Held(context, mode, models, weights, caches, peak)


def _size(gib: float) -> str:
    return f"{gib:.3g}"


def _panel(ax: Axes, here: list[Held], end: float) -> None:
    marks.row_axis(ax, [f"{h.mode}\n{_size(h.whole)} GiB" for h in here])
    for y, h in enumerate(here):
        edge = {"edgecolor": style.INK, "linewidth": 0.6}
        ax.barh(y, h.weights, 0.5, color="#8fa3b3", **edge)
        ax.barh(y, h.caches, 0.5, left=h.weights, color="white", hatch="////", **edge)
        if h.peak:
            ax.plot([h.peak], [y], "|", color=style.INK, markersize=13, markeredgewidth=1.6)
    if end > CARD_GIB:
        ax.axvline(CARD_GIB, color=style.ALARM, linestyle="--", linewidth=1.4)
    else:
        ax.text(0.995, 0.5, "8 →", transform=ax.transAxes, color=style.ALARM, ha="right",
                va="center", size=style.LABEL_PT, weight="bold")  # fmt: skip
    ax.set_xlim(0, end)
    ax.tick_params(axis="x", labelsize=style.SMALL_PT + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel("GiB", fontsize=style.LABEL_PT)
