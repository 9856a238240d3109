"""The measuring process: loads the models, prefills once, times the runs, writes rows as JSON.

Started by cell.py with the job on standard input; it holds the machine lock through an inherited
descriptor and dies with its parent. It imports neither transformers nor pydantic nor pandas: a
cell spends its seconds on the measurement.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import os
import platform
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.measure.clock import PhaseClock, RoundClock, stalled_share
from engine.measure.peak import peak_read_bandwidth
from engine.measure.telemetry import boot_id, host_hash, telemetry_for

_MAX_REPEATS = 3  # of disturbed runs in a cell, METHODS section 5


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends, however it ends."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before we asked
        os._exit(1)


class CellRun:
    """One prompt prefilled in the caches of one mode, ready to be decoded again and again."""

    def __init__(self, job: dict[str, Any]):
        import torch

        from engine.decoding import resources
        from engine.models.loading import FetchedModel, load_decoder
        from engine.models.ranking import read_ranking

        imported = time.perf_counter()
        self.torch = torch
        self.job = job
        self.cell = cell = job["cell"]
        self.mode = cell["composition"]
        torch.set_num_threads(cell["cpu_threads"])
        torch.manual_seed(cell["seed"])
        self.device = torch.device(cell["device"])
        self.cuda = self.device.type == "cuda"
        self.telemetry = telemetry_for(cell["device"])
        if self.cuda and cell["memory_limit_gib"]:
            total = torch.cuda.get_device_properties(0).total_memory
            fraction = cell["memory_limit_gib"] * 2**30 / total
            torch.cuda.set_per_process_memory_fraction(min(1.0, fraction))
        torch.zeros(1, device=self.device)
        reached = time.perf_counter()
        dtype = getattr(torch, cell["dtype"])
        vocabulary = job["target"]["vocabulary"]
        target = load_decoder(
            FetchedModel(**job["target"]), self.device, dtype, vocabulary=vocabulary
        )
        self.draft = None

        def load_draft():
            self.draft = load_decoder(
                FetchedModel(**job["draft"]), self.device, dtype, target, vocabulary
            )
            if self.mode["draft_vocabulary"]:
                kept = read_ranking(job["draft"]["folder"], self.mode["draft_vocabulary"])
                self.draft = self.draft.trimmed(kept)
            return self.draft

        self.prompt = torch.tensor(job["prompt"], dtype=torch.long, device=self.device)
        self.runtime = resources.build_runtime(self.mode, self.device, job["stop_ids"])
        capacity = len(job["prompt"]) + cell["new_tokens"] + self.runtime.slack
        self.voice, draft_voice = resources.build_voices(
            self.mode, cell["seed"], self.prompt, self.runtime
        )
        self.policy = resources.build_policy(self.mode)
        self.drafter = resources.build_drafter(
            self.mode,
            resources.Resources(
                self.runtime,
                capacity,
                load_draft,
                self._reference_tokens,
                draft_voice,
                self.policy,
                self.mode["draft_window"],
            ),
        )
        self.rule = resources.acceptance_rule(self.mode)
        self.target = resources.build_target(self.mode, target, capacity)
        self.runtime.wait()
        ready = time.perf_counter()
        self.startup = {
            "startup_s": ready - job["lock_held"],
            "startup_import_s": imported - job["lock_held"],
            "startup_device_s": reached - imported,
            "startup_weights_s": ready - reached,
        }

    def _reference_tokens(self) -> list:
        """What plain decoding commits in this very process, with this runtime: the baseline."""
        from engine.decoding.loop import Generation, decode

        budget = self.cell["new_tokens"]
        generation = Generation(
            self.target, self.runtime, budget, ignore_stop=True, voice=self.voice
        )
        decode(generation, "step", 0)
        self.target.restart()
        return generation.committed

    def calibrate(self, steps: int = 32) -> None:
        """Time plain steps for a policy that asks what they cost, once both prompts are read."""
        if not getattr(self.policy, "calibrate", None):
            return
        from engine.decoding.loop import Generation, decode

        watch = RoundClock()
        budget = min(steps, self.cell["new_tokens"])
        generation = Generation(
            self.target, self.runtime, budget, ignore_stop=True, voice=self.voice, watch=watch
        )
        watch.start()
        decode(generation, "step", 0)
        # The first token came with the prefill.
        self.policy.calibrate(watch.round_s[1:])

    def prefill(self) -> tuple[float, float | None]:
        """Seconds that the target and the draft model take to read the prompt."""

        def read(reader) -> float:
            start = time.perf_counter()
            reader.prefill(self.prompt, self.cell["prefill_chunk"])
            self.runtime.wait()
            return time.perf_counter() - start

        target_s = read(self.target)
        draft_s = read(self.drafter) if self.drafter else None
        # A drafter without a model has nothing to read: what it prepares is no user's time.
        return target_s, draft_s if self.draft else None

    def prepare(self) -> float:
        """Have the runtime build what the runs need; seconds that it takes."""
        start = time.perf_counter()
        generation = self._generation(self.cell["new_tokens"], RoundClock())
        self.runtime.prepare(generation, self.mode["k"])
        self.runtime.wait()
        return time.perf_counter() - start

    def built(self) -> dict[str, Any]:
        """Columns that say what the runtime has built, as far as it came."""
        built = self.runtime.built
        return {
            "kernels": built.kernels,
            "graphs_captured": built.graphs,
            "graphs_planned": built.graphs if built.planned is None else built.planned,
            "graph_pool_bytes": built.pool_bytes,
        }

    def _generation(self, budget: int, watch: RoundClock):
        from engine.decoding.loop import Generation

        return Generation(
            target=self.target,
            runtime=self.runtime,
            budget=budget,
            ignore_stop=True,
            drafter=self.drafter,
            rule=self.rule,
            bonus=self.mode["bonus"],
            voice=self.voice,
            policy=self.policy,
            watch=watch,
        )

    def run(self, instrumented: bool, budget: int) -> dict[str, Any]:
        """Decode `budget` tokens from the end of the prompt; returns the run's own columns."""
        from engine.decoding.loop import decode

        torch = self.torch
        self.target.restart()
        if self.drafter:
            self.drafter.restart()
        self.runtime.rewind()
        self.runtime.reset_counts()
        watch = PhaseClock(self.runtime.wait) if instrumented else RoundClock()
        generation = self._generation(budget, watch)
        self.telemetry.begin()
        grown = self._device_allocations()
        compiled, captured = _compiles(), self.runtime.built.graphs
        events = None
        if self.cuda:
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        started, monotonic = datetime.now(UTC), time.perf_counter()
        self.runtime.wait()
        if events:
            events[0].record()
        watch.start()
        trace = decode(generation, self.mode["round"], self.mode["k"])
        if events:
            events[1].record()
        ended, monotonic_end = datetime.now(UTC), time.perf_counter()
        self.runtime.wait()
        tokens = trace.tokens
        event_s = None
        if events:
            event_s = watch.stream_s or events[0].elapsed_time(events[1]) / 1000
        return {
            "started_at": started,
            "ended_at": ended,
            "monotonic_start": monotonic,
            "monotonic_end": monotonic_end,
            "instrumented": instrumented,
            "decode_s": watch.decode_s,
            "decode_event_s": event_s,
            "round_s": watch.round_s,
            "token_arrival_s": watch.token_arrival_s,
            **({f"{p}_s": s for p, s in watch.phase_s.items()} if instrumented else {}),
            "new_tokens": len(tokens),
            "rounds": len(watch.round_s),
            "round_k": trace.round_k,
            "round_m": trace.round_m,
            "target_calls": trace.target_calls,
            "draft_calls": trace.draft_calls,
            "repairs": trace.repairs,
            "catchups": trace.catchups,
            "proposed": sum(trace.proposed_by_position),
            "judged": sum(trace.judged_by_position),
            "accepted": sum(trace.accepted_by_position),
            "proposed_by_position": trace.proposed_by_position,
            "judged_by_position": trace.judged_by_position,
            "accepted_by_position": trace.accepted_by_position,
            **self.runtime.counts(),
            "tokens": tokens,
            "token_sha256": hashlib.sha256(json.dumps(tokens).encode()).hexdigest(),
            "stalled_share": stalled_share(watch.round_s),
            "timed_allocator_growth": self._growth_since(grown),
            "timed_compiles": _compiles() - compiled,
            "timed_captures": self.runtime.built.graphs - captured,
            **self.telemetry.sample(),
        }

    def constants(self) -> dict[str, Any]:
        """Columns that all runs of the cell share."""
        torch, job = self.torch, self.job
        models = [self.target.model, *([self.draft] if self.draft else [])]
        caches = [self.target.cache, *([self.drafter.cache] if self.draft else [])]
        return {
            **self.telemetry.describe(),
            "prompt_tokens": len(job["prompt"]),
            "prompt_sha256": job["prompt_sha256"],
            "weights_bytes": sum(m.weights_bytes for m in models),
            "kv_bytes": sum(c.nbytes for c in caches),
            "step_bytes": self.target.model.step_bytes(len(job["prompt"])),
            **self.built(),
            "target_model": job["target"]["name"],
            "target_sha256": job["target"]["sha256"],
            "draft_model": job["draft"]["name"] if self.draft else None,
            "draft_sha256": job["draft"]["sha256"] if self.draft else None,
            "torch": torch.__version__,
            "cuda": torch.version.cuda if self.cuda else None,
            "python": platform.python_version(),
            "host_hash": host_hash(),
            "pid": os.getpid(),
            "boot_id": boot_id(),
        }

    def _device_allocations(self) -> int | None:
        return self.torch.cuda.memory_reserved() if self.cuda else None

    def _growth_since(self, before: int | None) -> int | None:
        return None if before is None else self.torch.cuda.memory_reserved() - before


