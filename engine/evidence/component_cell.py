"""A component cell from outside: the job, the machine's lock, and the table that it leaves."""

from __future__ import annotations

import sys
import time
from typing import Any

import pandas as pd

from engine.design import Design
from engine.measure.cell import work_of
from engine.measure.child import run_child
from engine.measure.lock import machine_lock


def time_components(
    design: Design,
    context: str,
    family: str,
    baseline: str,
    models: dict[str, Any],
    prompt: dict[str, Any],
) -> pd.DataFrame:
    """Columns context, family, baseline, part, rows, seconds (list), as in components.py.

    `baseline` names the plain mode whose runtime and numerics are measured. A measurement that
    fails leaves no rows, and a sentence on standard error: what rests on it is not predicted, and
    the report renders all the same.
    """
    with machine_lock() as lock:
        job = {
            "lock_held": time.perf_counter(),
            "cell": design.component_cell(context, family, baseline),
            "most": design.components.most,
            "repeats": design.components.repeats,
        } | work_of(models, prompt)
        outcome = run_child("engine.evidence.components", job, lock, design.time_limit_s)
    if outcome.status != "ok":
        last = (outcome.error.splitlines() or [outcome.status])[-1]
        print(
            f"the component times of {context} {family} could not be measured "
            f"({outcome.status.replace('_', ' ')}: {last}); nothing is predicted from them",
            file=sys.stderr,
        )
    table = pd.DataFrame(outcome.rows, columns=["part", "rows", "seconds"])
    table.insert(0, "baseline", baseline)
    table.insert(0, "family", family)
    table.insert(0, "context", context)
    return table
