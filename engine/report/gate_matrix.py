"""The gates table as the report shows it: a matrix of cells, and the clauses behind it."""

from __future__ import annotations

from typing import Any

import pandas as pd

# In the order of METHODS, each with what it asks.
QUESTIONS = {
    "complete": "Is every planned run there, in a process of its own, all with the same output?",
    "steady": "Was the machine warmed up: nothing compiled or allocated, no drift in speed?",
    "precise": "Do the repeats of a run take the same time?",
    "ordered": "Did the modes run next to each other, and does their order make no difference?",
    "undisturbed": "Did nothing else slow the machine down: other programs, heat, low memory?",
    "closed": "Do two clocks agree, and do the measured parts add up to the whole?",
}


def failing(gates: pd.DataFrame) -> list[dict[str, Any]]:
    """All clauses that were applicable and did not pass, in the table's order."""
    return gates[_failed(gates)].to_dict("records")


def counts(gates: pd.DataFrame) -> list[dict[str, Any]]:
    """Per gate: its question, in how many cells it failed, and how many it judged."""
    states = _states(gates)
    table = []
    for gate in _gates(gates):
        judged = [state for (*_, name), state in states.items() if name == gate and state != "n/a"]
        table.append(
            {
                "gate": gate,
                "question": QUESTIONS.get(gate, ""),
                "failed": judged.count("fail"),
                "judged": len(judged),
            }
        )
    return table


def matrices(
    gates: pd.DataFrame, contexts: list[str], families: list[str], modes: list[str]
) -> list[dict[str, Any]]:
    """Per context: a row a family, and per mode one state a gate ('pass', 'fail', 'n/a', '')."""
    states, names = _states(gates), _gates(gates)
    return [
        {
            "context": context,
            "gates": names,
            "modes": modes,
            "rows": [
                {
                    "family": family,
                    "states": [
                        [states.get((context, family, mode, gate), "") for gate in names]
                        for mode in modes
                    ],
                }
                for family in families
            ],
        }
        for context in contexts
    ]


def clauses(gates: pd.DataFrame, contexts: list[str], modes: list[str]) -> list[dict[str, Any]]:
    """The whole table, a group per (context, mode)."""
    groups = dict(list(gates.groupby(["context", "mode"])))
    return [
        {
            "context": context,
            "mode": mode,
            "failed": int(_failed(groups[context, mode]).sum()),
            "rows": groups[context, mode].to_dict("records"),
        }
        for context in contexts
        for mode in modes
        if (context, mode) in groups
    ]


def _failed(gates: pd.DataFrame) -> pd.Series:
    return gates["applicable"].astype(bool) & ~gates["passed"].astype(bool)


def _gates(gates: pd.DataFrame) -> list[str]:
    found = list(dict.fromkeys(gates["gate"]))
    return [gate for gate in QUESTIONS if gate in found] + [g for g in found if g not in QUESTIONS]


def _states(gates: pd.DataFrame) -> dict[tuple[str, str, str, str], str]:
    marked = gates.assign(failed=_failed(gates), judged=gates["applicable"].astype(bool))
    table = marked.groupby(["context", "family", "mode", "gate"])[["failed", "judged"]].any()
    return {
        key: "fail" if failed else "pass" if judged else "n/a"
        for key, failed, judged in zip(table.index, table["failed"], table["judged"], strict=True)
    }