def measure(job: dict[str, Any]) -> list[dict[str, Any]]:
    """All rows of one cell, as far as this process knows them (cell.py adds the identity)."""
    cell_run = CellRun(job)
    target_prefill, draft_prefill = cell_run.prefill()
    try:
        capture = cell_run.prepare()
    except Exception as error:
        error.reached = cell_run.built()
        raise
    cell_run.calibrate()
    cell, rows = cell_run.cell, []

    def add(run: int, warmup: bool = False, instrumented: bool = False) -> dict[str, Any]:
        budget = cell["warmup_tokens"] if warmup else cell["new_tokens"]
        measured = cell_run.run(instrumented, budget)
        row = {"run": run, "warmup": warmup, "disturbed": False, **measured}
        rows.append(row)
        return row

    # A prefill is a burst of power: on an H200 the driver then caps the clock for up to 0.25 s.
    warm, run = time.perf_counter() + cell["warmup_s"], 0
    while run < cell["warmup"] or time.perf_counter() < warm:
        add(run, warmup=True)
        run += 1
    repeats = _MAX_REPEATS
    for run in range(cell["runs"]):
        row = add(run)
        while row["stalled_share"] > cell["stalled_share"] and repeats:
            row["disturbed"] = True
            repeats -= 1
            row = add(run)
        # Plain and instrumented runs alternate, so that a slow drift meets both alike.
        if run < cell["instrumented"]:
            add(run, instrumented=True)
    for run in range(cell["runs"], cell["instrumented"]):
        add(run, instrumented=True)
    shared = cell_run.constants()
    cache = shared["last_level_cache"]
    if cache and shared["step_bytes"] > 8 * cache and cell_run.drafter is None:
        weights, wait = cell_run.target.model.weights(), cell_run.runtime.wait
        shared["peak_read_bw"] = peak_read_bandwidth(weights, wait, cell_run.cuda)
    clocks = [row["sm_clock"] for row in rows if row.get("sm_clock")]
    cell_run.telemetry.close()
    cell_end = time.perf_counter()
    for row in rows:
        row |= {
            **cell_run.startup,
            "target_prefill_s": target_prefill,
            "draft_prefill_s": draft_prefill,
            "capture_s": capture,
            "cell_monotonic_start": job["lock_held"],
            "cell_monotonic_end": cell_end,
            "sm_clock_reference": max(clocks, default=None),
            **shared,
        }
    return rows


