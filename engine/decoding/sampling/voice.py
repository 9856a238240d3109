"""How a model's tokens are chosen from its logits: greedily, or sampled.

Row j of some logits stands behind the committed tokens and the first j of a block. The number of
tokens before a row is the position of the token that it chooses, and keys that token's noise:
whichever round, form or drafter leads there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.decoding.sampling.noise import Noise, Purpose
from engine.decoding.sampling.warp import Warp, to_probs, to_scores


class Greedy:
    """The most likely token, of the target (choose) and of a draft (draw)."""

    def choose(
        self, logits: Tensor, committed: Sequence[Any], block: Tensor | None = None
    ) -> Tensor:
        """LongTensor [M] from logits [M, vocabulary]."""
        return logits.argmax(-1)

    def probs(
        self, logits: Tensor, committed: Sequence[Any], block: Tensor | None = None
    ) -> Tensor:
        """The model's own distribution, for rules that ask how likely a token was."""
        return logits.double().softmax(-1)

    def scores(
        self, logits: Tensor, committed: Sequence[Any], block: Tensor | None = None
    ) -> Tensor:
        """What the choice is the largest of."""
        return logits

    def draw(
        self, logits: Tensor, committed: Sequence[Any], proposal: Sequence[Any]
    ) -> tuple[Tensor, None]:
        """The draft's next token (LongTensor [1]); it was not sampled from anything."""
        return logits.argmax(-1), None


class Sampled:
    """The target's tokens: a Gumbel race over the warped distribution of each position.

    `upload` brings tokens to the device; only a repetition penalty needs it.
    """

    def __init__(
        self,
        warp: Warp,
        noise: Noise,
        prompt: Tensor,
        upload: Callable[[Sequence[Any]], Tensor],
    ):
        self.warp, self.noise, self.prompt, self._upload = warp, noise, prompt, upload

    def choose(
        self, logits: Tensor, committed: Sequence[Any], block: Tensor | None = None
    ) -> Tensor:
        """LongTensor [M] from logits [M, vocabulary]; what plain decoding would commit there."""
        probs = self.probs(logits, committed, block)
        return self.noise.race(probs, self.positions(committed, len(logits)))

    def probs(
        self, logits: Tensor, committed: Sequence[Any], block: Tensor | None = None
    ) -> Tensor:
        """Float64 [M, vocabulary], as the user asks; `block` is LongTensor [M - 1] or longer."""
        return to_probs(logits, self.warp, self._seen(logits, committed, block))

    def scores(
        self, logits: Tensor, committed: Sequence[Any], block: Tensor | None = None
    ) -> Tensor:
        """What the choice is the largest of (float64 [M, vocabulary]): warped logits and noise."""
        scores = to_scores(logits, self.warp, self._seen(logits, committed, block))
        if self.warp.temperature == 0:
            return scores
        positions = self.positions(committed, len(logits))
        return scores - self.noise.exponentials(positions, logits.shape[-1]).log_()

    def positions(self, committed: Sequence[Any], rows: int) -> Tensor:
        """LongTensor [rows]: of the tokens that the rows choose."""
        first = len(self.prompt) + len(committed)
        return torch.arange(first, first + rows, device=self.prompt.device)

    def _seen(
        self, logits: Tensor, committed: Sequence[Any], block: Tensor | None
    ) -> Tensor | None:
        """Each row's own history, marked in the vocabulary; None if nothing asks for it."""
        if self.warp.repetition_penalty == 1:
            return None
        seen = torch.zeros(logits.shape, dtype=torch.bool, device=self.prompt.device)
        seen.index_fill_(1, self.prompt, True)
        if committed:
            seen.index_fill_(1, self._upload(committed), True)
        for row in range(1, len(seen)):
            seen[row:].index_fill_(1, block[row - 1 : row], True)
        return seen


class SharedDraft(Sampled):
    """A draft that runs the target's race with its own distribution: coupled sampling."""

    def draw(
        self, logits: Tensor, committed: Sequence[Any], proposal: Sequence[Any]
    ) -> tuple[Tensor, None]:
        """The draft's next token (LongTensor [1]) behind the proposal so far."""
        return self.choose(logits, [*committed, *proposal]), None


class IndependentDraft(Sampled):
    """A draft that samples with numbers of its own, and says what it sampled from."""

    def draw(
        self, logits: Tensor, committed: Sequence[Any], proposal: Sequence[Any]
    ) -> tuple[Tensor, Tensor]:
        """The draft's next token (LongTensor [1]), and q (float64 [1, vocabulary]).

        The token is not drawn with the number that an earlier round drew here with: that draft
        may have been seen, and then refused.
        """
        before = [*committed, *proposal]
        probs = self.probs(logits, before)
        began = len(self.prompt) + len(committed)
        positions = self.positions(before, len(logits))
        return self.noise.pick(probs, Purpose.DRAFT, positions, began), probs
