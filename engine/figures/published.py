"""The published study's numbers, as they stand beside ours: other hardware, another model pair.

`published` is config/published.csv as `pandas.read_csv` gives it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from engine.figures.message import lengths

SETTING = "RTX 4060 Laptop, Qwen2.5 1.5B with 0.5B"


@dataclass(frozen=True)
class Figure:
    """One published number; `low` and `high` are None where no interval was published."""

    value: float
    low: float | None
    high: float | None


def context_name(context: float | str) -> str:
    """A context of the CSV as studies name it: '2048'; '' where there is none."""
    if isinstance(context, str):
        return context
    return "" if math.isnan(context) else f"{context:.0f}"


def lookup(published: pd.DataFrame, quantity: str, context: str) -> Figure | None:
    """The published number of a quantity at exactly this context, if there is one."""
    for row in published[published["quantity"] == quantity].to_dict("records"):
        if context_name(row["context"]) == context and not pd.isna(row["value"]):
            low, high = (None if pd.isna(row[end]) else row[end] for end in ("low", "high"))
            return Figure(row["value"], low, high)
    return None


def ratio_of(published: pd.DataFrame, mode: str, context: str) -> Figure | None:
    """Published R of a mode of the same name at the same context."""
    return lookup(published, f"{mode}_ratio", context)


def contexts_of(published: pd.DataFrame, mode: str) -> list[str]:
    """Contexts at which R of this mode was published."""
    return [context_name(c) for c in published["context"][published["quantity"] == f"{mode}_ratio"]]


def beside(published: pd.DataFrame, quantity: str, context: str) -> list[tuple[str, Figure]]:
    """What stands beside ours: the number at this context, or all where none is at ours."""
    rows = published[published["quantity"] == quantity]
    theirs = [context_name(at) for at in rows["context"]]
    chosen = [context] if context in theirs else theirs
    return [(at, found) for at in chosen if (found := lookup(published, quantity, at))]


def span_of(published: pd.DataFrame, quantity: str) -> tuple[float, float] | None:
    """(low, high) of a quantity that was published as a range, without a context."""
    for row in published[published["quantity"] == quantity].to_dict("records"):
        if not pd.isna(row["low"]) and not pd.isna(row["high"]):
            return row["low"], row["high"]
    return None


def note(contexts: list[str], theirs: list[str]) -> str:
    """What the published marks are; `theirs` are the contexts of those that are drawn."""
    apart = [at for at in dict.fromkeys(theirs) if at not in contexts]
    where = f", at {lengths(apart)}, which this study has not" if apart else ""
    return f"Published: other hardware and another model pair ({SETTING}){where}."
