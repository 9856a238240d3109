"""Random numbers without a state: each is a function of what it is for.

A number is keyed by (seed, prompt, purpose, position), so it does not depend on what was drawn
before it, on the device, or on how many rows were drawn together. The generator is SplitMix64
(Steele, Lea and Flood 2014): a bijective mixer over a counter, here in int64 arithmetic, which
wraps alike on every device. torch's own generator is never touched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import IntEnum

import torch
from torch import Tensor

_GAMMA = 0x9E3779B97F4A7C15 - 2**64  # as a signed number
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


class Purpose(IntEnum):
    """What a number decides. No two decisions about a token may rest on the same number."""

    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3
    TARGET = 4


def splitmix64(state: Tensor) -> Tensor:
    """The output of SplitMix64 after the states (LongTensor, any shape)."""
    # In place: a race mixes a number for every token of the vocabulary.
    mixed = state + _GAMMA
    mixed.bitwise_xor_(_shifted(mixed, 30)).mul_(_FIRST)
    mixed.bitwise_xor_(_shifted(mixed, 27)).mul_(_SECOND)
    return mixed.bitwise_xor_(_shifted(mixed, 31))


def _shifted(bits: Tensor, by: int) -> Tensor:
    """A right shift that moves in zeros; torch's own repeats the sign."""
    return (bits >> by).bitwise_and_((1 << (64 - by)) - 1)


class Noise:
    """All random numbers of one generation.

    The prompt is part of the key: families that shared their numbers would not be independent,
    and the intervals over families assume that they are.
    """

    def __init__(self, seed: int, prompt: Sequence[int]):
        digest = hashlib.sha256(repr((seed, list(prompt))).encode()).digest()
        root = torch.tensor(int.from_bytes(digest[:8], "big", signed=True))
        self._keys = {purpose: int(splitmix64(root + int(purpose))) for purpose in Purpose}

    def pick(self, weights: Tensor, purpose: Purpose, positions: Tensor, since: int = 0) -> Tensor:
        """LongTensor [M]: a token from each row of weights [M, vocabulary], not normalised.

        `since`, the length at which the round began, keeps apart what rounds draw at the same
        position.
        """
        return by_inversion(weights, self.uniform(purpose, positions, since))

    def below(self, shares: Tensor, purpose: Purpose, positions: Tensor, since: int = 0) -> Tensor:
        """BoolTensor [M]: True with probability min(1, share)."""
        return self.uniform(purpose, positions, since) < shares

    def race(self, probs: Tensor, positions: Tensor) -> Tensor:
        """LongTensor [M]: a token from each row of probs [M, vocabulary], by Gumbel-max.

        Two models that share the noise choose the same token the more often the closer they are.
        """
        return self.exponentials(positions, probs.shape[-1]).div_(probs).argmin(-1)

    def uniform(self, purpose: Purpose, positions: Tensor, since: int = 0) -> Tensor:
        """Float64 [M] inside (0, 1), one for each of the positions (LongTensor [M])."""
        return _as_uniform(splitmix64(self._stream(purpose, positions, since)))

    def exponentials(self, positions: Tensor, tokens: int) -> Tensor:
        """Float64 [M, tokens], standard exponential, under the purpose `target`.

        The token with the least exponential / p wins with probability p: the Gumbel noise in
        another coordinate, for -log of an exponential number is a Gumbel number.
        """
        stream = self._stream(Purpose.TARGET, positions, 0)
        lanes = torch.arange(tokens, device=positions.device) * _GAMMA
        return _as_uniform(splitmix64(stream[:, None] + lanes)).log_().neg_()

    def _stream(self, purpose: Purpose, positions: Tensor, since: int) -> Tensor:
        # One word holds both: a position and a length are far below 2^31.
        return splitmix64((positions << 32) + since + self._keys[purpose])


def by_inversion(weights: Tensor, uniform: Tensor) -> Tensor:
    """LongTensor [M]: the first token whose cumulated weight exceeds that share of the total.

    `weights` are [M, vocabulary], `uniform` [M] inside (0, 1). A token without weight is never
    drawn. Of weights that are not numbers the answer is `vocabulary`, an id that no model takes.
    """
    cumulated = weights.cumsum(-1)
    total = cumulated[:, -1:]
    # Rounding may lift the product to the total itself, which no cumulated weight exceeds.
    mark = torch.minimum(uniform[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulated, mark, right=True)[:, 0]


def _as_uniform(bits: Tensor) -> Tensor:
    """The middle of one of 2^52 equal parts of (0, 1): never 0, never 1, exact in float64."""
    return _shifted(bits, 12).double().add_(0.5).mul_(2.0**-52)
