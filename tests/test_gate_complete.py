"""Gate `complete`: each way in which a planned measurement can be missing, mixed or stale."""

from __future__ import annotations

import pytest

from tests.planted_faults import ARGUMENT, failures_with, having, tiny_design, verdicts, where
from tests.synthetic_rows import failed_cell, study

_RERUN = (
    "run `rm -f results/made-up/timing/2048/news/ar/r0.parquet "
    "results/made-up/timing/2048/news/spec/r0.parquet` and then "
    f"`snakemake --cores 1 {ARGUMENT}`"
)


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        ("crashed", _RERUN),
        ("out_of_memory", "memory or a shorter context"),
        ("timed_out", "time_limit_s"),
        ("not_applicable", "leave the mode out"),
    ],
)
def test_failed_statuses_are_named_with_error_and_remedy(status, advice):
    design = tiny_design()

    def fail(row):
        return failed_cell(row, status, "Traceback\n  somewhere\nRuntimeError: out of luck")

    alter = where(fail, mode="spec", family="news", replicate=0, instrumented=False)
    found = verdicts(study(design, alter=alter), design)["status"]
    assert not found.passed
    assert f"spec r0 ended as {status} (RuntimeError: out of luck)" in found.text
    assert advice in found.text


def test_a_cell_without_rows_is_missing():
    design = tiny_design()
    alter = where(lambda row: None, mode="ar", family="news", replicate=0)
    rows = [row for row in study(design, alter=alter) if not row["warmup"]]
    found = verdicts(rows, design)["status"]
    assert not found.passed
    assert "ar r0 was not measured" in found.text
    assert _RERUN in found.text


@pytest.mark.parametrize("mode", ["ar", "spec"])
@pytest.mark.parametrize(
    ("clause", "change", "run"),
    [
        ("runs", lambda row: None, {"run": 1, "instrumented": False}),
        ("runs", lambda row: None, {"instrumented": True}),
        ("runs", having(disturbed=True), {"instrumented": False}),
        ("token_count", having(new_tokens=63), {"run": 1}),
        ("one_output", having(token_sha256="another"), {"run": 1}),
        ("one_output", having(token_sha256="another"), {"instrumented": True}),
        ("one_trace", lambda row: {**row, "round_m": [4, *row["round_m"][1:-1]]}, {"run": 1}),
        ("own_process", having(pid=1), {"run": 1}),
        ("current", having(cell_sha256="0" * 64), {}),
    ],
)
def test_what_a_cell_can_lack(clause, change, run, mode):
    alter = where(change, mode=mode, family="news", replicate=0, **run)
    assert failures_with(tiny_design(), alter) == {("complete", clause)}


def test_one_output_holds_over_replicates():
    alter = where(having(token_sha256="another"), mode="spec", replicate=1)
    assert failures_with(tiny_design(), alter) == {("complete", "one_output")}


def test_a_repeated_run_does_not_count_twice():
    design = tiny_design()
    rows = study(design)
    repeats = [{**r, "disturbed": True, "stalled_share": 0.5} for r in rows if r["run"] == 1]
    found = verdicts([*repeats, *rows], design)
    assert found["runs"].passed
    assert found["stalls"].passed


@pytest.mark.parametrize("replicate", [0, 1])
@pytest.mark.parametrize(
    "column",
    ["engine_sha256", "torch", "driver", "device_name", "device_uuid", "dtype", "prompt_sha256"],
)
def test_arms_and_replicates_are_measured_alike(column, replicate):
    alter = where(having(**{column: "another"}), mode="spec", replicate=replicate)
    assert failures_with(tiny_design(device="cuda"), alter) == {("complete", "alike")}


def test_arms_share_their_number_of_threads():
    design = tiny_design()
    found = verdicts(study(design, alter=where(having(cpu_threads=1), mode="spec")), design)
    assert not found["alike"].passed
    assert "cpu_threads is 2 in ar r0, ar r1 but 1 in spec r0, spec r1" in found["alike"].text


def test_one_process_measures_one_cell():
    design = tiny_design()
    rows = study(design)
    first = next(r for r in rows if r["mode"] == "ar" and r["replicate"] == 0)
    process = {name: first[name] for name in ("pid", "cell_monotonic_start")}
    alter = where(having(**process), mode="spec", replicate=0, family="news")
    rows = [r for r in study(design, alter=alter) if not r["warmup"]]
    found = verdicts(rows, design)["own_process"]
    assert not found.passed
    assert "2048/news/r0 ar, 2048/news/r0 spec" in found.text


def test_rounds_without_times_do_not_slip_through():
    design = tiny_design()
    alter = where(having(round_s=None), mode="spec", family="news", replicate=0)
    assert failures_with(design, alter) == {("complete", "one_trace")}
