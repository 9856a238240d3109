"""The published chain: each number that a design measures, and the word that its data give."""

from __future__ import annotations

import functools

import pandas as pd
import pytest

from engine.analysis.chain import COLUMNS, judge_chain
from engine.analysis.claims import HELD, NOT_HELD, OPEN
from engine.analysis.speedup import family_ratios
from engine.composition import ROOT
from tests.synthetic_judgements import gates_frame, tokens_frame
from tests.synthetic_mechanism import NAIVE, SPEEDS, mechanism_design, modes, trace_of
from tests.synthetic_rows import FAMILIES, as_frame, failed_cell, study

PUBLISHED = pd.read_csv(ROOT / "config" / "published.csv")


def chain_of(names, speeds=None, families=4, context=2048, **changes) -> pd.DataFrame:
    """Of a design with these modes (None: all); with no noise, so that intervals are narrow."""
    kept = {name: mode for name, mode in modes().items() if not names or name in names}
    design = mechanism_design(
        contexts=[context],
        families=FAMILIES[:families],
        modes=kept,
        components=None,
        claims=[],
        **changes,
    )
    speeds = {**SPEEDS, **(speeds or {})}
    made = {"noise": 0.0, "spread": 0.001, "alter": counted}
    rows = as_frame(study(design, ratio=lambda cell: speeds.get(cell.mode, 1.0), **made))
    tokens = tokens_frame(design)
    ratios = family_ratios(rows, gates_frame(design), tokens, design)
    return judge_chain(rows, ratios, tokens, trace_of(design, 0.77), design, PUBLISHED)


def counted(row):
    """What only a GPU's rows hold."""
    if row["runtime"] == "graph_naive":
        failed = failed_cell(row, "out_of_memory", "CUDA out of memory")
        return failed and failed | NAIVE
    if row["runtime"].startswith("graph"):
        row = {**row, "graphs_captured": 4, "graphs_planned": 4, "graph_pool_bytes": 20 << 20}
    return {**row, "host_syncs": (8, 2)[row["runtime"] != "eager"] * row["rounds"]}


@functools.cache
def usual() -> pd.DataFrame:
    return chain_of(None)


def row(chain: pd.DataFrame, quantity: str) -> pd.Series:
    (found,) = chain[chain["quantity"] == quantity].to_dict("records")
    return found


def test_every_published_number_that_was_measured_has_a_row():
    chain = usual()
    assert list(chain.columns) == COLUMNS
    apart = set(PUBLISHED["quantity"]) - set(chain["quantity"])
    # One task is an example and no quantity; equal families are counted of 16.
    assert apart == {"example_ar_latency", "example_spec_latency", "exact_families"}
    assert set(chain["context"]) == {"2048"}
    assert chain["sentence"].str.contains("published").all()


@pytest.mark.parametrize(
    ("speed", "outcome"), [(0.52, HELD), (0.9, NOT_HELD), (0.3, NOT_HELD), (0.606, OPEN)]
)
def test_a_ratio_held_if_its_interval_lies_in_the_published_one(speed, outcome):
    found = row(chain_of(("ar", "spec"), {"spec": speed}), "spec_ratio")
    assert found["outcome"] == outcome
    assert found["low"] <= found["value"] <= found["high"]
    assert found["sentence"].endswith(outcome)


_CONTROL = ("ar", "ar_device", "spec", "phase_o")


def test_the_time_that_phase_o_saves_is_read_the_right_way_round():
    found = row(chain_of(_CONTROL, {"spec": 0.5, "phase_o": 0.5 / 0.958}), "phase_o_latency_saving")
    assert found["value"] == pytest.approx(0.042, abs=0.002)
    assert found["outcome"] == HELD
    slower = row(chain_of(_CONTROL, {"spec": 0.5, "phase_o": 0.49}), "phase_o_latency_saving")
    assert slower["value"] < 0
    assert slower["outcome"] == NOT_HELD