def _compiles() -> int:
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo.counters["stats"]["unique_graphs"] if dynamo else 0


def main() -> None:
    # No pause of the collector falls into a timed region; a cell is too short to need one, and
    # a walk over torch's objects takes a tenth of a second.
    gc.disable()
    job = json.load(sys.stdin)
    die_with_parent(job["parent"])
    try:
        import torch

        with torch.inference_mode():
            rows = measure(job)
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
        words = (str(error).splitlines() or [type(error).__name__])[0]
        print(f"out of memory: {words}", file=sys.stderr)
        _leave([getattr(error, "reached", {})], job)
        sys.exit(OUT_OF_MEMORY_EXIT)
    _leave(rows, job)
    # The next cell waits for this one: taking the interpreter apart would be half a second.
    sys.stderr.flush()
    os._exit(0)


def _leave(rows: list[dict[str, Any]], job: dict[str, Any]) -> None:
    text = json.dumps(rows, default=lambda value: value.isoformat())
    Path(job["result"]).write_text(text, encoding="utf-8")


OUT_OF_MEMORY_EXIT = 86


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    # torch's CPU allocator raises a plain RuntimeError
    if type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error):
        return True
    # The end of a capture that memory broke off may complain in its own words.
    return error.__context__ is not None and _is_out_of_memory(error.__context__)


if __name__ == "__main__":
    main()
