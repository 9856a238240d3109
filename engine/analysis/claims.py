"""Whether what another source says held here: a ratio over families, its interval, and a word.

The words follow the interval of families that passed the gates, so no outcome makes them false:
HELD if all of it lies where the claim says, NOT HELD if all of it lies elsewhere, OPEN otherwise.
Where too few passed, the figures of all are told, and the word is OPEN.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from engine.analysis.blocks import CELL, block_times, both_timed, comparable
from engine.analysis.intervals import headline_interval
from engine.analysis.latency import arrivals
from engine.analysis.phases import phase_table
from engine.analysis.speedup import mean
from engine.claims import Claim, claims
from engine.design import Design
from engine.limits import Inference

HELD, NOT_HELD, OPEN = "held", "did not hold", "cannot be told"
COLUMNS = [
    "context", "claim", "mode", "against", "quantity", "what", "value", "low", "high", "bound",
    "side", "holds_from", "holds_to", "claimed", "families", "left_out", "gated",
    "outcome", "sentence",
]  # fmt: skip
_WHAT = {
    "speed": "R of {mode} over that of {against}",
    "acceptance": "acceptance of {mode} over that of {against}",
    "token_time": "time a token of {mode} over that of {against}",
    "first_token": "time to the first token of {mode} over that of {against}",
    "verification": "verification of {mode} over that of {against}, seconds a round",
    "formula": "R of {mode} over alpha / (c + 1)",
}
# Counts of tokens are the same on any machine; times are believed from families that passed.
_COUNTED = {"acceptance"}
# Ratios of times, not of two R that have each a baseline of their own beside them.
_TIMED = {"token_time", "first_token", "verification"}


def judge_claims(
    rows: pd.DataFrame, ratios: pd.DataFrame, gates: pd.DataFrame, design: Design
) -> pd.DataFrame:
    """One row a context and claim of the design; COLUMNS. `gates` comes from `gates.judge`."""
    evidence = _Evidence(rows, ratios, gates, design)
    table = [
        _judge(evidence, context, claims()[asked.claim], asked.mode, asked.against)
        for asked in design.claims
        for context in design.contexts_of(asked.mode)
    ]
    return pd.DataFrame(table, columns=COLUMNS)


class _Evidence:
    """Log ratios by family, of every quantity that a claim may be about."""

    def __init__(
        self, rows: pd.DataFrame, ratios: pd.DataFrame, gates: pd.DataFrame, design: Design
    ):
        self.design = design
        keyed = ratios.set_index(["context", "family", "mode"])
        self._log_r = keyed["log_r"].to_dict()
        self._acceptance = keyed["acceptance"].to_dict()
        self._admitted = keyed["admitted"].astype(bool).to_dict()
        passed = gates["passed"].astype(bool) | ~gates["applicable"].astype(bool)
        places = [gates["context"].astype(str), gates["family"], gates["mode"]]
        self._passed = passed.groupby(places).all().to_dict()
        self._blocks = {tuple(b[k] for k in CELL): b for b in block_times(rows).to_dict("records")}
        self._arrivals = {
            (*place, replicate): figures
            for replicate, here in rows.groupby("replicate")
            for place, figures in arrivals(here).items()
        }
        phases = phase_table(rows, design).to_dict("records")
        self._phases = {tuple(p[key] for key in CELL): p for p in phases}

    def admitted(self, place: tuple[str, str, str]) -> bool:
        """Whether it passed the gates; a baseline, which has no ratio, is judged alone."""
        if place[2] in self.design.baselines:
            return bool(self._passed.get(place, False))
        return bool(self._admitted.get(place, False))

    def speed(self, own: tuple, other: tuple) -> float:
        return self._log_r.get(own, math.nan) - self._log_r.get(other, self._plain(other))

    def acceptance(self, own: tuple, other: tuple) -> float:
        return _log(self._acceptance.get(own)) - _log(self._acceptance.get(other))

    def accepts_nothing(self, context: str, family: str, *modes: str) -> bool:
        return any(self._acceptance.get((context, family, mode)) == 0 for mode in modes)

    def token_time(self, own: tuple, other: tuple) -> float:
        """All modes commit as many tokens, so the times of blocks stand in the same ratio."""
        return self._over_blocks(own, other, self._blocks, "block_s")

    def first_token(self, own: tuple, other: tuple) -> float:
        return self._over_blocks(own, other, self._arrivals, "first_token_s")

    def verification(self, own: tuple, other: tuple) -> float:
        return self._over_blocks(own, other, self._phases, "verify_s")

    def formula(self, own: tuple, _other: tuple) -> float:
        """R over E / (c + 1): E tokens a round, c what drafting costs in steps of the baseline.

        R is that of the same blocks, of which some may have no phases.
        """
        blocks = [self._phases.get((*own, r)) for r in self._replicates]
        return _mean(
            at["log_r"] - _log(at["committed"] / (at["draft_s"] / at["step_s"] + 1))
            for at in blocks
            if at
        )

    def apart(self, quantity: str, own: tuple, other: tuple) -> bool:
        """Whether both were timed, but in no order block on one machine."""
        phases = quantity == "verification"
        pairs = [
            (self._blocks.get((*own, replicate)), self._blocks.get((*other, replicate)))
            for replicate in self._replicates
            if self.design.instrumented_runs[replicate] or not phases
        ]
        return any(itertools.starmap(both_timed, pairs)) and not any(
            itertools.starmap(comparable, pairs)
        )

    @property
    def _replicates(self) -> range:
        return range(len(self.design.replicates))

    def _over_blocks(
        self, own: tuple, other: tuple, table: Mapping[tuple, Mapping[str, float]], column: str
    ) -> float:
        """Each order block its own ratio, as R has it; those of two machines are left out."""
        pairs = [((*own, replicate), (*other, replicate)) for replicate in self._replicates]
        return _mean(
            _log(table[one][column]) - _log(table[two][column])
            for one, two in pairs
            if comparable(self._blocks.get(one), self._blocks.get(two))
            # Not all blocks were instrumented.
            and one in table
            and two in table
        )

    def _plain(self, place: tuple[str, str, str]) -> float:
        return 0.0 if place[2] in self.design.baselines else math.nan


def _judge(
    evidence: _Evidence, context: str, claim: Claim, mode: str, against: str
) -> dict[str, Any]:
    design = evidence.design
    of: Callable[[tuple, tuple], float] = getattr(evidence, claim.quantity)
    found = []
    for family in design.families_of(mode):
        places = (context, family, mode), (context, family, against)
        log_ratio = of(*places)
        if math.isfinite(log_ratio):
            found.append((log_ratio, all(map(evidence.admitted, places))))
    if claim.quantity in _COUNTED:
        found = [(x, True) for x, _ in found]
    gated = [x for x, passed in found if passed]
    enough = len(gated) >= design.inference.student_t_from
    chosen = np.array(gated if enough else [x for x, _ in found])
    interval = headline_interval(chosen, design.inference, design.seed)
    row = {
        "context": context,
        "claim": claim.name,
        "mode": mode,
        "against": against,
        "quantity": claim.quantity,
        "what": _WHAT[claim.quantity].format(mode=mode, against=against),
        "value": math.exp(chosen.mean()) if len(chosen) else math.nan,
        "low": interval.low if interval.low is not None else math.nan,
        "high": interval.high if interval.high is not None else math.nan,
        "bound": claim.bound,
        "side": claim.side,
        **dict(
            zip(("holds_from", "holds_to"), claimed_range(claim, design.inference), strict=True)
        ),
        "claimed": claim.value if claim.value is not None else math.nan,
        "families": len(chosen),
        "gated": enough or len(gated) == len(found),
    }
    row["outcome"] = outcome(row) if row["gated"] else OPEN
    row["left_out"], reason = _left_out(evidence, row)
    return row | {"sentence": sentence(row, claim, row["left_out"], reason)}


def _left_out(evidence: _Evidence, row: dict[str, Any]) -> tuple[int, str]:
    """Families that are no ratio, and why: the first reason that there is."""
    places = [
        [(row["context"], family, mode) for mode in (row["mode"], row["against"])]
        for family in evidence.design.families_of(row["mode"])
    ]
    if row["quantity"] == "acceptance":
        barren = [evidence.accepts_nothing(*own[:2], own[2], other[2]) for own, other in places]
        return sum(barren), "where nothing was accepted"
    if row["quantity"] in _TIMED:
        apart = [evidence.apart(row["quantity"], *pair) for pair in places]
        return sum(apart), "measured on two machines"
    return 0, ""


def claimed_range(claim: Claim, inference: Inference) -> tuple[float, float]:
    """Where the claim puts the ratio; `equal` is as near its bound as the verdict SAME is to 1."""
    return {
        "above": (claim.bound, math.inf),
        "below": (0.0, claim.bound),
        "equal": (claim.bound * inference.same_low, claim.bound * inference.same_high),
    }[claim.side]


def outcome(row: dict[str, Any]) -> str:
    """HELD, NOT_HELD or OPEN, from the interval and the range that the claim holds in."""
    return placed(row["low"], row["high"], (row["holds_from"], row["holds_to"]))


def placed(low: float, high: float, band: tuple[float, float]) -> str:
    """HELD if the interval lies in the band, NOT_HELD if outside of it, OPEN otherwise.

    An end on the band's edge is on neither side; no interval, which is NaN, leaves it open.
    """
    if band[0] < low and high < band[1]:
        return HELD
    return NOT_HELD if high < band[0] or low > band[1] else OPEN


def sentence(row: dict[str, Any], claim: Claim, left_out: int = 0, reason: str = "") -> str:
    """The claim, the word, and the figures that it follows from.

    `left_out` families are no ratio, for that `reason`.
    """
    said = f"{claim.statement[0].upper()}{claim.statement[1:]} ({claim.source})"
    place = f"at context {row['context']}"
    if not row["families"]:
        why = f"all families are left out, {reason}" if left_out else "nothing was measured"
        return f"{said}: {OPEN}, {place}: {why}"
    count = f"{row['families']} {'family' if row['families'] == 1 else 'families'}"
    count += f" ({left_out} more left out, {reason})" if left_out else ""
    if math.isnan(row["low"]):
        figures = f"{row['value']:.2f}, no interval"
    else:
        figures = f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
    loose = "" if row["gated"] else ", families that failed a gate included"
    return f"{said}: {row['outcome']} {place}; {row['what']} is {figures}, {count}{loose}"


def _mean(log_ratios: Iterable[float]) -> float:
    return mean(x for x in log_ratios if math.isfinite(x))


def _log(value: Any) -> float:
    return math.log(value) if value is not None and value > 0 else math.nan
