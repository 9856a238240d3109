"""A measuring process, from outside: started under the machine's lock, bounded, and diagnosed."""

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
from typing import IO, Any

from engine.composition import ROOT
from engine.measure.forkserver import ForkedProcess, ForkServer
from engine.measure.job import OUT_OF_MEMORY_EXIT
from engine.measure.workflow_life import workflow_pidfd
from engine.preparation.files import write_json

_LAST_LINES = 12  # of the child's standard error, kept in a failed cell's row


@dataclass(frozen=True)
class Outcome:
    """How the measuring process ended; a failed one's row, if any, says how far it came."""

    status: str
    error: str
    rows: list[dict[str, Any]]
    started: datetime
    monotonic: float


def run_child(module: str, job: dict[str, Any], lock: int, limit_s: float) -> Outcome:
    """Run `python -m module` on a job and return what it wrote, or how it failed.

    `lock` is the descriptor that the child inherits. The job's `cell` names its `cpu_threads`.
    """
    # Needed when the rows come, and not beside the measurement.
    importlib.import_module("engine.measure.rows")
    started, monotonic = datetime.now(UTC), time.perf_counter()
    kills_before = _memory_kills()
    with tempfile.TemporaryDirectory(prefix="specscale-") as folder:
        server = ForkServer.connect()
        job |= {"result": str(Path(folder) / "rows.json")}
        job |= {"parent": server.pid if server else os.getpid()}
        job_path, stderr_path = Path(folder) / "job.json", Path(folder) / "stderr"
        # A file, not a pipe: a child that hangs before it reads must not hang its parent.
        write_json(job, job_path)
        with stderr_path.open("w+b") as stderr, job_path.open("rb") as stdin:
            if server:
                try:
                    child = server.fork(module, lock, stdin.fileno(), stderr.fileno())
                except OSError as gone:
                    return Outcome("crashed", f"no process: {gone}", [], started, monotonic)
            else:
                child = _SpawnedProcess(module, job["cell"]["cpu_threads"], lock, stdin, stderr)
            reason, returncode = _wait(child, limit_s)
            stderr.seek(0)
            said = stderr.read().decode(errors="replace").strip()
        if said:
            print(said, file=sys.stderr, flush=True)
        if reason == "timed_out":
            return Outcome(
                "timed_out", f"exceeded time_limit_s of {limit_s:g} s", [], started, monotonic
            )
        if returncode == 0:
            rows = json.loads(Path(job["result"]).read_text(encoding="utf-8"))
            return Outcome("ok", "", rows, started, monotonic)
        status, error = _diagnose(returncode, said, _memory_kills() - kills_before)
        # A child that sees its memory end says how far it came; a killed one says nothing.
        told = returncode == OUT_OF_MEMORY_EXIT
        rows = json.loads(Path(job["result"]).read_text(encoding="utf-8")) if told else []
        return Outcome(status, error, rows, started, monotonic)


class _SpawnedProcess:
    """A measuring process of our own making, where no fork server runs."""

    def __init__(self, module: str, threads: int, lock: int, stdin: IO, stderr: IO):
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            stdin=stdin,
            stderr=stderr,
            pass_fds=[lock],
            env={**os.environ, **thread_settings(threads)},
        )
        self._ended = os.pidfd_open(self._process.pid)

    def fileno(self) -> int:
        return self._ended

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        os.close(self._ended)
        return self._process.wait()


def thread_settings(threads: int) -> dict[str, str]:
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


def _wait(child: ForkedProcess | _SpawnedProcess, limit_s: float) -> tuple[str, int]:
    """Wait for the child, the time limit, or the death of the workflow that asked for the cell.

    Returns what ended the wait, and the child's exit status.
    """
    deadline = time.monotonic() + limit_s
    poller = select.poll()
    poller.register(child, select.POLLIN)
    workflow_fd = workflow_pidfd()
    if workflow_fd is not None:
        poller.register(workflow_fd, select.POLLIN)
    try:
        left = deadline - time.monotonic()
        ready = {fd for fd, _ in poller.poll(max(0.0, left) * 1000)}
        if child.fileno() in ready:
            return "ended", child.wait()
        child.kill()
        returncode = child.wait()
        if not ready:
            return "timed_out", returncode
        # Nobody would read the rows, and nothing may measure on unseen.
        sys.exit("the workflow that asked for this cell is gone; the cell was stopped")
    finally:
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
