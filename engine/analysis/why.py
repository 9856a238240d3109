"""The cause in words: one or two sentences a verdict, with their numbers."""

from __future__ import annotations

from typing import Any

from engine.analysis.cause import IDEALS

_COSTS = {
    "acceptance": "rejected proposals",
    "verification": "verification beyond one plain step",
    "repair": "the repair forwards",
    "drafting": "the draft's own forward passes",
    "control": "the control between the forwards",
}
# What a reader asks about whatever the cause is.
_ALWAYS = ("acceptance", "drafting")
_NOTHING = 1.005


def why(entry: dict[str, Any]) -> str:
    """What holds the mode back, and what would change it; '' where nothing was instrumented."""
    cause = entry["cause"]
    r = entry["r"] if cause and cause["gated"] else entry["r_all"]
    if not cause or r is None:
        return ""
    named, told = cause["named"], []
    if not named:
        told.append("no single cost holds it back")
    elif len(named) == 1:
        doubt = "" if cause["told_apart"] else ", of too few families to be sure"
        told.append(f"the largest cost is {_COSTS[named[0]]}{doubt}")
    else:
        costs = [_COSTS[name] for name in named]
        told.append(
            f"the largest costs, not told apart, are {', '.join(costs[:-1])} and {costs[-1]}"
        )
    # An ideal that the mode has already reached says nothing.
    missing = [name for name in _ALWAYS if cause["ideals"][name]["factor"] > _NOTHING]
    # Rejections bring repairs about, and each ideal leaves all other costs as they were measured.
    kept = ", repairs as they are" if cause["ideals"]["repair"]["factor"] > _NOTHING else ""
    for name in dict.fromkeys([*named, *missing]):
        ideal = IDEALS[name] + (kept if name == "acceptance" else "")
        told.append(f"R would be {_scaled(r, cause['ideals'][name])} with {ideal}")
    sentence = "; ".join(told)
    basis = (
        ""
        if cause["gated"]
        else f" (From all {cause['families']} families, since too few passed the gates: R "
        f"{r:.2f} over all is no verdict.)"
    )
    return f"{_capital(sentence)}. {_capital(_needed(cause['break_even'], kept))}.{basis}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _scaled(r: float, ideal: dict[str, Any]) -> str:
    if ideal["low"] is None or ideal["high"] is None:
        return f"{r * ideal['factor']:.2f}"
    return f"{r * ideal['factor']:.2f} [{r * ideal['low']:.2f}, {r * ideal['high']:.2f}]"


def _needed(even: dict[str, Any], kept: str) -> str:
    needed, allowed = even["acceptance_needed"], even["draft_cost_allowed"]
    round_costs = f"a round costs {even['round_cost_steps']:.1f} plain steps"
    if not even["proposes_k"]:
        acceptance = f"{round_costs} and commits {even['committed']:.1f} tokens"
    elif needed is None:
        acceptance = f"{round_costs}, more than it can commit, so no acceptance suffices{kept}"
    else:
        acceptance = f"{round_costs}, which a token acceptance of {needed:.2f} pays for{kept}"
    draft = (
        "not even a free draft would do"
        if allowed is None
        else f"its drafting costs {even['draft_cost_steps']:.1f} and may cost {allowed:.1f}"
    )
    return f"{acceptance}; {draft}"
