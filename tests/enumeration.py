"""The exact distribution of what an algorithm writes, by walking all its branches.

The loop, the runtime, the drafter and the acceptance rule are the engine's own. Two things stand
in: models that are tables of logits, and a source of noise that, instead of drawing a number,
takes every interval of it that leads to another outcome, one walk after another. A number that is
asked for twice is one number: its interval is only ever narrowed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.decoding import acceptance
from engine.decoding.drafters.model import Drafter as ModelDrafter
from engine.decoding.loop import Generation, decode
from engine.decoding.policies import fixed
from engine.decoding.resources import Resources
from engine.decoding.runtimes.device import Runtime as DeviceRuntime
from engine.decoding.runtimes.eager import Runtime as EagerRuntime
from engine.decoding.sampling.noise import Purpose, by_inversion
from engine.decoding.sampling.voice import Greedy, IndependentDraft, Sampled
from engine.decoding.sampling.warp import Warp, to_probs
from engine.decoding.target import Target

CPU = torch.device("cpu")
RUNTIMES = {"eager": EagerRuntime, "device": DeviceRuntime}
PROMPT = (0, 2)
_NOTHING = 1e-13  # an interval that rounding has made

Sequences = dict[tuple[int, ...], float]


class BranchingNoise:
    """Stands in for Noise: follows `script`, an outcome a decision, then first outcomes.

    `taken` lists (outcome, number of outcomes) of every decision, `weight` is the probability of
    this walk.
    """

    def __init__(self, script: Sequence[int]):
        self.script, self.taken, self.weight = script, [], 1.0
        self.known: dict[tuple, tuple[float, float]] = {}

    def pick(self, weights: Tensor, purpose: Purpose, positions: Tensor, since: int = 0) -> Tensor:
        return torch.tensor(
            [
                self._pick(row, (purpose, int(position), since))
                for row, position in zip(weights, positions, strict=True)
            ]
        )

    def below(self, shares: Tensor, purpose: Purpose, positions: Tensor, since: int = 0) -> Tensor:
        passes = torch.zeros(len(shares), dtype=torch.bool)
        for j, (share, position) in enumerate(zip(shares.tolist(), positions, strict=True)):
            cut = min(max(share, 0.0), 1.0)
            passed = self._decide((purpose, int(position), since), [0.0, cut, 1.0]) == 0
            passes[j] = passed
            if not passed:
                break  # the block ends here: what follows decides nothing
        return passes

    def race(self, probs: Tensor, positions: Tensor) -> Tensor:
        keys = ((Purpose.TARGET, int(position), "race") for position in positions)
        return torch.tensor([self._pick(row, key) for row, key in zip(probs, keys, strict=True)])

    def _pick(self, weights: Tensor, key: tuple) -> int:
        cumulated = weights.double().cumsum(-1).cummax(-1).values
        total = float(weights.double().cumsum(-1)[-1])
        if not total > 0:
            return int(by_inversion(weights[None], torch.tensor([0.5], dtype=torch.float64)))
        return self._decide(key, [0.0, *(cumulated / total).clamp(max=1).tolist()])

    def _decide(self, key: tuple, cuts: list[float]) -> int:
        """The outcome i whose number lies between cuts[i] and cuts[i + 1]."""
        low, high = self.known.get(key, (0.0, 1.0))
        parts = [(max(low, a), min(high, b)) for a, b in itertools.pairwise(cuts)]
        open_ = [(i, part) for i, part in enumerate(parts) if part[1] - part[0] > _NOTHING]
        turn = len(self.taken)
        choice = self.script[turn] if turn < len(self.script) else 0
        outcome, part = open_[choice]
        self.taken.append((choice, len(open_)))
        self.weight *= (part[1] - part[0]) / (high - low)
        self.known[key] = part
        return outcome


def walk(run: Callable[[BranchingNoise], Sequence[int]]) -> Sequences:
    """The probability of each text that `run` can write."""
    found: Sequences = {}
    script: list[int] = []
    while True:
        noise = BranchingNoise(script)
        text = tuple(run(noise))
        found[text] = found.get(text, 0.0) + noise.weight
        taken = list(noise.taken)
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return found
        script = [choice for choice, _ in taken]
        script[-1] += 1


class TableModel:
    """A model whose logits are a random function of the whole text before."""

    def __init__(self, seed: int, vocabulary: int, near: TableModel | None = None):
        self.seed, self.vocabulary, self.near = seed, vocabulary, near
        self.table: dict[tuple[int, ...], Tensor] = {}

    def logits(self, text: Sequence[int]) -> Tensor:
        """Float32 [vocabulary]."""
        text = tuple(text)
        if text not in self.table:
            digits = int("1" + "".join(map(str, text)))
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + digits)
            own = 1.5 * torch.randn(self.vocabulary, generator=generator)
            self.table[text] = own if self.near is None else 0.5 * own + self.near.logits(text)
        return self.table[text]

    def new_cache(self, capacity: int, window: int | None = None) -> TableCache:
        return TableCache()

    def prefill(self, tokens: Tensor, cache: TableCache, chunk: int) -> Tensor:
        return self.forward(tokens, cache)[-1]

    def forward(self, tokens: Tensor, cache: TableCache, rows: int = 1) -> Tensor:
        found = []
        for token in tokens.tolist():
            cache.text.append(token)
            found.append(self.logits(cache.text))
        return torch.stack(found[-rows:])


class TableCache:
    """The text itself."""

    def __init__(self) -> None:
        self.text: list[int] = []

    @property
    def length(self) -> int:
        return len(self.text)

    def trim(self, length: int) -> None:
        del self.text[length:]

    def to_read(self, length: int) -> list[tuple[int, int]]:
        return [(self.length, length)] if length > self.length else []

    def skip(self, start: int) -> None:
        self.expect(start)

    def expect(self, length: int) -> None:
        assert len(self.text) == length, (len(self.text), length)


@dataclass(frozen=True)
class Algorithm:
    """One way to write a text. The parts that a test replaces are callables with their makers."""

    k: int
    form: str
    bonus: bool
    target_warp: Warp
    draft_warp: Warp
    vocabulary: int = 3
    length: int = 3
    runtime: str = "eager"
    rule: Callable[[acceptance.Case], acceptance.Ruling] = acceptance.rejection
    drafter: Callable[[Resources], Any] = ModelDrafter
    draft_voice: Callable[..., Any] = IndependentDraft
    policy: Callable[[], Any] = fixed.Policy
    prompt: tuple[int, ...] = PROMPT

    def pair(self) -> tuple[TableModel, TableModel]:
        target = TableModel(1, self.vocabulary)
        return target, TableModel(2, self.vocabulary, near=target)

    def distribution(self) -> Sequences:
        """Of texts of `length` tokens, by all branches."""
        target_model, draft_model = self.pair()
        prompt = torch.tensor(self.prompt)

        def run(noise: BranchingNoise) -> Sequence[int]:
            runtime = RUNTIMES[self.runtime](CPU)
            parts = noise, prompt, runtime.upload
            target = Target(target_model, 64)
            target.prefill(prompt, 64)
            voice = Sampled(self.target_warp, *parts)
            drawn = self.draft_voice(self.draft_warp, *parts)
            policy = self.policy()
            drafter = self.drafter(Resources(runtime, 64, lambda: draft_model, None, drawn, policy))
            drafter.prefill(prompt, 64)
            generation = Generation(
                target, runtime, self.length,
                drafter=drafter, rule=self.rule, bonus=self.bonus, voice=voice, policy=policy,
            )  # fmt: skip
            return decode(generation, self.form, self.k).tokens

        with torch.inference_mode():
            return walk(run)

    def wanted(self) -> Sequences:
        """The target's own distribution of texts, as the user warps it."""
        target, _ = self.pair()
        return {text: chance for text, chance in self._continued(target, ()) if chance > 0}

    def _continued(self, target: TableModel, text: tuple) -> Iterator[tuple[tuple, float]]:
        if len(text) == self.length:
            yield text, 1.0
            return
        history = [*self.prompt, *text]
        seen = torch.zeros(1, self.vocabulary, dtype=torch.bool)
        seen[0, history] = True
        probs = to_probs(target.logits(history)[None], self.target_warp, seen)[0].tolist()
        for token, chance in enumerate(probs):
            for whole, rest in self._continued(target, (*text, token)):
                yield whole, chance * rest

    def error(self) -> float:
        """The largest difference of a text's probability from what it should be."""
        found, wanted = self.distribution(), self.wanted()
        return max(abs(found.get(text, 0.0) - wanted.get(text, 0.0)) for text in {*found, *wanted})


class Unsampled(ModelDrafter):
    """A drafter without probabilities: the draft's most likely tokens."""

    def __init__(self, resources: Resources):
        super().__init__(replace(resources, draft_voice=Greedy()))
