"""Gate `undisturbed`: neither the device nor anybody else slowed the runs that count."""

from __future__ import annotations

import pandas as pd

from engine.analysis.gates.clause import (
    Clause,
    at_least,
    at_most,
    none_of,
    not_applicable,
    percent,
)
from engine.analysis.gates.study import Arms


def clock(arms: Arms) -> Clause:
    """The SM clock of every run, as a share of the cell's reference."""
    lowest = _extreme(arms, lambda runs: runs["sm_clock"] / runs["sm_clock_reference"], "min")
    if lowest is None:
        return not_applicable("this device reports no SM clock")
    share, name = lowest
    found = f"at its lowest, the SM clock was at {percent(share)} of its reference ({name})"
    return at_least(share, arms.design.gates.clock_share, found)


def throttle(arms: Arms) -> Clause:
    """No thermal, power or hardware slowdown bit."""
    reasons = [(cell.name, cell.runs["throttle_reasons"].dropna()) for cell in arms.cells]
    if not any(len(bits) for _, bits in reasons):
        return not_applicable("this device reports no slowdown bits")
    faults = [
        f"{', '.join(sorted(set(bits[bits.ne('')])))} in {name}"
        for name, bits in reasons
        if bits.ne("").any()
    ]
    return none_of(faults, "no slowdown bit was set", "the device slowed itself down")


def foreign_processes(arms: Arms) -> Clause:
    """No compute process of anybody else on the device."""
    most = _extreme(arms, lambda runs: runs["foreign_processes"], "max")
    if most is None:
        return not_applicable("this device reports no compute processes")
    count, name = most
    faults = [f"{count:g} in {name}"] if count else []
    return none_of(faults, "no foreign process computed", "foreign processes on the device")


def memory_headroom(arms: Arms) -> Clause:
    """Memory left at the run, as a share of all: a full device evicts or swaps."""
    least = _extreme(arms, lambda runs: runs["memory_available"] / runs["memory_total"], "min")
    if least is None:
        return not_applicable("this device reports no memory")
    share, name = least
    found = f"at the least, {percent(share)} of the memory was free ({name})"
    return at_least(share, arms.design.gates.memory_headroom, found)


def stalls(arms: Arms) -> Clause:
    """The share of a run spent in stalls; runs that were repeated for it do not count."""
    most = _extreme(arms, lambda runs: runs["stalled_share"], "max")
    if most is None:
        return not_applicable("the rows hold no share of stalls")
    share, name = most
    found = f"stalls took up to {percent(share)} of a run ({name})"
    return at_most(share, arms.design.gates.stalled_share, found)


def _extreme(arms: Arms, figure_of, which: str) -> tuple[float, str] | None:
    """The least or the greatest figure over the runs of both arms, and its cell."""
    found = []
    for cell in arms.cells:
        figures: pd.Series = figure_of(cell.runs).dropna()
        if len(figures):
            found.append((float(figures.agg(which)), cell.name))
    if not found:
        return None
    return min(found) if which == "min" else max(found)
