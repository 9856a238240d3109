"""Gate `precise`: the runs of a block repeat each other."""

from __future__ import annotations

import numpy as np

from engine.analysis.gates.clause import Clause, at_most, not_applicable, percent
from engine.analysis.gates.study import Arms


def dispersion(arms: Arms) -> Clause:
    """Over the runs of each block, as `block_dispersion` defines it; the worst block counts."""
    found = [(block_dispersion(c.round_s), c) for c in arms.cells if len(c.round_s) > 1]
    if not found:
        return not_applicable("one run a block shows no dispersion")
    worst, cell = max(found, key=lambda block: block[0])
    return at_most(
        worst,
        arms.design.gates.dispersion,
        f"rounds differ between runs by {percent(worst)} ({cell.name}, {len(cell.round_s)} runs)",
    )


def block_dispersion(round_s: np.ndarray) -> float:
    """Median over rounds of 1.4826 MAD / median over runs, from `round_s` [runs, rounds].

    METHODS section 5, to the letter: no small-sample factor. 1.4826 makes a MAD estimate a
    standard deviation in large samples; of few runs this figure reads less of it (the median of
    a simulation with normal noise: 0.71 at two runs, where the MAD is half the difference, 0.54
    at three, 0.75 at five). A factor would make limits comparable between designs with few and
    many runs, but they were set on this figure, and a reader must be able to recompute it.
    """
    median = np.median(round_s, axis=0)
    mad = np.median(np.abs(round_s - median), axis=0)
    return float(np.median(1.4826 * mad / median))
