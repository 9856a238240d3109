"""verdict.json: what was found, on what it rests, and what is missing from it."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from engine.analysis.cause import causes
from engine.analysis.energy import energy_per_token
from engine.analysis.judgement import NOT_JUDGED
from engine.analysis.kept import tokens_kept
from engine.analysis.latency import latency
from engine.analysis.phases import phase_table, speaking
from engine.analysis.provenance import provenance
from engine.analysis.sentences import absentees, basis, failure_lines, sentence
from engine.analysis.summary import context_summary
from engine.analysis.why import why
from engine.design import Design

SCHEMA_VERSION = 5


def build_verdict(
    design: Design,
    rows: pd.DataFrame,
    gates: pd.DataFrame,
    tokens: pd.DataFrame,
    ratios: pd.DataFrame,
    overrides: list[str],
    frozen: dict[str, Any],
    distribution: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """The whole verdict as plain data: times in seconds, missing figures None, no NaN.

    `ratios` comes from `family_ratios` on the same tables; `overrides` are the values given on
    the command line; `frozen` is the record that `freeze_design` keeps ({} if there is none);
    `distribution` is what `check_distribution` found, None if no mode samples.
    """
    least = design.inference.student_t_from
    blamed = causes(speaking(phase_table(rows, design), ratios, design), design)
    same = tokens_kept(rows, design)
    arriving = latency(rows)
    # For readers from short to long; a design's own order says what is measured first.
    contexts = sorted(map(str, design.contexts), key=lambda at: (len(at), at))
    entries = []
    summary = context_summary(ratios, design)
    for entry in sorted(summary, key=lambda entry: contexts.index(entry["context"])):
        cell = (entry["context"], entry["mode"])
        entry |= {"exact": _exact(tokens, *cell), "not_applicable": _not_applicable(rows, *cell)}
        entry |= {"whole_grid": design.whole_grid(entry["mode"]), "tokens_kept": same.get(cell)}
        for name, arm in (("", entry["mode"]), ("baseline_", entry["baseline"])):
            entry[f"{name}latency"] = arriving.get((entry["context"], arm))
        families = design.families_of(entry["mode"])
        for name, arm in (("", entry["mode"]), ("baseline_", entry["baseline"])):
            joules = energy_per_token(rows, entry["context"], arm, families)
            entry[f"{name}energy_j_per_token"] = joules
        entry = _plain(entry | {"cause": blamed.get(cell)})
        entry["sentence"] = sentence(entry, least)
        entries.append(entry | {"why": why(entry)})
    return {
        "schema_version": SCHEMA_VERSION,
        "design": design.design,
        "title": design.title,
        "synthetic": design.synthetic or bool(rows["synthetic"].any()),
        "generated_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": {
            "device": design.device,
            "dtype": design.dtype,
            "cpu_threads": design.cpu_threads,
            "new_tokens": design.new_tokens,
            "contexts": contexts,
            "families": list(design.families),
            "modes": {
                name: mode.composition() | {"measured_on": mode.measured_on}
                for name, mode in design.modes.items()
            },
            "replicates": list(design.replicates),
        },
        "verdicts": entries,
        "distribution": [] if distribution is None else _plain(distribution.to_dict("records")),
        "gates": _gate_counts(gates, design),
        "failures": _failures(design, rows),
        "overrides": list(overrides),
        "changes_after_freeze": _plain(frozen.get("changes", [])),
        "provenance": _plain(provenance(design, rows, frozen)),
        # Filled where the rows are a published reference's: see engine/references.
        "reference": None,
    }


def verdict_lines(verdict: dict[str, Any]) -> list[str]:
    """The verdict for a terminal: a line a context and mode, what it rests on, and who is out."""
    made_up = " (synthetic)" if verdict["synthetic"] else ""
    lines = [f"{verdict['design']}: {verdict['title']}{made_up}"]
    for entry in verdict["verdicts"]:
        lines += [f"{entry['verdict']:<12} {entry['sentence']}", f"  rests on: {basis(entry)}"]
        if entry["why"]:
            lines.append(f"  why: {entry['why']}")
        if entry["families_out"] and not entry["not_applicable"]:
            lines.append(f"  out: {absentees(entry['families_out'])}")
    lines += failure_lines(verdict["failures"])
    if verdict["overrides"]:
        lines.append(f"changed on the command line: {', '.join(verdict['overrides'])}")
    for change in verdict["changes_after_freeze"]:
        lines.append(f"changed after the design was frozen, {change}")
    return lines


def strict_failures(verdict: dict[str, Any]) -> list[str]:
    """The planned inferences that are missing, a sentence each; [] if all were made."""
    return [e["sentence"] for e in verdict["verdicts"] if e["verdict"] == NOT_JUDGED]


def _exact(tokens: pd.DataFrame, context: str, mode: str) -> dict[str, int]:
    """Families by the outcome of the correctness gate; `of` counts those that were compared."""
    outcome = tokens[(tokens["context"] == context) & (tokens["mode"] == mode)]["outcome"]
    return {
        "equal": int(outcome.eq("equal").sum()),
        "near_tie": int(outcome.eq("near_tie").sum()),
        "failed": int(outcome.eq("failed").sum()),
        "of": int((~outcome.isin(("not_applicable", "missing"))).sum()),
    }


def _not_applicable(rows: pd.DataFrame, context: str, mode: str) -> str:
    """Why the device cannot run the mode; '' if it can."""
    cells = rows[(rows["context"] == context) & (rows["mode"] == mode)]
    if len(cells) and cells["status"].eq("not_applicable").all():
        return str(cells["error"].iloc[0]).rstrip(".")
    return ""


def _gate_counts(gates: pd.DataFrame, design: Design) -> dict[str, dict[str, int]]:
    """How many (context, family, mode with a drafter) failed each gate, and of how many."""
    judged = gates[gates["applicable"].astype(bool)]
    judged = judged[judged["mode"].map(lambda name: design.modes[name].speculative)]
    counts = {}
    for gate, clauses in judged.groupby("gate", sort=False):
        passed = clauses.groupby(["context", "family", "mode"])["passed"].all()
        counts[str(gate)] = {"failed": int((~passed.astype(bool)).sum()), "of": len(passed)}
    return counts


def _failures(design: Design, rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Planned cells that hold no measurement, in the planned order."""
    cells = ["context", "family", "mode", "replicate"]
    broken = rows[rows["status"].ne("ok")].drop_duplicates(cells)
    found = {tuple(row[:4]): tuple(row[4:]) for row in broken[[*cells, "status", "error"]].values}
    present = set(rows[cells].drop_duplicates().itertuples(index=False, name=None))
    missing = ("missing", "no rows; the same snakemake command measures it")
    failures = []
    for cell in design.cells():
        key = (cell.context, cell.family, cell.mode, cell.replicate)
        if key in found or key not in present:
            status, error = found.get(key, missing)
            failures.append(dict(zip(cells, key, strict=True)) | {"status": status, "error": error})
    return failures


def _plain(value: Any) -> Any:
    """The value as JSON can hold it: no numpy, and None for what is not a finite number."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
