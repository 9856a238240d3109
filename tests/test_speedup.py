"""Ratios of families: truths that go in must come out, and what must not move them."""

from __future__ import annotations

import functools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.analysis.blocks import block_times, measured_runs
from engine.analysis.speedup import family_ratios
from tests.synthetic_judgements import gates_frame, tokens_frame
from tests.synthetic_rows import STEP_S, as_frame, failed_cell, small_design, study

DESIGN = small_design(contexts=[2048], families=["news", "sql", "json"], new_tokens=16)
ARMS = {"ar": "spec", "spec": "ar"}


def ratios_of(rows, design=DESIGN, gates=None, tokens=None) -> pd.DataFrame:
    frame = rows if isinstance(rows, pd.DataFrame) else as_frame(rows)
    gates = gates_frame(design) if gates is None else gates
    return family_ratios(frame, gates, tokens_frame(design) if tokens is None else tokens, design)


def of(table: pd.DataFrame, family: str) -> pd.Series:
    return table.set_index("family").loc[family]


@functools.cache
def noisy() -> pd.DataFrame:
    return as_frame(study(DESIGN, noise=0.02, spread=0.1))


# --- known truths -------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [0.531, 1.0, 2.5])
def test_the_ratio_that_went_in_comes_out(ratio):
    table = ratios_of(study(DESIGN, ratio=ratio, noise=0))
    assert len(table) == 3
    assert table["r"].to_numpy() == pytest.approx(ratio)
    assert table["log_r"].to_numpy() == pytest.approx(math.log(ratio))
    assert np.array(table["r_by_replicate"].tolist()) == pytest.approx(ratio)
    assert (table["blocks"] == 2).all()
    assert table["admitted"].all()
    assert (table["reason"] == "").all()
    assert table["baseline_s"].to_numpy() == pytest.approx(16 * STEP_S)
    assert table["mode_s"].to_numpy() == pytest.approx(16 * STEP_S / ratio)
    assert table["mode_total_median_s"].to_numpy() == pytest.approx(16 * STEP_S / ratio)


def test_each_order_block_has_its_own_ratio_so_an_order_effect_cancels():
    # Whichever arm runs second in its block is 10% slower.
    def speed(cell):
        second = (cell.mode == "spec") == (cell.replicate == 0)
        return (0.7 if cell.mode == "spec" else 1.0) / (1.1 if second else 1.0)

    rows = as_frame(study(DESIGN, ratio=speed, noise=0))
    row = of(ratios_of(rows), "news")
    assert row["r"] == pytest.approx(0.7)
    assert row["r_by_replicate"] == pytest.approx([0.7 / 1.1, 0.7 * 1.1])
    runs = measured_runs(rows)
    pooled = runs[runs["family"] == "news"].groupby("mode")["decode_s"].median()
    assert pooled["ar"] / pooled["spec"] == pytest.approx(0.7 / 1.1)  # 3 + 2 runs hide nothing


def test_stalled_rounds_do_not_move_a_block_time_as_they_move_a_median_of_totals():
    # In the first block of `news` two of three runs stall, each in another round.
    def stall(row):
        first_block = row["family"] == "news" and row["mode"] == "spec" and row["replicate"] == 0
        if not first_block or row["run"] > 1 or row["warmup"] or row["instrumented"]:
            return row
        rounds = list(row["round_s"])
        rounds[row["run"]] *= 50
        return row | {"round_s": rounds, "decode_s": sum(rounds)}

    calm, stalled = (as_frame(study(DESIGN, noise=0, alter=a)) for a in (None, stall))
    calm_blocks, blocks = block_times(calm), block_times(stalled)
    assert blocks["block_s"].to_numpy() == pytest.approx(calm_blocks["block_s"].to_numpy())
    moved = blocks["total_median_s"] > 1.5 * calm_blocks["total_median_s"]
    assert moved.sum() == 1
    assert of(ratios_of(stalled), "news")["r"] == pytest.approx(0.7)


