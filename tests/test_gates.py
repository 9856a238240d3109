"""The table of the gates, fair studies that must pass, and what must change nothing."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.analysis.gates import GATES, judge, summary
from engine.measure.clock import stalled_share
from tests.planted_faults import (
    failures,
    having,
    retimed,
    tiny_design,
    two_families,
    verdicts,
    where,
)
from tests.synthetic_rows import as_frame, failed_cell, study

_TIMES = ["decode_s", "decode_event_s", "draft_s", "verify_s", "repair_s", "control_s"]


@functools.cache
def _clean() -> tuple:
    design = tiny_design(device="cuda")
    return design, as_frame(study(design))


def test_every_clause_is_one_row_of_every_mode_in_the_order_of_the_design():
    design = two_families(device="cuda")
    rows = as_frame(study(design))
    gates = judge(rows, design)
    clauses = [(gate, c.__name__) for gate, functions in GATES.items() for c in functions]
    places = [(f, m) for f in ("news", "sql") for m in ("ar", "spec")]
    expected = [(f, m, "ar", *clause) for f, m in places for clause in clauses]
    columns = ["family", "mode", "baseline", "gate", "clause"]
    assert list(gates[columns].itertuples(index=False, name=None)) == expected
    assert gates["passed"].dtype == gates["applicable"].dtype == bool
    assert gates["text"].str.len().gt(10).all()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("seed", range(4))
def test_a_fair_study_with_realistic_noise_passes(device, seed):
    design = two_families(device=device)
    rows = study(design, noise={"cpu": 0.025, "cuda": 0.005}[device], spread=0.1, seed=seed)
    gates = judge(as_frame(rows), design)
    assert failures(gates) == set()
    assert summary(gates)["passed"].all()


@pytest.mark.parametrize("seed", range(6))
def test_stalls_of_a_shared_machine_in_single_rounds_fail_neither_steady_nor_precise(seed):
    """METHODS section 4: 27% of the runs stalled, up to 4.7 times."""
    design, rng = two_families(), np.random.default_rng(seed)

    def stall(row):
        if rng.random() >= 0.27:
            return row
        seconds = list(row["round_s"])
        for at in rng.choice(len(seconds), 2, replace=False):
            seconds[at] *= rng.uniform(2, 4.7)
        return {**retimed(row, seconds), "stalled_share": stalled_share(seconds)}

    rows = study(design, noise=0.02, alter=stall)
    assert any(row["stalled_share"] > 0 for row in rows)
    failed = {gate for gate, _ in failures(judge(as_frame(rows), design))}
    assert not failed & {"steady", "precise"}


def test_what_the_device_does_not_report_is_not_applicable():
    nothing = dict.fromkeys(
        ["sm_clock", "throttle_reasons", "foreign_processes", "timed_allocator_growth"]
    )
    design = tiny_design()
    found = verdicts(study(design, alter=where(having(**nothing))), design)
    for clause in ("clock", "throttle", "foreign_processes", "allocator_growth", "events"):
        assert not found[clause].applicable
        assert found[clause].passed


def test_a_baseline_is_judged_alone():
    design = tiny_design()
    rows = study(design, alter=where(having(new_tokens=3), mode="spec"))
    passed = summary(judge(as_frame(rows), design)).set_index(["family", "mode"])["passed"]
    assert passed["news", "ar"]
    assert not passed["news", "spec"]
    rows = study(design, alter=where(having(new_tokens=3), mode="ar"))
    assert not summary(judge(as_frame(rows), design))["passed"].any()


def test_a_failed_cell_is_reported_once():
    design = two_families()
    crash = where(failed_cell, mode="spec", family="news", replicate=0)
    gates = judge(as_frame(study(design, alter=crash)), design)
    assert failures(gates) == {("complete", "status")}
    table = summary(gates).set_index(["family", "mode"])
    assert table.loc[("news", "spec"), "failed"] == ["complete"]
    assert table["passed"].sum() == 3
    other = gates[
        gates["mode"].eq("spec") & gates["family"].eq("news") & gates["gate"].ne("complete")
    ]
    assert not other["applicable"].any()
    assert other["text"].eq("not judged: the cell has no complete runs").all()


@settings(max_examples=10, deadline=None)
@given(st.floats(1e-3, 1e3))
def test_relative_figures_do_not_depend_on_the_unit_of_time(scale):
    design, rows = _clean()
    scaled = rows.copy()
    scaled[_TIMES] = rows[_TIMES] * scale
    scaled["round_s"] = [seconds * scale for seconds in rows["round_s"]]
    scaled["peak_read_bw"] = rows["peak_read_bw"] / scale
    one, other = judge(rows, design), judge(scaled, design)
    np.testing.assert_allclose(one["figure"], other["figure"], rtol=1e-6, atol=1e-9)
    assert (one["passed"] == other["passed"]).all()


@settings(max_examples=10, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_the_rows_changes_nothing(random):
    design, rows = _clean()
    order = list(range(len(rows)))
    random.shuffle(order)
    pd.testing.assert_frame_equal(judge(rows, design), judge(rows.iloc[order], design))


def test_rows_of_other_cells_are_not_looked_at():
    design, rows = _clean()
    stranger = rows.assign(context="4096", torch="0.1", timed_compiles=9)
    both = pd.concat([rows, stranger], ignore_index=True)
    pd.testing.assert_frame_equal(judge(rows, design), judge(both, design))


def test_a_study_without_rows_is_judged_incomplete():
    design, rows = _clean()
    gates = judge(rows.iloc[:0], design)
    assert failures(gates) == {("complete", "status")}
    assert not summary(gates)["passed"].any()
