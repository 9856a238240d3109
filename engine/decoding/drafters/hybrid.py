"""Prompt lookup where it finds something, the draft model elsewhere.

The model's cache falls behind while look-ups are used; the model reads what it lacks, in one
forward, when it is asked again.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from engine.decoding.drafters import model, ngram
from engine.decoding.protocols import Token
from engine.decoding.resources import Resources
from engine.models.cache import CacheError

NEEDS_DRAFT_MODEL = True


class Drafter:
    """Two drafters, of which the cheaper is asked first."""

    def __init__(self, resources: Resources):
        self._lookup = ngram.Drafter(resources)
        self._drafting = model.Drafter(resources)
        self._looked_up = False

    @property
    def model(self):
        return self._drafting.model

    @property
    def cache(self):
        return self._drafting.cache

    @property
    def calls(self) -> int:
        return self._drafting.calls

    @property
    def catchups(self) -> int:
        return self._drafting.catchups

    @property
    def probabilities(self) -> Tensor | None:
        return None if self._looked_up else self._drafting.probabilities

    def prefill(self, prompt: Tensor, chunk: int) -> None:
        """Read and index the prompt (LongTensor [P] on the device) once; restarts reuse it."""
        self._lookup.prefill(prompt, chunk)
        self._drafting.prefill(prompt, chunk)

    def restart(self) -> None:
        """Back to the end of the prompt."""
        self._lookup.restart()
        self._drafting.restart()

    def propose(self, committed: Sequence[Token], k: int) -> list[Token]:
        """At most k tokens: those that were looked up or, if there are none, the model's."""
        found = self._lookup.propose(committed, k)
        self._looked_up = bool(found)
        return found or self._drafting.propose(committed, k)

    def catch_up(self, committed: Sequence[Token]) -> None:
        """Nothing, if the next proposal is looked up: the model would read for nobody."""
        if not self._lookup.propose(committed, 1):
            self._drafting.catch_up(committed)

    def update(self, kept: int) -> None:
        self._drafting.update(kept)

    def expect(self, length: int) -> None:
        """After a look-up the model's cache may lag behind, but not lead."""
        if not self._looked_up:
            self._drafting.expect(length)
        elif self.cache.length > length:
            raise CacheError(
                f"the cache holds {self.cache.length} tokens where at most {length} were expected"
            )
