"""A target without a cache between verifications: every one reads the whole text again.

Nobody decodes like this. It is measured for what the cache is worth.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.decoding import target


class Target(target.Target):
    """The cache holds the same tokens as ever, but is filled anew by each forward."""

    def prefill(self, prompt: Tensor, chunk: int) -> None:
        """Read the prompt (LongTensor [P] on the device) once, for the first token."""
        self._text = prompt
        super().prefill(prompt, chunk)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [M, vocabulary] after each of M tokens, by one forward over all tokens so far."""
        self.calls += 1
        self._text = torch.cat([self._text[: self.cache.length], tokens])
        self.cache.trim(0)
        return self.model.read(self._text, self.cache, rows=tokens.shape[0])
