"""What the families of one context say together about one mode."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from engine.analysis.intervals import bca_interval, headline_interval, percentile_interval
from engine.analysis.judgement import FASTER, INCONCLUSIVE, NOT_JUDGED, families_needed, judge
from engine.analysis.speedup import mean
from engine.design import Design


def context_summary(ratios: pd.DataFrame, design: Design) -> list[dict[str, Any]]:
    """What the admitted families of each (context, mode) say together, in the design's order.

    One dict each, the figures of an entry of verdict.json; a figure that cannot be said is None
    or NaN. FASTER against its own baseline is withdrawn where the families are not faster than
    another baseline that samples alike and was measured on the same machine. Its gates are not
    asked: doubt speaks against FASTER.
    """
    return [
        _summary(group, str(context), name, design)
        for context in design.contexts
        for name, mode in design.modes.items()
        if mode.speculative and str(context) in design.contexts_of(name)
        for group in [ratios[(ratios["context"] == str(context)) & (ratios["mode"] == name)]]
    ]


def _summary(group: pd.DataFrame, context: str, mode: str, design: Design) -> dict[str, Any]:
    inference, seed = design.inference, design.seed
    families = group[group["admitted"]]
    log_r = families["log_r"].to_numpy(dtype=float)
    headline = headline_interval(log_r, inference, seed)
    word = str(judge(headline.low, headline.high, inference))
    needed = families_needed(log_r, word, inference)
    note, rival = "", _faster_baseline(families) if word == FASTER else None
    if rival:
        # More families would not make the other baseline slower.
        word, needed = INCONCLUSIVE, None
        note = f"another AR mode is faster: against {rival[0]}, R is {rival[1]:.2f}"
    elif word != NOT_JUDGED and headline.method == "student t":
        note = f"Student t interval: fewer than {inference.bootstrap_from} families are in"
    percentile = percentile_interval(log_r, inference, seed)
    bca = bca_interval(log_r, inference, seed)
    out = group[~group["admitted"]]
    return {
        "context": context,
        "mode": mode,
        "baseline": design.modes[mode].baseline,
        "verdict": word,
        "r": _geometric(log_r),
        "interval": {
            "low": headline.low,
            "high": headline.high,
            "level": headline.level,
            "method": headline.method,
        },
        "percentile": {"low": percentile.low, "high": percentile.high},
        "bca": {"low": bca.low, "high": bca.high},
        "families_in": len(families),
        "families_planned": len(design.families_of(mode)),
        "r_all": _geometric(group["log_r"].dropna()),
        "families_measured": int(group["log_r"].notna().sum()),
        "faster_on": int((log_r > 0).sum()),
        "families_needed": needed,
        "families_out": out[["family", "reason", "failed_gates"]].to_dict("records"),
        "acceptance_median": families["acceptance"].median(),
        "rounds_median": families["rounds"].median(),
        "target_calls_median": families["target_calls"].median(),
        "baseline_median_s": families["baseline_s"].median(),
        "mode_median_s": families["mode_s"].median(),
        "r_prefill": _geometric(families["log_r_prefill"]),
        "r_end_to_end": _geometric(families["log_r_end_to_end"]),
        "faster_baseline": rival[0] if rival else None,
        "note": note,
    }


def _geometric(log_r: Iterable[float]) -> float:
    return math.exp(mean(log_r))


def _faster_baseline(families: pd.DataFrame) -> tuple[str, float] | None:
    """The further baseline that the mode is furthest behind, with R against it, if there is one."""
    against: dict[str, list[float]] = {}
    for others, log_rs in zip(families["others"], families["log_r_others"], strict=True):
        for name, log_r in zip(others, log_rs, strict=True):
            if not math.isnan(log_r):
                against.setdefault(name, []).append(log_r)
    rivals = {name: _geometric(log_rs) for name, log_rs in against.items()}
    name = min(rivals, key=rivals.__getitem__, default=None)
    return (name, rivals[name]) if name is not None and rivals[name] <= 1 else None
