"""Gate `closed`: clocks, phases and instrumentation agree, and no figure beats physics."""

from __future__ import annotations

import numpy as np

from engine.analysis.gates.clause import Clause, at_most, not_applicable, percent
from engine.analysis.gates.study import Arms, MeasuredCell

_PHASES = ["draft_s", "verify_s", "repair_s", "control_s"]
# METHODS section 5: a step that moves less may live in the cache and beat the memory.
_CACHES = 8


def events(arms: Arms) -> Clause:
    """Device events against the host's clock, |event / host - 1|; the worst run counts."""
    found = []
    for cell in arms.cells:
        gaps = (cell.runs["decode_event_s"] / cell.runs["decode_s"] - 1).abs().dropna()
        if len(gaps):
            found.append((float(gaps.max()), cell.name))
    if not found:
        return not_applicable("this device has no event clock")
    worst, name = max(found)
    text = f"device events and host clock differ by {percent(worst)} ({name})"
    return at_most(worst, arms.design.gates.event_agreement, text)


def phases(arms: Arms) -> Clause:
    """Drafting, verification, repair and control against the whole of their instrumented run."""
    found = []
    for cell in arms.cells:
        split = cell.instrumented[cell.instrumented[_PHASES].notna().any(axis=1)]
        if len(split):
            gaps = (split[_PHASES].sum(axis=1) / split["decode_s"] - 1).abs()
            found.append((float(gaps.max()), cell.name))
    if not found:
        return not_applicable("no run was timed phase by phase")
    worst, name = max(found)
    text = f"the phases miss the whole run by {percent(worst)} ({name})"
    return at_most(worst, arms.design.gates.phase_closure, text)


def instrumentation(arms: Arms) -> Clause:
    """What timing the phases costs: see `instrumented_over_plain`; the worse arm counts."""
    found = []
    for mode in dict.fromkeys(cell.plan.mode for cell in arms.cells):
        cells = [cell for cell in arms.of(mode) if len(cell.instrumented)]
        if cells:
            found.append((abs(instrumented_over_plain(cells)), mode))
    if not found:
        return not_applicable("the design plans no instrumented run")
    worst, name = max(found)
    text = f"instrumented and plain runs differ by {percent(worst)} ({name})"
    return at_most(worst, arms.design.gates.instrumentation, text)


def instrumented_over_plain(cells: list[MeasuredCell]) -> float:
    """Instrumented round over the median of its plain runs, minus one.

    The median over the rounds of all instrumented runs of a mode's replicates together. Rounds,
    since a stall hits a few of them; a median, since rounds are many; all replicates at once,
    since a cell has one instrumented run as a rule, and how fast one run happens to be on the
    whole varies by about the limit on a shared CPU: two of them outvote half of that.
    """
    ratios = [
        np.asarray(round_s, dtype=float) / cell.median_round_s
        for cell in cells
        for round_s in cell.instrumented["round_s"]
    ]
    return float(np.median(np.concatenate(ratios))) - 1


def bandwidth(arms: Arms) -> Clause:
    """Bytes per second of the baseline's step against the measured peak, without tolerance.

    The least bytes of a step, times the steps, over the block's time. Steps are the target's
    calls and not the tokens, since the first token comes with the prefill.
    """
    found = []
    for cell in arms.of(arms.baseline):
        one = cell.runs.iloc[0]
        if one["step_bytes"] > _CACHES * one["last_level_cache"]:
            rate = one["step_bytes"] * one["target_calls"] / arms.study.block_s(cell)
            found.append((rate / one["peak_read_bw"], cell.name))
    if not found:
        return not_applicable("a step may live in the last-level cache")
    if any(np.isnan(share) for share, _ in found):
        return Clause(True, False, np.nan, 1.0, "the cell did not measure the peak bandwidth")
    worst, name = max(found)
    return at_most(worst, 1.0, f"steps read at {percent(worst)} of the measured peak ({name})")
