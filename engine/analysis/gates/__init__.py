"""The six timing gates (METHODS section 5): every clause of every gate is a row of a table."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd

from engine.analysis.gates import (
    closed,
    complete,
    ordered,
    precise,
    provenance,
    steady,
    undisturbed,
)
from engine.analysis.gates.clause import not_applicable
from engine.analysis.gates.study import Arms, Study
from engine.design import Design

# A clause is named as its function, which takes the arms and returns a Clause.
GATES = {
    "complete": (
        complete.status,
        complete.runs,
        complete.token_count,
        complete.one_output,
        complete.one_trace,
        provenance.own_process,
        provenance.current,
        provenance.alike,
    ),
    "steady": (steady.compiles, steady.captures, steady.allocator_growth, steady.drift),
    "precise": (precise.dispersion,),
    "ordered": (
        ordered.planned_order,
        ordered.adjacent,
        ordered.undivided,
        ordered.order_effect,
    ),
    "undisturbed": (
        undisturbed.clock,
        undisturbed.throttle,
        undisturbed.foreign_processes,
        undisturbed.memory_headroom,
        undisturbed.stalls,
    ),
    "closed": (closed.events, closed.phases, closed.instrumentation, closed.bandwidth),
}
_PAIR = ["context", "family", "mode", "baseline"]


def judge(rows: pd.DataFrame, design: Design, config_argument: str | None = "") -> pd.DataFrame:
    """One row a (context, family, mode) of the design and clause, in the design's order.

    `rows` are all timing rows of the design (collect.py); rows of other cells are not looked at.
    A mode is judged with its baseline, and the worse arm's figure counts; a baseline is judged
    alone. Columns: context, family, mode, baseline, gate, clause, applicable, passed, figure,
    limit (shares, counts; NaN where there is none) and text. A clause that is not applicable has
    `passed` true; where a cell has no complete runs, only `complete` speaks, and where the device
    or the pair cannot run a mode or its baseline, none does. `config_argument` is what a user must
    add to `snakemake --cores 1` for this design (`--configfile FILE`); None for rows that cannot be
    measured again where they are judged.
    """
    study = Study(rows, design, config_argument)
    verdicts = []
    for context, family, mode in design.planned():
        verdicts += _judge_arms(Arms(study, context, family, mode))
    return pd.DataFrame(verdicts)


def summary(gates: pd.DataFrame) -> pd.DataFrame:
    """One row a (context, family, mode): `passed`, and the list `failed` of gates it failed.

    Those that no clause applies to are not in it.
    """
    table = []
    for pair, clauses in gates.groupby(_PAIR, sort=False):
        if not clauses["applicable"].any():
            continue
        failed = clauses[clauses["applicable"] & ~clauses["passed"]]
        gates_failed = list(dict.fromkeys(failed["gate"]))
        table.append(
            dict(zip(_PAIR, pair, strict=True))
            | {"passed": not gates_failed, "failed": gates_failed}
        )
    return pd.DataFrame(table, columns=[*_PAIR, "passed", "failed"])


def _judge_arms(arms: Arms) -> list[dict]:
    identity = {name: getattr(arms, name) for name in _PAIR}
    verdicts = []
    beyond = next(filter(None, map(arms.design.not_applicable, (arms.baseline, arms.mode))), "")
    for gate, clauses in GATES.items():
        for clause in clauses:
            if beyond:
                verdict = not_applicable(beyond)
            elif arms.obstacle and gate != "complete":
                verdict = not_applicable(arms.obstacle)
            else:
                verdict = clause(arms)
            name = {"gate": gate, "clause": clause.__name__}
            verdicts.append(identity | name | asdict(verdict))
    return verdicts
