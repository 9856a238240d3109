"""Gates `steady`, `precise`, `undisturbed` and `closed`: what can be wrong with the times."""

from __future__ import annotations

import numpy as np
import pytest

from engine.analysis.gates.precise import block_dispersion
from engine.analysis.gates.steady import block_drift
from engine.measure.clock import stalled_share
from tests.planted_faults import failures_with, having, retimed, tiny_design, verdicts, where
from tests.synthetic_rows import STEP_S, study

_NEWS_SPEC = {"family": "news", "mode": "spec", "instrumented": False}


def _scaled(by, which=slice(None)):
    """A change: these rounds take that much longer."""

    def change(row):
        seconds = np.array(row["round_s"])
        seconds[which] *= by(row) if callable(by) else by
        return retimed(row, seconds.tolist())

    return change


@pytest.mark.parametrize("mode", ["ar", "spec"])
@pytest.mark.parametrize(
    ("gate", "clause", "change"),
    [
        ("steady", "compiles", having(timed_compiles=1)),
        ("steady", "captures", having(timed_captures=1)),
        ("steady", "allocator_growth", having(timed_allocator_growth=2 << 20)),
        ("undisturbed", "clock", having(sm_clock=1800.0)),
        ("undisturbed", "throttle", having(throttle_reasons="hw_thermal_slowdown")),
        ("undisturbed", "foreign_processes", having(foreign_processes=1)),
        ("undisturbed", "memory_headroom", having(memory_available=1 << 20)),
        ("undisturbed", "stalls", having(stalled_share=0.03)),
        ("closed", "events", lambda row: {**row, "decode_event_s": 0.98 * row["decode_s"]}),
    ],
)
def test_one_bad_run_of_either_arm_fails(gate, clause, change, mode):
    alter = where(change, mode=mode, family="news", replicate=0, run=1, instrumented=False)
    assert failures_with(tiny_design(device="cuda"), alter) == {(gate, clause)}


def test_a_drift_of_five_per_cent_fails():
    """The machine slows down in the middle of the middle run and stays so."""
    half = slice(12, None)

    def slow_down(row):
        if row["run"] == 0:
            return row
        return _scaled(1.05, slice(None) if row["run"] == 2 else half)(row)

    alter = where(slow_down, replicate=0, **_NEWS_SPEC)
    assert failures_with(tiny_design(), alter) == {("steady", "drift")}


def test_drift_is_what_has_entered_the_blocks_time():
    def block(*rows):
        return np.array([np.repeat(row, 8) for row in rows], dtype=float)

    entered = np.log(1.2)
    assert block_drift(block((1, 1), (1, 1.2), (1.2, 1.2))) == pytest.approx(entered)
    assert block_drift(block((1, 1), (1, 1.2))) == pytest.approx(entered / 2, rel=0.1)
    # One odd run of three: the medians do not see it.
    assert block_drift(block((1, 1), (1, 1), (1, 1.2))) == 0
    # Rounds that grow alike in all runs, and a run slow from end to end, have not drifted.
    assert block_drift(block((1, 1.2), (1, 1.2), (1, 1.2))) == 0
    assert block_drift(block((1, 1), (1.2, 1.2))) == pytest.approx(0)


def test_dispersion_is_the_formula_of_the_methods():
    steps = np.outer([0.93, 1, 1.07], np.linspace(1, 2, 9))
    assert block_dispersion(steps) == pytest.approx(1.4826 * 0.07)
    assert block_dispersion(steps[:2]) == pytest.approx(1.4826 * 0.035 / 0.965)


def test_noise_of_ten_per_cent_fails():
    assert ("precise", "dispersion") in failures_with(
        tiny_design(device="cuda"), lambda row: row, noise=0.10
    )
    factors = (0.93, 1.0, 1.07)
    uneven = where(_scaled(lambda row: factors[row["run"]]), replicate=0, **_NEWS_SPEC)
    assert failures_with(tiny_design(), uneven) == {("precise", "dispersion")}


@pytest.mark.parametrize(("stalled", "fails"), [(1, False), (4, True)])
def test_stalls_count_above_three_medians(stalled, fails):
    def stall(row):
        seconds = np.array(row["round_s"])
        seconds[5 : 5 + stalled] = 4 * np.median(seconds)
        row = retimed(row, seconds.tolist())
        return {**row, "stalled_share": stalled_share(row["round_s"])}

    design = tiny_design()
    rows = study(design, alter=where(stall, replicate=0, run=0, **_NEWS_SPEC))
    found = verdicts(rows, design)["stalls"]
    assert found.figure == max(row["stalled_share"] for row in rows) > 0
    assert found.passed != fails


def test_phases_that_do_not_close_fail():
    alter = where(
        lambda row: {**row, "control_s": row["control_s"] + 0.03 * row["decode_s"]},
        instrumented=True, mode="spec", family="news", replicate=1,
    )  # fmt: skip
    assert failures_with(tiny_design(), alter) == {("closed", "phases")}


def test_slow_instrumented_runs_fail():
    slow = where(_scaled(1.05), instrumented=True, mode="ar", family="news")
    assert failures_with(tiny_design(), slow) == {("closed", "instrumentation")}


def test_stalls_of_an_instrumented_run_are_outvoted():
    slow = where(_scaled(4, slice(3, 8)), instrumented=True, mode="spec", family="news")
    assert ("closed", "instrumentation") not in failures_with(tiny_design(), slow)


def test_a_design_without_instrumented_runs_is_judged_without_them():
    design = tiny_design(instrumented=[0, 0])
    found = verdicts(study(design), design)
    assert found["runs"].passed
    assert not found["phases"].applicable
    assert not found["instrumentation"].applicable


@pytest.mark.parametrize(("share", "fails"), [(0.98, False), (1.01, True)])
def test_a_step_must_not_beat_the_measured_peak(share, fails):
    design = tiny_design()

    def slow_peak(row):
        steps_s = row["planned_tokens"] * STEP_S
        return {**row, "peak_read_bw": row["step_bytes"] * row["target_calls"] / steps_s / share}

    found = verdicts(study(design, noise=0, alter=where(slow_peak, mode="ar")), design)
    assert found["bandwidth"].figure == pytest.approx(share)
    assert found["bandwidth"].passed != fails


def test_bandwidth_says_nothing_of_a_step_that_fits_the_cache():
    design = tiny_design()
    rows = study(design, alter=where(having(last_level_cache=256 << 20)))
    assert not verdicts(rows, design)["bandwidth"].applicable


def test_one_run_a_block_shows_neither_drift_nor_dispersion():
    design = tiny_design(replicates=[1, 1])
    found = verdicts(study(design), design)
    assert not found["drift"].applicable
    assert not found["dispersion"].applicable
