"""check_distribution: what it draws, how it judges, and that it finds what is wrong."""

import dataclasses

import numpy as np
import pytest
import torch

from engine.analysis.distribution import fit, judge_counts
from engine.decoding import acceptance, resources
from engine.decoding.sampling.warp import Warp, to_probs
from engine.evidence.distribution import DRAWS, draw_again
from tests.test_sampling import mode_of

VOCABULARY = 300
_GENERATOR = torch.Generator().manual_seed(4)
TARGET = 2 * torch.randn(VOCABULARY, generator=_GENERATOR)
DRAFT = TARGET + torch.randn(VOCABULARY, generator=_GENERATOR)
PROMPT = torch.arange(7)
SETTINGS = {
    "plain": ({"temperature": 1.0}, None),
    "truncated": ({"temperature": 0.9, "top_p": 0.9}, {"temperature": 0.7, "top_k": 9}),
    "penalised": ({"temperature": 0.8, "repetition_penalty": 1.5}, None),
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("rule", ["rejection", "coupled"])
def test_the_acceptance_step_draws_the_target_s_distribution(rule, settings):
    sampling, draft_sampling = SETTINGS[settings]
    mode = mode_of(sampling, rule, draft_sampling=draft_sampling)
    with torch.inference_mode():
        probs, counts = draw_again(mode, 1, PROMPT, TARGET, DRAFT)
    seen = torch.zeros(1, VOCABULARY, dtype=torch.bool).index_fill_(1, PROMPT, True)
    assert torch.equal(probs, to_probs(TARGET[None], Warp(**mode["sampling"]), seen)[0])
    assert counts.sum() == DRAWS >= 20_000
    found = fit(probs.numpy(), counts.numpy(), 1)
    assert found.passed
    assert found.p_value > 0.01


@pytest.mark.parametrize("fault", ["q of other settings", "p instead of the residual"])
def test_it_finds_a_planted_error(fault, monkeypatch):
    def wrong(case):
        if fault == "q of other settings":
            flat = to_probs(DRAFT[None], Warp(2.0)).expand(len(case.block), -1)
            return acceptance.rejection(dataclasses.replace(case, drafted=flat))
        right = acceptance.rejection(case)
        return acceptance.Ruling(right.passes, lambda row: case.choices()[row].view(1))

    monkeypatch.setattr(resources, "acceptance_rule", lambda mode: wrong)
    with torch.inference_mode():
        probs, counts = draw_again(
            mode_of({"temperature": 0.9}, "rejection"), 1, PROMPT, TARGET, DRAFT
        )
    found = fit(probs.numpy(), counts.numpy(), 1)
    assert not found.passed
    assert found.p_value < 0.01


def test_the_limit_is_passed_by_one_honest_sample_in_a_hundred():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(60, 0.3))
    passed = [fit(p, rng.multinomial(20_000, p), seed).passed for seed in range(100)]
    assert 93 <= sum(passed) <= 100


def test_a_token_that_cannot_follow_fails_whatever_else():
    p = np.array([0.5, 0.5, 0.0])
    found = fit(p, np.array([10_000, 10_000, 1]), 1)
    assert not found.passed
    assert found.kl == np.inf
    table = judge_counts(
        [{"context": "256", "family": "news", "mode": "m", "probs": p,
          "counts": np.array([10_000, 10_000, 1])}], 1,
    )  # fmt: skip
    assert "cannot write" in table["text"][0]


def test_kl_and_g_by_hand():
    found = fit(np.array([0.5, 0.5]), np.array([12_000, 8_000]), 1)
    kl = 0.6 * np.log(1.2) + 0.4 * np.log(0.8)
    assert found.kl == pytest.approx(kl)
    assert found.g == pytest.approx(2 * 20_000 * kl)
    assert not found.passed
    assert (found.draws, found.support) == (20_000, 2)
