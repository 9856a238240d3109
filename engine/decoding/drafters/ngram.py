"""Prompt lookup: what followed the last few tokens the last time they stood here.

Saxena 2023. No model, no cache: a dictionary from n-grams to the place behind their latest
occurrence grows with the sequence, so that a proposal costs two look-ups, whatever the length.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from engine.decoding.protocols import Token
from engine.decoding.resources import Resources

NEEDS_DRAFT_MODEL = False

# Longest first: a longer match is the better witness. One token alone matches nearly always and is
# nearly always wrong.
_SIZES = (3, 2)


class Drafter:
    """Proposes the continuation of the latest earlier occurrence, up to where the text ends."""

    def __init__(self, resources: Resources):
        self._runtime = resources.runtime
        self.calls = 0
        self.catchups = 0
        self.probabilities = None
        self._text: list[int] = []
        self._places: dict[tuple[int, ...], int] = {}
        self._prompt_length = 0
        self._prompt_places: dict[tuple[int, ...], int] = {}

    def prefill(self, prompt: Tensor, chunk: int) -> None:
        """Index the prompt (LongTensor [P]) once; restarts reuse it."""
        self._text, self._places = [], {}
        self._append(prompt.tolist())
        self._prompt_length = len(self._text)
        self._prompt_places = dict(self._places)

    def restart(self) -> None:
        """Back to the end of the prompt."""
        del self._text[self._prompt_length :]
        self._places = dict(self._prompt_places)

    def propose(self, committed: Sequence[Token], k: int) -> list[Token]:
        """At most k tokens; none if no n-gram at the end of the text has been here before."""
        fresh = committed[len(self._text) - self._prompt_length :]
        if fresh:
            self._append(self._runtime.values(fresh, "text_end"))
        for size in _SIZES:
            place = self._places.get(tuple(self._text[-size:]))
            if place is not None:
                return self._runtime.hold(self._text[place : place + k])
        return []

    def catch_up(self, committed: Sequence[Token]) -> None: ...

    def update(self, kept: int) -> None: ...

    def expect(self, length: int) -> None: ...

    def _append(self, tokens: Sequence[int]) -> None:
        """Add tokens; an n-gram is indexed once a token follows it, or it would find itself."""
        for token in tokens:
            end = len(self._text)
            for size in _SIZES:
                if end >= size:
                    self._places[tuple(self._text[end - size :])] = end
            self._text.append(token)
