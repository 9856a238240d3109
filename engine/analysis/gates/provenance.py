"""Gate `complete`, second part: one engine, one machine, one prompt, and no row of yesterday's."""

from __future__ import annotations

from collections import defaultdict

import pandas as pd

from engine.analysis.gates.clause import Clause
from engine.analysis.gates.complete import ended_well, held
from engine.analysis.gates.study import Arms

_ALIKE = (
    "engine_sha256", "torch", "driver", "device_name", "device_uuid", "host_hash", "cpu_threads",
    "dtype", "target_sha256", "prompt_sha256",
)  # fmt: skip


def own_process(arms: Arms) -> Clause:
    """Each cell was measured by one process, and no other cell of the study by the same one."""
    faults, again = [], []
    for cell in ended_well(arms):
        shared = [arms.study.owners[process] for process in cell.processes]
        if len(shared) > 1:
            faults.append(f"{cell.name} has runs of {len(shared)} processes")
        elif len(shared[0]) > 1:
            faults.append(f"one process measured {', '.join(shared[0])}")
        else:
            continue
        again.append(cell)
    faults = list(dict.fromkeys(faults))
    fine = "each cell had a process of its own"
    return held(arms, faults, fine, "cells without a process of their own", again)


def current(arms: Arms) -> Clause:
    """The rows belong to the cell as the design and the code of its mode describe it now."""
    stale = [
        cell
        for cell in ended_well(arms)
        if set(cell.rows["cell_sha256"]) != {arms.design.cell_sha256(cell.plan)}
    ]
    faults = [f"{cell.name} was measured under another design or other code" for cell in stale]
    return held(arms, faults, "no row is stale", "stale rows", stale)


def alike(arms: Arms) -> Clause:
    """All cells of both arms, in every replicate, have one engine, library, device and prompt."""
    cells, faults = ended_well(arms), []
    # A baseline has no draft, so that one is compared within the mode.
    compared = [(column, cells) for column in _ALIKE]
    compared.append(("draft_sha256", [cell for cell in cells if cell.plan.mode == arms.mode]))
    for column, holders in compared:
        names = defaultdict(list)
        for cell in holders:
            values = {"none" if pd.isna(v) else str(v) for v in cell.values(column)}
            for value in sorted(values):
                names[value].append(cell.name)
        if len(names) > 1:
            sides = [f"{value[:16]} in {', '.join(where)}" for value, where in names.items()]
            faults.append(f"{column} is {' but '.join(sides)}")
    fine = "engine, libraries, device and prompt are the same in all cells"
    return held(arms, faults, fine, "the cells were not measured alike", cells)
