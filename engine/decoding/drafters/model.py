"""A smaller model that drafts one token after another."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.decoding.loop import Token
from engine.decoding.resources import Resources

NEEDS_DRAFT_MODEL = True


class Drafter:
    """Proposals of a draft model over a cache of its own.

    The cache covers a prefix of the committed sequence: after a fully accepted block it lags by
    the last proposed token, which the draft has not seen as input.
    """

    def __init__(self, resources: Resources):
        self.model = resources.load_draft()
        self.step = self.model.forward  # a runtime may put its own in its place
        self.runtime, self.voice = resources.runtime, resources.draft_voice
        self.cache = self.model.new_cache(resources.capacity)
        self.calls = 0
        self.catchups = 0
        self.probabilities: Tensor | None = None
        self._lags = False
        self._prompt_length = 0
        self._prompt_logits: Tensor | None = None
        self._next: Tensor | None = None

    def prefill(self, prompt: Tensor, chunk: int) -> None:
        """Read the prompt (LongTensor [P] on the device) once; restarts reuse it."""
        self._prompt_logits = self.model.prefill(prompt, self.cache, chunk)
        self._prompt_length = prompt.shape[0]
        self._next = self._prompt_logits

    def restart(self) -> None:
        """Back to the end of the prompt."""
        self.cache.trim(self._prompt_length)
        self._next = self._prompt_logits
        self.calls = self.catchups = 0
        self._lags = False

    def propose(self, committed: Sequence[Token], k: int) -> list[Token]:
        """k tokens that continue the prompt and the committed tokens; k - 1 or k forwards."""
        self.catch_up(committed)
        proposal, drafted, logits = [], [], self._next
        while True:
            choice, probs = self.voice.draw(logits[None], committed, proposal)
            proposal.append(self.runtime.take(choice, "draft_token"))
            drafted.append(probs)
            if len(proposal) == k:
                break
            logits = self._forward(proposal[-1:])
        self.probabilities = None if drafted[0] is None else torch.cat(drafted)
        return proposal

    def catch_up(self, committed: Sequence[Token]) -> None:
        """Run the committed tokens that the cache lacks, so that it covers them all."""
        pending = committed[self.cache.length - self._prompt_length :]
        if pending:
            self.catchups += self._lags
            self._lags = False
            self._next = self._forward(pending)

    def update(self, kept: int) -> None:
        """Forget what was rejected: at most `kept` tokens (prompt included) stay."""
        self.cache.trim(min(self.cache.length, kept))
        self._lags = self.cache.length < kept

    def expect(self, length: int) -> None:
        self.cache.expect(length)

    def _forward(self, tokens: Sequence[Token]) -> Tensor:
        self.calls += 1
        return self.step(self.runtime.upload(tokens), self.cache)[-1]
