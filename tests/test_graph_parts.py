"""Graphs for one part of the round, and one a position: tokens as the device runtime commits them.

On a CPU the steps run launch by launch; capturing them is for tests/test_cuda.py.
"""

import dataclasses
import datetime
import json
import os
import subprocess
import sys

import pytest
import torch

from engine.composition import not_on_cpu
from engine.decoding import acceptance
from engine.decoding.captured import CapturedStep
from engine.decoding.drafters.model import Drafter
from engine.decoding.growing import GrowingCache
from engine.decoding.loop import Generation, decode
from engine.decoding.resources import Resources
from engine.decoding.runtimes import device, graph_draft, graph_naive, graph_verify
from engine.decoding.target import Target
from engine.design import DesignError, parse_design
from engine.measure.cell import _failed_row, _identity, work_of
from engine.measure.child import Outcome
from engine.measure.clock import RoundClock
from engine.measure.job import OUT_OF_MEMORY_EXIT
from engine.measure.rows import to_table
from engine.models.fetching import fetch
from engine.prompts import synthetic_prompt
from tests.random_models import FAMILIES, random_decoder
from tests.test_loop import PROMPT, draft_model, plain_tokens, target_model
from tests.tiny_models import SHAPE
from tests.workspace import ROOT, tiny_design

CPU = torch.device("cpu")


class Replay:
    """What a captured graph would do, done again each time."""

    def __init__(self, runtime, generation, at):
        self.again = lambda: runtime._round(generation, at)

    def replay(self):
        self.again()


@pytest.fixture(autouse=True)
def _uncaptured(monkeypatch):
    monkeypatch.setattr(graph_naive.Runtime, "_captured", lambda *given: Replay(*given))
    monkeypatch.setattr(graph_naive, "pool_bytes", lambda graphs: 7 * len(graphs))


@torch.inference_mode()
def generate(runtime, form, k=4, budget=24, bonus=False, noise=0.1, runs=2):
    """The trace of the last of several runs, and the generation."""
    runtime = runtime.Runtime(CPU)
    capacity, prompt = len(PROMPT) + budget, torch.tensor(PROMPT)
    target = Target(target_model(), capacity)
    drafter = Drafter(Resources(runtime, capacity, lambda: draft_model(noise)))
    for reader in (target, drafter):
        reader.prefill(prompt, 4)
    made = Generation(
        target, runtime, budget, drafter=drafter, rule=acceptance.exact, bonus=bonus,
        watch=RoundClock(),
    )  # fmt: skip
    runtime.prepare(made, k)
    for _ in range(runs):
        target.restart()
        drafter.restart()
        own = dataclasses.replace(made, watch=RoundClock(), trace=type(made.trace)(), committed=[])
        own.watch.start()
        trace = decode(own, form, k)
    return trace, own


@pytest.mark.parametrize("noise", [0.0, 0.1, 5.0])
@pytest.mark.parametrize("form", [("repair", False), ("repair", True), ("folded", True)])
@pytest.mark.parametrize("runtime", [graph_draft, graph_verify])
def test_a_part_on_static_buffers_changes_no_token(runtime, form, noise):
    expected, _ = generate(device, *form[:1], bonus=form[1], noise=noise)
    trace, own = generate(runtime, *form[:1], bonus=form[1], noise=noise)
    assert trace == expected
    assert trace.tokens == plain_tokens(24)
    graphed = own.drafter.step if runtime is graph_draft else own.target.step
    assert isinstance(graphed, CapturedStep)
    assert own.runtime.built.kernels == "twins"
    other = own.target.step if runtime is graph_draft else own.drafter.step
    assert not isinstance(other, CapturedStep)


@pytest.mark.parametrize("noise", [0.0, 0.1, 5.0])
def test_a_graph_a_position_commits_the_same_tokens(noise):
    expected, _ = generate(device, "folded", bonus=True, noise=noise)
    trace, own = generate(graph_naive, "folded", bonus=True, noise=noise)
    assert trace == expected
    assert own.runtime.built.graphs == own.runtime.built.planned == len(trace.round_k)
    assert own.runtime.built.pool_bytes == 7 * len(trace.round_k)
    assert len(own.watch.round_s) == len(trace.round_k)
    assert sum(own.watch.round_s) <= own.watch.decode_s


@torch.inference_mode()
def test_a_shorter_run_needs_no_further_graphs():
    _, own = generate(graph_naive, "folded", bonus=True, runs=1)
    for budget in (5, 9, 23):
        own.target.restart()
        own.drafter.restart()
        again = dataclasses.replace(
            own, trace=type(own.trace)(), committed=[], watch=RoundClock(), budget=budget
        )
        assert decode(again, "folded", 4).tokens == plain_tokens(24)[:budget]


