"""A perfect drafter that costs nothing: it replays what the baseline decodes.

A diagnosis, not an algorithm: it shows what would be left if drafting were free and never wrong.
It holds no draft weights, no cache, and makes no forward.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from engine.decoding.protocols import Token
from engine.decoding.resources import Resources

NEEDS_DRAFT_MODEL = False


class Drafter:
    """Proposes the baseline's own continuation of the prompt."""

    def __init__(self, resources: Resources):
        self._resources = resources
        self._tokens: list[Token] = []
        self.calls = 0
        self.catchups = 0
        self.probabilities = None

    def prefill(self, prompt: Tensor, chunk: int) -> None:
        """Have the baseline decode the prompt (LongTensor [P]) once; restarts reuse it."""
        self._tokens = self._resources.reference_tokens()

    def restart(self) -> None: ...

    def propose(self, committed: Sequence[Token], k: int) -> list[Token]:
        """The k tokens that the baseline commits next."""
        return self._tokens[len(committed) : len(committed) + k]

    def catch_up(self, committed: Sequence[Token]) -> None: ...

    def update(self, kept: int) -> None: ...

    def expect(self, length: int) -> None: ...
