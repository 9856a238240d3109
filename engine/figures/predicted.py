"""R predicted for every block length, and what was measured, one panel a context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from engine.analysis.prediction import score
from engine.figures import marks, style
from engine.figures.message import families_of, joined, lengths, span
from engine.figures.sheet import Grid, Space, lay_out
from engine.figures.study import NothingToShow, Study, qualified

_LEFT, _BODY, _ABOVE, _BELOW = 0.62, 1.75, 0.26, 0.52
_FORM = ["baseline", "round", "bonus"]
# Without colour, marks of one k would all look alike.
_SHAPES = "osD^vPX"


@dataclass(frozen=True)
class Curve:
    """Predictions of one form of the round at one context, k ascending; `modes` were measured
    in this form.
    """

    context: str
    form: tuple[str, str, bool]
    modes: tuple[str, ...]
    table: pd.DataFrame

    @property
    def name(self) -> str:
        _, form, bonus = self.form
        if self.modes:
            return f"rounds as in {joined(list(self.modes))}"
        return f"{form} rounds, {'with' if bonus else 'no'} bonus token"

    @property
    def best(self) -> dict[str, Any]:
        return self.table[self.table["best"]].to_dict("records")[0]


def draw(study: Study) -> tuple[Figure, str]:
    """The figure and its message."""
    shown = curves(study)
    compared = study.tables["compared"]
    said = message(shown, compared)
    contexts = list(dict.fromkeys(curve.context for curve in shown))
    figure, axes = lay_out(
        Grid(1, _LEFT, style.TALL_IN - _LEFT - 0.12, 0),
        [Space(_ABOVE, _BODY, _BELOW)] * len(contexts),
        said,
        study.banners,
        _handles(shown, compared, study.level),
        ["Curves are over all families. Whether a mark lies inside is judged for its own families."]
        if len(compared)
        else [],
    )
    for ax, context in zip(axes, contexts, strict=True):
        here = [curve for curve in shown if curve.context == context]
        _panel(ax, here, compared, context)
        style.head(ax, lengths([context]))
    return figure, said


def curves(study: Study) -> list[Curve]:
    """The forms that a mode was measured in, or all of the first baseline if none was."""
    table = study.tables["predicted"]
    if table.empty:
        raise NothingToShow("no component was timed where a trace was made")
    modes = study.modes_that(
        lambda m: (
            (m["drafter"], m["acceptance"], m["policy"]) == ("model", "exact", "fixed")
            and m["runtime"] == study.modes[m["baseline"]]["runtime"]
        )
    )
    by_form: dict[tuple, list[str]] = {}
    for name in modes:
        mode = study.modes[name]
        by_form.setdefault((mode["baseline"], mode["round"], mode["bonus"]), []).append(name)
    first = table["baseline"].iloc[0]
    return [
        Curve(context, form, tuple(by_form.get(form, ())), here.sort_values("k"))
        for context in study.contexts
        for form, here in table[table["context"] == context].groupby(_FORM, sort=False)
        if form in by_form or (not by_form and form[0] == first)
    ]


def message(shown: list[Curve], compared: pd.DataFrame) -> str:
    """The best k of each context and its R, and how many measured R lie in their prediction."""
    if not shown:
        raise NothingToShow("no form of the round that a mode has was predicted")
    leaders = [
        max((curve for curve in shown if curve.context == context), key=lambda c: c.best["r"])
        for context in dict.fromkeys(curve.context for curve in shown)
    ]
    forms = {curve.name for curve in leaders}
    # Named if there are others, and none of them leads anywhere.
    which = f" with {forms.pop()}" if len(forms) == 1 < len({c.name for c in shown}) else ""
    best_ks = joined([str(k) for k in sorted({int(curve.best["k"]) for curve in leaders})])
    highest = span(curve.best["r"] for curve in leaders)
    sentence = f"Predicted R is highest{which} at k = {best_ks}: {highest}"
    if compared.empty:
        return f"{sentence}; no measured R stands beside it"
    inside, of, width = score(compared)
    return qualified(
        f"{sentence}; {inside} of {of} measured R lie inside a prediction of "
        f"±{100 * width:.0f}% (median)",
        bool(compared["gated"].all()),
    )


def _look(curve: Curve, place: int) -> tuple[str, str]:
    dash = ("-", "--", "-.", ":")[place % 4]
    return (style.mode_look(curve.modes[0])[0] if curve.modes else style.QUIET), dash


def _series(compared: pd.DataFrame) -> dict[str, int]:
    """Mode -> place of its series. A form measured at several k is one series, told apart by k."""
    places: dict[tuple, int] = {}
    keys = {}
    for (form, bonus, baseline), here in compared.groupby(["round", "bonus", "baseline"]):
        one_each = here.groupby("k")["mode"].nunique().eq(1).all() and here["k"].nunique() > 1
        for mode in here["mode"]:
            keys[mode] = (form, bonus, baseline, "" if one_each else mode)
    for mode in dict.fromkeys(compared["mode"]):
        places.setdefault(keys[mode], len(places))
    return {mode: places[key] for mode, key in keys.items()}


def _mark(mode: str, series: dict[str, int]) -> tuple[str, str]:
    place = series[mode]
    first = next(name for name in series if series[name] == place)
    return style.mode_look(first)[0], _SHAPES[place % len(_SHAPES)]


def _panel(ax: Axes, here: list[Curve], compared: pd.DataFrame, context: str) -> None:
    ax.axhline(1, color=style.INK, linewidth=1.0, zorder=1)
    for place, curve in enumerate(here):
        colour, dash = _look(curve, place)
        table = curve.table
        ax.fill_between(table["k"], table["low"], table["high"], color=colour, alpha=0.18,
                        linewidth=0)  # fmt: skip
        ax.plot(table["k"], table["r"], dash, color=colour, linewidth=1.5)
        ax.plot([curve.best["k"]], [curve.best["r"]], "o", color=colour, markersize=9,
                markerfacecolor="none", markeredgewidth=1.1)  # fmt: skip
    by_k: dict[int, int] = {}
    series = _series(compared)
    for row in compared[compared["context"] == context].to_dict("records"):
        colour, shape = _mark(row["mode"], series)
        # Modes of one k stand side by side.
        x = row["k"] + 0.14 * by_k.setdefault(row["k"], 0)
        by_k[row["k"]] += 1
        ends = row["measured_low"], row["measured_high"]
        drawn = not any(pd.isna(end) for end in ends)
        if drawn:
            ax.plot([x, x], ends, color=colour, linewidth=1.6, marker="_", markersize=7, zorder=3)
        ax.plot([x], [row["measured"]], shape, color=style.INK, markersize=5.2, zorder=4,
                markerfacecolor=colour if drawn else "white")  # fmt: skip
    ax.xaxis.set_major_locator(MaxNLocator(9, integer=True, min_n_ticks=1))
    ax.margins(y=0.1)
    ax.set_ylim(bottom=max(0, ax.get_ylim()[0]))
    ax.grid(axis="y", color=style.FAINT, linewidth=0.5)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=style.SMALL_PT + 0.5)
    counted = families_of(int(n) for curve in here for n in curve.table["families"])
    ax.set_xlabel(f"k, tokens proposed a round; {counted}", fontsize=style.LABEL_PT)
    ax.set_ylabel("R", fontsize=style.LABEL_PT)


def _handles(shown: list[Curve], compared: pd.DataFrame, level: str) -> list[Artist]:
    handles: list[Artist] = []
    first = shown[0].context
    for place, curve in enumerate(curve for curve in shown if curve.context == first):
        colour, dash = _look(curve, place)
        handles.append(Line2D([], [], color=colour, linestyle=dash, linewidth=1.5,
                              label=f"predicted: {curve.name}"))  # fmt: skip
    handles.append(Patch(facecolor=style.QUIET, alpha=0.25, label=f"its {level} interval: costs"))
    handles.append(Line2D([], [], color=style.INK, marker="o", markersize=9, linewidth=0,
                          markerfacecolor="none", label="best k"))  # fmt: skip
    series = _series(compared)
    for place in dict.fromkeys(series.values()):
        names = [mode for mode in series if series[mode] == place]
        colour, shape = _mark(names[0], series)
        label = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        handles.append(Line2D([], [], color=colour, marker=shape, markersize=5.2, linewidth=0,
                              markeredgecolor=style.INK, label=f"measured: {label}"))  # fmt: skip
    if len(compared) and compared["measured_low"].notna().any():
        handles.append(marks.interval_handle(level))
    if compared["measured_low"].isna().any():
        handles.append(marks.hollow_handle())
    return handles
