"""The cost to blame: the one ideal that would raise R most (METHODS section 6)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from engine.analysis.break_even import acceptance_needed, draft_cost_allowed
from engine.analysis.waterfall import over_families
from engine.design import Design

IDEALS = {
    "acceptance": "every proposal accepted",
    "verification": "a verification as cheap as one plain step",
    "repair": "no repair forwards",
    "drafting": "a free draft",
    "control": "no control time between the forwards",
}


def family_gains(phases: pd.DataFrame) -> pd.DataFrame:
    """log gain in R of each (context, family, mode) under each ideal, all else as measured."""
    keys = ["context", "family", "mode"]
    if phases.empty:
        return pd.DataFrame(columns=[*keys, *IDEALS])
    ver, rep, draft, control = (
        phases[f"{n}_s"].astype(float) for n in ("verify", "repair", "draft", "control")
    )
    whole = ver + rep + draft + control
    step = phases["step_s"].astype(float)
    gains = phases[keys].assign(
        acceptance=np.log((phases["most"] / phases["committed"]).astype(float)),
        verification=np.log(whole / (whole - ver + np.minimum(ver, step))),
        repair=np.log(whole / (whole - rep)),
        drafting=np.log(whole / (whole - draft)),
        control=np.log(whole / (whole - control)),
    )
    return gains.groupby(keys, as_index=False, sort=False).mean()


def causes(phases: pd.DataFrame, design: Design) -> dict[tuple[str, str], dict[str, Any]]:
    """For each (context, mode): what to blame, and by how much R would rise without it.

    `named` lists the ideals that would raise R most: the best one, and all whose intervals overlap
    with its own (where there is an interval). `ideals` holds for each the factor on R with its
    interval. `break_even` holds the round's cost in plain steps and what would give R = 1.
    `phases` are those of the families that speak (a mode without any is left out).
    """
    gains = family_gains(phases)
    table = over_families(gains, IDEALS, ["context", "mode"], design)
    found = {}
    for key, group in table.groupby(["context", "mode"], sort=False):
        ideals = group.set_index("term")
        best = ideals["mean"].idxmax()
        floor = ideals.loc[best, "low"]
        named = [
            term
            for term in ideals.sort_values("mean", ascending=False).index
            if term == best or (ideals.loc[term, "high"] >= floor)
        ]
        here = phases[(phases["context"] == key[0]) & (phases["mode"] == key[1])]
        found[key] = {
            "named": named if ideals.loc[best, "mean"] > 0 else [],
            "families": int(group["families"].max()),
            "gated": bool(here["gated"].all()),
            "ideals": {
                term: {
                    "factor": math.exp(row["mean"]),
                    "low": math.exp(row["low"]),
                    "high": math.exp(row["high"]),
                }
                for term, row in ideals.iterrows()
            },
            "break_even": _break_even(here, design.modes[key[1]]),
        }
    return found


def _break_even(phases: pd.DataFrame, mode) -> dict[str, Any]:
    median = phases[
        ["step_s", "verify_s", "repair_s", "draft_s", "control_s", "committed"]
    ].astype(float).median()  # fmt: skip
    other = (median["verify_s"] + median["repair_s"] + median["control_s"]) / median["step_s"]
    draft = median["draft_s"] / median["step_s"]
    return {
        "round_cost_steps": other + draft,
        "draft_cost_steps": draft,
        "committed": median["committed"],
        "acceptance_needed": acceptance_needed(other + draft, mode.k, mode.bonus),
        "draft_cost_allowed": draft_cost_allowed(other, median["committed"]),
    }
