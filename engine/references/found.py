"""Tables beside a study's rows, held against them: a part measured again makes them stale."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from engine.analysis.blocks import measured_runs
from engine.design import Design
from engine.references.record import ReferenceFault


def refuse_other_text(trace: pd.DataFrame | None, rows: pd.DataFrame, design: Design) -> None:
    """ReferenceFault if the trace is of a text that no baseline that decodes greedily wrote."""
    if trace is None:
        return
    greedy = [name for name in design.baselines if design.modes[name].sampling is None]
    plain = measured_runs(rows[rows["mode"].isin(greedy)])
    written: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    for run in plain[["context", "family", "tokens"]].itertuples(index=False):
        written.setdefault((run.context, run.family), set()).add(tuple(map(int, run.tokens)))
    for place, text in trace.sort_values("position").groupby(["context", "family"])["token"]:
        there = written.get(place)
        if there and tuple(map(int, text)) not in there:
            raise _stale("trace", f"is of another text at {place[0]} {place[1]}")


def refuse_other_rows(compared: pd.DataFrame | None, verdict: dict[str, Any]) -> None:
    """ReferenceFault if predictions stand beside an R that these rows do not have."""
    if compared is None:
        return
    entries = {(str(e["context"]), e["mode"]): e for e in verdict["verdicts"]}
    for row in compared.to_dict("records"):
        entry = entries.get((str(row["context"]), row["mode"]))
        here = entry and (entry["r"] if row["gated"] else entry["r_all"])
        if not here or not math.isclose(here, row["measured"], rel_tol=1e-9):
            raise _stale("compared", f"has another R of {row['mode']} at {row['context']}")


def refuse_other_outcomes(table: pd.DataFrame, seen: pd.DataFrame) -> None:
    """ReferenceFault if the table says of tokens what the rows alone, `seen`, contradict."""
    both = table.merge(
        seen[seen["exact"]], on=["context", "family", "mode"], suffixes=("", "_seen")
    )
    differ = both["outcome_seen"].eq("failed")
    # A difference can be certified, but not be there.
    wrong = both[
        (both["outcome"].eq("equal") & differ)
        | (both["outcome"].isin(["failed", "near_tie"]) & both["outcome_seen"].eq("equal"))
    ]
    if len(wrong):
        at = wrong.iloc[0]
        rows = "differ" if at["outcome_seen"] == "failed" else "are equal"
        raise _stale(
            "tokens",
            f"calls {at['mode']} {at['outcome'].replace('_', ' ')} at {at['context']} "
            f"{at['family']}, and the timing rows {rows}",
        )


def _stale(name: str, how: str) -> ReferenceFault:
    return ReferenceFault(
        f"{name}.parquet {how}: it was made of other rows, or by another version; run the workflow "
        f"to its end there, or remove {name}.parquet"
    )
