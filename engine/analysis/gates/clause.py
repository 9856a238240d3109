"""What a gate says of one of its clauses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Clause:
    """One verdict. Where a clause is not applicable, nothing speaks against it: `passed` is true.

    `figure` and `limit` are in the clause's own unit (a share, a count, a ratio); `figure` is NaN
    where there is none. `text` is for people.
    """

    applicable: bool
    passed: bool
    figure: float
    limit: float
    text: str

    def adding(self, text: str) -> Clause:
        return replace(self, text=f"{self.text}; {text}")


def not_applicable(why: str) -> Clause:
    return Clause(False, True, math.nan, math.nan, why)


def at_most(figure: float, limit: float, found: str) -> Clause:
    """Passes up to and including the limit, a share; a figure that is NaN fails."""
    passed = figure <= limit
    relation = "within" if passed else "over"
    return Clause(
        True, bool(passed), figure, limit, f"{found}, {relation} the limit of {percent(limit)}"
    )


def at_least(figure: float, limit: float, found: str) -> Clause:
    """Passes down to and including the limit, a share; a figure that is NaN fails."""
    passed = figure >= limit
    relation = "not below" if passed else "below"
    return Clause(
        True, bool(passed), figure, limit, f"{found}, {relation} the limit of {percent(limit)}"
    )


def none_of(faults: list[str], fine: str, fault: str, remedy: str = "") -> Clause:
    """Passes without faults; else says `fault: a; b`, then what to do. The figure counts them."""
    text = f"{fault}: {listed(faults)}" if faults else fine
    clause = Clause(True, not faults, float(len(faults)), 0.0, text)
    return clause.adding(remedy) if faults and remedy else clause


def percent(share: float) -> str:
    return f"{round(100 * share, 2):g}%"


def listed(items: list[str], most: int = 4) -> str:
    """A list that stays readable however long it is."""
    shown = "; ".join(items[:most])
    return shown if len(items) <= most else f"{shown}; and {len(items) - most} more"
