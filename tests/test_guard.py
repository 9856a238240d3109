"""The guard on a made-up clock: when it drafts, and what it costs at worst."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoding.policies import guarded


class Costs:
    """A clock that moves as rounds of a made-up machine do."""

    def __init__(self, plain=1.0, verify=0.15, draft=0.2, catch_up=0.002, stalled=None):
        self.plain, self.verify, self.draft, self.catch_up = plain, verify, draft, catch_up
        self.now, self.behind, self.rounds, self.stalled = 0.0, 0, 0, stalled

    def __call__(self):
        return self.now

    def round(self, k):
        """Seconds of a round that drafts k tokens, and of the plain ones the draft has missed."""
        seconds = self.plain + self.verify * k + self.draft * k
        if k:
            seconds += self.catch_up * self.behind
            self.behind = 0
        else:
            self.behind += 1
        self.now += seconds + (30.0 if self.rounds == self.stalled else 0.0)
        self.rounds += 1


def begun(most, calibrated=True, **costs):
    """A clock, and a guard on it that knows what a plain step costs."""
    clock = Costs(**costs)
    policy = guarded.Policy(clock)
    if calibrated:
        policy.calibrate([clock.plain] * 5)
    policy.begin(most)
    return clock, policy


def guarded_time(accepted, tokens=512, most=4, calibrated=True, **costs):
    """R of a guarded generation, and how many tokens each of its rounds drafted.

    `accepted(done, k)` says how many of k proposals pass after `done` tokens.
    """
    clock, policy = begun(most, calibrated, **costs)
    done, levels = 0, []
    while done < tokens:
        k = min(policy.plan(), tokens - done)
        m = accepted(done, k) if k else 0
        clock.round(k)
        committed = min(m + 1, tokens - done)
        done += committed
        levels.append(k)
        policy.observe(k, m, committed)
    return tokens * clock.plain / clock.now, levels


@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize("verify", [0.02, 0.15, 0.5, 0.95])
@pytest.mark.parametrize("draft", [0.02, 0.2, 0.6])
def test_the_guard_loses_at_most_three_hundredths_where_nothing_passes(verify, draft, calibrated):
    ratio, _ = guarded_time(lambda done, k: 0, verify=verify, draft=draft, calibrated=calibrated)
    assert ratio >= 0.97


def test_the_guard_s_trials_come_ever_later():
    _, levels = guarded_time(lambda done, k: 0)
    trials = [n for n, k in enumerate(levels) if k and (n == 0 or not levels[n - 1])]
    waits = [after - before for before, after in itertools.pairwise(trials)]
    assert len(trials) >= 2
    assert all(later > sooner for sooner, later in itertools.pairwise(waits))


def test_the_guard_climbs_as_far_as_it_pays():
    ratio, levels = guarded_time(lambda done, k: k, draft=0.05, verify=0.05)
    assert levels[-5:-1] == [4] * 4
    assert ratio > 3
    # A second token would cost more than it brings.
    ratio, levels = guarded_time(lambda done, k: min(k, 1), draft=0.2, verify=0.2)
    assert levels.count(1) > 0.8 * len(levels)
    assert ratio > 1.3


def test_the_guard_notices_that_the_text_has_changed():
    ratio, levels = guarded_time(lambda done, k: k if done < 200 else 0)
    assert ratio > 1.1
    assert levels[-100:].count(0) > 80
    ratio, levels = guarded_time(lambda done, k: 0 if done < 100 else k)
    assert ratio > 1.2
    assert all(levels[-20:-1])


@pytest.mark.parametrize("catch_up", [0.004, 0.012])
def test_a_draft_that_has_much_to_catch_up_still_gets_its_trial(catch_up):
    """After a hundred plain tokens the first round of a trial costs as much as two."""
    costs = {"verify": 0.45, "draft": 0.2, "catch_up": catch_up}
    ratio, levels = guarded_time(lambda done, k: 0 if done < 60 else k, **costs)
    assert ratio > 1.1
    assert all(levels[-20:-1])


@pytest.mark.parametrize("stalled", range(5))
@pytest.mark.parametrize("easy_from", [0, 20])
def test_a_stall_in_a_trial_does_not_end_all_trials(stalled, easy_from):
    """A shared machine stops for 30 steps in one round, of a trial that is won or of one lost."""
    costs = {"verify": 0.15, "draft": 0.05}
    _, levels = guarded_time(lambda done, k: k * (done >= easy_from), stalled=stalled, **costs)
    assert all(levels[-20:-1])


def test_a_stall_in_the_round_of_catching_up_is_no_catching_up():
    def hard(done, k):
        return 0

    costs = {"verify": 0.45, "draft": 0.2, "tokens": 2048}
    _, levels = guarded_time(hard, **costs)
    second = next(n for n, k in enumerate(levels) if k and n and not levels[n - 1])
    assert guarded_time(hard, stalled=second, **costs)[1] == levels


def test_the_guard_comes_back_after_a_hard_stretch():
    _, levels = guarded_time(lambda done, k: k * (not 150 <= done < 200), verify=0.15, draft=0.05)
    down = levels.index(0)
    # It does not pass by levels of which nobody knows that they are cheaper than plain decoding.
    assert levels[down - 1] == 4
    assert 4 in levels[down:]


def test_a_drafter_without_a_proposal_is_neither_tried_nor_given_more():
    clock, policy = begun(4)
    for _ in range(40):
        clock.round(0)
        policy.observe(0, 0, 1)
        assert policy.plan() == 1


@settings(deadline=None, max_examples=300)
@given(
    pattern=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    verify=st.floats(0.0, 1.0),
    draft=st.floats(0.01, 1.0),
)
def test_the_guard_bounds_the_loss_on_any_text(pattern, verify, draft):
    ratio, _ = guarded_time(
        lambda done, k: min(k, pattern[done % len(pattern)]), verify=verify, draft=draft
    )
    assert ratio >= 0.95


def test_a_stall_does_not_look_like_a_cost():
    clock, policy = begun(1)
    for step in range(12):
        clock.now += 30.0 if step == 6 else 0.0
        clock.round(policy.plan())
        policy.observe(1, 1, 2)
        assert policy.plan() == 1
