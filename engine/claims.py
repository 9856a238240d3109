"""What a second source says of speculative decoding, and this project: config/claims.csv.

The source is a practitioner's guide (METHODS section 2); claims of this project, which are about
other libraries beside it, say in their column `source` that they are its own. Each claim is made a
ratio of one mode over another, so that one interval over families says whether it held. Plain data:
the workflow asks while it parses.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass

from engine.composition import ROOT

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
