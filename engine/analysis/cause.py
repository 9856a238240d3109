"""The cost to blame: the one ideal that would raise R most (METHODS section 6)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from engine.analysis.break_even import acceptance_needed, draft_cost_allowed
from engine.analysis.waterfall import over_families
from engine.design import Design
from engine.modes import Mode

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

    `named` lists the ideals that would raise R most: the best one, and all from which the same
    families do not tell it apart; `told_apart` is whether they are enough for an interval that
    could. `ideals` holds for each the factor on R, and as `low` and `high` the interval of R under
    the ideal, as factors on R too: it has the spread of R over families, of which some gain more.
    `break_even` holds the round's cost in plain steps and what would give R = 1. `phases` are those
    of the families that speak (a mode without any is left out).
    """
    gains = family_gains(phases)
    found = {}
    for key, group in gains.groupby(["context", "mode"], sort=False):
        here = phases[(phases["context"] == key[0]) & (phases["mode"] == key[1])]
        ideals = _ideals(group, here, design)
        named, told_apart = _named(group, design)
        found[key] = {
            "named": named,
            "told_apart": told_apart,
            "families": len(group),
            "gated": bool(here["gated"].all()),
            "ideals": ideals,
            "break_even": _break_even(here, design.modes[key[1]]),
        }
    return found


def _ideals(gains: pd.DataFrame, phases: pd.DataFrame, design: Design) -> dict[str, dict]:
    log_r = gains["family"].map(phases.groupby("family")["family_log_r"].first())
    under = over_families(
        gains[list(IDEALS)].add(log_r, axis=0).assign(all=""), IDEALS, ["all"], design
    )
    found, measured = {}, log_r.mean()
    for row in under.itertuples():
        found[row.term] = {
            "factor": math.exp(gains[row.term].mean()),
            "low": math.exp(row.low - measured),
            "high": math.exp(row.high - measured),
        }
    return found


def _named(gains: pd.DataFrame, design: Design) -> tuple[list[str], bool]:
    """What would raise R most, the best first, and whether an interval stands behind that."""
    means = gains[list(IDEALS)].mean().sort_values(ascending=False, kind="stable")
    best = means.index[0]
    if means[best] <= 0:
        return [], True
    behind = -gains[list(IDEALS)].sub(gains[best], axis=0).drop(columns=best)
    table = over_families(behind.assign(all=""), behind.columns, ["all"], design)
    low = table.set_index("term")["low"]
    # A cost that no family has is none, however little the best one tells.
    there = [term for term in means.index if term in low.index and gains[term].max() > 0]
    alike = [term for term in there if low[term] <= 0]
    return [best, *alike], bool(low.notna().all())


def _break_even(phases: pd.DataFrame, mode: Mode) -> dict[str, Any]:
    median = phases[
        ["step_s", "verify_s", "repair_s", "draft_s", "control_s", "committed"]
    ].astype(float).median()  # fmt: skip
    other = (median["verify_s"] + median["repair_s"] + median["control_s"]) / median["step_s"]
    draft = median["draft_s"] / median["step_s"]
    return {
        "round_cost_steps": other + draft,
        "draft_cost_steps": draft,
        "committed": median["committed"],
        # Of a token, where each round proposes k: else an acceptance says nothing of a round.
        "proposes_k": mode.proposes_k,
        "acceptance_needed": acceptance_needed(other + draft, mode.k, mode.bonus)
        if mode.proposes_k
        else None,
        "draft_cost_allowed": draft_cost_allowed(other, median["committed"]),
    }
