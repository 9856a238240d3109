"""Every policy and drafter commits the target's own tokens, whatever it decides."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.composition import needs_draft_model, policies, policy_parameters
from engine.decoding import acceptance, resources
from engine.decoding.drafters import hybrid, ngram
from engine.decoding.loop import Generation, decode
from engine.decoding.policies import adaptive, confidence, first_plain
from engine.decoding.runtimes.device import Runtime as DeviceRuntime
from engine.decoding.runtimes.eager import Runtime as EagerRuntime
from tests.test_loop import CPU, FORMS, draft_model, plain_tokens, target_model

PROMPT = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7]
RUNTIMES = {"eager": EagerRuntime, "device": DeviceRuntime}
KEYS = {"confidence": {"threshold": 0.5}}
POLICIES = st.sampled_from(policies())
DRAFTERS = ["model", "ngram", "hybrid"]


def fit(policy: str, drafter: str) -> bool:
    """What engine/modes.py lets through."""
    return policy != "confidence" or needs_draft_model(drafter)


@torch.inference_mode()
def generate(policy="fixed", drafter="model", form=("folded", True), k=4, budget=24, stop=(),
             noise=0.1, window=None, kept=None, runtime="eager", rule=acceptance.exact,
             prompt=PROMPT, target_cache="kept", built=None, sampling=None):  # fmt: skip
    """`form` is a mode's round and bonus; without a policy it is plain decoding."""
    runtime = RUNTIMES[runtime](CPU, stop)
    mode = {"policy": policy, "drafter": drafter, "target_cache": target_cache, "numerics": "fast"}
    mode |= {"threshold": None} | KEYS.get(policy, {})
    mode |= {"acceptance": "coupled", "sampling": sampling, "draft_sampling": None}
    capacity, ids = len(prompt) + budget, torch.tensor(prompt)
    voice, draft_voice = resources.build_voices(mode, 1, ids, runtime)
    target = resources.build_target(mode, target_model(), capacity)
    target.prefill(ids, 4)
    if form[0] == "step":
        generation = Generation(target, runtime, budget, voice=voice)
        return decode(generation, "step", 0), generation

    def load_draft():
        draft = draft_model(noise)
        return draft.trimmed(range(kept)) if kept else draft

    built = built or resources.build_policy(mode)
    parts = resources.Resources(runtime, capacity, load_draft, None, draft_voice, built, window)
    drafting = resources.build_drafter(mode, parts)
    drafting.prefill(ids, 4)
    generation = Generation(
        target, runtime, budget, drafter=drafting, rule=rule, bonus=form[1], voice=voice,
        policy=built,
    )  # fmt: skip
    return decode(generation, form[0], k), generation


def test_there_are_the_policies_that_the_issue_asks_for():
    assert policies() == ["adaptive", "confidence", "first_plain", "fixed", "guarded"]
    assert {name: policy_parameters(name) for name in policies() if policy_parameters(name)} == {
        "confidence": ["threshold"]
    }


@settings(deadline=None, max_examples=250)
@given(
    policy=POLICIES,
    drafter=st.sampled_from(DRAFTERS),
    form=FORMS,
    k=st.integers(1, 30),
    budget=st.integers(1, 24),
    noise=st.sampled_from([0.0, 0.05, 0.3, 5.0]),
    window=st.sampled_from([None, 1, 3, 8, 100]),
    kept=st.sampled_from([None, 20, 61]),
    runtime=st.sampled_from(list(RUNTIMES)),
)
def test_the_text_is_the_target_s_own(
    policy, drafter, form, k, budget, noise, window, kept, runtime
):
    if not fit(policy, drafter):
        return
    trace, generation = generate(policy, drafter, form, k, budget, (), noise, window, kept, runtime)
    assert trace.tokens == plain_tokens(budget)
    assert len(trace.tokens) == budget
    assert max(trace.round_k, default=0) <= min(k, budget)
    assert generation.target.cache.length <= generation.length
    if needs_draft_model(drafter):
        assert generation.drafter.cache.length <= generation.length
    if form[0] == "folded":
        assert trace.target_calls == len(trace.round_k)


