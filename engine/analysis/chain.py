"""The published causal chain, number by number, beside what the rows of a design say.

For each number of config/published.csv that the design measures: ours with its interval over
families, and whether it held. A published range, or interval, is the band that ours must lie in;
a bare number has the band that the design calls "the same" around it. Ours is the geometric mean
over families, of shares the mean, where published numbers are medians. Counts have no interval and
are compared as they are; of a mode that runs by graphs here, which the published one did not, the
row says so.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from engine import composition
from engine.analysis import graph_parts
from engine.analysis.blocks import block_times
from engine.analysis.claims import HELD, NOT_HELD, OPEN, placed
from engine.analysis.intervals import headline_bounds
from engine.analysis.phases import phase_table
from engine.analysis.waterfall import family_steps
from engine.design import Design

COLUMNS = [
    "design", "context", "quantity", "what", "published", "published_low", "published_high",
    "value", "low", "high", "unit", "families", "gated", "outcome", "sentence",
]  # fmt: skip
NUMBERS = ["published", "published_low", "published_high", "value", "low", "high"]
# The published setting, on which rounds, calls and seconds depend.
_K, _NEW_TOKENS = 4, 64
_PER_TASK = ("latency", "baseline_latency", "rounds_of", "target_calls")
# What one graph a position could not do on the published card.
CARD_GIB = 8.0
_MODES = ("spec", "relaxed", "oracle", "oracle_bonus", "draft_free")


@dataclass(frozen=True)
class Found:
    """Ours: a ratio or amount by family (`values`, with who passed the gates), or one `count`.

    `shown` turns the mean over families into the number that was published; of a `share` that is
    counted and not a ratio of times, the mean is arithmetic.
    """

    what: str
    values: Mapping[str, float] | None = None
    gated: frozenset[str] | None = None
    count: float = math.nan
    shown: Callable[[float], float] = float
    share: bool = False


def judge_chain(
    rows: pd.DataFrame,
    ratios: pd.DataFrame,
    tokens: pd.DataFrame,
    trace: pd.DataFrame | None,
    design: Design,
    published: pd.DataFrame,
) -> pd.DataFrame:
    """One row a published number and context of the design that measures it; COLUMNS.

    A number that was published without a context is held against every context of the design.
    """
    evidence, table = _Evidence(rows, ratios, tokens, trace, design), []
    for theirs in published.to_dict("records"):
        at = "" if pd.isna(theirs["context"]) else f"{float(theirs['context']):.0f}"
        for context in map(str, design.contexts):
            if at in ("", context) and (found := evidence.find(theirs["quantity"], context)):
                table.append(_row(design, context, theirs, found))
    for context in map(str, design.contexts):
        if found := evidence.graph_memory(context):
            table.append(_row(design, context, _UNFIT, found))
    return pd.DataFrame(table, columns=COLUMNS)


_UNFIT = {
    "quantity": "graph_end_to_end_memory", "value": math.nan, "low": CARD_GIB, "high": math.inf,
    "unit": "GiB",
}  # fmt: skip


class _Evidence:
    """What the design measured of each published quantity; None where it did not."""

    def __init__(
        self,
        rows: pd.DataFrame,
        ratios: pd.DataFrame,
        tokens: pd.DataFrame,
        trace: pd.DataFrame | None,
        design: Design,
    ):
        self._design = design
        self.rows, self.ratios, self.tokens, self.trace = rows, ratios, tokens, trace
        modes = {name: mode.composition() for name, mode in design.modes.items()}
        contexts = [str(context) for context in design.contexts]
        self._phases = phase_table(rows, design)
        self._steps = family_steps(block_times(rows), design)
        self._gains = graph_parts.family_gains(rows, modes, contexts)
        self._counterparts = {mode: graph_parts.counterpart(modes, mode) for mode in modes}
        self._pools = graph_parts.pools(rows, modes, contexts)

    def find(self, quantity: str, context: str) -> Found | None:
        mode, kind = _split(quantity)
        if (kind or quantity) in _PER_TASK and self._design.new_tokens != _NEW_TOKENS:
            return None
        if kind:
            fits = mode in self._design.modes and self._design.modes[mode].k == _K
            return getattr(self, f"_{kind}")(context, mode) if fits else None
        own = getattr(self, f"_{quantity}", None)
        return own(context) if own else None

    # --- of a mode ------------------------------------------------------------------------

    def _ratio(self, context: str, mode: str) -> Found | None:
        here = self._of(context, mode)
        if here.empty:
            return None
        what = f"R of {mode} against {here['baseline'].iloc[0]}"
        if composition.captures(self._design.modes[mode].runtime):
            what += ", by graphs"
        return self._by_family(here, np.exp(here["log_r"]), what)

    def _latency(self, context: str, mode: str) -> Found | None:
        here = self._of(context, mode)
        return None if here.empty else self._by_family(here, here["mode_s"], f"{mode}, decoding")

    def _baseline_latency(self, context: str, mode: str) -> Found | None:
        here = self._of(context, mode)
        if here.empty:
            return None
        return self._by_family(here, here["baseline_s"], f"{here['baseline'].iloc[0]}, decoding")

    def _acceptance(self, context: str, mode: str) -> Found | None:
        here = self._of(context, mode)
        if here["acceptance"].isna().all():
            return None
        # Counts of tokens need no gate: they are the same however long a round took.
        values = dict(zip(here["family"], here["acceptance"].astype(float), strict=True))
        return Found(f"acceptance of {mode}", values, share=True)

    def _rounds_of(self, context: str, mode: str) -> Found | None:
        return self._counted(context, mode, "rounds", f"rounds of {mode}, median over families")

    # --- by name --------------------------------------------------------------------------

    def _target_calls(self, context: str) -> Found | None:
        what = "target calls of spec, median over families"
        return self._counted(context, "spec", "target_calls", what)

    def _exact_families(self, context: str) -> Found | None:
        here = self.tokens[(self.tokens["context"] == context) & (self.tokens["mode"] == "spec")]
        here = here[~here["outcome"].isin(("missing", "not_applicable"))]
        # Published of 16; of another number it would be another question.
        if len(here) != 16:
            return None
        equal = int(here["outcome"].eq("equal").sum())
        return Found(f"families of {len(here)} with equal tokens", count=float(equal))

    def _draft_share_of_spec(self, context: str) -> Found | None:
        here = self._phases
        here = here[(here["context"] == context) & (here["mode"] == "spec")]
        if here.empty:
            return None
        parts = here[["verify_s", "repair_s", "draft_s", "control_s"]].astype(float)
        share = (parts["draft_s"] / parts.sum(axis=1)).groupby(here["family"]).mean()
        found = self._by_family(self._of(context, "spec"), share, "drafting's share of spec")
        return dataclasses.replace(found, share=True)

    def _phase_o_syncs_before(self, context: str) -> Found | None:
        return self._syncs(context, "spec")

    def _phase_o_syncs_after(self, context: str) -> Found | None:
        return self._syncs(context, "phase_o")

    def _phase_o_latency_saving(self, context: str) -> Found | None:
        here = self._steps
        here = here[
            (here["context"] == context)
            & (here["after"] == "phase_o")
            & ~here["apart"].astype(bool)
        ]
        if here.empty:
            return None
        left = dict(zip(here["family"], np.exp(-here["log_step"].astype(float)), strict=True))
        gated = self._gated(context, "phase_o") & self._gated(context, "spec")
        what = "share of the time that phase_o saves"
        return Found(what, left, gated, shown=lambda kept: 1 - kept)

    def _graph_draft_local_speedup(self, context: str) -> Found | None:
        return self._gain(context, "draft", "graph_draft")

    def _graph_verify_local_speedup(self, context: str) -> Found | None:
        return self._gain(context, "verify", "graph_verify")

    def _graph_local_pool(self, context: str) -> Found | None:
        held = [p.gib for p in self._pools if p.mode in ("graph_draft", "graph_verify")
                and p.context == context]  # fmt: skip
        what = "the larger pool of graph_draft and graph_verify"
        return Found(what, count=max(held)) if held else None

    def _graph_naive_captured(self, context: str) -> Found | None:
        pool = self._naive(context)
        what = f"graphs of {pool.planned} that graph_naive captured" if pool else ""
        return Found(what, count=float(pool.graphs)) if pool else None

    def _graph_naive_pool_extrapolated(self, context: str) -> Found | None:
        pool = self._naive(context)
        what = "all pools of graph_naive, extrapolated"
        return Found(what, count=pool.whole) if pool and pool.graphs else None

    def _rank_within_5(self, context: str) -> Found | None:
        return self._traced(context, "rank", 5, "draft tokens of target rank 5 or better")

    def _gap_within_1(self, context: str) -> Found | None:
        return self._traced(context, "gap", 1.0, "draft tokens within one logit")

    def graph_memory(self, context: str) -> Found | None:
        """The most that a run of whole rounds as one graph held at once."""
        here = self.rows[(self.rows["context"] == context) & (self.rows["mode"] == "graph")]
        here = here[here["status"].eq("ok") & here["peak_bytes"].gt(0)]
        if here.empty:
            return None
        return Found("most memory that graph held", count=here["peak_bytes"].max() / 2.0**30)

    # --- parts ----------------------------------------------------------------------------

    def _of(self, context: str, mode: str) -> pd.DataFrame:
        here = self.ratios
        here = here[(here["context"] == context) & (here["mode"] == mode)]
        return here[here["log_r"].notna()]

    def _gated(self, context: str, mode: str) -> frozenset[str]:
        here = self._of(context, mode)
        return frozenset(here.loc[here["admitted"].astype(bool), "family"])

    def _by_family(self, here: pd.DataFrame, values: pd.Series, what: str) -> Found:
        if not values.index.equals(here.index):
            by_family = {str(k): float(v) for k, v in values.items()}
        else:
            by_family = dict(zip(here["family"], values.astype(float), strict=True))
        return Found(what, by_family, frozenset(here.loc[here["admitted"].astype(bool), "family"]))

    def _counted(self, context: str, mode: str, column: str, what: str) -> Found | None:
        here = self._of(context, mode)
        return None if here.empty else Found(what, count=float(here[column].median()))

    def _syncs(self, context: str, mode: str) -> Found | None:
        if self._design.device == "cpu":  # it counts where a GPU would wait, and waits for nothing
            return None
        rows = self.rows
        here = rows[(rows["context"] == context) & (rows["mode"] == mode) & rows["rounds"].gt(0)]
        here = here[here["status"].eq("ok") & ~here["warmup"].eq(True)]
        here = here[~here["instrumented"].eq(True)]
        syncs = (here["host_syncs"] / here["rounds"]).median()
        return (
            None
            if math.isnan(syncs)
            else Found(f"synchronisations a round of {mode}", count=float(syncs))
        )

    def _gain(self, context: str, phase: str, mode: str) -> Found | None:
        gains, other = self._gains.get((mode, phase, context)), self._counterparts.get(mode)
        here = self.rows[self.rows["context"] == context]
        if gains is None or graph_parts.of_two_machines(here, mode, other):
            return None
        return Found(f"{mode} against its counterpart", gains.to_dict(), self._gated(context, mode))

    def _naive(self, context: str) -> graph_parts.Pool | None:
        found = [p for p in self._pools if p.mode == "graph_naive" and p.context == context]
        return found[0] if found else None

    def _traced(self, context: str, column: str, most: float, what: str) -> Found | None:
        # Ranks and gaps of a pair that was made up say nothing about language.
        if self.trace is None or self._design.models.target.source == "synthetic":
            return None
        here = self.trace[self.trace["context"] == context]
        if here.empty or here[column].isna().all():
            return None
        shares = here[column].le(most).groupby(here["family"]).mean()
        return Found(f"share of {what}", shares.to_dict(), share=True)


def _split(quantity: str) -> tuple[str, str]:
    """(mode, what to look up) of a quantity that is named after a mode; else two empty words."""
    special = {
        "ar_median_latency": ("spec", "baseline_latency"),
        "draft_free_ar_latency": ("draft_free", "baseline_latency"),
        "acceptance_median": ("spec", "acceptance"),
        "rounds": ("spec", "rounds_of"),
    }
    if quantity in special:
        return special[quantity]
    endings = {"_ratio": "ratio", "_median_latency": "latency", "_latency": "latency",
               "_acceptance": "acceptance", "_rounds": "rounds_of"}  # fmt: skip
    for mode in _MODES:
        for ending, kind in endings.items():
            if quantity == mode + ending:
                return mode, kind
    return "", ""


def _row(design: Design, context: str, theirs: Mapping[str, Any], found: Found) -> dict[str, Any]:
    families, gated, value, low, high = _estimate(design, found)
    band = _band(design, theirs, counted=found.values is None)
    if math.isnan(low):
        outcome = OPEN
        if found.values is None:
            outcome = HELD if band[0] <= value <= band[1] else NOT_HELD
    else:
        # The gates protect this word as they protect a verdict.
        outcome = placed(low, high, band) if gated else OPEN
    row = {
        "design": design.design,
        "context": context,
        "quantity": theirs["quantity"],
        "what": found.what,
        "published": theirs["value"],
        "published_low": theirs["low"],
        "published_high": theirs["high"],
        "value": value,
        "low": low,
        "high": high,
        "unit": "" if pd.isna(theirs["unit"]) else theirs["unit"],
        "families": families,
        "gated": gated,
        "outcome": outcome,
    }
    return row | {"sentence": _sentence(row)}


def _estimate(design: Design, found: Found) -> tuple[int, bool, float, float, float]:
    """(families, of passed gates alone, value, low, high); a count has no interval."""
    if found.values is None:
        return 0, True, found.count, math.nan, math.nan
    # A share may be 0, a ratio may not.
    values = {f: x for f, x in found.values.items() if x > 0 or (found.share and x == 0)}
    passed = [f for f in values if found.gated is None or f in found.gated]
    enough = found.gated is None or len(passed) >= design.inference.student_t_from
    chosen = np.array([values[f] for f in (passed if enough else values)])
    if not len(chosen):
        return 0, enough, math.nan, math.nan, math.nan
    enough = enough or len(passed) == len(values)
    scaled = chosen if found.share else np.log(chosen)
    low, high = (float(end[0]) for end in
                 headline_bounds(scaled[None, :], design.inference, design.seed))  # fmt: skip
    if found.share:
        return len(chosen), enough, chosen.mean(), max(low, 0.0), min(high, 1.0)
    value, *ends = (found.shown(math.exp(x)) for x in (scaled.mean(), low, high))
    return len(chosen), enough, value, *sorted(ends)


def _band(design: Design, theirs: Mapping[str, Any], counted: bool) -> tuple[float, float]:
    if not pd.isna(theirs["low"]):
        return theirs["low"], theirs["high"]
    value = theirs["value"]
    # How often a round waits is a mean over rounds, of which the last is shorter.
    if counted and theirs["unit"] != "GiB" and "syncs" not in theirs["quantity"]:
        return value, value
    return value * design.inference.same_low, value * design.inference.same_high


def _sentence(row: Mapping[str, Any]) -> str:
    """The word, and the numbers that it follows from."""
    said = f"at context {row['context']}, {row['what']}: "
    theirs = _numbers(row["published"], row["published_low"], row["published_high"])
    ours = _numbers(row["value"], row["low"], row["high"])
    if row["families"]:
        count = f"{row['families']} {'family' if row['families'] == 1 else 'families'}"
        ours += f", {count}" + ("" if row["gated"] else ", those that failed a gate included")
    return f"{said}published {theirs}, measured {ours}: {row['outcome']}"


def _numbers(value: float, low: float, high: float) -> str:
    if math.isinf(high):
        return f"over {low:g}"
    if math.isnan(value):
        return f"{low:.3g} to {high:.3g}"
    return f"{value:.3g}" if math.isnan(low) else f"{value:.3g} [{low:.3g}, {high:.3g}]"
