"""A smaller model that drafts one token after another."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.decoding.protocols import Token
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
        self.policy = resources.policy
        self.cache = self.model.new_cache(resources.capacity, resources.draft_window)
        self.calls = 0
        self.catchups = 0
        self.probabilities: Tensor | None = None
        self._lags = False
        self._last_was_read = False
        self._prompt_length = 0
        self._prompt_logits: Tensor | None = None
        self._next: Tensor | None = None

    def prefill(self, prompt: Tensor, chunk: int) -> None:
        """Read the prompt (LongTensor [P] on the device) once; restarts reuse it."""
        for start, end in self.cache.to_read(prompt.shape[0]):
            self.cache.skip(start)
            self._prompt_logits = self.model.prefill(prompt[start:end], self.cache, chunk)
        self._prompt_length = prompt.shape[0]
        self._next = self._prompt_logits

    def restart(self) -> None:
        """Back to the end of the prompt."""
        self.cache.trim(self._prompt_length)
        self._next = self._prompt_logits
        self.calls = self.catchups = 0
        self._lags = False

    def propose(self, committed: Sequence[Token], k: int) -> list[Token]:
        """k tokens that continue the prompt and the committed tokens; k - 1 or k forwards.

        Fewer, or none, where a policy that looks at the distributions wants to stop.
        """
        self.catch_up(committed)
        proposal: list[Token] = []
        drafted: list[Tensor] = []
        self._last_was_read = False
        while len(proposal) < k:
            if proposal:
                self._next = self._forward(proposal[-1:])
            if not self._goes_on():
                # The distribution that it stopped at comes from reading the last proposed token.
                self._last_was_read = bool(proposal)
                break
            choice, probs = self.voice.draw(self._next[None], committed, proposal)
            proposal.append(self.runtime.take(choice, "draft_token"))
            if probs is not None:
                drafted.append(probs)
        self.probabilities = torch.cat(drafted) if drafted else None
        return proposal

    def catch_up(self, committed: Sequence[Token]) -> None:
        """Run the committed tokens that the cache lacks, so that it covers them all."""
        length = self._prompt_length + len(committed)
        for start, end in self.cache.to_read(length):
            self.catchups += self._lags
            self._lags = False
            self.cache.skip(start)
            first = self._prompt_length
            self._next = self._forward(committed[start - first : end - first])

    def _goes_on(self) -> bool:
        if not self.policy.looks:
            return True
        return self.runtime.decided(self.policy.goes_on(self._next), "draft_confidence")

    def update(self, kept: int) -> None:
        """Forget what was rejected: at most `kept` tokens (prompt included) stay."""
        self.cache.trim(min(self.cache.length, kept))
        self._lags = self.cache.length < kept

    def expect(self, length: int) -> None:
        """As of every drafter; where doubt ended the proposal, its last token is read as well."""
        self.cache.expect(length + self._last_was_read)

    def _forward(self, tokens: Sequence[Token]) -> Tensor:
        self.calls += 1
        return self.step(self.runtime.upload(tokens), self.cache)[-1]
