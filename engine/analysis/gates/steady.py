"""Gate `steady`: nothing was built inside a timed region, and the block did not drift."""

from __future__ import annotations

import numpy as np

from engine.analysis.gates.clause import Clause, at_most, none_of, not_applicable, percent
from engine.analysis.gates.study import Arms


def compiles(arms: Arms) -> Clause:
    """No compilation inside a timed region."""
    return _nothing(arms, "timed_compiles", "compilations")


def captures(arms: Arms) -> Clause:
    """No graph capture inside a timed region."""
    return _nothing(arms, "timed_captures", "graph captures")


def allocator_growth(arms: Arms) -> Clause:
    """No growth of the device allocator inside a timed region."""
    return _nothing(arms, "timed_allocator_growth", "bytes of allocator growth")


def drift(arms: Arms) -> Clause:
    """First-half against second-half rounds of each block, as `block_drift` defines it."""
    found = [(block_drift(c.round_s), c.name) for c in arms.cells if min(c.round_s.shape) > 1]
    if not found:
        return not_applicable("drift needs two runs of two rounds in a block")
    worst, name = max(found)
    return at_most(
        worst, arms.design.gates.drift, f"halves of a block drift by {percent(worst)} ({name})"
    )


def block_drift(round_s: np.ndarray) -> float:
    """How far the halves of a block have drifted apart, from `round_s` [runs, rounds] in seconds.

    Each round is compared with its own median over runs, since rounds are not alike. A run's
    half is the median over its rounds of the log of that ratio, a run's drift the difference of
    its halves, and the block's drift the median over runs of its size.

    Medians over rounds, not sums, because a stall belongs to `undisturbed`: at two runs, with a
    stall in every fourth run, drift by sums fails four fair blocks in ten against 3%, this one
    no more than without stalls. The median over runs, not the worst run, because that is what
    has entered the block's time, which is made of medians over runs as well: of three runs, one
    that changes pace leaves both untouched, and of two runs, it moves both by half. A course
    that all runs share is not drift but the rounds' own (the cache grows), and a run that is
    slow from end to end is for `precise`.
    """
    ratios = np.log(round_s / np.median(round_s, axis=0))
    half = round_s.shape[1] // 2
    first, second = np.median(ratios[:, :half], axis=1), np.median(ratios[:, half:], axis=1)
    return float(np.median(np.abs(second - first)))


def _nothing(arms: Arms, column: str, what: str) -> Clause:
    counts = [(cell.name, cell.runs[column].dropna()) for cell in arms.cells]
    if not any(len(count) for _, count in counts):
        return not_applicable(f"{what} are not counted on this device")
    faults = [f"{abs(n).max():g} in {name}" for name, n in counts if n.ne(0).any()]
    return none_of(faults, f"no {what} while timing", f"{what} while timing")
