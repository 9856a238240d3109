"""One timing cell from outside: a thin parent that starts, bounds and outlives the measurement.

Whatever becomes of the measuring process, the cell ends as a rows file: a crashed, starved or
overdue cell is one row with that status, so that the report still renders and names it. Only if
the parent itself is killed is there no file, and the next run of the workflow measures the cell.
"""

from __future__ import annotations

import subprocess
import time
from datetime import UTC, datetime
from typing import Any

from engine.cells import Cell
from engine.composition import ROOT, engine_sha256
from engine.design import Design
from engine.measure.child import Outcome, run_child
from engine.measure.lock import machine_lock
from engine.measure.telemetry import boot_id


def time_cell(
    design: Design, cell: Cell, models: dict[str, Any], prompt: dict[str, Any]
) -> list[dict[str, Any]]:
    """Measure one cell in a process of its own and return its rows, complete and in order.

    `models` holds `target` and `draft` as fetched (with `stop_ids`), `prompt` the token ids and
    their hash. Waits for the machine lock first; the time limit starts when it is held.
    """
    identity = _identity(design, cell)
    why_not = design.not_applicable(cell.mode)
    if why_not:
        now = Outcome("not_applicable", why_not, [], datetime.now(UTC), time.perf_counter())
        return [_failed_row(identity, now)]
    with machine_lock() as lock:
        lock_held = time.perf_counter()
        job = {"lock_held": lock_held, "cell": design.resolved_cell(cell)}
        job |= work_of(models, prompt)
        outcome = run_child("engine.measure.job", job, lock, design.time_limit_s)
    if outcome.status == "ok":
        return [{**identity, "status": "ok", "error": "", **_parsed(row)} for row in outcome.rows]
    return [_failed_row(identity, outcome)]


def work_of(models: dict[str, Any], prompt: dict[str, Any]) -> dict[str, Any]:
    """What a measuring process needs beside its cell: the pair and the prompt."""
    return {
        "target": models["target"],
        "draft": models["draft"],
        "stop_ids": models["stop_ids"],
        "prompt": prompt["tokens"],
        "prompt_sha256": prompt["sha256"],
    }


def _identity(design: Design, cell: Cell) -> dict[str, Any]:
    commit, dirty = _git_state()
    return {
        "design": cell.design,
        "context": cell.context,
        "family": cell.family,
        "mode": cell.mode,
        "block": cell.block,
        "replicate": cell.replicate,
        "order_index": cell.order_index,
        "synthetic": design.synthetic,
        "cell_sha256": design.cell_sha256(cell),
        "engine_sha256": engine_sha256(),
        **design.modes[cell.mode].columns(),
        "planned_tokens": design.new_tokens,
        "planned_runs": design.replicates[cell.replicate],
        "device": design.device,
        "dtype": design.dtype,
        "cpu_threads": design.cpu_threads,
        "seed": design.seed,
        "git_commit": commit,
        "dirty": dirty,
    }


def _git_state() -> tuple[str | None, bool | None]:
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "-uno"))
    except (OSError, subprocess.CalledProcessError):
        return None, None  # an exported tree has no history


def _parsed(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: datetime.fromisoformat(value) if name in ("started_at", "ended_at") else value
        for name, value in row.items()
    }


def _failed_row(identity: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    now, monotonic = datetime.now(UTC), time.perf_counter()
    return {
        **identity,
        **(outcome.rows[0] if outcome.rows else {}),
        "run": 0,
        "warmup": False,
        "instrumented": False,
        "status": outcome.status,
        "error": outcome.error,
        "started_at": outcome.started,
        "ended_at": now,
        "boot_id": boot_id(),
        "monotonic_start": outcome.monotonic,
        "monotonic_end": monotonic,
        "cell_monotonic_start": outcome.monotonic,
        "cell_monotonic_end": monotonic,
    }
