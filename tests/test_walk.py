"""The walk repeats the loop: every round, every forward, for any k, form and text."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.analysis.walk import full_rounds, walk
from engine.evidence.agreement import _forced, _positions
from tests.test_loop import FORMS, PROMPT, draft_model, generate, plain_tokens, target_model


def matches(budget: int, noise: float) -> list[int]:
    """The acceptance trace of the tiny pair, by the project's own rule."""
    tokens = plain_tokens(budget)
    ids = torch.tensor([*PROMPT, *tokens])
    with torch.inference_mode():
        judges, drafts = (
            _forced(model, ids, budget, 7) for model in (target_model(), draft_model(noise))
        )
    rows = list(_positions(("256", "news"), tokens, judges, drafts))
    assert [row["token"] for row in rows] == tokens
    # The target's own choice is the reference: its gap is 0 wherever the draft agrees.
    assert all((row["gap"] == 0) == (row["rank"] == 1) for row in rows)
    return [row["matches"] for row in rows]


@settings(deadline=None, max_examples=150)
@given(
    form=FORMS,
    k=st.integers(1, 9),
    budget=st.integers(2, 24),
    noise=st.sampled_from([0.0, 0.05, 0.1, 0.3, 5.0]),
)
def test_the_walk_takes_the_rounds_that_the_loop_takes(form, k, budget, noise):
    trace, _ = generate(form[0], k, budget, bonus=form[1], noise=noise)
    rounds = walk(matches(budget, noise), k, form[0], form[1])
    assert [r.k for r in rounds] == trace.round_k
    assert [r.m for r in rounds] == trace.round_m
    assert sum(r.repaired for r in rounds) == trace.repairs
    assert len(rounds) + trace.repairs == trace.target_calls
    assert sum(r.drafted + (r.behind > 0) for r in rounds) == trace.draft_calls
    assert all(r.rows >= 1 for r in rounds)


def test_full_acceptance_takes_the_published_number_of_rounds():
    assert full_rounds(64, 4, "repair", False) == 16
    assert full_rounds(64, 4, "repair", True) == 13
    assert full_rounds(64, 4, "folded", True) == 13