def test_counts_are_compared_as_they_are():
    chain = usual()
    assert row(chain, "oracle_bonus_rounds")["outcome"] == HELD
    assert row(chain, "graph_naive_captured")["outcome"] == HELD
    assert row(chain, "graph_naive_pool_extrapolated")["value"] == pytest.approx(3 * 26 / 8)
    memory = row(chain, "graph_end_to_end_memory")
    assert memory["outcome"] == NOT_HELD
    assert "published over 8" in memory["sentence"]
    (before, after) = (row(chain, f"phase_o_syncs_{end}") for end in ("before", "after"))
    assert (before["value"], after["value"]) == (8, 2)


def test_equal_families_are_counted_where_there_are_sixteen():
    assert row(chain_of(("ar", "spec"), families=16), "exact_families")["value"] == 16


def test_too_few_families_leave_it_open():
    found = row(chain_of(("ar", "spec"), families=3), "spec_ratio")
    assert found["outcome"] == OPEN
    assert "3 families" in found["sentence"]


def test_other_contexts_are_held_against_numbers_without_one_only():
    chain = chain_of(("ar", "spec"), context=512)
    assert "spec_ratio" not in set(chain["quantity"])
    assert row(chain, "phase_o_syncs_before")["value"] == 8


def test_what_depends_on_the_number_of_tokens_is_compared_at_the_same_number():
    chain = chain_of(("ar", "spec"), new_tokens=32)
    assert {"spec_ratio", "acceptance_median"} <= set(chain["quantity"])
    assert not {"rounds", "target_calls", "spec_median_latency"} & set(chain["quantity"])


def test_a_share_is_a_mean_and_a_family_of_none_counts():
    design = mechanism_design(
        contexts=[2048], families=FAMILIES[:4], components=None, claims=[],
        modes={name: modes()[name] for name in ("ar", "spec")},
    )  # fmt: skip
    rows, tokens = as_frame(study(design, noise=0.0)), tokens_frame(design)
    ratios = family_ratios(rows, gates_frame(design), tokens, design)
    ratios["acceptance"] = [0.0, 0.4, 0.5, 0.7]
    found = row(judge_chain(rows, ratios, tokens, None, design, PUBLISHED), "acceptance_median")
    assert (found["value"], found["families"]) == (pytest.approx(0.4), 4)
    assert 0 <= found["low"] < 0.4 < found["high"] <= 1


def test_ranks_of_a_made_up_pair_are_not_held_against_those_of_language():
    plan = {"contexts": [2048], "acceptance": [0.54], "spread": 0.05, "k": 4, "seed": 1}
    pair = {
        "target": {"source": "synthetic", "shape": "qwen2.5-1.5b", "plan": plan},
        "draft": {"source": "synthetic", "shape": "qwen2.5-0.5b", "plan": plan},
    }
    chain = chain_of(("ar", "spec"), models=pair, prompts={"source": "synthetic"})
    assert not {"rank_within_5", "gap_within_1"} & set(chain["quantity"])
    assert {"rank_within_5", "gap_within_1"} <= set(usual()["quantity"])


def test_times_of_two_machines_are_held_against_nothing():
    kept = {name: modes()[name] for name in (*_CONTROL, "graph_draft")}
    design = mechanism_design(
        contexts=[2048], families=FAMILIES[:4], modes=kept, components=None, claims=[]
    )
    rows, tokens = as_frame(study(design, noise=0.0, alter=counted)), tokens_frame(design)
    ratios = family_ratios(rows, gates_frame(design), tokens, design)
    held = {"phase_o_latency_saving", "graph_draft_local_speedup"}

    def quantities():
        return set(judge_chain(rows, ratios, tokens, None, design, PUBLISHED)["quantity"])

    assert held <= quantities()
    rows.loc[rows["mode"].eq("phase_o"), "device_uuid"] = "another"
    assert not held & quantities()
