"""The agreement that a synthetic pair is given, so that a designed acceptance comes out of it."""

from __future__ import annotations


def agreement_of(acceptance: float, k: int, spread: float, families: int) -> tuple[float, ...]:
    """Agreement of each family, whose acceptances lie evenly within `spread` of the given one.

    By turns below and above, so that the first few families have about the mean of all.
    """
    step = 2 * spread / max(families - 1, 1)
    evenly = [-spread + step * i for i in range(families)] if families > 1 else [0.0]
    turns = [evenly[-(i // 2) - 1 if i % 2 else i // 2] for i in range(families)]
    return tuple(agreement_for(acceptance + offset, k) for offset in turns)


def agreement_for(acceptance: float, k: int) -> float:
    """Agreement p that gives the acceptance: (p + p^2 + .. + p^k) / k, by bisection.

    Raises ValueError unless the acceptance lies strictly between 0 and 1.
    """
    if not 0 < acceptance < 1:
        raise ValueError(f"an acceptance of {acceptance} is not between 0 and 1")
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        p = (low + high) / 2
        low, high = (p, high) if sum(p**i for i in range(1, k + 1)) < k * acceptance else (low, p)
    return low
