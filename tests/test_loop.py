"""The decoding loop: exactness, counts, cuts and cache coverage, on random tiny models."""

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoding import acceptance
from engine.decoding.drafters.model import Drafter as ModelDrafter
from engine.decoding.loop import Generation, decode
from engine.decoding.resources import Resources
from engine.decoding.runtimes.eager import Runtime
from engine.decoding.target import Target
from engine.models.cache import CacheError
from tests.tiny_models import VOCABULARY, tiny_decoder

PROMPT = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7]
CPU = torch.device("cpu")


@functools.cache
def target_model():
    return tiny_decoder(1)


@functools.cache
def draft_model(noise: float):
    return tiny_decoder(2, noise_over=target_model(), noise=noise)


class ScriptedDrafter:
    """Proposes what a script says for each absolute position; no model, no cache."""

    def __init__(self, script):
        self.script, self.calls, self.catchups, self.kept = script, 0, 0, None
        self.probabilities = None

    def prefill(self, prompt, chunk): ...
    def restart(self): ...
    def catch_up(self, committed): ...
    def expect(self, length): ...

    def propose(self, committed, k):
        return [self.script(len(committed) + j) for j in range(k)]

    def update(self, kept):
        self.kept = kept


@torch.inference_mode()
def generate(form="step", k=0, budget=24, stop=(), bonus=False, drafter=None, noise=0.1, **more):
    runtime = Runtime(CPU, stop)
    capacity = len(PROMPT) + budget + k + 2
    target = Target(target_model(), capacity)
    prompt = torch.tensor(PROMPT)
    target.prefill(prompt, 4)
    if form == "step":
        drafter = None
    elif drafter is None:
        drafter = ModelDrafter(Resources(runtime, capacity, lambda: draft_model(noise)))
        drafter.prefill(prompt, 4)
    generation = Generation(
        target, runtime, budget, drafter=drafter, rule=acceptance.exact, bonus=bonus, **more
    )
    trace = decode(generation, form, k)
    return trace, generation


@functools.cache
def plain_tokens(budget=24):
    return generate(budget=budget)[0].tokens


FORMS = st.sampled_from([("repair", False), ("repair", True), ("folded", False), ("folded", True)])


@settings(deadline=None, max_examples=120)
@given(
    form=FORMS,
    k=st.integers(1, 9),
    budget=st.integers(1, 24),
    noise=st.sampled_from([0.0, 0.02, 0.05, 0.1, 0.3, 5.0]),
)
def test_speculation_gives_the_target_s_own_tokens(form, k, budget, noise):
    trace, generation = generate(form[0], k, budget, bonus=form[1], noise=noise)
    assert trace.tokens == plain_tokens(budget)
    rounds = len(trace.round_k)
    if form[0] == "repair":
        assert trace.target_calls == rounds + trace.repairs
    else:
        assert trace.target_calls == rounds
    assert sum(trace.accepted_by_position) == sum(trace.round_m)
    assert sum(trace.proposed_by_position) == sum(trace.round_k)
    assert all(
        a <= j <= p
        for a, j, p in zip(
            trace.accepted_by_position,
            trace.judged_by_position,
            trace.proposed_by_position,
            strict=True,
        )
    )
    assert generation.target.cache.length <= generation.length
    assert generation.drafter.cache.length <= generation.length


@settings(deadline=None, max_examples=60)
@given(form=FORMS, k=st.integers(1, 6), hits=st.lists(st.booleans(), min_size=24, max_size=24))
def test_any_pattern_of_hits_and_misses_is_exact(form, k, hits):
    tokens = plain_tokens()

    def script(position):
        if position >= len(tokens):
            return 0
        return tokens[position] if hits[position] else (tokens[position] + 1) % VOCABULARY

    trace, generation = generate(form[0], k, bonus=form[1], drafter=ScriptedDrafter(script))
    assert trace.tokens == tokens
    assert generation.target.cache.length <= len(PROMPT) + len(tokens)


@pytest.mark.parametrize("form", ["repair", "folded"])
@pytest.mark.parametrize("bonus", [False, True])
def test_a_draft_that_is_the_target_is_always_accepted(form, bonus):
    trace, _ = generate(form, 4, bonus=bonus, noise=0.0)
    assert trace.tokens == plain_tokens()
    assert sum(trace.round_m) == sum(trace.round_k) > 0


@pytest.mark.parametrize(
    ("form", "bonus", "rounds"), [("repair", False, 16), ("repair", True, 13), ("folded", True, 13)]
)
def test_full_acceptance_needs_the_published_number_of_rounds(form, bonus, rounds):
    """METHODS section 2: 64 tokens at k = 4 take 16 rounds, 13 with the bonus token."""
    trace, _ = generate(form, 4, budget=64, bonus=bonus, noise=0.0)
    assert len(trace.round_k) == rounds
    assert len(trace.tokens) == 64


