"""Gate `complete`, first part: every planned run is there, and all runs of a mode did the same.

Its second part, that they were done by one and the same engine, is in provenance.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.analysis.gates.clause import Clause, listed, none_of, not_applicable
from engine.analysis.gates.study import Arms, MeasuredCell

_REMEDIES = {
    "out_of_memory": "such a cell needs more memory or a shorter context",
    "timed_out": "such a cell needs a higher time_limit_s in the config",
    "not_applicable": "leave the mode out of the config or use a device that can run it",
}


def status(arms: Arms) -> Clause:
    """Every planned cell of both arms was measured and ended well."""
    faults, remedies, again = [], [], []
    for cell in arms.cells:
        if cell.ended_well:
            continue
        if not len(cell.rows):
            faults.append(f"{cell.name} was not measured")
            again.append(cell)
            continue
        ended = cell.rows[cell.rows["status"].ne("ok")].iloc[0]
        faults.append(f"{cell.name} ended as {ended['status']} ({_last_line(ended['error'])})")
        if ended["status"] in _REMEDIES:
            remedies.append(_REMEDIES[ended["status"]])
        if ended["status"] != "not_applicable":
            again.append(cell)
    remedies.append(arms.study.remeasure(again))
    return none_of(
        faults,
        "every planned cell was measured and ended well",
        "not every planned cell has runs",
        listed(list(dict.fromkeys(filter(None, remedies)))),
    )


def runs(arms: Arms) -> Clause:
    """Every cell has the planned number of runs that count, and of instrumented ones."""
    faults, again = [], []
    for cell in ended_well(arms):
        for what, found, planned in (
            ("", len(cell.runs), arms.design.replicates[cell.plan.replicate]),
            (
                "instrumented ",
                len(cell.instrumented),
                arms.design.instrumented_runs[cell.plan.replicate],
            ),
        ):
            if found != planned:
                faults.append(f"{cell.name} has {found} {what}runs instead of {planned}")
                again.append(cell)
    return held(arms, faults, "every planned run is there", "not the planned runs", again)


def token_count(arms: Arms) -> Clause:
    """Every run committed exactly the planned number of tokens."""
    planned, faults, again = arms.design.new_tokens, [], []
    for cell in ended_well(arms):
        wrong = {n for n in cell.values("new_tokens") if n != planned}
        if wrong:
            faults.append(f"{cell.name} has runs of {', '.join(f'{n:g}' for n in sorted(wrong))}")
            again.append(cell)
    fine = f"every run committed {planned} tokens"
    return held(arms, faults, fine, f"not every run committed {planned} tokens", again)


def one_output(arms: Arms) -> Clause:
    """All runs of a mode, in every replicate, committed the same tokens."""
    return _one_a_mode(arms, "output", lambda cell: cell.values("token_sha256"))


def one_trace(arms: Arms) -> Clause:
    """All runs of a mode repeat the same rounds: else a median over runs compares unlike things."""
    clause = _one_a_mode(arms, "sequence of rounds", _traces)
    unusable = [cell for cell in ended_well(arms) if len(cell.runs) and arms.study.obstacle(cell)]
    if not clause.passed or not unusable:
        return clause
    faults = [f"{cell.name}: {arms.study.obstacle(cell)}" for cell in unusable]
    return held(arms, faults, "", "rounds without usable times", unusable)


def ended_well(arms: Arms) -> list[MeasuredCell]:
    """The cells that the further clauses look at: `status` speaks of the others."""
    return [cell for cell in arms.cells if cell.ended_well]


def held(arms: Arms, faults: list[str], fine: str, fault: str, again: list[MeasuredCell]) -> Clause:
    """A clause without faults, or its faults and the commands that measure `again`."""
    if not ended_well(arms):
        return not_applicable("not judged: the cell has no complete runs")
    return none_of(faults, fine, fault, arms.study.remeasure(again))


def _one_a_mode(arms: Arms, what: str, of_cell: Callable[[MeasuredCell], list]) -> Clause:
    faults, again = [], []
    for mode in dict.fromkeys(cell.plan.mode for cell in arms.cells):
        cells = [cell for cell in arms.of(mode) if cell.ended_well]
        found = {value for cell in cells for value in of_cell(cell)}
        if len(found) > 1:
            faults.append(f"{mode} has {len(found)}")
            again += cells
    clause = held(
        arms, faults, f"all runs of a mode have one {what}", f"more than one {what}", again
    )
    if clause.passed:
        return clause
    return clause.adding("if it stays so, the mode is not deterministic on this device")


def _traces(cell: MeasuredCell) -> list[tuple]:
    """Of each run, its number of rounds and the tokens that each of them accepted."""
    return [
        (np.size(seconds), () if accepted is None else tuple(accepted))
        for seconds, accepted in zip(cell.values("round_s"), cell.values("round_m"), strict=True)
    ]


def _last_line(error: str) -> str:
    """Of a traceback, the line that names the error."""
    return error.strip().splitlines()[-1][:200] if error.strip() else "no error text"
