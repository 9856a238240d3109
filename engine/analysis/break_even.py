"""What it would take for R = 1: METHODS section 6.

Costs are in plain steps: a round that costs c must commit c tokens. Acceptance p is the chance
that a judged token passes, the same at every position.
"""

from __future__ import annotations

from scipy.optimize import brentq


def committed(p: float, k: int, bonus: bool) -> float:
    """Expected tokens of a round: 1 + p + ... + p^k with a bonus token, to p^(k-1) without."""
    return sum(p**j for j in range(k + bonus))


def acceptance_needed(cost: float, k: int, bonus: bool) -> float | None:
    """The p at which a round of `cost` steps pays for itself.

    0 if it pays with nothing accepted; None if none suffices, since a round cannot commit `cost`.
    """
    if cost <= 1:
        return 0.0
    if cost > k + bonus:
        return None
    return float(brentq(lambda p: committed(p, k, bonus) - cost, 0.0, 1.0))


def draft_cost_allowed(other_cost: float, committed: float) -> float | None:
    """The drafting cost of a round, in steps, at which it just pays; None: not even a free draft.

    `other_cost` is the rest of the round, `committed` what it commits.
    """
    allowed = committed - other_cost
    return allowed if allowed >= 0 else None
