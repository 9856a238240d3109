"""What a second source says of speculative decoding, and this project: config/claims.csv.

The source is a practitioner's guide (METHODS section 2); claims of this project, which are about
other libraries beside it, say in their column `source` that they are its own. Each claim is made a
ratio of one mode over another, so that one interval over families says whether it held. Plain data:
the workflow asks while it parses.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable
from dataclasses import dataclass

from engine.composition import ROOT
from engine.modes import Mode

FILE = ROOT / "config" / "claims.csv"


@dataclass(frozen=True)
class Claim:
    """`quantity` is a ratio that analysis/claims.py knows, claimed to lie `side` (above, below or
    equal) of `bound`; `value` is the source's own number on that scale, if it gave one.
    """

    name: str
    quantity: str
    side: str
    bound: float
    value: float | None
    statement: str
    source: str

    @property
    def needs_phases(self) -> bool:
        """Whether it is about parts of a round, which only instrumented runs time."""
        return self.quantity in ("formula", "verification")

    @property
    def of_plain_modes(self) -> bool:
        """Whether it may be about plain decoding: no baseline takes part in the ratio."""
        return self.quantity == "token_time"

    @property
    def needs_drafts(self) -> bool:
        """Whether plain decoding has no such quantity."""
        return self.quantity == "acceptance"


def _peer(runtime: str, ours: str, drafted: bool) -> Callable[[Mode, Mode], bool]:
    """Both sides plain, or both drafting, the first by another library, the second by ours."""
    return lambda mode, against: (
        (mode.runtime, against.runtime) == (runtime, ours)
        and mode.speculative == against.speculative == drafted
    )


def _windowed(mode: Mode, against: Mode) -> bool:
    return mode.draft_window is not None and against.draft_window is None


def _warmer(mode: Mode, against: Mode) -> bool:
    if mode.sampling is None or against.sampling is None:
        return False
    return mode.sampling.temperature > against.sampling.temperature


# What the two modes of a claim must be, else its sentence would be about something else.
_ABOUT: dict[str, tuple[Callable[[Mode, Mode], bool], str]] = {
    "longer_blocks": (lambda m, a: m.k > a.k > 0, "a mode of larger k against one of smaller k"),
    "adaptive": (lambda m, _: m.policy == "adaptive", "a mode with policy: adaptive"),
    "first_plain": (lambda m, _: m.policy == "first_plain", "a mode with policy: first_plain"),
    "window": (_windowed, "a mode with draft_window against one without"),
    "window_acceptance": (_windowed, "a mode with draft_window against one without"),
    "kept_cache": (
        lambda m, a: (m.target_cache, a.target_cache) == ("kept", "recomputed"),
        "a mode against one with target_cache: recomputed",
    ),
    "temperature": (_warmer, "two sampling modes, the one of higher temperature first"),
    "unequal_temperature": (
        lambda m, a: m.draft_sampling is not None and a.draft_sampling is None,
        "a mode with draft_sampling against one without",
    ),
    "peer_plain": (_peer("hf", "eager", False), "a plain mode of runtime hf against an eager one"),
    "peer_assisted": (
        _peer("hf", "eager", True),
        "a mode with a drafter of runtime hf against an eager one",
    ),
    "peer_static_graph": (
        _peer("hf_static", "graph", False),
        "a plain mode of runtime hf_static against a graph one",
    ),
    "peer_assisted_graph": (
        _peer("hf", "graph", True),
        "a mode with a drafter of runtime hf against a graph one",
    ),
}


def misused(claim: str, mode: Mode, against: Mode) -> str:
    """What the claim asks for, if these two modes are something else; '' if they fit."""
    fits, wanted = _ABOUT.get(claim, (lambda *_: True, ""))
    return "" if fits(mode, against) else wanted


@functools.cache
def claims() -> dict[str, Claim]:
    """All claims by name."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return {
            row["claim"]: Claim(
                row["claim"],
                row["quantity"],
                row["side"],
                float(row["bound"]),
                float(row["value"]) if row["value"] else None,
                row["statement"],
                row["source"],
            )
            for row in csv.DictReader(file)
        }
