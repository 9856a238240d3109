"""How much faster a mode is on one family: from each order block its own ratio."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from engine.analysis.blocks import CELL, block_times, comparable, measured_runs
from engine.design import Design

_COUNTS = ["proposed", "judged", "accepted", "rounds", "target_calls", "draft_calls", "repairs"]
_LISTS = ["proposed_by_position", "judged_by_position", "accepted_by_position"]


def family_ratios(
    rows: pd.DataFrame, gates: pd.DataFrame, tokens: pd.DataFrame, design: Design
) -> pd.DataFrame:
    """One row a (context, family, mode with a drafter) of the design, in the design's order.

    `log_r` is the mean over order blocks of log(T_baseline / T_mode), each block its own ratio;
    above 0 is faster. `admitted` families passed every applicable clause and have a ratio from
    every planned block; the others are listed with their `reason` and `failed_gates`. `others`
    and `log_r_others` hold the same ratio against every further baseline that samples alike, NaN
    where no order block has both on one machine. Times in seconds, counts from one run (greedy
    runs are alike; the gate `complete` holds them to it).
    """
    blocks = {tuple(b[key] for key in CELL): b for b in block_times(rows).to_dict("records")}
    work = _first_runs(rows)
    clauses = dict(iter(gates.groupby(["context", "family", "mode"])))
    outcomes = tokens.set_index(["context", "family", "mode"])["outcome"].to_dict()
    table = []
    for key in design.planned():
        mode = design.modes[key[2]]
        if not mode.speculative:
            continue
        ratio = _ratio(blocks, key, mode.baseline, len(design.replicates))
        failed, reason = _why_out(clauses.get(key), ratio.pop("missing"))
        others = [
            name
            for name in design.baselines
            if name != mode.baseline and design.modes[name].sampling == mode.sampling
        ]
        against = [_log_r_apart(blocks, key, b, len(design.replicates)) for b in others]
        table.append(
            dict(zip(("context", "family", "mode"), key, strict=True))
            | {
                "baseline": mode.baseline,
                "admitted": not reason,
                "reason": reason,
                "failed_gates": failed,
            }
            | ratio
            | {"others": others, "log_r_others": against}
            | work.get(key, dict.fromkeys([*_COUNTS, "acceptance"], math.nan))
            | {name: work.get(key, {}).get(name, []) for name in _LISTS}
            | {"exact_outcome": outcomes.get(key, "missing")}
        )
    return pd.DataFrame(table)


def _ratio(blocks: dict, key: tuple[str, str, str], baseline: str, replicates: int) -> dict:
    """The ratio of one family against one baseline, and what it was made of."""
    context, family, mode = key
    pairs, by_replicate, missing = [], [], []
    for replicate in range(replicates):
        arms = [blocks.get((context, family, arm, replicate)) for arm in (baseline, mode)]
        faults = [
            f"{arm} r{replicate}: {'no rows' if block is None else block['reason']}"
            for arm, block in zip((baseline, mode), arms, strict=True)
            if block is None or block["reason"]
        ]
        if not faults and not comparable(*arms):
            faults = [f"r{replicate}: {baseline} and {mode} were measured on two machines"]
        missing += faults
        by_replicate.append(math.nan if faults else arms[0]["block_s"] / arms[1]["block_s"])
        if not faults:
            pairs.append(arms)
    base, own = ([pair[arm] for pair in pairs] for arm in (0, 1))
    log_r = mean(math.log(r) for r in by_replicate if not math.isnan(r))
    return {
        "blocks": len(pairs),
        "log_r": log_r,
        "r": math.exp(log_r),
        "r_by_replicate": by_replicate,
        "log_r_prefill": mean(map(_log, map(_prefill, base), map(_prefill, own))),
        "log_r_end_to_end": mean(map(_log, map(_whole, base), map(_whole, own))),
        "baseline_s": mean(b["block_s"] for b in base),
        "mode_s": mean(b["block_s"] for b in own),
        "baseline_total_median_s": mean(b["total_median_s"] for b in base),
        "mode_total_median_s": mean(b["total_median_s"] for b in own),
        "baseline_prefill_s": mean(map(_prefill, base)),
        "target_prefill_s": mean(b["target_prefill_s"] for b in own),
        "draft_prefill_s": mean(b["draft_prefill_s"] for b in own),
        "missing": missing,
    }


def _log_r_apart(blocks: dict, key: tuple[str, str, str], baseline: str, replicates: int) -> float:
    """log R against a baseline that no gate holds to the sitting of the mode."""
    context, family, mode = key
    pairs = [
        [blocks.get((context, family, arm, replicate)) for arm in (baseline, mode)]
        for replicate in range(replicates)
    ]
    return mean(
        math.log(base["block_s"] / own["block_s"]) for base, own in pairs if comparable(base, own)
    )


def _prefill(block: dict) -> float:
    return block["target_prefill_s"] + block["draft_prefill_s"]


def _whole(block: dict) -> float:
    return _prefill(block) + block["block_s"]


def _log(baseline_s: float, mode_s: float) -> float:
    return math.log(baseline_s / mode_s) if baseline_s > 0 and mode_s > 0 else math.nan


def mean(values: Iterable[float]) -> float:
    """The arithmetic mean; NaN of no values. The sum is exact, so order does not matter."""
    values = list(values)
    return math.fsum(values) / len(values) if values else math.nan


def _why_out(clauses: pd.DataFrame | None, missing: list[str]) -> tuple[list[str], str]:
    """Names of the gates that a family failed, and why it is out; ([], '') if it is in."""
    if clauses is None:
        return [], "; ".join(["no gate has judged it", *missing])
    failed = clauses[clauses["applicable"].astype(bool) & ~clauses["passed"].astype(bool)]
    texts = [f"{c.gate}/{c.clause}: {c.text}" for c in failed.itertuples()]
    return list(dict.fromkeys(failed["gate"])), "; ".join(texts or missing)


def _first_runs(rows: pd.DataFrame) -> dict[tuple, dict]:
    """What the first measured run of each (context, family, mode) did."""
    runs = measured_runs(rows).sort_values(["replicate", "run"])
    first = runs.drop_duplicates(["context", "family", "mode"])
    return {
        (run["context"], run["family"], run["mode"]): {n: run[n] for n in _COUNTS}
        | {"acceptance": run["accepted"] / run["proposed"] if run["proposed"] else math.nan}
        | {name: [] if run[name] is None else [int(x) for x in run[name]] for name in _LISTS}
        for run in first.to_dict("records")
    }
