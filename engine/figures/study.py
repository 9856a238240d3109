"""What a mechanism figure may read of a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from engine.figures import style


class NothingToShow(Exception):
    """The study holds no measurement that the figure could show; the text says which."""


@dataclass(frozen=True)
class Ratio:
    """R over `families` with its interval; not `gated` are those that failed a timing gate."""

    r: float
    ends: tuple[float, float] | None
    families: int
    gated: bool


@dataclass(frozen=True)
class Study:
    """The contents of verdict.json, config/published.csv, and the study's tables by stem."""

    verdict: dict[str, Any]
    published: pd.DataFrame
    tables: Mapping[str, pd.DataFrame]

    @property
    def contexts(self) -> list[str]:
        return [str(context) for context in self.verdict["settings"]["contexts"]]

    @property
    def modes(self) -> dict[str, dict[str, Any]]:
        return self.verdict["settings"]["modes"]

    @property
    def banners(self) -> list[str]:
        return style.banners(self.verdict)

    @property
    def level(self) -> str:
        """'95%', of the intervals."""
        levels = [entry["interval"]["level"] for entry in self.verdict["verdicts"]]
        return f"{100 * (levels or [0.95])[0]:g}%"

    def modes_that(self, fits: Callable[[dict[str, Any]], bool]) -> list[str]:
        """Modes with a drafter whose composition fits, in the design's order."""
        return [
            name for name, mode in self.modes.items() if mode["drafter"] != "none" and fits(mode)
        ]

    def at(self, context: str) -> Study:
        """The study as if it had this context only."""
        entries = [e for e in self.verdict["verdicts"] if str(e["context"]) == context]
        settings = {**self.verdict["settings"], "contexts": [context]}
        here = {
            name: table[table["context"].astype(str).eq(context)] if "context" in table else table
            for name, table in self.tables.items()
        }
        verdict = {**self.verdict, "settings": settings, "verdicts": entries}
        return Study(verdict, self.published, here)

    def entry(self, context: str, mode: str) -> dict[str, Any] | None:
        """The verdict on a mode that was planned here and can run here."""
        for entry in self.verdict["verdicts"]:
            if (str(entry["context"]), entry["mode"]) == (context, mode):
                return None if entry["not_applicable"] else entry
        return None

    def entries(self, modes: list[str]) -> list[dict[str, Any]]:
        """All verdicts on these modes, contexts in the design's order."""
        found = [self.entry(context, mode) for context in self.contexts for mode in modes]
        return [entry for entry in found if entry]


def ratio_of(entry: dict[str, Any]) -> Ratio | None:
    """R of a verdict's entry; where too few families passed the gates for one, that of all.

    The gates protect a verdict; where there is none, the times of all families still say where a
    mode stands. None if no family has a ratio.
    """
    if entry["interval"]["low"] is not None:
        return Ratio(entry["r"], bounds(entry), entry["families_in"], gated=True)
    if entry["r_all"] is None:
        return None
    return Ratio(entry["r_all"], None, entry["families_measured"], gated=False)


def qualified(sentence: str, gated: bool) -> str:
    """The sentence, with what it rests on where the families failed the timing gates."""
    return sentence if gated else f"{sentence} (families that failed a gate included)"


def main_verdict(verdict: dict[str, Any]) -> dict[str, Any]:
    """The verdict with the entries of modes that were measured on the whole grid only.

    They are what the study set out to judge; where there is none, all entries are.
    """
    whole = [entry for entry in verdict["verdicts"] if entry.get("whole_grid", True)]
    return {**verdict, "verdicts": whole or verdict["verdicts"]}


def bounds(entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """(low, high) of a verdict's interval, or None where there is none."""
    low, high = entry["interval"]["low"], entry["interval"]["high"]
    return None if low is None or high is None else (low, high)
