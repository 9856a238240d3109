"""A made-up study with all mechanism modes, carried to every table that a figure reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from engine.analysis.chain import judge_chain
from engine.analysis.claims import judge_claims
from engine.analysis.explanation import explain
from engine.analysis.prediction import Predictor
from engine.cells import Cell
from engine.design import Design
from engine.figures.study import Study
from tests.synthetic_report import REPOSITORY, Tables, study_tables
from tests.synthetic_rows import FAMILIES, Row, failed_cell, small_design

SPEEDS = {
    "spec": 0.52, "phase_o": 0.55, "spec_folded": 0.62, "folded_device": 0.64, "relaxed": 0.7,
    "relaxed_2": 0.74, "oracle": 0.86, "oracle_bonus": 0.92, "draft_free": 4.3, "graph": 1.15,
    "graph_draft": 0.77, "graph_verify": 0.75, "graph_naive": 0.9,
}  # fmt: skip
# How far one graph a position came before memory ended.
NAIVE = {"graphs_captured": 8, "graphs_planned": 26, "graph_pool_bytes": 3 << 30}


def modes(part: Mapping[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """The standard modes; those that explain are measured on `part` of the grid."""
    only = {"only": dict(part)} if part else {}
    repair = {"drafter": "model", "k": 4, "round": "repair", "baseline": "ar"}
    folded = {**repair, "round": "folded", "bonus": True}
    return {
        "ar": {"drafter": "none", "baseline": "ar"},
        "ar_device": {"drafter": "none", "baseline": "ar_device", "runtime": "device", **only},
        "spec": repair,
        "phase_o": {**repair, "runtime": "device", "baseline": "ar_device", **only},
        # A window that shows all, for a claim about windows.
        "spec_folded": {**folded, "draft_window": 100_000},
        "folded_device": {**folded, "runtime": "device", "baseline": "ar_device", **only},
        "relaxed": {**repair, "acceptance": "relaxed", "delta": 1.0, **only},
        "relaxed_2": {**repair, "acceptance": "relaxed", "delta": 2.0, **only},
        "oracle": {**repair, "acceptance": "all", **only},
        "oracle_bonus": {**folded, "acceptance": "all", **only},
        "draft_free": {**folded, "drafter": "reference", "acceptance": "all", **only},
        "ar_graph": {"drafter": "none", "baseline": "ar_graph", "runtime": "graph", **only},
        "graph": {**folded, "runtime": "graph", "baseline": "ar_graph", **only},
        "graph_draft": {**repair, "runtime": "graph_draft", "baseline": "ar_device", **only},
        "graph_verify": {**repair, "runtime": "graph_verify", "baseline": "ar_device", **only},
        "graph_naive": {**folded, "runtime": "graph_naive", "baseline": "ar_device", **only},
    }


def mechanism_design(**overrides: Any) -> Design:
    """On a GPU, so that every mode applies; components at two prompts a context."""
    plan = {
        "device": "cuda",
        "dtype": "bfloat16",
        "contexts": [2048, 4096],
        "families": FAMILIES[:8],
        "modes": modes({"families": 4}),
        "instrumented": [1, 1],
        "components": {"families": 2},
        "claims": [
            {"claim": "formula", "mode": "spec_folded", "against": "ar"},
            {"claim": "window", "mode": "spec_folded", "against": "spec"},
        ],
    }
    return small_design(**{**plan, **overrides})


def mechanism_study(
    design: Design | None = None,
    speeds: Mapping[str, float] | None = None,
    syncs: tuple[int, int] = (8, 2),
    agreement: float = 0.77,
    **made: Any,
) -> tuple[Study, Tables]:
    """What the figures read, and the report; `speeds` are R by mode, `syncs` a round of host and
    device runtimes; other arguments are those of `study_tables`.
    """
    design = design or mechanism_design()
    speeds = {**SPEEDS, **(speeds or {})}
    plant = made.pop("alter", lambda row: row)

    def ratio(cell: Cell) -> float:
        return speeds.get(cell.mode, 1.0)

    def alter(row: Row) -> Row | None:
        if row["rounds"] and row["mode"] not in design.baselines:
            row = {**row, "host_syncs": syncs[row["runtime"] != "eager"] * row["rounds"]}
        if row["runtime"] == "graph_naive":
            failed = failed_cell(row, "out_of_memory", "CUDA out of memory")
            row = failed and failed | NAIVE
        elif row["runtime"].startswith("graph"):
            few = 5 if row["runtime"] == "graph_verify" else 4
            built = {"graphs_captured": few, "graphs_planned": few, "graph_pool_bytes": 20 << 20}
            row = {**row, **built}
        return row and plant(row)

    made |= {"ratio": ratio, "alter": alter, "agreement": agreement}
    tables = study_tables(design, **made)
    waterfall, steps = explain(tables.rows, tables.ratios, design)
    found = {"rows": tables.rows, "ratios": tables.ratios, "waterfall": waterfall, "steps": steps}
    found["trace"] = trace_of(design, agreement)
    found["claims"] = judge_claims(tables.rows, tables.ratios, tables.gates, design)
    if design.components:
        predictor = Predictor(found["trace"], components_of(design), design)
        found["predicted"] = predictor.table()
        found["compared"] = predictor.beside(tables.verdict["verdicts"])
    published = pd.read_csv(REPOSITORY / "config/published.csv")
    found["chain"] = judge_chain(
        tables.rows, tables.ratios, tables.tokens, found["trace"], design, published
    )
    return Study(tables.verdict, published, found), tables


def trace_of(design: Design, agreement: float) -> pd.DataFrame:
    """A trace whose draft is right on `agreement` of the positions, and near elsewhere."""
    rng = np.random.default_rng(7)
    rows = []
    for context in map(str, design.contexts):
        for family in design.family_slugs:
            right = rng.random(design.new_tokens) < agreement
            matches, run = [], 0
            for same in right[::-1]:
                run = run + 1 if same else 0
                matches.append(run)
            for position, (same, run) in enumerate(zip(right, matches[::-1], strict=True)):
                rank = 1 if same else 2 + int(rng.geometric(0.2))
                gap = 0.0 if same else float(rng.exponential(2.0))
                place = {"context": context, "family": family, "position": position}
                rows.append(
                    place | {"token": 1, "draft_token": 1 if same else 2, "rank": rank, "gap": gap}
                    | {"entropy": 1.0, "matches": run}
                )  # fmt: skip
    return pd.DataFrame(rows)


def components_of(design: Design) -> pd.DataFrame:
    """Costs of a pair whose draft takes three tenths of a plain step."""
    rng, most, rows = np.random.default_rng(8), design.components.most, []
    parts = {("step", 1): 0.04, ("draft", 1): 0.012, ("draft", 2): 0.0125}
    parts |= {("verify", n): 0.04 * (1 + 0.03 * n) for n in range(1, most + 2)}
    parts |= {("control", n): 0.001 for n in range(1, most + 1)}
    for context, family, baseline in design.component_places():
        for (part, count), cost in parts.items():
            seconds = cost * np.exp(0.03 * rng.standard_normal(design.components.repeats))
            rows.append(
                {"context": context, "family": family, "baseline": baseline, "part": part}
                | {"rows": count, "seconds": seconds}
            )
    return pd.DataFrame(rows)