def test_only_measured_undisturbed_runs_carry_the_time():
    def absurd(row):
        spoil = row["warmup"] or row["instrumented"] or row["disturbed"]
        return row | {"round_s": [9.0] * row["rounds"], "decode_s": 9e9} if spoil else row

    def disturb(row):
        hit = row["run"] == 1 and row["replicate"] == 0 and not row["instrumented"]
        return absurd(row | {"disturbed": hit})

    blocks = block_times(as_frame(study(DESIGN, noise=0, alter=disturb)))
    assert blocks["runs"].tolist() == [2] * 12
    spec = blocks[blocks["mode"] == "spec"]
    assert spec["block_s"].to_numpy() == pytest.approx(16 * STEP_S / 0.7)


def test_prefill_and_end_to_end_are_told_apart_from_decoding():
    row = of(ratios_of(study(DESIGN, ratio=2.0, noise=0)), "sql")
    prefill = 0.001 * (2048 - 16)
    assert row["target_prefill_s"] == pytest.approx(prefill)
    assert row["draft_prefill_s"] == pytest.approx(0.3 * prefill)
    assert math.exp(row["log_r_prefill"]) == pytest.approx(1 / 1.3)
    base, mode = prefill + 16 * STEP_S, 1.3 * prefill + 8 * STEP_S
    assert math.exp(row["log_r_end_to_end"]) == pytest.approx(base / mode)


def test_counts_come_from_the_mode_and_agree_with_each_other():
    rows = noisy()
    for row in ratios_of(rows).to_dict("records"):
        assert row["acceptance"] == row["accepted"] / row["proposed"]
        assert sum(row["proposed_by_position"]) == row["proposed"]
        assert sum(row["judged_by_position"]) == row["judged"]
        assert sum(row["accepted_by_position"]) == row["accepted"]
        assert row["target_calls"] == row["rounds"] + row["repairs"]


TWO_BASELINES = small_design(
    contexts=[2048],
    families=["news", "sql"],
    modes=DESIGN.model_dump()["modes"] | {"ar_quick": {"drafter": "none", "baseline": "ar_quick"}},
)


def quick(**made):
    """Rows of two plain modes, the second of which is faster than the mode."""
    speeds = {"ar": 1.0, "ar_quick": 1.5, "spec": 1.2}
    return study(TWO_BASELINES, ratio=lambda cell: speeds[cell.mode], noise=0, **made)


def test_ratios_against_every_further_baseline():
    row = of(ratios_of(quick(), TWO_BASELINES), "sql")
    assert row["baseline"] == "ar"
    assert row["r"] == pytest.approx(1.2)
    assert row["others"] == ["ar_quick"]
    assert np.exp(row["log_r_others"]) == pytest.approx([0.8])


def test_a_further_baseline_of_another_machine_is_not_compared():

    def against(*replicates):
        def alter(row):
            moved = row["mode"] == "ar_quick" and row["replicate"] in replicates
            return {**row, "boot_id": "another"} if moved else row

        return of(ratios_of(quick(alter=alter), TWO_BASELINES), "sql")["log_r_others"]

    assert np.exp(against(0)) == pytest.approx([0.8])
    assert np.isnan(against(0, 1)).all()


def test_times_of_two_machines_make_no_ratio():
    """The gates reject them too, but what is said of all families rests on ratios."""

    def alter(row):
        moved = (row["mode"], row["family"], row["replicate"]) == ("ar", "sql", 1)
        return {**row, "device_uuid": "another"} if moved else row

    row = of(ratios_of(study(DESIGN, ratio=2.0, noise=0, alter=alter)), "sql")
    assert row["blocks"] == 1
    assert row["r"] == pytest.approx(2.0)
    assert not row["admitted"]
    assert "r1: ar and spec were measured on two machines" in row["reason"]


def test_plain_decoding_that_samples_otherwise_is_no_baseline_of_the_mode():
    modes = DESIGN.model_dump()["modes"]
    warm = {"drafter": "none", "baseline": "ar_warm", "sampling": {"temperature": 1.0}}
    design = small_design(contexts=[2048], families=["news"], modes=modes | {"ar_warm": warm})
    assert of(ratios_of(study(design), design), "news")["others"] == []


# --- who is out, and why ------------------------------------------------------------------


def test_a_family_that_fails_a_gate_is_listed_with_its_reason():
    gates = gates_frame(DESIGN, {("2048", "news", "spec"): "ordered"})
    row = of(ratios_of(noisy(), gates=gates), "news")
    assert not row["admitted"]
    assert row["failed_gates"] == ["ordered"]
    assert row["reason"] == "ordered/ordered_clause: 0.5 exceeds 0.02"
    assert math.isfinite(row["log_r"])


