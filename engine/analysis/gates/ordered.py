"""Gate `ordered`: what ran beside what, by the clock of the machine and not by the plan."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import lru_cache

import numpy as np

from engine.analysis.gates.clause import Clause, at_most, none_of, not_applicable, percent
from engine.analysis.gates.study import Arms, MeasuredCell, Study

# Between two jobs lie the end of one process and the start of the next, a few seconds. After a
# longer pause somebody came back to a block, or another workflow has held the machine meanwhile.
PAUSE_S = 30.0


def planned_order(arms: Arms) -> Clause:
    """The block's modes ran baseline first in even replicates and in reverse in odd ones."""
    together, faults, again = sittings(arms.study), [], []
    for cell in arms.cells:
        ran = [c.plan.mode for c in together[cell]]
        planned = [m for m in arms.design.modes_in_order(cell.plan.replicate) if m in ran]
        if ran != planned:
            faults.append(f"r{cell.plan.replicate} ran {', '.join(ran)} for {', '.join(planned)}")
            again.append(cell)
    fine = "the block's modes ran in the planned order"
    remedy = arms.study.remeasure(again)
    return none_of(list(dict.fromkeys(faults)), fine, "not the planned order", remedy)


def adjacent(arms: Arms) -> Clause:
    """Mode and baseline of a block ran in one sitting: nothing else of the study in between."""
    if arms.alone:
        return not_applicable("a baseline is judged beside the modes that name it")
    together, faults, again = sittings(arms.study), [], []
    for baseline, mode in zip(arms.of(arms.baseline), arms.of(arms.mode), strict=True):
        if mode not in together[baseline]:
            apart = _what_lies_between(arms.study, baseline, mode)
            faults.append(f"{mode.name} and {baseline.name} ran apart ({apart})")
            again.append(mode)
    fine, remedy = "mode and baseline ran in one sitting", arms.study.remeasure(again)
    return none_of(faults, fine, "partial block", remedy)


def undivided(arms: Arms) -> Clause:
    """No other job of the design ran at the same time as a cell of the pair."""
    rivals, faults, again = overlaps(arms.study), [], []
    for cell in arms.cells:
        if rivals[cell]:
            others = ", ".join(f"{c.plan.block} {c.plan.mode}" for c in rivals[cell])
            faults.append(f"{cell.name} shared the machine with {others}")
            again += [cell, *rivals[cell]]
    fine, remedy = "no other job of the design overlapped", arms.study.remeasure(again)
    return none_of(faults, fine, "overlapping jobs", remedy)


def order_effect(arms: Arms) -> Clause:
    """|log R_AB - log R_BA|, each order's R the geometric mean over its replicates."""
    if arms.alone:
        return not_applicable("a baseline has no ratio")
    log_r = [
        math.log(arms.study.block_s(baseline) / arms.study.block_s(mode))
        for baseline, mode in zip(arms.of(arms.baseline), arms.of(arms.mode), strict=True)
    ]
    if len(log_r) < 2:
        return not_applicable("one replicate has one order only")
    forward, backward = np.mean(log_r[::2]), np.mean(log_r[1::2])
    effect = float(abs(forward - backward))
    clause = at_most(
        effect,
        arms.design.gates.order_asymmetry,
        f"R is {math.exp(forward):.3f} with the baseline first and {math.exp(backward):.3f} with "
        f"it last: they differ by {percent(effect)}",
    )
    return clause if clause.passed else clause.adding(arms.study.remeasure(arms.cells))


@lru_cache(maxsize=1)
def sittings(study: Study) -> dict[MeasuredCell, list[MeasuredCell]]:
    """For each cell with rows, the cells of its block that ran in one go with it, as they ran.

    A sitting ends where a cell of another block starts, with the machine's boot, with the GPU, and
    at a pause. It survives that a mode of the block was measured again elsewhere: the hole may be
    as long as that mode could have run.
    """
    together: dict[MeasuredCell, list[MeasuredCell]] = {}
    before = None
    for cell in study.timeline:
        if before is not None and _continues(study, before, cell):
            together[before].append(cell)
            together[cell] = together[before]
        else:
            together[cell] = [cell]
        before = cell
    return together


@lru_cache(maxsize=1)
def overlaps(study: Study) -> dict[MeasuredCell, list[MeasuredCell]]:
    """For each cell with rows, the other cells of the design that ran at the same time."""
    found: dict[MeasuredCell, list[MeasuredCell]] = defaultdict(list)
    running: list[MeasuredCell] = []
    for cell in study.timeline:
        running = [c for c in running if c.station == cell.station and c.end > cell.start]
        for other in running:
            found[cell].append(other)
            found[other].append(cell)
        running.append(cell)
    return found


def _continues(study: Study, before: MeasuredCell, cell: MeasuredCell) -> bool:
    if before.station != cell.station or before.plan.block != cell.plan.block:
        return False
    order = study.design.modes_in_order(cell.plan.replicate)
    missing = max(0, order.index(cell.plan.mode) - order.index(before.plan.mode) - 1)
    allowed = PAUSE_S + missing * (PAUSE_S + study.design.time_limit_s)
    return cell.start - before.end <= allowed


def _what_lies_between(study: Study, one: MeasuredCell, other: MeasuredCell) -> str:
    if one.station[0] != other.station[0]:
        return "the machine was booted in between"
    if one.station != other.station:
        return "on another GPU"
    first, last = sorted((one, other), key=lambda cell: cell.start)
    between = study.timeline[study.timeline.index(first) + 1 : study.timeline.index(last)]
    foreign = [cell for cell in between if cell.plan.block != one.plan.block]
    if foreign:
        others = dict.fromkeys(cell.plan.block for cell in foreign)
        return f"cells of {', '.join(list(others)[:3])} ran in between"
    return f"{last.start - first.end:.0f} s passed in between"
