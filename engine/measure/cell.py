"""One timing cell from outside: a thin parent that starts, bounds and outlives the measurement.

Whatever becomes of the measuring process, the cell ends as a rows file: a crashed, starved or
overdue cell is one row with that status, so that the report still renders and names it. Only if
the parent itself is killed is there no file, and the next run of the workflow measures the cell.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.composition import ROOT, engine_sha256
from engine.design import Cell, Design
from engine.measure.job import OUT_OF_MEMORY_EXIT
from engine.measure.lock import machine_lock
from engine.measure.telemetry import boot_id
from engine.measure.workflow_life import workflow_pidfd
from engine.preparation.files import write_json

_LAST_LINES = 12  # of the child's standard error, kept in a failed cell's row


@dataclass(frozen=True)
class Outcome:
    """How the measuring process ended."""

    status: str
    error: str
    rows: list[dict[str, Any]]
    started: datetime
    monotonic: float


def time_cell(
    design: Design, cell: Cell, models: dict[str, Any], prompt: dict[str, Any]
) -> list[dict[str, Any]]:
    """Measure one cell in a process of its own and return its rows, complete and in order.

    `models` holds `target` and `draft` as fetched (with `stop_ids`), `prompt` the token ids and
    their hash. Waits for the machine lock first; the time limit starts when it is held.
    """
    with machine_lock() as lock:
        lock_held = time.perf_counter()
        identity = _identity(design, cell)
        job = {
            "parent": os.getpid(),
            "lock_held": lock_held,
            "cell": design.resolved_cell(cell),
            "target": models["target"],
            "draft": models["draft"],
            "stop_ids": models["stop_ids"],
            "prompt": prompt["tokens"],
            "prompt_sha256": prompt["sha256"],
        }
        outcome = _run_child(job, lock, design.time_limit_s)
    if outcome.status == "ok":
        return [{**identity, "status": "ok", "error": "", **_parsed(row)} for row in outcome.rows]
    return [_failed_row(identity, outcome)]


def _run_child(job: dict[str, Any], lock: int, limit_s: float) -> Outcome:
    started, monotonic = datetime.now(UTC), time.perf_counter()
    kills_before = _memory_kills()
    with tempfile.TemporaryDirectory(prefix="specscale-") as folder:
        job["result"] = str(Path(folder) / "rows.json")
        job_path, stderr_path = Path(folder) / "job.json", Path(folder) / "stderr"
        # A file, not a pipe: a child that hangs before it reads must not hang its parent.
        write_json(job, job_path)
        with stderr_path.open("w+b") as stderr, job_path.open("rb") as stdin:
            child = subprocess.Popen(
                [sys.executable, "-m", "engine.measure.job"],
                cwd=ROOT,
                stdin=stdin,
                stderr=stderr,
                pass_fds=[lock],
                env={**os.environ, **_thread_settings(job["cell"]["cpu_threads"])},
            )
            # Needed when the rows come: read now, while the child imports torch on one core.
            importlib.import_module("engine.measure.rows")
            reason = _wait(child, limit_s)
            stderr.seek(0)
            said = stderr.read().decode(errors="replace").strip()
        if said:
            print(said, file=sys.stderr, flush=True)
        if reason == "timed_out":
            return Outcome(
                "timed_out", f"exceeded time_limit_s of {limit_s:g} s", [], started, monotonic
            )
        if child.returncode == 0:
            rows = json.loads(Path(job["result"]).read_text(encoding="utf-8"))
            return Outcome("ok", "", rows, started, monotonic)
        status, error = _diagnose(child.returncode, said, _memory_kills() - kills_before)
        return Outcome(status, error, [], started, monotonic)


def _thread_settings(threads: int) -> dict[str, str]:
    """Environment of the measuring process, over what Snakemake exports.

    Threads spin for about a millisecond between parallel regions and then sleep. Both ends were
    measured on 2 virtual cores with SmolLM2-135M: threads that sleep at once make a step of 42 ms
    take 65 ms, with a 90th percentile of 127 ms (the host takes an idle core away), and threads
    that spin without end take 1.2 s a step beside one other busy process.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "GOMP_SPINCOUNT": "20000",
        # So that CUDA's device 0 is the card that NVML reads as number 0.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def _wait(child: subprocess.Popen, limit_s: float) -> str:
    """Wait for the child, the time limit, or the death of the workflow that asked for the cell."""
    deadline = time.monotonic() + limit_s
    poller = select.poll()
    child_fd = os.pidfd_open(child.pid)
    poller.register(child_fd, select.POLLIN)
    workflow_fd = workflow_pidfd()
    if workflow_fd is not None:
        poller.register(workflow_fd, select.POLLIN)
    try:
        while True:
            left = deadline - time.monotonic()
            ready = {fd for fd, _ in poller.poll(max(0.0, left) * 1000)}
            if child_fd in ready:
                child.wait()
                return "ended"
            if not ready or workflow_fd in ready:
                child.kill()
                child.wait()
                if not ready:
                    return "timed_out"
                # Nobody would read the rows, and nothing may measure on unseen.
                sys.exit("the workflow that asked for this cell is gone; the cell was stopped")
    finally:
        os.close(child_fd)
        if workflow_fd is not None:
            os.close(workflow_fd)


def _diagnose(returncode: int, said: str, memory_kills: int) -> tuple[str, str]:
    last = "\n".join(said.splitlines()[-_LAST_LINES:])
    if returncode == OUT_OF_MEMORY_EXIT:
        return "out_of_memory", last
    if returncode < 0:
        name = signal.Signals(-returncode).name
        if -returncode == signal.SIGKILL and memory_kills:
            return "out_of_memory", f"killed by the kernel for memory ({name})"
        return "crashed", f"killed by signal {name}" + (f"\n{last}" if last else "")
    return "crashed", last or f"exit status {returncode}"


def _memory_kills() -> int:
    """How often the kernel has killed a process of our control group for memory."""
    try:
        group = Path("/proc/self/cgroup").read_text().partition("0::")[2].strip()
        events = Path(f"/sys/fs/cgroup{group}/memory.events").read_text()
    except OSError:
        return 0
    counts = dict(line.split() for line in events.splitlines())
    return int(counts.get("oom_kill", 0))


def _identity(design: Design, cell: Cell) -> dict[str, Any]:
    mode = design.modes[cell.mode]
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
        "drafter": mode.drafter,
        "k": mode.k,
        "acceptance": mode.acceptance,
        "bonus": mode.bonus,
        "round": mode.round,
        "runtime": mode.runtime,
        "numerics": mode.numerics,
        "baseline": mode.baseline,
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