@pytest.mark.parametrize("prompt", [[5], [5, 5], [1, 2, 3]])
@pytest.mark.parametrize("budget", [1, 2, 6])
def test_short_prompts_long_blocks_and_windows_that_hide_nothing(prompt, budget):
    """A prompt shorter than an n-gram, a block longer than the text, a window longer than both."""
    plain, _ = generate(form=("step", False), prompt=prompt, budget=budget)
    forms = itertools.product(("repair", "folded"), (False, True))
    for form, policy, drafter, (k, window) in itertools.product(
        forms, policies(), DRAFTERS, ((1, 500), (64, 1))
    ):
        if fit(policy, drafter):
            trace, _ = generate(policy, drafter, form, k, budget, prompt=prompt, window=window)
            assert trace.tokens == plain.tokens, (policy, drafter, form, k, window)


@settings(deadline=None, max_examples=120)
@given(
    policy=POLICIES,
    drafter=st.sampled_from(DRAFTERS),
    form=FORMS,
    k=st.integers(1, 8),
    window=st.sampled_from([None, 3]),
    kept=st.sampled_from([None, 20]),
    runtime=st.sampled_from(list(RUNTIMES)),
)
def test_coupled_text_is_that_of_plain_sampling(policy, drafter, form, k, window, kept, runtime):
    if not fit(policy, drafter):
        return
    drawn = {"sampling": {"temperature": 0.7, "top_p": 0.9}, "runtime": runtime}
    plain, _ = generate(form=("step", False), **drawn)
    trace, _ = generate(
        policy, drafter, form, k, window=window, kept=kept, rule=acceptance.coupled, **drawn
    )
    assert trace.tokens == plain.tokens
    assert plain.tokens != plain_tokens()


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("policy", policies())
@pytest.mark.parametrize("form", [("repair", False), ("repair", True), ("folded", True)])
def test_the_end_of_sequence_cuts_at_every_position(policy, drafter, form):
    if not fit(policy, drafter):
        pytest.skip("nothing to look at")
    tokens = plain_tokens()
    for noise in (0.0, 0.3):
        for position, token in enumerate(tokens):
            if token in tokens[:position]:
                continue
            trace, generation = generate(policy, drafter, form, stop=[token], noise=noise, window=6)
            assert trace.stopped
            assert trace.tokens == tokens[: position + 1]
            assert generation.target.cache.length <= generation.length
            assert all(m <= k for m, k in zip(trace.round_m, trace.round_k, strict=True))


def test_restarting_repeats_the_same_rounds():
    for drafter in DRAFTERS:
        _, generation = generate("adaptive", drafter, noise=0.3, window=5)
        first = generation.trace
        with torch.inference_mode():
            generation.target.restart()
            generation.drafter.restart()
            again = Generation(
                generation.target, generation.runtime, 24, drafter=generation.drafter,
                rule=acceptance.exact, bonus=True, policy=generation.policy,
            )  # fmt: skip
            assert decode(again, "folded", 4) == first


# --- policies -----------------------------------------------------------------------------


def test_adaptive_grows_by_two_and_shrinks_by_one():
    policy = adaptive.Policy()
    policy.begin(6)
    planned = [policy.plan()]
    for proposed, accepted in [(1, 1), (3, 3), (5, 5), (6, 6), (6, 2), (5, 0), (0, 0), (4, 4)]:
        policy.observe(proposed, accepted, accepted + 1)
        planned.append(policy.plan())
    assert planned == [1, 3, 5, 6, 6, 5, 4, 4, 6]
    for _ in range(9):
        policy.observe(3, 0, 1)
    assert policy.plan() == 1
    policy.begin(6)
    assert policy.plan() == 1


def test_confidence_looks_before_a_token_is_taken():
    """Whether a position is drafted follows from the logits before it, so from the text alone."""
    policy = confidence.Policy(threshold=0.5)
    assert policy.looks
    assert bool(policy.goes_on(torch.tensor([0.0, 3.0, 0.0])))
    assert not bool(policy.goes_on(torch.tensor([1.0, 1.0, 1.0])))
    assert bool(confidence.Policy(threshold=0.0).goes_on(torch.zeros(1000)))
    never, _ = generate("confidence", noise=0.1, built=confidence.Policy(threshold=1.0))
    assert set(never.round_k) == {0}
    always, _ = generate("confidence", noise=0.1, built=confidence.Policy(threshold=0.0))
    fixed, _ = generate("fixed", noise=0.1)
    assert (always.tokens, always.round_k) == (fixed.tokens, fixed.round_k)


