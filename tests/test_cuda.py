"""The same code on a GPU: exactness, counted synchronisations, and reduced precision."""

import json
import warnings
from collections import Counter
from pathlib import Path

import pytest
import torch

from engine.decoding import acceptance
from engine.decoding.drafters.model import Drafter
from engine.decoding.loop import Generation, decode
from engine.decoding.resources import Resources
from engine.decoding.runtimes import device as phase_o
from engine.decoding.runtimes import eager, graph, graph_draft, graph_naive, graph_verify
from engine.decoding.target import Target
from engine.design import load_design
from engine.kernels.step import why_not_fused
from engine.measure.clock import PhaseClock, RoundClock
from engine.models.fetching import fetch
from engine.models.loading import load_decoder
from engine.preparation.chat import chat_turn
from engine.prompts import PromptBuilder, read_sources
from tests.workspace import ROOT

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.fixture(scope="module")
def prompts():
    """One prompt of 512 tokens a family, by the target's own tokenizer."""
    from tokenizers import Tokenizer

    data = json.loads(load_design(ROOT / "config" / "paper.yaml").to_json())
    embedded = load_design(ROOT / "config" / "config.yaml")
    design = type(embedded).model_validate({**data, "models": embedded.models.model_dump()})
    folder = Path(fetch(design.models.target, ROOT).folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    sources = read_sources(design.prompts, ROOT)
    builder = PromptBuilder(design, sources, tokenizer, chat_turn(folder))
    return [builder.build("512", family)["tokens"] for family in design.families]


def load_pair(dtype):
    models = load_design(ROOT / "config" / "config.yaml").models
    target = load_decoder(fetch(models.target, ROOT), "cuda", dtype)
    return target, load_decoder(fetch(models.draft, ROOT), "cuda", dtype, target)


def run(pair, prompt, form, k=4, budget=64, runtime=eager):
    device = torch.device("cuda")
    runtime = runtime.Runtime(device)
    capacity = len(prompt) + budget + k + 1
    target = Target(pair[0], capacity)
    ids = torch.tensor(prompt, device=device)
    drafter = None
    with torch.inference_mode():
        target.prefill(ids, 256)
        if form != "step":
            drafter = Drafter(Resources(runtime, capacity, lambda: pair[1]))
            drafter.prefill(ids, 256)
        generation = Generation(
            target,
            runtime,
            budget,
            ignore_stop=True,
            drafter=drafter,
            rule=acceptance.exact,
            bonus=form == "folded",
        )
        runtime.reset_counts()
        return decode(generation, form, k), runtime


def test_speculation_is_exact_in_fp32_on_the_gpu(prompts):
    pair = load_pair(torch.float32)
    for prompt in prompts:
        plain = run(pair, prompt, "step")[0].tokens
        for form in ("repair", "folded"):
            for runtime in (eager, phase_o):
                assert run(pair, prompt, form, runtime=runtime)[0].tokens == plain


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_each_path_is_deterministic_in_half_precision(prompts, dtype):
    pair = load_pair(dtype)
    for form in ("step", "repair", "folded"):
        first, second = (run(pair, prompts[0], form)[0] for _ in range(2))
        assert first == second


def synchronisations(pair, prompt, runtime):
    """Waits that torch's debug mode sees, and the runtime with its own counts."""
    run(pair, prompt, "repair", runtime=runtime)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trace, counted = run(pair, prompt, "repair", runtime=runtime)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    seen = Counter("called a synchronizing" in str(w.message) for w in caught)[True]
    # Two are the prompt's: its copy, and the look whether its logits are finite.
    return trace, seen - 2, counted


def test_every_synchronisation_is_one_that_is_counted(prompts):
    """torch's own debug mode sees the waits that the runtime counted, round ends aside."""
    _, seen, runtime = synchronisations(load_pair(torch.bfloat16), prompts[0], eager)
    named = runtime.syncs.total() - runtime.syncs["round_end"]
    # A copy of host tokens waits as well; it is counted as a copy.
    assert seen == named + runtime.h2d_copies


def test_phase_o_waits_twice_a_round_and_copies_no_token(prompts):
    pair = load_pair(torch.bfloat16)
    trace, seen, runtime = synchronisations(pair, prompts[0], phase_o)
    assert runtime.h2d_copies == 0
    assert seen == runtime.syncs.total() - runtime.syncs["round_end"]
    # One more read for the last token of the budget, which needs no round.
    rounds = len(trace.round_k)
    assert rounds <= runtime.syncs["round_outcome"] + runtime.syncs["last_token"] <= rounds + 1
    assert runtime.syncs["round_end"] == rounds


def test_the_profiler_sees_no_copy_of_tokens_to_the_device(prompts):
    from torch.profiler import ProfilerActivity, profile

    pair, copies = load_pair(torch.bfloat16), {}
    for runtime in (eager, phase_o):
        run(pair, prompts[0], "repair", runtime=runtime)
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
            _, counted = run(pair, prompts[0], "repair", runtime=runtime)
        seen = sum("Memcpy HtoD" in event.name for event in profiler.events())
        copies[runtime] = (seen, counted.h2d_copies)
    # Beside the counted copies: the prompt and the stop tokens, once each at most.
    for seen, counted in copies.values():
        assert counted <= seen <= counted + 2
    assert copies[phase_o][1] == 0 < copies[eager][1]


# --- graphs ---------------------------------------------------------------------------------


class Built:
    """One mode upon a prompt, built once and run again and again, as in a cell."""

    def __init__(self, pair, prompt, runtime, form, k=4, budget=64):
        device = torch.device("cuda")
        self.runtime, self.form, self.k = runtime.Runtime(device), form, k if form != "step" else 0
        capacity = len(prompt) + budget + self.runtime.slack
        self.target, self.drafter = Target(pair[0], capacity), None
        ids = torch.tensor(prompt, device=device)
        with torch.inference_mode():
            self.target.prefill(ids, 256)
            if form != "step":
                self.drafter = Drafter(Resources(self.runtime, capacity, lambda: pair[1]))
                self.drafter.prefill(ids, 256)
            self.runtime.prepare(self.generation(budget, RoundClock()), self.k)

    def generation(self, budget, watch):
        return Generation(
            self.target, self.runtime, budget, ignore_stop=True, drafter=self.drafter,
            rule=acceptance.exact, bonus=self.form == "folded", watch=watch,
        )  # fmt: skip

    @torch.inference_mode()
    def run(self, watch=None, budget=64):
        self.target.restart()
        if self.drafter:
            self.drafter.restart()
        self.runtime.reset_counts()
        generation = self.generation(budget, watch or RoundClock())
        torch.cuda.synchronize()
        generation.watch.start()
        return decode(generation, self.form, self.k)


@pytest.mark.parametrize("runtime", [graph, graph_draft, graph_verify, graph_naive])
def test_graphs_are_exact_in_fp32(prompts, runtime):
    """The twins' graphs, for the fused kernel computes in bf16 alone."""
    pair = load_pair(torch.float32)
    for prompt in prompts[:4]:
        plain = run(pair, prompt, "step")[0].tokens
        built = Built(pair, prompt, runtime, "folded")
        assert built.run().tokens == plain
        assert built.run(budget=20).tokens == plain[:20]
        assert built.run().tokens == plain
        assert built.runtime.built.graphs > 0
        assert built.runtime.built.pool_bytes > 0
        if runtime is graph:
            assert Built(pair, prompt, graph, "step").run().tokens == plain
        if runtime in (graph_draft, graph_verify):
            assert Built(pair, prompt, runtime, "repair").run().tokens == plain


@pytest.fixture(scope="module")
def fused_pair():
    pair = load_pair(torch.bfloat16)
    if reason := why_not_fused(pair[0], 5):
        pytest.skip(reason)
    return pair


def test_fused_speculation_is_plain_decoding_to_the_bit(fused_pair, prompts):
    """Tokens, and what lies in the target's cache, in all families, with real weights."""
    for prompt in prompts:
        plain, spec = (Built(fused_pair, prompt, graph, form) for form in ("step", "folded"))
        traces = [built.run() for built in (plain, spec)]
        assert plain.runtime.built.kernels == spec.runtime.built.kernels == "fused"
        assert traces[0].tokens == traces[1].tokens
        caches = [built.target.cache for built in (plain, spec)]
        assert caches[0].length == caches[1].length == len(prompt) + 63
        for layer in range(fused_pair[0].config.layers):
            for one, other in zip(
                *(cache.view(layer, cache.length) for cache in caches), strict=True
            ):
                assert one.equal(other)


def test_fast_numerics_would_have_differed(fused_pair, prompts):
    """Of the decoder's own steps five rows have other bits than five steps have."""
    target, differing = fused_pair[0], 0
    with torch.inference_mode():
        for prompt in prompts[:4]:
            ids = torch.tensor(prompt, device="cuda")
            cache = target.new_cache(len(ids))
            target.prefill(ids[:-5], cache, 256)
            together = target.forward(ids[-5:], cache, 5)
            cache.trim(len(ids) - 5)
            alone = torch.cat([target.forward(i[None], cache) for i in ids[-5:]])
            differing += int((together != alone).any())
    assert differing


@pytest.mark.parametrize("form", ["step", "folded"])
def test_whole_rounds_wait_once_a_round_at_most(fused_pair, prompts, form):
    built = Built(fused_pair, prompts[0], graph, form)
    built.run()
    captured, watch = built.runtime.built.graphs, RoundClock()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trace = built.run(watch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert built.runtime.syncs.total() <= len(watch.round_s)
    assert built.runtime.h2d_copies == 1
    assert built.runtime.built.graphs == captured
    # Behind the last token, when the clock has stopped: the record of k and m, and the state.
    seen = sum("called a synchronizing" in str(w.message) for w in caught)
    assert seen <= 4
    assert trace.target_calls == (63 if form == "step" else len(trace.round_k))


@pytest.mark.parametrize("form", ["step", "folded"])
def test_the_streams_clock_agrees_with_the_hosts(fused_pair, prompts, form):
    built = Built(fused_pair, prompts[0], graph, form)
    built.run()
    walls = []
    for clock in (RoundClock, lambda: PhaseClock(lambda: None)):
        watch = clock()
        built.run(watch)
        assert watch.stream_s == pytest.approx(watch.decode_s, rel=0.03)
        walls.append(watch.decode_s)
    assert sum(watch.phase_s.values()) == pytest.approx(watch.stream_s, rel=1e-6)
    assert walls[1] == pytest.approx(walls[0], rel=0.15)


def test_memory_that_ends_is_told_with_how_far_graphs_came(prompts):
    """A graph a position, with too little memory for all of them."""
    pair = load_pair(torch.bfloat16)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    room = torch.cuda.memory_reserved() + (512 << 20)
    torch.cuda.set_per_process_memory_fraction(room / total)
    runtimes = []

    class Kept:
        Runtime = staticmethod(
            lambda device: runtimes.append(graph_naive.Runtime(device)) or runtimes[-1]
        )

    try:
        with pytest.raises((torch.OutOfMemoryError, RuntimeError)):
            Built(pair, prompts[0] * 8, Kept, "folded")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    built = runtimes[0].built
    assert 0 <= built.graphs < built.planned


def test_random_numbers_are_the_same_on_the_gpu():
    from engine.decoding.sampling.noise import Noise, Purpose

    noise, at = Noise(7, [1, 2, 3]), torch.arange(5000)
    for purpose in Purpose:
        here, there = (noise.uniform(purpose, positions, 3) for positions in (at, at.cuda()))
        assert torch.equal(here, there.cpu())
    here, there = (noise.exponentials(positions, 500) for positions in (at[:50], at[:50].cuda()))
    # The logarithm of the two may differ in the last digit.
    assert torch.allclose(here, there.cpu(), rtol=1e-14, atol=0)


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_sampling_on_the_gpu(prompts, rule):
    """Coupled writes plain sampling's text; every text is the same again, on host and device.

    A round of the device runtime still waits twice.
    """
    from engine.decoding import resources
    from tests.test_sampling import mode_of

    target_model, draft_model = load_pair(torch.float32)
    sampling = {"temperature": 0.8, "top_p": 0.95, "repetition_penalty": 1.1}

    def text(prompt, form, runtime, rule):
        mode = mode_of(sampling, rule, runtime)
        ids = torch.tensor(prompt, device="cuda")
        moved = resources.build_runtime(mode, ids.device, ())
        voice, draft_voice = resources.build_voices(mode, 5, ids, moved)
        target, drafter = Target(target_model, len(prompt) + 48), None
        target.prefill(ids, 256)
        if form != "step":
            offered = resources.Resources(
                moved, len(prompt) + 48, lambda: draft_model, None, draft_voice
            )
            drafter = Drafter(offered)
            drafter.prefill(ids, 256)
        generation = Generation(
            target, moved, 48,
            ignore_stop=True, drafter=drafter, rule=resources.acceptance_rule(mode),
            bonus=form == "folded", voice=voice,
        )  # fmt: skip
        moved.reset_counts()
        trace = decode(generation, form, 4)
        if runtime == "device" and form == "folded":
            assert moved.syncs["round_outcome"] == len(trace.round_k)
            assert moved.syncs["draft_token"] == 0
        return trace.tokens

    with torch.inference_mode():
        for prompt in prompts[:4]:
            for form in ("repair", "folded"):
                host, device, again = (
                    text(prompt, form, runtime, rule) for runtime in ("eager", "device", "device")
                )
                assert host == device == again
                if rule == "coupled":
                    assert host == text(prompt, "step", "eager", "exact")
