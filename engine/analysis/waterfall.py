"""Why R is what it is: log R split into one term a cost, and into steps between phases.

METHODS section 6. A term is a log ratio: below 0 it costs speed. Terms of a family add up to its
log R exactly, because what the phases miss (`unexplained`) and what timing them costs
(`instrumentation`) are terms too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from engine.analysis.blocks import CELL, both_timed, comparable
from engine.analysis.intervals import headline_bounds
from engine.analysis.speedup import mean
from engine.design import Design

TERMS = (
    "committed", "verification", "repair", "drafting", "control", "unexplained",
    "instrumentation",
)  # fmt: skip
# The phases in the published order (METHODS sections 2 and 6). On a CPU `phase_o` is not there, and
# a step may change the form of the round along with what it is named for.
CHAIN = ("spec", "phase_o", "spec_folded", "graph", "oracle", "oracle_bonus", "draft_free")
# What these change is the runtime; the others step from a phase of their own.
_RUNTIME_STEPS = ("phase_o", "graph")
_PLACE = ["context", "family", "mode"]


def family_terms(phases: pd.DataFrame) -> pd.DataFrame:
    """Terms of each (context, family, mode), means over its blocks; columns as TERMS, and log_r.

    `phases` comes from `phase_table`.
    """
    if phases.empty:
        return pd.DataFrame(columns=[*_PLACE, *TERMS, "log_r"])
    ver, rep, draft, control = (phases[f"{n}_s"] for n in ("verify", "repair", "draft", "control"))
    terms = phases[_PLACE].assign(
        committed=np.log(phases["committed"].astype(float)),
        verification=-np.log((ver / phases["step_s"]).astype(float)),
        repair=-np.log1p((rep / ver).astype(float)),
        drafting=-np.log1p((draft / (ver + rep)).astype(float)),
        control=-np.log1p((control / (ver + rep + draft)).astype(float)),
        unexplained=phases["log_closure"].astype(float),
        instrumentation=phases["log_instrumentation"].astype(float),
        log_r=phases["log_r"].astype(float),
    )
    return terms.groupby(_PLACE, as_index=False, sort=False).mean()


def over_families(
    table: pd.DataFrame, columns: Iterable[str], keys: list[str], design: Design
) -> pd.DataFrame:
    """Mean of each column over families with its interval: keys, term, mean, low, high, families.

    The interval is the headline's method for that number of families; NaN where there is none.
    """
    summary = []
    for key, group in table.groupby(keys, sort=False):
        for column in columns:
            values = group[column].dropna().to_numpy(dtype=float)
            low, high = (
                float(bound[0])
                for bound in headline_bounds(values[None, :], design.inference, design.seed)
            ) if len(values) else (math.nan, math.nan)  # fmt: skip
            summary.append(
                dict(zip(keys, key, strict=True))
                | {"term": column, "mean": mean(values), "low": low, "high": high}
                | {"families": len(values)}
            )
    return pd.DataFrame(summary, columns=[*keys, "term", "mean", "low", "high", "families"])


def family_steps(blocks: pd.DataFrame, design: Design) -> pd.DataFrame:
    """log(T_before / T_after) of each family between phases that were measured: see `_steps`.

    Columns: context, family, before, after, log_step, and apart: whether a block's two phases were
    measured on two machines. Each order block gives its own ratio. Only families that both modes
    measured without a fault have a step.
    """
    of = {tuple(b[key] for key in CELL): b for b in blocks.to_dict("records")}
    timed = {(context, mode) for (context, _, mode, _), b in of.items() if not b["reason"]}
    table = []
    for context in map(str, design.contexts):
        chain = [m for m in CHAIN if m in design.modes and context in design.contexts_of(m)]
        chain = [m for m in chain if (context, m) in timed]
        for before, after in _steps(chain, design):
            shared = [f for f in design.families_of(before) if f in design.families_of(after)]
            for family in shared:
                pairs = [
                    tuple(of.get((context, family, mode, r)) for mode in (before, after))
                    for r in range(len(design.replicates))
                ]
                pairs = [pair for pair in pairs if both_timed(*pair)]
                if pairs:
                    step = mean(math.log(one["block_s"] / two["block_s"]) for one, two in pairs)
                    apart = not all(comparable(*pair) for pair in pairs)
                    table.append([context, family, before, after, step, apart])
    return pd.DataFrame(
        table, columns=["context", "family", "before", "after", "log_step", "apart"]
    )


def _steps(chain: Sequence[str], design: Design) -> Iterator[tuple[str, str]]:
    """Each phase with the one before it, or with the last one before it of the same runtime."""
    for index, after in enumerate(chain):
        for before in reversed(chain[:index]):
            if (
                after in _RUNTIME_STEPS
                or design.modes[before].runtime == design.modes[after].runtime
            ):
                yield before, after
                break
