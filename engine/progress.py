"""The line that a cell prints when it is done: which of how many, how fast, how long still."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from engine.cells import Cell
from engine.preparation.files import DamagedFile, read_json, write_json


def plan_progress(pending: list[int], path: Path) -> None:
    """Note the cells (order_index values) that a workflow is about to measure."""
    write_json({"pending": sorted(pending)}, path)
    os.environ.update(SPECSCALE_PROGRESS=str(path.resolve()))


def progress_line(cell: Cell, rows: list[dict[str, Any]], started: float) -> str:
    """E.g. `[7/48] 512 news spec r0: 21.4 tok/s, about 5 min left`.

    `started` is the cell's own start in seconds of the epoch; the first cell's is kept, so that
    set-up does not count. Without a plan (a cell started by hand) the line has no total.
    """
    name = f"{cell.context} {cell.family} {cell.mode} r{cell.replicate}"
    spoilt = ("warmup", "instrumented", "disturbed")
    timed = [r for r in rows if r["status"] == "ok" and not any(r.get(flag) for flag in spoilt)]
    if timed:
        rates = sorted(r["new_tokens"] / r["decode_s"] for r in timed)
        result = f"{rates[len(rates) // 2]:.1f} tok/s"
    else:
        result = f"{rows[0]['status'].replace('_', ' ')}: {rows[0]['error'].splitlines()[-1]}"
    plan = _plan()
    if not plan or cell.order_index not in plan["pending"]:
        return f"{name}: {result}"
    if "started" not in plan:
        plan["started"] = started
        write_json(plan, os.environ["SPECSCALE_PROGRESS"])
    done = plan["pending"].index(cell.order_index) + 1
    total = len(plan["pending"])
    left = (time.time() - plan["started"]) / done * (total - done)
    return f"[{done}/{total}] {name}: {result}, {_about(left)} left"


def _plan() -> dict[str, Any] | None:
    try:
        return read_json(os.environ["SPECSCALE_PROGRESS"])
    except (KeyError, OSError, DamagedFile):
        return None


def _about(seconds: float) -> str:
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min"
