"""A published reference as a study: its rows, judged and explained by the analysis of today."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from engine.analysis.chain import COLUMNS, NUMBERS, judge_chain
from engine.analysis.claims import judge_claims
from engine.analysis.collect import whole_runs
from engine.analysis.explanation import explain
from engine.analysis.gates import judge
from engine.analysis.speedup import family_ratios
from engine.analysis.verdict import SCHEMA_VERSION, build_verdict
from engine.composition import by_the_clock, engine_sha256, policies
from engine.design import Design
from engine.figures.study import Study
from engine.measure.rows import SCHEMA
from engine.preparation.files import read_json
from engine.preparation.freeze import change_lines
from engine.references.record import Record, file_sha256


@dataclass(frozen=True)
class Analysed:
    """What figures and report read of a reference."""

    record: Record
    study: Study
    gates: pd.DataFrame
    tokens: pd.DataFrame
    ratios: pd.DataFrame
    rows: pd.DataFrame

    @property
    def label(self) -> str:
        return self.study.verdict["reference"]["label"]


def read_reference(record: Record) -> pd.DataFrame:
    """The rows, in the columns of today: what their version did not know yet is missing."""
    return as_rows(pq.read_table(record.rows_path))


def as_rows(table: pa.Table) -> pd.DataFrame:
    """Timing rows as the analysis reads them, whatever version of the schema they were of."""
    rows = as_table(table).to_pandas()
    return whole_runs(rows, [name for name in policies() if by_the_clock(name)])


def as_table(table: pa.Table) -> pa.Table:
    """The rows in the columns of today; of one that their version did not know, nulls."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.schema.names
        else pa.nulls(table.num_rows, field.type)
        for field in SCHEMA
    ]
    return pa.table(columns, names=SCHEMA.names).replace_schema_metadata(SCHEMA.metadata)


def older_modes(rows: pd.DataFrame, design: Design) -> list[str]:
    """Modes with rows that this version's engine would measure again, in the design's order.

    A row holds the hash of the measurement core and that of its cell, which covers the files of
    its mode's own parts.
    """
    now = {
        (c.context, c.family, c.mode, c.replicate): design.cell_sha256(c) for c in design.cells()
    }
    core, older = engine_sha256(), set()
    keys = ["context", "family", "mode", "replicate", "engine_sha256", "cell_sha256"]
    for *place, engine, cell in rows[keys].drop_duplicates().itertuples(index=False, name=None):
        if engine != core or cell != now.get(tuple(place)):
            older.add(place[2])
    return [name for name in design.modes if name in older]


def analyse(
    record: Record,
    rows: pd.DataFrame,
    published: pd.DataFrame,
    tokens: pd.DataFrame | None = None,
    found: Mapping[str, pd.DataFrame] | None = None,
) -> Analysed:
    """Gates, ratios, steps and verdict of a reference's rows.

    `tokens` is the whole table of check-tokens where it is at hand; else the record's outcomes
    stand in for it. `found` are tables that cannot be made from rows, by stem.
    """
    design, frozen = record.design, dict(record.frozen)
    gates = judge(rows, design, config_argument=None)
    judged = _outcomes(record) if tokens is None else tokens
    ratios = family_ratios(rows, gates, judged, design)
    frozen["changes"] = change_lines(frozen)
    verdict = build_verdict(design, rows, gates, judged, ratios, frozen["overrides"], frozen)
    verdict["synthetic"] = record.synthetic
    verdict["reference"] = _told(record, older_modes(rows, design))
    waterfall, steps = explain(rows, ratios, design)
    tables = {"rows": rows, "ratios": ratios, "waterfall": waterfall, "steps": steps}
    tables["claims"] = judge_claims(rows, ratios, gates, design)
    trace = (found or {}).get("trace")
    tables["chain"] = judge_chain(rows, ratios, judged, trace, design, published)
    study = Study(verdict, published, {**(found or {}), **tables})
    return Analysed(record, study, gates, judged, ratios, rows)


def frozen_study(record: Record, published: pd.DataFrame) -> Study:
    """The study as it was judged when it was published, in seconds and not minutes.

    The label is of today: the engine may have moved on since. A verdict of an earlier format, or
    one that is not what was published, is made again from the rows.
    """
    rows, path = read_reference(record), record.verdict_path
    kept = path.is_file() and file_sha256(path) == record.verdict_sha256
    verdict = read_json(path) if kept else {"schema_version": None}
    if verdict["schema_version"] != SCHEMA_VERSION:
        return analyse(record, rows, published).study
    verdict["reference"] = _told(record, older_modes(rows, record.design))
    steps = pd.DataFrame(record.tables["steps"], columns=_STEPS)
    steps = steps.astype(dict.fromkeys(("mean", "low", "high"), float))
    # Of records from before a mode could be measured again elsewhere.
    steps["apart"] = steps["apart"].fillna(0).astype(int)
    chain = pd.DataFrame(record.tables["chain"], columns=COLUMNS)
    chain = chain.astype(dict.fromkeys(NUMBERS, float))
    return Study(verdict, published, {"rows": rows, "steps": steps, "chain": chain})


_STEPS = ["context", "before", "after", "term", "mean", "low", "high", "families", "apart"]


def _outcomes(record: Record) -> pd.DataFrame:
    table = [
        {"context": context, "family": family, "mode": mode, "outcome": outcome}
        for mode, places in record.outcomes.items()
        for context, families in places.items()
        for family, outcome in families.items()
    ]
    return pd.DataFrame(table, columns=["context", "family", "mode", "outcome"])


def _told(record: Record, older: list[str]) -> dict[str, Any]:
    return {
        "label": record.label(older),
        "blocks": record.blocks["whole"],
        "blocks_planned": record.blocks["planned"],
        "left_out": list(record.blocks["left_out"]),
        "older_modes": older,
        "device_uuid_sha256": record.measured["device_uuid_sha256"],
        "specscale": record.measured["specscale"],
        "published_at": record.published_at,
    }
