"""The two tables that explain a study: terms of each mode, and steps from phase to phase."""

from __future__ import annotations

import pandas as pd

from engine.analysis.blocks import block_times
from engine.analysis.phases import phase_table, speaking
from engine.analysis.waterfall import TERMS, family_steps, family_terms, over_families
from engine.design import Design


def explain(
    rows: pd.DataFrame, ratios: pd.DataFrame, design: Design
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(terms, steps), both over families: see `over_families` for their columns.

    Terms are of each (context, mode), with `gated` as in `speaking`; steps of each (context,
    before, after), their term being log_step, and `apart` the number of families whose two phases
    were measured on two machines.
    """
    phases = speaking(phase_table(rows, design), ratios, design)
    gated = phases.groupby(["context", "mode"])["gated"].all()
    terms = over_families(family_terms(phases), [*TERMS, "log_r"], ["context", "mode"], design)
    terms["gated"] = [bool(gated[key]) for key in zip(terms["context"], terms["mode"], strict=True)]
    of_families = family_steps(block_times(rows), design)
    places = ["context", "before", "after"]
    steps = over_families(of_families, ["log_step"], places, design)
    steps["apart"] = of_families.groupby(places, sort=False)["apart"].sum().to_numpy(dtype=int)
    return terms, steps
