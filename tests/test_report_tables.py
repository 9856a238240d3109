"""What the report shows, before it is a page: matrices, groups, comparisons, written values."""

from __future__ import annotations

import pandas as pd

from engine.report import absences, formats, gate_matrix
from engine.report.formats import breakable


def test_values_are_written_plainly():
    assert formats.number(float("nan")) == formats.seconds(None) == formats.MISSING
    assert formats.interval({"low": None, "high": 1.0}) == formats.MISSING
    assert formats.interval({"low": 0.5, "high": 1.0}) == "[0.500, 1.000]"
    assert formats.seconds(0.0123) == "0.01230"
    assert formats.count(24.5) == "24.5"
    assert formats.count(16384.0) == "16384"
    assert formats.plain("a\udc80b") == "a?b"


def test_gate_matrix_tells_failed_from_not_applicable():
    clauses = [
        ("steady", True, True), ("steady", True, False), ("closed", False, True),
        ("precise", True, True), ("precise", False, True),
    ]  # fmt: skip
    cell = {"context": "256", "family": "news", "mode": "spec", "baseline": "ar", "clause": "c"}
    gates = pd.DataFrame([{**cell, "gate": g, "applicable": a, "passed": p} for g, a, p in clauses])
    (matrix,) = gate_matrix.matrices(gates, ["256"], ["news"], ["spec"])
    assert dict(zip(matrix["gates"], matrix["rows"][0]["states"][0], strict=True)) == {
        "steady": "fail",
        "precise": "pass",
        "closed": "n/a",
    }
    assert {c["gate"]: (c["failed"], c["judged"]) for c in gate_matrix.counts(gates)} == {
        "steady": (1, 1),
        "precise": (0, 1),
        "closed": (0, 0),
    }


def test_failures_alike_stand_together():
    failures = [
        {"context": c, "family": "news", "mode": "spec", "replicate": 0, "status": "crashed",
         "error": "x" if c != "3" else "y"}
        for c in "123"
    ]  # fmt: skip
    groups = absences.failed_cells({"failures": failures})
    assert [len(group["cells"]) for group in groups] == [2, 1]


def test_a_long_name_breaks_after_an_underscore_and_stays_text():
    assert breakable("question_answering") == "question_<wbr>answering"
    assert breakable("<b>_\x1b[31mred") == "&lt;b&gt;_<wbr>red"