def test_clauses_that_do_not_apply_or_judge_the_baseline_alone_keep_nobody_out():
    gates = gates_frame(
        DESIGN, {("2048", "news", "spec"): "closed", ("2048", "sql", "ar"): "closed"}
    )
    gates.loc[(gates["family"] == "news") & ~gates["passed"], "applicable"] = False
    assert ratios_of(noisy(), gates=gates)["admitted"].all()


def test_what_the_gates_have_not_judged_is_not_admitted():
    gates = gates_frame(DESIGN)
    row = of(ratios_of(noisy(), gates=gates[gates["family"] != "sql"]), "sql")
    assert not row["admitted"]
    assert row["reason"] == "no gate has judged it"


def test_a_failed_or_missing_cell_costs_the_family_even_if_the_gates_were_blind():
    def fault(row):
        if row["mode"] == "spec" and row["replicate"] == 1:
            if row["family"] == "news":
                return failed_cell(row, "out_of_memory", "Traceback\ntried to get 3 GiB\n")
            if row["family"] == "sql":
                return None
        return row

    table = ratios_of(study(DESIGN, noise=0, alter=fault))
    assert table["admitted"].tolist() == [False, False, True]
    assert of(table, "news")["reason"] == "spec r1: out_of_memory: tried to get 3 GiB"
    assert of(table, "sql")["reason"] == "spec r1: no rows"
    assert of(table, "sql")["blocks"] == 1
    assert math.isnan(of(table, "sql")["r_by_replicate"][1])


def test_runs_of_unequal_rounds_have_no_block_time():
    def cut(row):
        hit = row["family"] == "news" and row["mode"] == "ar" and row["run"] == 1
        return row | {"round_s": row["round_s"][:-1]} if hit else row

    rows = as_frame(study(DESIGN, noise=0, alter=cut))
    broken = block_times(rows).query("family == 'news' and mode == 'ar'")
    assert broken["block_s"].isna().all()
    assert broken["reason"].eq("its runs differ in their number of rounds (15, 16)").all()
    assert not of(ratios_of(rows), "news")["admitted"]


def test_wrong_tokens_are_told_but_decide_nothing_about_time():
    tokens = tokens_frame(DESIGN, {("2048", "news", "spec"): "failed"})
    tokens = tokens[tokens["family"] != "sql"]
    table = ratios_of(noisy(), tokens=tokens)
    assert table["admitted"].all()
    assert table["exact_outcome"].tolist() == ["failed", "missing", "equal"]


def test_a_mode_without_any_row_is_still_listed():
    table = ratios_of(noisy().query("mode == 'ar'"))
    assert len(table) == 3
    assert not table["admitted"].any()
    assert table[["log_r", "acceptance", "baseline_s"]].isna().all(axis=None)


# --- what must change nothing -------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_order_of_rows_changes_nothing(seed):
    shuffled = noisy().sample(frac=1, random_state=seed).reset_index(drop=True)
    pd.testing.assert_frame_equal(ratios_of(shuffled), ratios_of(noisy()))


@settings(max_examples=10, deadline=None)
@given(st.floats(1e-3, 1e3))
def test_a_slower_clock_changes_no_ratio(factor):
    rows = noisy().copy()
    rows["round_s"] = [np.asarray(r) * factor for r in rows["round_s"]]
    for name in ("decode_s", "target_prefill_s", "draft_prefill_s"):
        rows[name] *= factor
    before, after = ratios_of(noisy()), ratios_of(rows)
    for name in ("log_r", "log_r_prefill", "log_r_end_to_end"):
        assert after[name].to_numpy() == pytest.approx(before[name].to_numpy())
    assert after["mode_s"].to_numpy() == pytest.approx(factor * before["mode_s"].to_numpy())


@settings(max_examples=10, deadline=None)
@given(st.floats(0.2, 5), st.integers(0, 1000))
def test_swapping_the_arms_inverts_the_ratio(ratio, seed):
    rows = as_frame(study(DESIGN, ratio=ratio, noise=0.05, seed=seed))
    swapped = rows.assign(mode=rows["mode"].map(ARMS))
    expected = -ratios_of(rows)["log_r"].to_numpy()
    assert ratios_of(swapped)["log_r"].to_numpy() == pytest.approx(expected)
