"""The correctness gate: equal tokens, certified near-ties, and everything else."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import composition
from engine.analysis.tokens import compare_tokens, divergences
from tests.planted_faults import having, tiny_design, two_families, where
from tests.synthetic_rows import as_frame, failed_cell, study

_RELAXED = {
    "ar": {"drafter": "none", "baseline": "ar"},
    "spec": {"drafter": "model", "k": 4, "round": "repair", "baseline": "ar"},
    "oracle": {
        "drafter": "model", "k": 4, "round": "repair", "baseline": "ar", "acceptance": "all",
    },
}  # fmt: skip
_AT = 7


@pytest.fixture
def cpu():
    return two_families()


@pytest.fixture
def gpu():
    return tiny_design(device="cuda", dtype="bfloat16")


def _reference(design, alter=lambda tokens: tokens):
    rows = study(design)
    return {
        (row["context"], row["family"], "ar"): alter(list(row["tokens"]))
        for row in rows
        if row["mode"] == "ar"
    }


def _other(tokens, at=_AT):
    return [*tokens[:at], tokens[at] + 1, *tokens[at + 1 :]]


def _diverging(row):
    return {**row, "tokens": _other(row["tokens"])}


_SPEC_OF_NEWS = {"mode": "spec", "family": "news"}


def _outcome(rows, reference, design, certificates=None, mode="spec"):
    table = compare_tokens(as_frame(rows), reference, design, certificates)
    return next(row for row in table.itertuples() if (row.family, row.mode) == ("news", mode))


def _certificate(rows, **changes):
    tokens = next(r for r in rows if (r["family"], r["mode"]) == ("news", "ar"))["tokens"]
    certificate = {
        "context": "2048",
        "family": "news",
        "mode": "spec",
        "position": _AT,
        "token_baseline": tokens[_AT],
        "token_mode": tokens[_AT] + 1,
        "gap_fp32": 0.01,
        "bound": 0.02,
        "top_two": True,
    }
    return pd.DataFrame([certificate | changes])


def test_equal_tokens_pass_and_every_mode_has_a_row(cpu):
    table = compare_tokens(as_frame(study(cpu)), _reference(cpu), cpu)
    assert list(table.columns) == [
        "context", "family", "mode", "baseline", "exact", "outcome", "first_divergence", "gap",
        "bound", "text",
    ]  # fmt: skip
    assert len(table) == 4
    assert table["outcome"].eq("equal").all()
    assert table["first_divergence"].eq(-1).all()


def test_the_reference_may_be_a_table(cpu):
    reference = pd.DataFrame(
        [
            {"context": c, "family": f, "baseline": b, "tokens": np.array(tokens)}
            for (c, f, b), tokens in _reference(cpu).items()
        ]
    )
    assert compare_tokens(as_frame(study(cpu)), reference, cpu)["outcome"].eq("equal").all()


def test_inexact_modes_promise_nothing(monkeypatch):
    monkeypatch.setattr(composition, "acceptance_rules", lambda: ["exact", "all"])
    design = tiny_design(modes=_RELAXED)
    rows = study(design, alter=where(_diverging, mode="oracle"))
    found = _outcome(rows, _reference(design), design, mode="oracle")
    assert (found.outcome, found.exact) == ("not_applicable", False)
    assert _outcome(rows, _reference(design), design).outcome == "equal"


def test_in_fp32_on_a_cpu_no_certificate_helps(cpu):
    rows = study(cpu, alter=where(_diverging, **_SPEC_OF_NEWS))
    found = _outcome(rows, _reference(cpu), cpu, _certificate(rows))
    assert (found.outcome, found.first_divergence) == ("failed", _AT)
    assert "only equality passes" in found.text
    assert divergences(as_frame(rows), cpu) == []


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "near_tie"),
        ({"gap_fp32": 0.02}, "near_tie"),
        ({"gap_fp32": 0.021}, "failed"),
        ({"gap_fp32": np.nan}, "failed"),
        ({"top_two": False}, "failed"),
        ({"token_mode": 1}, "failed"),
        ({"position": _AT + 1}, "failed"),
        ({"family": "sql"}, "failed"),
    ],
)
def test_a_near_tie_needs_a_certificate_of_that_very_divergence(gpu, changes, outcome):
    rows = study(gpu, alter=where(_diverging, **_SPEC_OF_NEWS))
    found = _outcome(rows, _reference(gpu), gpu, _certificate(rows, **changes))
    assert (found.outcome, found.first_divergence) == (outcome, _AT)


def test_without_certificates_a_divergence_fails(gpu):
    rows = study(gpu, alter=where(_diverging, **_SPEC_OF_NEWS))
    found = _outcome(rows, _reference(gpu), gpu)
    assert found.outcome == "failed"
    assert f"new token {_AT} is" in found.text
    assert "no certificate" in found.text


def test_divergences_say_what_a_certificate_must_look_at(gpu):
    rows = study(gpu, alter=where(_diverging, **_SPEC_OF_NEWS))
    (found,) = divergences(as_frame(rows), gpu)
    tokens = next(r for r in rows if (r["family"], r["mode"]) == ("news", "ar"))["tokens"]
    assert (found.context, found.family, found.mode) == ("2048", "news", "spec")
    assert (found.token_baseline, found.token_mode) == (tokens[_AT], tokens[_AT] + 1)
    assert found.tokens == tokens[:_AT]


def test_a_shorter_output_is_no_near_tie(gpu):
    alter = where(lambda row: {**row, "tokens": row["tokens"][:10]}, **_SPEC_OF_NEWS)
    rows = study(gpu, alter=alter)
    found = _outcome(rows, _reference(gpu), gpu, _certificate(rows, position=10))
    assert (found.outcome, found.first_divergence) == ("failed", 10)
    assert divergences(as_frame(rows), gpu) == []


def test_runs_that_differ_among_themselves_fail(gpu):
    rows = study(gpu, alter=where(_diverging, run=1, **_SPEC_OF_NEWS))
    found = _outcome(rows, _reference(gpu), gpu, _certificate(rows))
    assert found.outcome == "failed"
    assert "differ among themselves" in found.text
    assert divergences(as_frame(rows), gpu) == []


def test_a_baseline_that_leaves_its_reference_is_said_to(gpu):
    reference = _reference(gpu, _other)
    base = _outcome(study(gpu), reference, gpu, mode="ar")
    mode = _outcome(study(gpu), reference, gpu)
    assert (base.outcome, base.first_divergence) == ("failed", _AT)
    assert base.text.startswith("ar leaves its own reference")
    assert mode.outcome == "failed"
    assert mode.text.startswith("spec equals ar, but that leaves its own reference")


@pytest.mark.parametrize("mode", ["ar", "spec"])
def test_a_failed_cell_has_nothing_to_compare(cpu, mode):
    rows = study(cpu, alter=where(failed_cell, mode=mode, family="news"))
    rows = [row for row in rows if not row["warmup"]]
    found = _outcome(rows, _reference(cpu), cpu)
    assert found.outcome == "missing"
    assert f"{mode} has no run" in found.text


def test_without_a_reference_nothing_is_certain(cpu):
    found = _outcome(study(cpu), {}, cpu)
    assert found.outcome == "missing"
    assert "no reference tokens of ar" in found.text


def test_warm_up_and_disturbed_runs_do_not_speak(cpu):
    alter = where(lambda row: having(disturbed=True)(_diverging(row)), run=1, **_SPEC_OF_NEWS)
    assert _outcome(study(cpu, alter=alter), _reference(cpu), cpu).outcome == "equal"


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 63))
def test_the_first_divergence_is_found_wherever_it_is(at):
    design = tiny_design()
    alter = where(lambda row: {**row, "tokens": _other(row["tokens"], at)}, **_SPEC_OF_NEWS)
    found = _outcome(study(design, alter=alter), _reference(design), design)
    assert (found.outcome, found.first_divergence) == ("failed", at)
