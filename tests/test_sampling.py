"""Sampling modes on tiny models: the warp, each row's history, and whose text is written."""

import functools

import pytest
import torch
from scipy import stats

from engine.decoding import acceptance, resources
from engine.decoding.drafters.model import Drafter as ModelDrafter
from engine.decoding.loop import Generation, decode
from engine.decoding.sampling.noise import Noise, Purpose
from engine.decoding.sampling.voice import Sampled
from engine.decoding.sampling.warp import Warp, to_probs
from engine.decoding.target import LogitsError, Target
from tests.test_loop import CPU, PROMPT, draft_model, target_model
from tests.tiny_models import VOCABULARY

BUDGET = 20
SETTINGS = {"top_k": None, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
WARPED = {
    "temperature 0.7": {"temperature": 0.7},
    "temperature 1.5": {"temperature": 1.5},
    "top-k": {"temperature": 1.0, "top_k": 7},
    "top-p": {"temperature": 1.2, "top_p": 0.8},
    "min-p": {"temperature": 1.2, "min_p": 0.05},
    "penalty": {"temperature": 0.9, "repetition_penalty": 1.7},
    "all of it": {
        "temperature": 0.9, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.3,
    },
}  # fmt: skip
FORMS = [("repair", False), ("repair", True), ("folded", False), ("folded", True)]


def mode_of(sampling, rule="exact", runtime="eager", draft_sampling=None, **more):
    full = {key: value and SETTINGS | value for key, value in
            (("sampling", sampling), ("draft_sampling", draft_sampling))}  # fmt: skip
    return {"acceptance": rule, "runtime": runtime, **full, **more}


@torch.inference_mode()
def generate(mode, form="step", k=0, bonus=False, seed=1, noise=0.5, budget=BUDGET, stop=()):
    """Tokens of one text, and what the drafter and the rule did."""
    runtime, prompt = resources.build_runtime(mode, CPU, stop), torch.tensor(PROMPT)
    voice, draft_voice = resources.build_voices(mode, seed, prompt, runtime)
    capacity = len(PROMPT) + budget
    target = Target(target_model(), capacity)
    target.prefill(prompt, 4)
    drafter = None
    if form != "step":
        drafter = ModelDrafter(
            resources.Resources(runtime, capacity, lambda: draft_model(noise), None, draft_voice)
        )
        drafter.prefill(prompt, 4)
    rule = resources.acceptance_rule(mode)
    generation = Generation(
        target, runtime, budget, drafter=drafter, rule=rule, bonus=bonus, voice=voice
    )
    return decode(generation, form, k)


@functools.cache
def _plain(name, seed, budget=BUDGET):
    return generate(mode_of(WARPED[name]), seed=seed, budget=budget).tokens


# --- the warp -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WARPED)
def test_the_warp_is_that_of_hugging_face(name):
    from transformers import (
        LogitsProcessorList,
        MinPLogitsWarper,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    settings = SETTINGS | WARPED[name]
    steps = [TemperatureLogitsWarper(settings["temperature"])]
    if settings["repetition_penalty"] != 1:
        steps.insert(0, RepetitionPenaltyLogitsProcessor(settings["repetition_penalty"]))
    if settings["top_k"]:
        steps.append(TopKLogitsWarper(settings["top_k"]))
    if settings["top_p"] < 1:
        steps.append(TopPLogitsWarper(settings["top_p"]))
    if settings["min_p"]:
        steps.append(MinPLogitsWarper(settings["min_p"]))
    generator = torch.Generator().manual_seed(3)
    logits = 2 * torch.randn(50, 61, generator=generator, dtype=torch.float64)
    histories = torch.randint(0, 61, (50, 12), generator=generator)
    theirs = LogitsProcessorList(steps)(histories, logits.clone()).softmax(-1)
    seen = torch.zeros(50, 61, dtype=torch.bool).scatter_(1, histories, True)
    ours = to_probs(logits, Warp(**settings), seen)
    assert torch.allclose(ours, theirs, atol=1e-12, rtol=0)
    assert torch.equal(ours > 0, theirs > 0)


def test_temperature_0_is_the_most_likely_token_and_extremes_change_nothing():
    logits = torch.randn(9, 61, generator=torch.Generator().manual_seed(1))
    cold = to_probs(logits, Warp(0.0, top_k=5, top_p=0.3))
    assert torch.equal(cold.argmax(-1), logits.argmax(-1))
    assert torch.equal(cold.sum(-1), torch.ones(9, dtype=torch.float64))
    plain = logits.double().softmax(-1)
    assert torch.allclose(to_probs(logits, Warp(1.0, top_k=61, top_p=1.0, min_p=0.0)), plain)
    narrow = to_probs(logits, Warp(1.0, top_p=1e-9))
    assert torch.equal(narrow.argmax(-1), logits.argmax(-1))
    assert torch.equal((narrow > 0).sum(-1), torch.ones(9, dtype=torch.long))


EXTREME = {
    "cold": Warp(0.001),
    "hot": Warp(1000.0),
    "one": Warp(1.0, top_k=1),
    "more than there are": Warp(1.0, top_k=10_000_000),
    "hardly any mass": Warp(1.0, top_p=5e-324),
    "as likely as the best": Warp(1.0, min_p=1 - 1e-12),
    "all cut at once": Warp(0.001, 1, 5e-324, 1 - 1e-12, 1000.0),
    "a penalty that divides by nearly nothing": Warp(0.001, repetition_penalty=0.001),
}


@pytest.mark.parametrize("name", EXTREME)
def test_whatever_is_cut_a_token_is_left_to_draw(name):
    least = float("-inf")
    logits = torch.tensor(
        [[0.0, 0.0, 0.0, 0.0], [least, 2.0, least, least], [3e38, -3e38, 0.0, least], [1, 2, 3, 4]]
    )
    seen = torch.tensor([[True, False, True, False]]).expand(4, 4)
    probs = to_probs(logits, EXTREME[name], seen)
    torch.testing.assert_close(probs.sum(-1), torch.ones(4, dtype=torch.float64))
    assert not probs[logits == least].any()
    noise, positions = Noise(1, PROMPT), torch.arange(4)
    for drawn in (noise.race(probs, positions), noise.pick(probs, Purpose.DRAFT, positions)):
        assert bool((probs.gather(-1, drawn[:, None]) > 0).all())


@pytest.mark.parametrize("worst", ["nan", "inf", "-inf"])
def test_logits_that_say_nothing_are_refused_behind_the_prompt(worst):
    class Mute:
        def __init__(self, logits):
            self.logits = torch.tensor(logits)
            self.forward, self.new_cache = None, target_model().new_cache

        def prefill(self, tokens, cache, chunk):
            cache.advance(len(tokens))
            return self.logits

    value = float(worst)
    broken = [value] * 3 if worst == "-inf" else [0.0, value, 1.0]
    with pytest.raises(LogitsError, match="are not finite; try another dtype"):
        Target(Mute(broken), 8).prefill(torch.tensor([1]), 4)
    # Tokens that may not follow are no fault.
    Target(Mute([0.0, float("-inf")]), 8).prefill(torch.tensor([1]), 4)


def test_a_penalty_asks_for_the_history():
    with pytest.raises(ValueError, match="history"):
        to_probs(torch.zeros(1, 5), Warp(1.0, repetition_penalty=1.2))


def test_each_row_has_its_own_history():
    """Row j stands behind the prompt, the committed tokens and d_1..d_j, and no others."""
    block = torch.tensor([40, 41, 42])
    logits = torch.randn(4, VOCABULARY, generator=torch.Generator().manual_seed(2))

    def voice():
        return Sampled(
            Warp(0.8, repetition_penalty=2.0), Noise(1, PROMPT), torch.tensor(PROMPT), torch.tensor
        )

    rows = voice().probs(logits, [50, 51], block)
    for j in range(4):
        alone = voice().probs(logits[j : j + 1], [50, 51, *block[:j].tolist()])
        assert torch.equal(rows[j : j + 1], alone)
    late = voice().probs(logits[:1], [50, 51, 40])
    assert not torch.equal(rows[:1], late)
    assert voice().positions([50, 51], 4).tolist() == [len(PROMPT) + 2 + j for j in range(4)]


# --- coupled: plain sampling's own tokens --------------------------------------------------------


@pytest.mark.parametrize("name", WARPED)
@pytest.mark.parametrize("runtime", ["eager", "device"])
@pytest.mark.parametrize(("form", "bonus"), FORMS)
def test_coupled_sampling_writes_plain_sampling_s_text(name, runtime, form, bonus):
    mode = mode_of(WARPED[name], "coupled", runtime)
    for seed, k, noise in [(1, 1, 0.0), (2, 3, 0.3), (3, 4, 0.5), (4, 7, 5.0), (5, 30, 0.3)]:
        trace = generate(mode, form, k, bonus, seed, noise)
        assert trace.tokens == _plain(name, seed)
        if noise == 0:
            assert sum(trace.round_m) == sum(trace.round_k) > 0


def test_coupled_over_many_seeds():
    mode = mode_of(WARPED["temperature 0.7"], "coupled")
    for seed in range(200):
        form, bonus = FORMS[seed % 4]
        trace = generate(mode, form, 1 + seed % 5, bonus, seed, budget=6)
        assert trace.tokens == _plain("temperature 0.7", seed, 6)


def test_coupled_with_other_settings_of_the_draft_writes_the_same_text():
    mode = mode_of(WARPED["top-p"], "coupled", draft_sampling={"temperature": 0.3, "top_k": 2})
    for seed in range(5):
        assert generate(mode, "folded", 4, True, seed).tokens == _plain("top-p", seed)


@pytest.mark.parametrize(("form", "bonus"), FORMS)
@pytest.mark.parametrize("budget", [1, 2, 3, 5])
def test_a_small_budget_and_a_long_block(form, bonus, budget):
    mode = mode_of(WARPED["temperature 0.7"], "coupled")
    trace = generate(mode, form, 9, bonus, 3, budget=budget)
    assert trace.tokens == _plain("temperature 0.7", 3, budget)


@pytest.mark.parametrize(("form", "bonus"), FORMS)
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_coupled_ends_at_every_position(form, bonus, noise):
    tokens = _plain("temperature 1.5", 2)
    mode = mode_of(WARPED["temperature 1.5"], "coupled")
    for position, token in enumerate(tokens):
        if token not in tokens[:position]:
            trace = generate(mode, form, 4, bonus, 2, noise, stop=[token])
            assert trace.tokens == tokens[: position + 1]
            assert trace.stopped


def test_plain_sampling_s_tokens_come_up_as_often_as_they_should():
    """The first token over many seeds, against p; the text of coupled sampling is the same."""
    runtime, prompt = resources.build_runtime(mode_of(None), CPU, ()), torch.tensor(PROMPT)
    target = Target(target_model(), len(PROMPT) + 1)
    with torch.inference_mode():
        target.prefill(prompt, 4)
        logits, count = target.saved_next[None], 20_000
        mode = mode_of(WARPED["all of it"], "coupled")
        counts = torch.zeros(VOCABULARY)
        for seed in range(count):
            voice, _ = resources.build_voices(mode, seed, prompt, runtime)
            if seed == 0:
                probs = voice.probs(logits, [])[0]
            # One p for all seeds; what differs is the noise.
            counts[voice.noise.race(probs[None], voice.positions([], 1))] += 1
    kept = probs > 0
    assert counts[~kept].sum() == 0
    expected = count * probs[kept]
    assert stats.chisquare(counts[kept].numpy(), expected.numpy()).pvalue > 1e-3


# --- rejection ----------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", ["eager", "device"])
@pytest.mark.parametrize(("form", "bonus"), FORMS)
@pytest.mark.parametrize("rule", ["rejection", "coupled", "exact"])
def test_temperature_0_gives_the_greedy_tokens(rule, form, bonus, runtime):
    cold = mode_of({"temperature": 0.0}, rule, runtime)
    greedy = generate(mode_of(None)).tokens
    for k, noise in [(1, 0.0), (4, 0.3), (30, 5.0)]:
        trace = generate(cold, form, k, bonus, noise=noise)
        assert trace.tokens == greedy
        assert trace == generate(mode_of(None, "exact", runtime), form, k, bonus, noise=noise)
    assert generate(cold).tokens == greedy


@pytest.mark.parametrize("rule", ["rejection", "coupled", "exact"])
def test_temperature_0_with_a_penalty_gives_plain_decoding_s_tokens(rule):
    cold = {"temperature": 0.0, "repetition_penalty": 1.8}
    plain = generate(mode_of(cold)).tokens
    assert plain != generate(mode_of(None)).tokens
    for form, bonus in FORMS:
        assert generate(mode_of(cold, rule), form, 4, bonus).tokens == plain


@pytest.mark.parametrize(("form", "bonus"), FORMS)
def test_one_seed_gives_one_text_on_the_host_and_on_the_device(form, bonus):
    texts = []
    for seed in range(4):
        traces = [
            generate(mode_of(WARPED["top-p"], "rejection", runtime), form, 4, bonus, seed)
            for runtime in ("eager", "device", "eager")
        ]
        assert traces[0] == traces[1] == traces[2]
        texts.append(tuple(traces[0].tokens))
    assert len(set(texts)) == 4


@pytest.mark.parametrize("rule", ["rejection", "coupled"])
def test_a_draft_that_is_the_target_is_always_accepted(rule):
    trace = generate(mode_of(WARPED["all of it"], rule), "folded", 4, True, noise=0.0)
    assert sum(trace.round_m) == sum(trace.round_k) > 0


# --- typical ------------------------------------------------------------------------------------


def _accepted(**sampling):
    mode = mode_of(sampling or None, "typical", epsilon=0.09)
    trace = generate(mode, "folded", 4, True, noise=0.3)
    return sum(trace.round_m) / sum(trace.round_k)


def test_typical_acceptance_passes_more_than_the_exact_rule():
    exact = generate(mode_of(None), "folded", 4, True, noise=0.3)
    assert _accepted() > sum(exact.round_m) / sum(exact.round_k)
    cold = generate(
        mode_of({"temperature": 0.0}, "typical", epsilon=0.09), "folded", 4, True, noise=0.3
    )
    assert cold == exact


def test_typical_acceptance_by_hand():
    """Entropy 0.873 nats, so the floor is min(epsilon, 0.418 sqrt(epsilon)): 0.09, and 0.05."""
    probs = torch.tensor([[0.6, 0.32, 0.08]]).expand(3, 3)
    case = acceptance.Case(torch.tensor([0, 1, 2]), probs.log(), [], resources.Greedy())
    assert acceptance.typical(case, 0.09).passes.tolist() == [True, True, False]
    assert acceptance.typical(case, 0.05).passes.tolist() == [True, True, True]
