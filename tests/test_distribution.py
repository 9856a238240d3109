"""Proof of distribution: every branch of the algorithm, weighed, against the target's own."""

import dataclasses
import itertools

import pytest
import torch

from engine.decoding import acceptance
from engine.decoding.drafters import hybrid, ngram
from engine.decoding.drafters.model import Drafter as ModelDrafter
from engine.decoding.policies import adaptive, confidence, first_plain, guarded
from engine.decoding.sampling.noise import Purpose
from engine.decoding.sampling.voice import Greedy, IndependentDraft
from engine.decoding.sampling.warp import Warp, to_probs
from tests.enumeration import PROMPT, Algorithm, Unsampled

FORMS = {
    "repair": ("repair", False),
    "repair with bonus": ("repair", True),
    "folded": ("folded", False),
    "folded with bonus": ("folded", True),
}
PLAIN = Warp(0.8)
WARPS = {
    "neither side": (PLAIN, PLAIN),
    "unequal temperatures": (Warp(0.7), Warp(1.3)),
    "the draft": (PLAIN, Warp(0.8, top_k=2)),
    "the target": (Warp(0.8, top_p=0.75), PLAIN),
    "both": (Warp(0.8, top_p=0.75), Warp(0.8, top_k=2)),
    "both, by min-p": (Warp(1.0, min_p=0.2), Warp(1.0, min_p=0.1)),
    "a repetition penalty": (
        Warp(0.8, repetition_penalty=1.6),
        Warp(0.8, top_k=2, repetition_penalty=1.3),
    ),
    "a target at temperature 0": (Warp(0.0), PLAIN),
    "a draft at temperature 0": (PLAIN, Warp(0.0)),
}
# Claims exactness in distribution and rests on independent numbers. `coupled` is the target's own
# text, token for token, which tests/test_sampling.py shows over many seeds.
RULES = [name for name, promise in acceptance.PROMISES.items() if promise == "distribution"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("truncated", WARPS)
@pytest.mark.parametrize("rule", RULES)
def test_the_text_has_the_target_s_distribution(rule, truncated, k, form):
    algorithm = Algorithm(k, *FORMS[form], *WARPS[truncated], rule=getattr(acceptance, rule))
    assert algorithm.error() < 1e-6


class StopsWhenUnsure(ModelDrafter):
    """Ends the proposal by the draft's distribution, before anything is drawn from it."""

    def propose(self, committed, k):
        self.catch_up(committed)
        proposal, drafted, logits = [], [], self._next
        while len(proposal) < k:
            if proposal and self.voice.probs(logits[None], [*committed, *proposal]).max() < 0.7:
                break
            choice, probs = self.voice.draw(logits[None], committed, proposal)
            proposal.append(self.runtime.take(choice, "draft_token"))
            drafted.append(probs)
            logits = self._forward(proposal[-1:])
        self.cache.trim(self.cache.length - 1)
        self.probabilities = torch.cat(drafted)
        return proposal


class ChangesItsMind(ModelDrafter):
    """Having drawn a 0, kept or refused, it proposes the draft's most likely tokens next."""

    def __init__(self, resources):
        super().__init__(resources)
        self._voices = {False: resources.draft_voice, True: Greedy()}

    def propose(self, committed, k):
        proposal = super().propose(committed, k)
        self.voice = self._voices[proposal[-1] == 0]
        return proposal


# Whatever decides how many tokens are proposed, and from what: a policy or a drafter joins the
# proof by a line.
DRAFTERS = {
    "without probabilities": Unsampled,
    "stops when unsure": StopsWhenUnsure,
    "changes its mind": ChangesItsMind,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("truncated", ["neither side", "both", "a repetition penalty"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_drafter_and_policy_keeps_it(drafter, truncated, k, form):
    algorithm = Algorithm(k, *FORMS[form], *WARPS[truncated], drafter=DRAFTERS[drafter])
    assert algorithm.error() < 1e-6


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("truncated", ["neither side", "both"])
def test_tokens_on_the_device_have_it_as_well(truncated, form):
    algorithm = Algorithm(2, *FORMS[form], *WARPS[truncated], runtime="device")
    assert algorithm.error() < 1e-6


def test_four_tokens():
    truncated = Warp(0.9, top_k=3), Warp(0.9, top_k=2)
    assert Algorithm(3, "folded", True, *truncated, vocabulary=4).error() < 1e-6


def test_a_folded_block_that_leaves_room_for_its_bonus_token():
    """In a text of three, the first token and the bonus leave one to be proposed."""
    truncated = Warp(0.9, top_k=2), Warp(0.9, top_k=2)
    assert Algorithm(3, "folded", True, *truncated, length=5).error() < 1e-6


def confident(threshold):
    return lambda: confidence.Policy(threshold)


def guarding(plain_step):
    """A guard on whose clock every round takes one second, and a plain step as long as is said."""

    def made():
        ticks = itertools.count()
        policy = guarded.Policy(lambda: float(next(ticks)))
        policy.calibrate([plain_step])
        return policy

    return made


# A policy, and all that it decides in texts as short as these: a number of tokens before a round, a
# word before a token. One that never decides anything would prove nothing.
POLICIES = {
    "adaptive": (adaptive.Policy, {1, 3}),
    "in doubt about all": (confident(1.0), {3, "stops"}),
    "in doubt about some": (confident(0.5), {3, "goes on", "stops"}),
    "never in doubt": (confident(0.0), {3, "goes on"}),
    "first plain": (first_plain.Policy, {0, 3}),
    # A first proposal that passes pays, one that does not ends the trial.
    "guarded": (guarding(0.55), {0, 1}),
    "guarded, and climbing": (guarding(1.5), {1, 2}),
}


def overheard(policy, decided):
    """The policy, which leaves what it decides in a set."""
    plan, goes_on = policy.plan, policy.goes_on

    def heard_plan():
        decided.add(plan())
        return plan()

    def heard_goes_on(logits):
        said = goes_on(logits)
        decided.add("goes on" if said else "stops")
        return said

    policy.plan, policy.goes_on = heard_plan, heard_goes_on
    return policy


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("truncated", ["neither side", "both"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_leaves_the_distribution_as_it_is(policy, truncated, form, monkeypatch):
    made, decides = POLICIES[policy]
    # With the bonus token three are written before adaptive and doubt have decided twice.
    slow = ["adaptive"] if form == "repair with bonus" else ["adaptive", "in doubt about some"]
    length = 4 if FORMS[form][1] and policy in slow else 3
    # As many rounds as it takes the guard are too many branches: it decides after one.
    monkeypatch.setattr(guarded, "_TRIAL", 1)
    if policy == "guarded, and climbing":
        monkeypatch.setattr(guarded, "_FIRST_WAIT", 0)
        length = 4
    decided = set()
    algorithm = Algorithm(
        3, *FORMS[form], *WARPS[truncated], length=length,
        policy=lambda: overheard(made(), decided),
    )  # fmt: skip
    assert algorithm.error() < 1e-6
    assert decided == decides


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("truncated", ["neither side", "both"])
@pytest.mark.parametrize("drafter", [ngram.Drafter, hybrid.Drafter])
def test_look_up_leaves_the_distribution_as_it_is(drafter, truncated, form):
    proposed = set()

    class Watched(drafter):
        def propose(self, committed, k):
            proposal = super().propose(committed, k)
            looked_up = getattr(self, "_looked_up", bool(proposal))
            proposed.add((looked_up, len(proposal)))
            return proposal

    # What stands in the prompt twice is found at once, and where the text goes on otherwise is not.
    algorithm = Algorithm(
        3, *FORMS[form], *WARPS[truncated], drafter=Watched, length=4, prompt=(0, 2, 0, 2)
    )
    assert algorithm.error() < 1e-6
    assert {looked_up for looked_up, _ in proposed} == {True, False}
    assert max(count for looked_up, count in proposed if looked_up) >= 2


# --- planted errors: each must fail the same check ---------------------------------------------


def _untruncated(warp):
    return Warp(warp.temperature, repetition_penalty=warp.repetition_penalty)


class JudgedUntruncated(IndependentDraft):
    """Samples from the truncated q, and reports the whole one."""

    def draw(self, logits, committed, proposal):
        token, _ = super().draw(logits, committed, proposal)
        return token, to_probs(logits, _untruncated(self.warp))


def without_the_user_s_truncation(case):
    voice = case.voice
    whole = type(voice)(_untruncated(voice.warp), voice.noise, voice.prompt, voice._upload)
    return acceptance.rejection(dataclasses.replace(case, voice=whole))


def _rejection(case, residual=None, accept=None):
    """`rejection` written once more, so that one of its parts can be replaced."""
    k, probs, voice = len(case.block), case.probs(), case.voice
    positions = voice.positions(case.committed, len(probs))
    drafted = probs[:0] if case.drafted is None else case.drafted
    p, q = (x.gather(-1, case.block[:, None])[:, 0] for x in (probs[:k], drafted))
    if accept is not None:
        passes = accept(p / q, positions[:k])
    else:
        passes = voice.noise.below(p / q, Purpose.ACCEPT, positions[:k])
    full = probs.clone()
    full[:k] -= drafted

    def chosen(row):
        weights = full[row].clamp(min=0) if residual is None else residual(full[row], probs[row])
        return voice.noise.pick(weights.view(1, -1), Purpose.RESIDUAL, positions[row].view(1))

    return acceptance.Ruling(passes, chosen)


def without_a_clamp(case):
    return _rejection(case, residual=lambda left, whole: left)


def without_a_residual(case):
    return _rejection(case, residual=lambda left, whole: whole)


def with_one_number_for_draft_and_acceptance(case):
    began, noise = len(PROMPT) + len(case.committed), case.voice.noise
    return _rejection(case, accept=lambda shares, at: noise.below(shares, Purpose.DRAFT, at, began))


class DrawsAgainWithTheSameNumber(IndependentDraft):
    """Forgets which round it draws for, so that a refused draft's number comes back."""

    def draw(self, logits, committed, proposal):
        before = [*committed, *proposal]
        probs = self.probs(logits, before)
        return self.noise.pick(probs, Purpose.DRAFT, self.positions(before, 1)), probs


class DropsUnlikelyTokens(ModelDrafter):
    """Ends the proposal before a token that it has drawn and then found unlikely."""

    def propose(self, committed, k):
        proposal = super().propose(committed, k)
        drawn = self.probabilities.gather(-1, torch.tensor(proposal)[:, None])[:, 0].tolist()
        kept = next((j for j in range(1, len(drawn)) if drawn[j] < 0.5), len(drawn))
        before = self.cache.length - (len(proposal) - 1)
        self.cache.trim(before + kept - 1)
        self.probabilities = self.probabilities[:kept]
        return proposal[:kept]


PLANTED = {
    "judged by the untruncated q": {"draft_voice": JudgedUntruncated},
    "the user's truncation forgotten": {"rule": without_the_user_s_truncation},
    # With so few tokens truncated, the wrong residual can be the right one.
    "a residual without clamp": {
        "rule": without_a_clamp,
        "target_warp": PLAIN,
        "draft_warp": PLAIN,
    },
    "p instead of the residual": {"rule": without_a_residual},
    "one number for draft and acceptance": {"rule": with_one_number_for_draft_and_acceptance},
    "a token dropped for its own probability": {"drafter": DropsUnlikelyTokens},
    "the number of a refused draft comes back": {
        "draft_voice": DrawsAgainWithTheSameNumber,
        "drafter": ChangesItsMind,
        "target_warp": PLAIN,
        "draft_warp": PLAIN,
    },
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_error_is_found(fault, form):
    # With the bonus token a folded block of two needs a text of four.
    right = Algorithm(
        2, *FORMS[form], *WARPS["both"], length=4 if form == "folded with bonus" else 3
    )
    assert dataclasses.replace(right, **PLANTED[fault]).error() > 1e-5


def test_the_planted_parts_are_right_where_nothing_is_planted():
    algorithm = Algorithm(2, "folded", True, *WARPS["both"], rule=_rejection)
    assert algorithm.error() < 1e-6
