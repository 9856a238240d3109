"""Acceptance rules: which proposed tokens the target lets through, judged where the logits are.

Every public function here is a rule that a mode's `acceptance` can name. A rule takes the case
and returns a ruling; the block ends at the first token that does not pass. What a rule takes
beside the case is a key of the mode, under the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine.decoding.sampling.noise import Purpose

# What a rule promises of the text: the baseline's own tokens, or their distribution. A rule that
# is not named here promises nothing.
PROMISES = {"exact": "tokens", "coupled": "tokens", "rejection": "distribution"}
# Rules whose draft shares the target's noise; elsewhere a draft that samples has its own.
SHARED_NOISE = ["coupled"]
# Rules that compare with the most likely token, and those that are about sampling.
GREEDY = ["exact", "relaxed"]
SAMPLED = ["rejection", "coupled"]


@dataclass(frozen=True)
class Case:
    """A block before its judges.

    `block` is LongTensor [k]. Row j of `logits` judges block[j]; they are [k, vocabulary], or
    [k + 1, vocabulary] where a bonus token follows full acceptance. `drafted` is what each token
    was sampled from (float64 [k, vocabulary]), None for a drafter without probabilities.
    """

    block: Tensor
    logits: Tensor
    committed: Sequence[Any]
    voice: Any
    drafted: Tensor | None = None

    @property
    def bonus(self) -> bool:
        return len(self.logits) > len(self.block)

    @property
    def judges(self) -> Tensor:
        return self.logits[: len(self.block)]

    def choices(self) -> Tensor:
        """LongTensor, one a row: what the target itself would say."""
        return self.voice.choose(self.logits, self.committed, self.block)

    def probs(self) -> Tensor:
        """Float64, the shape of the logits: the target's distribution, as the user asks for it."""
        return self.voice.probs(self.logits, self.committed, self.block)


@dataclass(frozen=True)
class Ruling:
    """`passes` (BoolTensor [k]), and the token that stands where the block ends.

    `own` takes the number of accepted tokens (an int, or LongTensor [1]) and returns
    LongTensor [1].
    """

    passes: Tensor
    own: Callable[[Any], Tensor]


def _choice(choices: Tensor) -> Callable[[Any], Tensor]:
    return lambda row: choices[row].view(1)


def exact(case: Case) -> Ruling:
    """Accept the target's own choice and nothing else."""
    choices = case.choices()
    return Ruling(choices[: len(case.block)] == case.block, _choice(choices))


def coupled(case: Case) -> Ruling:
    """`exact` in sampling: draft and target share the noise that chooses.

    The text is, token for token, what plain sampling with this noise gives, whatever was proposed.
    """
    return exact(case)


def relaxed(case: Case, delta: float) -> Ruling:
    """Accept a token whose logit is at most `delta` below the target's best; exactness is lost.

    With `delta` 0 only the greedy choice passes, and tokens that tie with it bit by bit.
    """
    own = case.judges.gather(-1, case.block[:, None])[:, 0]
    return Ruling(case.judges.amax(-1) - own <= delta, _choice(case.choices()))


def typical(case: Case, epsilon: float) -> Ruling:
    """Accept what is not unlikely, the less so the less certain the target is; inexact.

    p(d) > min(epsilon, sqrt(epsilon) exp(-entropy)), entropy in nats (Hewitt et al. 2022; Cai et
    al. 2024, Medusa, section 2.3.1, with their choice of the second constant). Where the mode
    decodes greedily, p is the target's distribution as it is.
    """
    probs = case.probs()[: len(case.block)]
    negentropy = (probs * probs.clamp(min=1e-300).log()).sum(-1)
    floor = (epsilon**0.5 * negentropy.exp()).clamp(max=epsilon)
    drawn = probs.gather(-1, case.block[:, None])[:, 0]
    return Ruling(drawn > floor, _choice(case.choices()))


def rejection(case: Case) -> Ruling:
    """Accept with min(1, p/q), else sample from the positive part of p - q: the target's p.

    Leviathan et al. 2023, appendix A.1; it holds for any q that the token was really sampled from
    and is judged by. A token that was not sampled has q = 1. The bonus token is a residual against
    nothing.
    """
    k, probs = len(case.block), case.probs()
    drafted = case.drafted
    if drafted is None:
        drafted = (probs[:k] * 0).scatter(-1, case.block[:, None], 1.0)
    p, q = (x.gather(-1, case.block[:, None])[:, 0] for x in (probs[:k], drafted))
    positions = case.voice.positions(case.committed, len(probs))
    passes = case.voice.noise.below(p / q, Purpose.ACCEPT, positions[:k])
    residual = probs.clone()
    residual[:k] -= drafted
    residual.clamp_(min=0)

    def own(row: Any) -> Tensor:
        left, whole = residual[row].view(1, -1), probs[row].view(1, -1)
        # Where p and q are equal up to rounding, nothing may be left of a token refused by a hair.
        weights = left.where(left.sum(-1, keepdim=True) > 0, whole)
        return case.voice.noise.pick(weights, Purpose.RESIDUAL, positions[row].view(1))

    return Ruling(passes, own)


def all(case: Case) -> Ruling:
    """Accept everything: an oracle, which asks what perfect acceptance would be worth."""
    return Ruling(case.block == case.block, _choice(case.choices()))


def none(case: Case) -> Ruling:
    """Accept nothing, not even what the target would have said: the worst that can happen.

    The text is the target's own all the same, one token a round.
    """
    return Ruling(case.block != case.block, _choice(case.choices()))