@pytest.mark.parametrize("form", ["repair", "folded"])
@pytest.mark.parametrize("bonus", [False, True])
@pytest.mark.parametrize("noise", [0.0, 0.1, 5.0])
def test_the_end_of_sequence_cuts_at_every_position(form, bonus, noise):
    tokens = plain_tokens()
    for position, token in enumerate(tokens):
        if token in tokens[:position]:
            continue
        trace, generation = generate(form, 4, bonus=bonus, noise=noise, stop=[token])
        assert trace.stopped
        assert trace.tokens == tokens[: position + 1]
        assert generation.target.cache.length <= generation.length
        assert generation.drafter.cache.length <= generation.length
        # What lies behind the cut was not judged for the user.
        assert sum(trace.round_m) <= len(trace.tokens)
        assert all(m <= k for m, k in zip(trace.round_m, trace.round_k, strict=True))


@pytest.mark.parametrize(("form", "bonus", "slots"), [("repair", False, 4), ("repair", True, 5)])
def test_a_stop_token_in_every_slot_of_a_block(form, bonus, slots):
    """Blocks of four that are fully accepted, and the bonus token, cut at each slot."""
    tokens, cut = plain_tokens(), set()
    for position, token in enumerate(tokens):
        if token in tokens[:position]:
            continue
        trace, _ = generate(form, 4, bonus=bonus, noise=0.0, stop=[token])
        whole_rounds = slots * (len(trace.round_k) - 1)
        cut.add(position - whole_rounds)
        assert trace.round_m[-1] == min(4, position - whole_rounds + 1)
    assert cut == set(range(slots))


@pytest.mark.parametrize("form", ["step", "repair", "folded"])
def test_timing_runs_pay_for_the_stop_check_but_go_on(form):
    stop = [plain_tokens()[3]]
    trace, generation = generate(form, 4 * (form != "step"), stop=stop, ignore_stop=True)
    assert trace.tokens == plain_tokens()
    assert not trace.stopped
    assert generation.runtime.syncs["stop_check"] >= len(trace.round_k)


def test_a_round_of_four_waits_eight_times():
    """The published baseline: eight synchronisations, each with its name."""
    runtime_counts = []

    class Counting:
        def enter(self, phase): ...
        def arrived(self, tokens): ...
        def lap(self):
            runtime_counts.append(dict(generation.runtime.syncs))
            generation.runtime.reset_counts()

    runtime = Runtime(CPU)
    target = Target(target_model(), 64)
    target.prefill(torch.tensor(PROMPT), 64)
    drafter = ModelDrafter(Resources(runtime, 64, lambda: draft_model(5.0)))
    drafter.prefill(torch.tensor(PROMPT), 64)
    generation = Generation(
        target, runtime, 24, drafter=drafter, rule=acceptance.exact, watch=Counting()
    )
    with torch.inference_mode():
        decode(generation, "repair", 4)
    assert runtime_counts[0] == {
        "draft_token": 4,
        "accepted_count": 1,
        "replacement_token": 1,
        "stop_check": 1,
        "round_end": 1,
    }


def test_restarting_repeats_the_same_tokens():
    runtime = Runtime(CPU)
    target = Target(target_model(), 64)
    drafter = ModelDrafter(Resources(runtime, 64, lambda: draft_model(0.5)))
    prompt = torch.tensor(PROMPT)
    with torch.inference_mode():
        target.prefill(prompt, 3)
        drafter.prefill(prompt, 3)
        seen = []
        for _ in range(3):
            target.restart()
            drafter.restart()
            generation = Generation(target, runtime, 20, drafter=drafter, rule=acceptance.exact)
            seen.append(decode(generation, "repair", 4))
    assert seen[0] == seen[1] == seen[2]
    assert seen[0].tokens == plain_tokens()[:20]


@pytest.mark.parametrize("form", ["repair", "folded"])
def test_a_rejected_token_left_in_the_cache_is_caught(form, monkeypatch):
    """Planted fault: trimming that does nothing must not pass the coverage check."""
    monkeypatch.setattr("engine.models.cache.Cache.trim", lambda self, length: None)
    with pytest.raises(CacheError, match="expected"):
        generate(form, 4, noise=5.0)


def test_a_draft_cache_that_misses_a_token_is_caught(monkeypatch):
    """Planted fault: a drafter that never catches up covers too little."""
    monkeypatch.setattr(ModelDrafter, "catch_up", lambda self, committed: None)
    with pytest.raises(CacheError, match="expected"):
        generate("repair", 4, noise=0.1)


@pytest.mark.parametrize("noise", [0.0, 0.1, 5.0])
def test_no_forward_is_made_whose_result_is_not_used(noise):
    """The draft runs k - 1 times a round, once more before each further round, never after."""
    trace, _ = generate("repair", 4, budget=24, noise=noise)
    rounds = len(trace.round_k)
    assert trace.draft_calls == sum(k - 1 for k in trace.round_k) + rounds - 1
    assert trace.repairs <= rounds
