"""The model whose text is written, as the loop sees it."""

from __future__ import annotations

import torch
from torch import Tensor


class LogitsError(RuntimeError):
    """A model's logits say nothing of the next token; the text is one sentence."""


class Target:
    """The target model, its cache, and logits kept between rounds.

    `saved_next` are the logits after the last token in the cache: after the prompt in all forms,
    after every round in the repair form, which judges d_1 by them. `invariant`: a row's bits do
    not depend on how many there are, because each passes alone; it costs as many steps. `step`
    reads tokens as `Decoder.forward` does; a runtime may put its own in its place.
    """

    def __init__(self, model, capacity: int, invariant: bool = False):
        self.model = model
        self.step = model.forward
        self.invariant = invariant
        self.cache = model.new_cache(capacity)
        self.calls = 0
        self.prompt: Tensor | None = None
        self.prompt_length = 0
        self.saved_next: Tensor | None = None
        self._prompt_logits: Tensor | None = None

    def prefill(self, prompt: Tensor, chunk: int) -> None:
        """Read the prompt (LongTensor [P] on the device) once; restarts reuse it.

        Raises LogitsError if no token can follow. Rounds do not look: it would cost each a wait.
        """
        self._prompt_logits = self.model.prefill(prompt, self.cache, chunk)
        # One maximum sees them all: not a number, infinity, and nothing but minus infinity.
        if not bool(self._prompt_logits.amax().isfinite()):
            raise LogitsError(
                "the target's logits behind the prompt are not finite; try another dtype, or "
                "fetch the model again"
            )
        self.prompt, self.prompt_length = prompt, prompt.shape[0]
        self.restart()

    def restart(self) -> None:
        """Back to the end of the prompt."""
        self.cache.trim(self.prompt_length)
        self.saved_next = self._prompt_logits
        self.calls = 0

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [M, vocabulary] after each of M tokens, which join the cache."""
        self.calls += 1
        if self.invariant:
            return torch.cat([self.step(token, self.cache) for token in tokens.split(1)])
        return self.step(tokens, self.cache, rows=tokens.shape[0])
