"""verdict.json keeps to its published schema, whatever became of the study."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator, FormatChecker

from engine.analysis.distribution import judge_counts
from tests.synthetic_mechanism import mechanism_design, mechanism_study
from tests.synthetic_report import REPOSITORY, study_tables
from tests.synthetic_rows import FAMILIES, failed_cell, small_design

SCHEMA = json.loads((REPOSITORY / "workflow/schemas/verdict.schema.json").read_text("utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA, format_checker=FormatChecker())


def faults(verdict: dict[str, Any]) -> list[str]:
    """Where the verdict breaks the schema, after a trip through JSON."""
    read = json.loads(json.dumps(verdict, allow_nan=False))
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(read)]


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema of a value within the schema."""
    if isinstance(schema, dict):
        if schema.keys() & {"type", "enum", "const"} and not isinstance(schema.get("type"), dict):
            yield schema
        for key in ("properties", "additionalProperties", "items"):
            inner = schema.get(key)
            if key == "properties" and inner:
                for value in inner.values():
                    yield from parts(value)
            elif isinstance(inner, dict):
                yield from parts(inner)


def test_the_schema_is_one_and_describes_every_field():
    Draft202012Validator.check_schema(SCHEMA)
    found = list(parts(SCHEMA))
    assert len(found) > 100
    assert [part for part in found if len(part.get("description", "")) < 4] == []


def test_a_study_with_all_mechanism_modes_keeps_to_it():
    _, tables = mechanism_study(mechanism_design(contexts=[2048]))
    assert faults(tables.verdict) == []
    assert any(entry["cause"] for entry in tables.verdict["verdicts"])
    assert {entry["whole_grid"] for entry in tables.verdict["verdicts"]} == {True, False}


@pytest.mark.parametrize(
    "made",
    [
        {},
        {"failed": {("256", name, "spec"): "steady" for name in FAMILIES[:4]}},
        {"alter": lambda row: failed_cell(row)},
        {"alter": lambda row: row if row["mode"] == "ar" else None},
        {"alter": lambda row: failed_cell(row, "not_applicable", "no GPU")
         if row["mode"] == "spec" else row},
        {"overrides": ("seed=7",), "frozen": {"frozen_at": "2026-01-05T08:00:00+00:00",
         "frozen_sha256": "e" * 64, "changes": ["2026-01-06: seed 1 -> 7"]}},
    ],
    ids=["plain", "gated out", "all failed", "no spec", "not applicable", "changed"],
)  # fmt: skip
def test_poor_studies_keep_to_it(made):
    tables = study_tables(small_design(contexts=[256], families=FAMILIES[:4]), **made)
    assert faults(tables.verdict) == []


def test_a_design_of_plain_modes_keeps_to_it():
    modes = {"ar": {"drafter": "none", "baseline": "ar"}}
    tables = study_tables(small_design(contexts=[256], families=FAMILIES[:2], modes=modes))
    assert faults(tables.verdict) == []


def test_a_design_that_samples_keeps_to_it():
    warm = {"sampling": {"temperature": 0.7, "top_p": 0.9}, "baseline": "ar"}
    drafts = {"drafter": "model", "k": 4, "round": "repair", **warm}
    modes = {
        "ar": {"drafter": "none", **warm},
        "rejection": {**drafts, "acceptance": "rejection", "draft_sampling": {"temperature": 1}},
        "typical": {**drafts, "acceptance": "typical", "epsilon": 0.09},
    }
    shares = np.array([0.5, 0.5, 0.0])
    counted = [
        {"context": "256", "family": "news", "mode": name, "probs": shares, "counts": counts}
        for name, counts in (("rejection", np.array([9, 11, 0])), ("other", np.array([9, 10, 1])))
    ]
    design = small_design(contexts=[256], families=FAMILIES[:4], modes=modes)
    tables = study_tables(design, distribution=judge_counts(counted, 1))
    assert faults(tables.verdict) == []
    assert [found["kl"] is None for found in tables.verdict["distribution"]] == [False, True]


def test_the_schema_refuses_what_it_should():
    verdict = study_tables(small_design(contexts=[256], families=FAMILIES[:4])).verdict

    def broken(change) -> list[str]:
        altered = copy.deepcopy(verdict)
        change(altered)
        return faults(altered)

    assert broken(lambda v: v["verdicts"][0].update(verdict="MAYBE"))
    assert broken(lambda v: v["verdicts"][0].pop("why"))
    assert broken(lambda v: v["verdicts"][0].update(surprise=1))
    assert broken(lambda v: v["verdicts"][0].update(r=-0.5))
    assert broken(lambda v: v.update(schema_version=2))
    assert broken(lambda v: v["settings"]["modes"]["spec"].pop("delta"))