def test_each_look_is_a_crossing_between_device_and_host():
    _, generation = generate("confidence", built=confidence.Policy(threshold=0.0))
    assert generation.runtime.syncs["draft_confidence"] == sum(generation.trace.round_k)
    _, generation = generate("fixed")
    assert generation.runtime.syncs["draft_confidence"] == 0


@pytest.mark.parametrize("form", [("repair", False), ("folded", True)])
def test_first_plain_drafts_nothing_before_the_first_token(form):
    trace, _ = generate("first_plain", form=form, noise=0.0)
    assert trace.round_k[0] == 0
    assert all(trace.round_k[1:-1])
    assert not first_plain.Policy().looks


def test_accepting_nothing_still_commits_the_target_s_text():
    trace, _ = generate(rule=acceptance.none, noise=0.0)
    assert trace.tokens == plain_tokens()
    assert set(trace.round_m) == {0}


def test_a_target_that_recomputes_gives_the_same_text_and_keeps_nothing_wrong():
    kept, _ = generate(noise=0.3)
    for form in (("repair", False), ("folded", True)):
        again, generation = generate(form=form, noise=0.3, target_cache="recomputed")
        assert again.tokens == kept.tokens
        assert generation.target.cache.length <= generation.length


# --- look-up --------------------------------------------------------------------------------


def lookup(prompt):
    drafter = ngram.Drafter(resources.Resources(EagerRuntime(CPU), 0, lambda: None))
    drafter.prefill(torch.tensor(prompt), 4)
    return drafter


def test_a_look_up_finds_the_latest_occurrence_of_the_longest_match():
    drafter = lookup([1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3])
    assert drafter.propose([], 2) == [4, 9]
    assert drafter.propose([], 20) == [4, 9, 2, 3, 5, 1, 2, 3]
    # (2, 3) stood last before 5; (9, 2, 3) too.
    assert lookup([1, 2, 3, 4, 9, 2, 3, 5, 7, 2, 3]).propose([], 2) == [5, 7]
    assert lookup([1, 2, 3]).propose([], 2) == []
    assert lookup([1]).propose([], 2) == []


def test_a_look_up_follows_the_growing_text_and_forgets_it_at_a_restart():
    drafter = lookup([1, 2, 3, 4])
    assert drafter.propose([5, 1, 2], 2) == [3, 4]
    assert drafter.propose([5, 1, 2, 7, 8, 1, 2], 3) == [7, 8, 1]
    drafter.restart()
    assert drafter.propose([1, 2], 3) == [3, 4, 1]


@given(
    text=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    cut=st.integers(0, 60),
    k=st.integers(1, 6),
)
def test_a_look_up_is_what_a_search_of_the_whole_text_finds(text, cut, k):
    cut = min(cut, len(text) - 1)
    drafter, committed = lookup(text[: cut + 1]), text[cut + 1 :]

    def search(seen):
        for size in (3, 2):
            for end in range(len(seen) - 1, size - 1, -1):
                if len(seen) > size and seen[end - size : end] == seen[-size:]:
                    return seen[end : end + k]
        return []

    for count in range(len(committed) + 1):
        assert drafter.propose(committed[:count], k) == search(text[: cut + 1 + count])


def test_the_hybrid_asks_the_model_only_where_nothing_is_found():
    repetitive = [7, 8, 9] * 4
    asked = []

    class Watched(hybrid.Drafter):
        def propose(self, committed, k):
            found, before = lookup([*repetitive, *committed]).propose([], k), self.calls
            proposal = super().propose(committed, k)
            asked.append((bool(found), self.calls > before))
            assert not found or proposal == found
            return proposal

    model, _ = generate("fixed", "model", prompt=repetitive, noise=0.1)
    lookups, _ = generate("fixed", "ngram", prompt=repetitive)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hybrid, "Drafter", Watched)
        trace, _ = generate("fixed", "hybrid", prompt=repetitive, noise=0.1)
    assert set(asked) == {(True, False), (False, True)}
    assert trace.tokens == model.tokens == lookups.tokens
    assert lookups.draft_calls == 0 < trace.draft_calls < model.draft_calls
