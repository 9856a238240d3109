"""What the forest plot shows, as plain values: one panel a context, one row a family."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import mean
from typing import Any

import pandas as pd

from engine.figures import style
from engine.figures.message import lengths, outcome, short_word
from engine.figures.published import Figure as Published
from engine.figures.published import ratio_of
from engine.strict import slug_of

LABEL_MOST = 1.4  # inches
_NBSP = "\u00a0"

# The ratios table by (context, family, mode).
Rows = dict[tuple[str, str, str], dict[str, Any]]


@dataclass(frozen=True)
class FamilyMark:
    """R of a family in one mode; nan if there is none. `y` counts rows from the top."""

    family: str
    mode: str
    y: float
    r: float
    by_replicate: tuple[float, ...]
    admitted: bool


@dataclass(frozen=True)
class OverallMark:
    """R over families with its interval; both None where nothing was inferred."""

    mode: str
    y: float
    r: float | None
    interval: tuple[float, float] | None
    word: str


@dataclass(frozen=True)
class PublishedMark:
    """R of the published study at the same context."""

    mode: str
    y: float
    ratio: Published


@dataclass(frozen=True)
class Panel:
    """One context, ready to be drawn."""

    context: str
    heading: str
    results: tuple[tuple[str, str], ...]  # (mode, one line)
    axis_label: str
    labels: tuple[tuple[float, str], ...]
    bands: tuple[tuple[float, float], ...]  # behind every other family
    rows: float
    rule_y: float
    families: tuple[FamilyMark, ...]
    overall: tuple[OverallMark, ...]
    published: tuple[PublishedMark, ...]


def panels(ratios: pd.DataFrame, verdict: dict[str, Any], published: pd.DataFrame) -> list[Panel]:
    """One panel a context, all with the same rows in the same places."""
    settings, entries = verdict["settings"], verdict["verdicts"]
    judged = {entry["mode"] for entry in entries}
    rows = {
        (row["context"], row["family"], row["mode"]): row
        for row in ratios.to_dict("records")
        if row["mode"] in judged
    }
    modes = [mode for mode in settings["modes"] if mode in judged]
    contexts = [str(context) for context in settings["contexts"]]
    ours = [mode for mode in modes if any(ratio_of(published, mode, at) for at in contexts)]
    names = {slug_of(name): name for name in settings["families"]}
    order = _by_ratio(rows, list(names))
    return [_panel(at, rows, entries, published, modes, ours, order, names) for at in contexts]


def _panel(
    context: str,
    rows: Rows,
    entries: list[dict[str, Any]],
    published: pd.DataFrame,
    modes: list[str],
    published_modes: list[str],
    families: list[str],
    names: dict[str, str],
) -> Panel:
    here = {entry["mode"]: entry for entry in entries if str(entry["context"]) == context}
    one = len(modes) == 1
    labels, overall, theirs = [], [], []
    for y, mode in enumerate(modes):
        labels.append((y, "overall" if one else _fit(f"overall, {mode}")))
        if mode in here:
            overall.append(_overall(here[mode], y))
    for y, mode in enumerate(published_modes, start=len(modes)):
        labels.append((y, "published" if one else _fit(f"published, {mode}")))
        if ratio := ratio_of(published, mode, context):
            theirs.append(PublishedMark(mode, y, ratio))
    rule = len(labels) - 0.4
    top, step = rule + 0.15, max(1.0, 0.62 * len(modes))
    marks = []
    for index, family in enumerate(families):
        middle = top + step * (index + 0.5)
        name = style.printable(names.get(family, family), family, LABEL_MOST)
        labels.append((middle, name))
        for place, mode in enumerate(modes):
            y = middle + 0.9 * step * ((place + 0.5) / len(modes) - 0.5)
            marks.append(_family(rows.get((context, family, mode)), family, mode, y))
    return Panel(
        context=context,
        heading=lengths([context]),
        results=tuple((mode, _result(here[mode], one)) for mode in modes if mode in here),
        axis_label=f"R, log scale; {_counts(list(here.values()))}",
        labels=tuple(labels),
        bands=tuple(
            (top + index * step, top + (index + 1) * step) for index in range(0, len(families), 2)
        ),
        rows=top + step * len(families) + 0.15,
        rule_y=rule,
        families=tuple(marks),
        overall=tuple(overall),
        published=tuple(theirs),
    )


def _fit(label: str) -> str:
    return style.printable(label, label, LABEL_MOST)


def _by_ratio(rows: Rows, families: list[str]) -> list[str]:
    """Fastest first, by the mean over contexts and modes; one order for all panels."""
    known: dict[str, list[float]] = {family: [] for family in families}
    for (_, family, _), row in rows.items():
        if family in known and math.isfinite(row["log_r"]):
            known[family].append(-row["log_r"])
    return sorted(families, key=lambda f: mean(known[f]) if known[f] else math.inf)


def _family(row: dict[str, Any] | None, family: str, mode: str, y: float) -> FamilyMark:
    if row is None:
        return FamilyMark(family, mode, y, math.nan, (), False)
    pairs = tuple(float(r) for r in row["r_by_replicate"])
    return FamilyMark(family, mode, y, float(row["r"]), pairs, bool(row["admitted"]))


def _overall(entry: dict[str, Any], y: float) -> OverallMark:
    interval = entry.get("interval") or {}
    ends = interval.get("low"), interval.get("high")
    return OverallMark(entry["mode"], y, entry["r"], None if None in ends else ends, outcome(entry))


def _result(entry: dict[str, Any], one: bool) -> str:
    mark = _overall(entry, 0)
    words = short_word(mark.word) if one else f"{entry['mode']} {short_word(mark.word)}"
    if mark.r is None:
        return words
    if mark.interval is None:
        return f"{words}: R{_NBSP}{mark.r:.2f}"
    low, high = mark.interval
    # Two digits would hide on which side of 1 a narrow interval lies.
    digits = 2 if high - low >= 0.02 else 3
    numbers = f"R {mark.r:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{words}: {numbers.replace(' ', _NBSP)}"


def _counts(entries: list[dict[str, Any]]) -> str:
    """'14 of 16 families', or a range where modes differ."""
    counts = sorted({entry["families_in"] for entry in entries})
    planned = max((entry["families_planned"] for entry in entries), default=0)
    ends = " to ".join(str(n) for n in dict.fromkeys((counts or [0])[:1] + counts[-1:]))
    return f"{ends} of {planned} families"
