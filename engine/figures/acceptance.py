"""Acceptance by position in the block, one panel a context."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from engine.figures import style
from engine.figures.message import joined, lengths, span
from engine.figures.sheet import Grid, Space, lay_out
from engine.figures.study import main_verdict

_LEFT, _BODY, _ABOVE, _BELOW, _GAP = 0.62, 1.45, 0.24, 0.62, 0.22
_COLUMNS = 2
# Two digits are shown, so a smaller change is none.
_SAME = 0.005


@dataclass(frozen=True)
class Curve:
    """One mode at one context; arrays hold one value a position, pooled over families.

    `of_proposed` falls by construction, since a token counts only if all before it were accepted;
    `of_judged` does not. `low` and `high` are the families' quartiles of `of_proposed`.
    """

    context: str
    mode: str
    families: int
    of_proposed: np.ndarray
    of_judged: np.ndarray
    low: np.ndarray
    high: np.ndarray


def draw(
    ratios: pd.DataFrame, verdict: dict[str, Any], out_svg: str | Path | None, out_png: str | Path
) -> None:
    """Write the figure from the ratios table and the contents of verdict.json.

    All families count that have a run: the timing gates say nothing about acceptance.
    """
    settings = verdict["settings"]
    contexts = [str(context) for context in settings["contexts"]]
    shown = curves(ratios, contexts, _modes(verdict))
    notes = [
        "Of proposed: accepted / proposed at the position. Of judged: accepted / judged, where a "
        "token is judged only if all before it were accepted."
    ]
    columns = min(len(contexts), _COLUMNS) or 1
    panel = (style.TALL_IN - _LEFT - 0.1 - (columns - 1) * _GAP) / columns
    with style.look():
        figure, axes = lay_out(
            Grid(columns, _LEFT, panel, _GAP),
            [Space(_ABOVE, _BODY, _BELOW)] * len(contexts),
            message(shown),
            style.banners(verdict),
            _legend(shown),
            notes,
        )
        longest = max((curve.of_proposed.size for curve in shown), default=1)
        for index, (ax, context) in enumerate(zip(axes, contexts, strict=True)):
            here = [curve for curve in shown if curve.context == context]
            _panel(ax, context, here, longest, named=index % columns == 0)
        style.save(figure, out_svg, out_png)


def curves(ratios: pd.DataFrame, contexts: list[str], modes: list[str]) -> list[Curve]:
    """The curves of all (context, mode) that proposed a token, in this order."""
    counted: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in ratios.to_dict("records"):
        if len(row["proposed_by_position"]):
            counted.setdefault((row["context"], row["mode"]), []).append(row)
    return [
        _curve(context, mode, counted[context, mode])
        for context in contexts
        for mode in modes
        if (context, mode) in counted
    ]


def message(shown: list[Curve]) -> str:
    """How acceptance (accepted / proposed) changes from the first position to the last."""
    if not shown:
        return "No token was proposed, so there is no acceptance to show"
    modes = list(dict.fromkeys(curve.mode for curve in shown))
    who = joined(modes) if len(modes) <= 2 else f"{len(modes)} modes"
    first = [curve.of_proposed[0] for curve in shown]
    last = [curve.of_proposed[-1] for curve in shown]
    lengths_of = {curve.of_proposed.size for curve in shown}
    if lengths_of == {1}:
        return f"Acceptance is {span(first)} ({who})"
    end = f"position {max(lengths_of)}" if len(lengths_of) == 1 else "the last position"
    if all(abs(b - a) <= _SAME for a, b in zip(first, last, strict=True)):
        return f"Acceptance stays at {span([*first, *last])} up to {end} ({who})"
    falls = all(b < a - _SAME for a, b in zip(first, last, strict=True))
    return (
        f"Acceptance {'falls' if falls else 'goes'} from {span(first)} at position 1 "
        f"to {span(last)} at {end} ({who})"
    )


def _modes(verdict: dict[str, Any]) -> list[str]:
    """Of what the study set out to judge, the modes that draft with a model; all if none does."""
    main = list(dict.fromkeys(entry["mode"] for entry in main_verdict(verdict)["verdicts"]))
    drafting = [m for m in main if verdict["settings"]["modes"][m]["drafter"] == "model"]
    return drafting or main


def _curve(context: str, mode: str, rows: list[dict[str, Any]]) -> Curve:
    # A drafter may propose short blocks only, on one family more than on another.
    longest = max(len(row["proposed_by_position"]) for row in rows)
    proposed, judged, accepted = np.zeros((3, len(rows), longest))
    for counts, name in ((proposed, "proposed"), (judged, "judged"), (accepted, "accepted")):
        for family, row in enumerate(rows):
            of_family = row[f"{name}_by_position"]
            counts[family, : len(of_family)] = of_family
    per_family = _share(accepted, proposed)
    # Where a family proposed nothing at a position, the quartiles are those of the others.
    low, high = (
        [np.nanquantile(column, q) if not np.isnan(column).all() else math.nan
         for column in per_family.T]
        for q in (0.25, 0.75)
    )  # fmt: skip
    return Curve(
        context,
        mode,
        len(rows),
        _share(accepted.sum(axis=0), proposed.sum(axis=0)),
        _share(accepted.sum(axis=0), judged.sum(axis=0)),
        np.array(low),
        np.array(high),
    )


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full_like(part, math.nan), where=whole > 0)


def _panel(ax: Axes, context: str, here: list[Curve], longest: int, named: bool) -> None:
    for place, curve in enumerate(here):
        colour, marker = style.mode_look(curve.mode)
        # Modes stand side by side, so that one does not hide the other's quartiles.
        shift = 0.12 * (place - (len(here) - 1) / 2)
        at = np.arange(1, curve.of_proposed.size + 1) + shift
        ax.plot(at, curve.of_judged, "--", marker=marker, color=colour, linewidth=1.1,
                markerfacecolor="white", markersize=4.2)  # fmt: skip
        ax.vlines(at, curve.low, curve.high, color=colour, linewidth=3.2, alpha=0.35)
        ax.plot(at, curve.of_proposed, "-", marker=marker, color=colour, linewidth=1.4,
                markersize=4.4, gid=f"acceptance-{context}-{curve.mode}")  # fmt: skip
    ax.set_xlim(0.5, longest + 0.5)
    ax.set_ylim(0, 1.03)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"] if named else [""] * 5)
    ax.grid(axis="y", color=style.FAINT, linewidth=0.5)
    ax.set_axisbelow(True)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    ax.set_title(
        lengths([context]), fontsize=style.LABEL_PT + 0.5, weight="bold", loc="left", pad=5
    )
    counts = sorted({curve.families for curve in here})
    ends = " to ".join(str(n) for n in dict.fromkeys(counts[:1] + counts[-1:])) or "0"
    ax.set_xlabel(f"position in the block\n({ends} families)", fontsize=style.LABEL_PT)
    if named:
        ax.set_ylabel("share accepted", fontsize=style.LABEL_PT)


def _legend(shown: list[Curve]) -> list[Artist]:
    if not shown:
        return []
    handles: list[Artist] = []
    for mode in dict.fromkeys(curve.mode for curve in shown):
        colour, marker = style.mode_look(mode)
        look = {"color": colour, "marker": marker, "markersize": 4.6, "linewidth": 0}
        handles.append(Line2D([], [], label=mode, **look))
    ink = {"color": style.INK, "marker": "o", "markersize": 4.4, "linewidth": 1.3}
    hollow = {**ink, "linestyle": "--", "markerfacecolor": "white"}
    band = {"color": style.INK, "alpha": 0.35, "linewidth": 4}
    return [
        *handles,
        Line2D([], [], label="of proposed, families pooled", **ink),
        Line2D([], [], label="its middle half over families", **band),
        Line2D([], [], label="of judged, families pooled", **hollow),
    ]