def test_how_far_it_came_is_told_where_memory_ends(monkeypatch):
    made = []

    def captured(runtime, generation, at):
        if len(made) == 2:
            raise MemoryError("no more")
        made.append(at)
        return Replay(runtime, generation, at)

    monkeypatch.setattr(graph_naive.Runtime, "_captured", captured)
    runtimes = []
    keep = type(
        "Kept", (), {"Runtime": lambda d: runtimes.append(graph_naive.Runtime(d)) or runtimes[-1]}
    )
    with pytest.raises(MemoryError):
        generate(keep, "folded", bonus=True)
    built = runtimes[0].built
    assert (built.graphs, built.pool_bytes) == (2, 14)
    assert built.planned > 2
    assert made[0].length > made[1].length  # largest first


_STARVED = """
from engine.decoding.crossings import Built
from engine.measure import job

def prepare(cell_run):
    cell_run.runtime.built = Built(8, 3 << 30, planned=26)
    raise MemoryError("no more")

job.CellRun.prepare = prepare
job.main()
"""


def test_a_cell_whose_memory_ends_while_graphs_are_made_is_a_row_that_says_how_far(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SPECSCALE_CACHE", str(tmp_path))
    plan = {"contexts": [64], "acceptance": [0.5], "families": 1, "vocabulary": 256, "special": 8}
    source = {"source": "synthetic", "shape": SHAPE, "plan": plan}
    design = parse_design(
        tiny_design(
            (tmp_path, tmp_path), contexts=[64], prompts={"source": "synthetic"},
            models={"target": source, "draft": source},
        )
    )  # fmt: skip
    cell = design.cell("64", "news", "spec", 0)
    job = work_of(
        {role: vars(fetch(getattr(design.models, role), ROOT)) for role in ("target", "draft")}
        | {"stop_ids": [248]},
        synthetic_prompt(design, "64", "news"),
    ) | {
        "lock_held": 0.0,
        "cell": design.resolved_cell(cell),
        "parent": os.getpid(),
        "result": str(tmp_path / "rows.json"),
    }
    done = subprocess.run(
        [sys.executable, "-c", _STARVED], input=json.dumps(job), cwd=ROOT, text=True,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == OUT_OF_MEMORY_EXIT
    assert "out of memory: no more" in done.stderr
    reached = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))
    now = datetime.datetime.now(datetime.UTC)
    outcome = Outcome("out_of_memory", "no more", reached, now, 0.0)
    (row,) = to_table([_failed_row(_identity(design, cell), outcome)]).to_pylist()
    assert (row["status"], row["graphs_captured"], row["graphs_planned"]) == (
        "out_of_memory", 8, 26,
    )  # fmt: skip
    assert row["graph_pool_bytes"] == 3 << 30
    assert row["round_s"] is None


@torch.inference_mode()
def test_another_course_than_the_captured_one_is_refused():
    _, own = generate(graph_naive, "folded", bonus=True, runs=1)
    own.runtime._graphs.clear()
    own.target.restart()
    own.drafter.restart()
    again = dataclasses.replace(own, trace=type(own.trace)(), committed=[], watch=RoundClock())
    with pytest.raises(graph_naive.RoundsDiffer, match="took another course"):
        decode(again, "folded", 4)


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_a_growing_cache_gives_the_same_logits_and_writes_them_back(family):
    model = random_decoder(family, "cpu", torch.float32)
    text = torch.randint(model.vocabulary, (30,))
    caches = [model.new_cache(40) for _ in range(2)]
    for cache in caches:
        model.prefill(text[:20], cache, 8)
    growing = GrowingCache(caches[0], model.config.layers)
    for piece in text[20:].split(4):
        own = model.forward(piece, growing, len(piece))
        usual = model.forward(piece, caches[1], len(piece))
        torch.testing.assert_close(own, usual)
    assert caches[0].length == 20
    growing.write_back()
    for layer in range(model.config.layers):
        for one, other in zip(caches[0].view(layer, 30), caches[1].view(layer, 30), strict=True):
            torch.testing.assert_close(one, other)


def test_they_need_a_gpu_and_the_device_runtimes_plain_decoding(tmp_path):
    device_mode = {"drafter": "none", "runtime": "device", "baseline": "plain"}
    model = {"drafter": "model", "k": 4, "round": "folded", "bonus": True, "baseline": "plain"}

    def design(plain=device_mode, **changed):
        modes = {"plain": plain, "own": {**model, **changed}}
        return parse_design(tiny_design((tmp_path, tmp_path), modes=modes))

    for name in ("graph_draft", "graph_verify", "graph_naive"):
        assert "NVIDIA" in not_on_cpu(name)
        assert "NVIDIA" in design(runtime=name).not_applicable("own")
        with pytest.raises(DesignError, match="must have runtime device and numerics"):
            design(plain={**device_mode, "runtime": "eager"}, runtime=name)
        with pytest.raises(DesignError, match="cannot run drafter: none"):
            design(plain={**device_mode, "runtime": name}, runtime=name)
    with pytest.raises(DesignError, match="cannot run round: repair"):
        design(runtime="graph_naive", round="repair", bonus=False)
