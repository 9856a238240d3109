"""Rounds over static buffers: the same tokens as plain greedy decoding, whatever is composed."""

import pytest
import torch
from tiny_models import tiny_decoder

from engine.decoding.static import StaticRound
from engine.models.synthetic import Plan, hard_norm, synthetic_decoder
from tests.random_models import random_decoder

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
PROMPT, BUDGET = 40, 32


def prompt_of(decoder, length=PROMPT, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(decoder.vocabulary, (length,), generator=generator).to(decoder.device)


def greedy(decoder, prompt, budget=BUDGET):
    """Tokens by the eager decoder, one forward a token."""
    cache = decoder.new_cache(len(prompt) + budget)
    token = decoder.prefill(prompt, cache, 512).argmax(-1, keepdim=True)
    tokens = [int(token)]
    while len(tokens) < budget:
        token = decoder.forward(token, cache)[0].argmax(-1, keepdim=True)
        tokens.append(int(token))
    return tokens


def run(target, prompt, k=0, draft=None, budget=BUDGET, graph=False, **options):
    """Tokens, k and m of each round, and the round object, after a whole generation."""
    capacity = len(prompt) + budget + k + 1
    cache = target.new_cache(capacity)
    draft_cache = draft.new_cache(capacity) if draft else None
    rounds = StaticRound(target, cache, k, budget, draft=draft, draft_cache=draft_cache, **options)
    if graph:
        rounds.capture("round")
    logits = target.prefill(prompt, cache, 512)
    if draft:
        draft.prefill(prompt, draft_cache, 512)
    rounds.begin(len(prompt), logits, budget)
    if graph:
        rounds.run(budget)
        torch.cuda.synchronize()
    for _ in range(budget):  # rounds after the last do nothing
        rounds.replay() if graph else rounds.round()
    ks, ms = rounds.finish()
    cache.expect(len(prompt) + budget - 1)
    return rounds.committed(), ks, ms, rounds


@pytest.fixture(scope="module")
def pair():
    target = tiny_decoder(1)
    return target, tiny_decoder(2, noise_over=target, noise=0.15)


@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize("k", [0, 1, 4, 7])
@torch.inference_mode()
def test_twin_rounds_commit_the_tokens_of_greedy_decoding(pair, k, bonus):
    target, draft = pair
    prompt = prompt_of(target)
    tokens, ks, ms, rounds = run(target, prompt, k, draft if k else None, bonus=bonus, fused=False)
    assert tokens == greedy(target, prompt)
    assert all(m <= n for n, m in zip(ks, ms, strict=True))
    if k:
        assert 0 < sum(ms) < sum(ks)
        own = [m < n or bonus for n, m in zip(ks, ms, strict=True)]
        assert sum(ms) + sum(own) == BUDGET - 1
        assert PROMPT <= rounds.draft_cache.length <= PROMPT + BUDGET - 1


@torch.inference_mode()
def test_a_round_before_the_first_and_after_the_last_does_nothing(pair):
    """Graphs are captured over an idle board, and replays may run past the end."""
    target, draft = pair
    caches = [model.new_cache(PROMPT + 20) for model in pair]
    rounds = StaticRound(target, caches[0], 4, 8, draft=draft, draft_cache=caches[1], fused=False)
    rounds.round()
    assert rounds.committed() == []
    prompt = prompt_of(target)
    logits = target.prefill(prompt, caches[0], 64)
    draft.prefill(prompt, caches[1], 64)
    before = [cache.view(0, PROMPT)[0].clone() for cache in caches]
    rounds.begin(PROMPT, logits, 8)
    for _ in range(20):
        rounds.round()
    assert rounds.committed() == greedy(target, prompt, 8)
    for cache, kept in zip(caches, before, strict=True):
        assert cache.view(0, PROMPT)[0].equal(kept)


@torch.inference_mode()
def test_proposals_are_the_drafts_own_continuation(pair):
    """After every kind of round the draft has read exactly what was committed."""
    target, draft = pair
    prompt = prompt_of(target, seed=5)
    tokens, ks, ms, _ = run(target, prompt, 4, draft, fused=False)
    at = 1
    for n, m in zip(ks, ms, strict=True):
        expected = greedy(draft, torch.cat((prompt, torch.tensor(tokens[:at]))), n)
        agreeing = [a == b for a, b in zip(expected, tokens[at:], strict=False)]
        assert ([*agreeing, False] if n else [False]).index(False) == m
        at += m + 1


@torch.inference_mode()
def test_reference_tokens_stand_in_for_a_draft(pair):
    target, _ = pair
    prompt = prompt_of(target)
    reference = torch.tensor(greedy(target, prompt))
    tokens, ks, ms, _ = run(target, prompt, 4, reference=reference, fused=False)
    assert tokens == reference.tolist()
    assert ms == ks
    wrong = (reference + 1) % target.vocabulary
    wrong[0] = reference[0]
    tokens, ks, ms, _ = run(target, prompt, 4, reference=wrong, fused=False)
    assert tokens == reference.tolist()
    assert sum(ms) == 0
    tokens, ks, ms, _ = run(target, prompt, 4, reference=wrong, fused=False, accept_all=True)
    assert ms == ks


@gpu
@torch.inference_mode()
def test_the_twins_graph_is_exact_in_float32():
    target = random_decoder("llama", "cuda", torch.float32)
    prompt = prompt_of(target)
    expected = greedy(target, prompt)
    assert run(target, prompt, graph=True, fused=False)[0] == expected
    draft = random_decoder("llama", "cuda", torch.float32, num_hidden_layers=2)
    assert run(target, prompt, 4, draft, graph=True, fused=False)[0] == expected


@gpu
@torch.inference_mode()
def test_fused_speculation_commits_the_tokens_of_fused_steps_where_ties_are_near():
    """The hard target's choices hang on the last bits, and still one row says what five say."""
    shape = {
        "model_type": "qwen2",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 64,
    }
    plan = Plan.draw(8192, 4, (0.54,), 4)
    norm = hard_norm(256, 8192)
    target = synthetic_decoder(shape, plan.target_successors, 1, "cuda", torch.bfloat16, norm)
    draft = synthetic_decoder(shape, plan.draft_successors, 2, "cuda", torch.bfloat16)
    differing = 0
    for family in range(4):
        prompt = plan.prompt(family, 0, 700).cuda()
        plain = run(target, prompt, graph=True)[0]
        spec, ks, ms, _ = run(target, prompt, 4, draft, graph=True)
        assert spec == plain
        assert 0 <= sum(ms) < sum(ks)
        cache = target.new_cache(800)
        target.prefill(prompt, cache, 512)
        block = torch.tensor(plain[:5], device="cuda")
        together = target.forward(block, cache, 5)
        cache.trim(700)
        alone = torch.cat([target.forward(block[i : i + 1], cache) for i in range(5)])
        differing += int((together != alone).any())
    assert differing  # or the check above would prove nothing
