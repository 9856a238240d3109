"""Mechanism modes on tiny models: what each commits, what each costs, what it never touches."""

import functools

import pytest
import torch

from engine.composition import acceptance_parameters, needs_draft_model, not_on_cpu
from engine.decoding import acceptance
from engine.decoding.drafters.model import Drafter as ModelDrafter
from engine.decoding.drafters.reference import Drafter as ReferenceDrafter
from engine.decoding.loop import Generation, decode
from engine.decoding.resources import Resources, acceptance_rule
from engine.decoding.runtimes.device import Runtime as DeviceRuntime
from engine.decoding.runtimes.eager import Runtime as EagerRuntime
from engine.decoding.sampling.voice import Greedy
from engine.decoding.target import Target
from tests.test_loop import CPU, PROMPT, draft_model, plain_tokens, target_model

RUNTIMES = {"eager": EagerRuntime, "device": DeviceRuntime}


class PerRound:
    """Keeps the runtime's counts of every round."""

    def __init__(self, runtime):
        self.runtime, self.rounds = runtime, []

    def enter(self, phase): ...
    def arrived(self, tokens): ...

    def lap(self):
        self.rounds.append((dict(self.runtime.syncs), self.runtime.h2d_copies))
        self.runtime.reset_counts()


@torch.inference_mode()
def generate(runtime="eager", form="repair", k=4, budget=64, bonus=False, rule=acceptance.exact,
             noise=0.1, reference=False):  # fmt: skip
    runtime = RUNTIMES[runtime](CPU)
    capacity = len(PROMPT) + budget
    target, prompt = Target(target_model(), capacity), torch.tensor(PROMPT)
    target.prefill(prompt, 4)

    def reference_tokens():
        plain = Generation(target, runtime, budget)
        decode(plain, "step", 0)
        target.restart()
        runtime.reset_counts()
        return plain.committed

    def no_draft():
        raise AssertionError("a draft model was asked for")

    resources = Resources(
        runtime, capacity, no_draft if reference else lambda: draft_model(noise), reference_tokens
    )
    drafter = ReferenceDrafter(resources) if reference else ModelDrafter(resources)
    drafter.prefill(prompt, 4)
    watch = PerRound(runtime)
    generation = Generation(
        target, runtime, budget, drafter=drafter if k else None, rule=rule, bonus=bonus, watch=watch
    )
    return decode(generation, form, k), watch


@pytest.mark.parametrize(("form", "bonus"), [("repair", False), ("repair", True), ("folded", True)])
@pytest.mark.parametrize("noise", [0.0, 0.1, 5.0])
def test_tokens_on_the_device_are_the_same_tokens(form, bonus, noise):
    host, _ = generate("eager", form, bonus=bonus, noise=noise)
    device, watch = generate("device", form, bonus=bonus, noise=noise)
    assert device == host
    assert device.tokens == plain_tokens(64)
    for syncs, copies in watch.rounds[1:-1]:
        assert syncs == {"round_outcome": 1, "round_end": 1}
        assert copies == 0


def test_a_plain_step_on_the_device_waits_twice():
    trace, watch = generate("device", "step", k=0)
    assert trace.tokens == plain_tokens(64)
    assert watch.rounds[5] == ({"token": 1, "round_end": 1}, 0)


def test_phase_o_does_not_apply_to_a_cpu():
    assert "no synchronisation" in not_on_cpu("device")
    assert not_on_cpu("eager") == ""


def test_the_oracle_commits_k_a_round_and_with_the_bonus_one_more():
    trace, _ = generate(form="repair", rule=acceptance.all, noise=5.0)
    assert len(trace.round_k) == 16
    assert trace.repairs == 0
    assert trace.round_m == [4] * 16
    trace, _ = generate(form="folded", bonus=True, rule=acceptance.all, noise=5.0)
    assert len(trace.round_k) == 13
    assert trace.round_m[:-1] == [4] * 12


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_draft_free_replays_the_baseline_without_a_draft(runtime):
    trace, _ = generate(runtime, "folded", bonus=True, rule=acceptance.all, reference=True)
    assert trace.tokens == plain_tokens(64)
    assert len(trace.round_k) == 13
    assert trace.draft_calls == 0
    assert not needs_draft_model("reference")


def test_relaxed_with_delta_0_is_exact_and_with_more_it_accepts_more():
    exact, _ = generate(noise=0.3)
    accepted = []
    for delta in (0.0, 3.0, 1000.0):
        trace, _ = generate(noise=0.3, rule=functools.partial(acceptance.relaxed, delta=delta))
        accepted.append(sum(trace.round_m) / sum(trace.round_k))
        if delta == 0:
            assert trace == exact
    assert accepted[0] < accepted[1] < accepted[2] == 1


def test_a_mode_names_the_parameters_of_its_rule():
    assert acceptance_parameters("relaxed") == ["delta"]
    assert acceptance_parameters("exact") == acceptance_parameters("all") == []
    rule = acceptance_rule({"acceptance": "relaxed", "delta": 0.5})
    logits = torch.tensor([[1.0, 0.6, 0.4]]).expand(3, 3)
    case = acceptance.Case(torch.tensor([0, 1, 2]), logits, [], Greedy())
    assert rule(case).passes.tolist() == [True, True, False]
