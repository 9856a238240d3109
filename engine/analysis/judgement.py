"""From an interval to one word, and how many families a firm word would take."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from engine.limits import Inference

FASTER, SLOWER, SAME = "FASTER", "SLOWER", "SAME"
INCONCLUSIVE, NOT_JUDGED = "INCONCLUSIVE", "NOT JUDGED"
FIRM = (FASTER, SLOWER, SAME)


def judge(low: np.ndarray, high: np.ndarray, inference: Inference) -> np.ndarray:
    """The word for each interval [low, high] of R (ratio scale); NaN bounds are NOT JUDGED.

    FASTER and SLOWER need an interval wholly beyond their limit, SAME one within its range.
    """
    low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    return np.select(
        [
            np.isnan(low) | np.isnan(high),
            low > inference.faster_above,
            high < inference.slower_below,
            (low >= inference.same_low) & (high <= inference.same_high),
        ],
        [NOT_JUDGED, FASTER, SLOWER, SAME],
        INCONCLUSIVE,
    )


def families_needed(log_r: np.ndarray, word: str, inference: Inference) -> int | None:
    """Families that would make the word firm, were mean and spread to stay as they are.

    The least n with t(n - 1) * sd / sqrt(n) < d: half the width of a Student interval against
    the room d that the nearest firm word leaves around the mean of `log_r` [families] (to
    faster_above, to slower_below, or to the closer end of the SAME range, whichever is more).
    The word at hand is respected: never more than the families present if it is firm, and more
    than these if it is not. None with fewer than two families, which have no spread.
    """
    n = len(log_r)
    if n < 2:
        return None
    mean, spread = float(np.mean(log_r)), float(np.std(log_r, ddof=1))
    room = max(
        mean - math.log(inference.faster_above),
        math.log(inference.slower_below) - mean,
        min(mean - math.log(inference.same_low), math.log(inference.same_high) - mean),
    )
    if room <= 0:
        return None
    level = (1 + inference.level) / 2
    needed = max(inference.student_t_from, math.ceil((stats.norm.ppf(level) * spread / room) ** 2))
    while stats.t.ppf(level, needed - 1) * spread / math.sqrt(needed) >= room:
        needed += 1
    if word in FIRM:
        return min(needed, n)
    return needed if n < inference.student_t_from else max(needed, n + 1)
