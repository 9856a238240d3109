"""A cache that shows a decoder the first few tokens and the last N, all at their own positions.

Source: attention sinks, Xiao et al. 2023, but without renumbering: keys keep the rotation of the
place where they were read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.models.cache import Cache, CacheError

SINKS = 4  # tokens at the start that attention rests on, as in the source


class WindowedCache(Cache):
    """`length` counts the text, of which the sinks and a stretch up to `length` are held.

    The newest token of a step sees itself, the `window` - 1 tokens before it, and the sinks. What a
    reader has left out (`skip`) is never seen: it must lie outside of every window to come.
    """

    def __init__(self, window: int, *shape) -> None:
        super().__init__(*shape)
        self.window = window
        self._left_out: list[tuple[int, int]] = []

    def to_read(self, length: int) -> list[tuple[int, int]]:
        """Stretches (start, end) of the text to read so that the cache covers `length` tokens."""
        first = max(SINKS, length - self.window)
        if first <= max(self.length, SINKS):
            return super().to_read(length)
        return [*super().to_read(SINKS), (first, length)]

    def skip(self, start: int) -> None:
        """Go on reading at token `start`, the ones before it left out."""
        if start < self.length:
            raise CacheError(f"cannot skip back from token {self.length} to {start}")
        if start > self.length:
            self._left_out.append((self.length, start))
            self.length = start

    def trim(self, length: int) -> None:
        """As of every cache; CacheError for a length inside a stretch that was left out."""
        while self._left_out and length < self._left_out[-1][1]:
            start, end = self._left_out[-1]
            if length > start:
                raise CacheError(
                    f"cannot trim the cache to {length} tokens: it left out {start} to {end}"
                )
            self._left_out.pop()
        super().trim(length)

    def columns(self, rows: int) -> int:
        return SINKS + self.length + rows - self._first_seen(0)

    def mask(self, rows: int, like: Tensor) -> Tensor | None:
        mask, first = super().mask(rows, like), self._first_seen(0)
        for row in range(1, rows):
            # A later row is further on: it no longer sees all that the first one does.
            mask[row, SINKS : SINKS + self._first_seen(row) - first] = float("-inf")
        return mask

    def view(self, layer: int, rows: int) -> tuple[Tensor, Tensor]:
        """Of the first `rows` keys and values of one layer those that a step sees now."""
        keys, values = super().view(layer, rows)
        first = self._first_seen(0)
        if first == SINKS:
            return keys, values
        seen = [(0, SINKS), (first, rows - first)]
        return tuple(torch.cat([x.narrow(1, *part) for part in seen], 1) for x in (keys, values))

    def _first_seen(self, row: int) -> int:
        """The first token behind the sinks that row `row` of the next step sees."""
        read_from = self._left_out[-1][1] if self._left_out else 0
        return max(SINKS, read_from, self.length + row + 1 - self.window)
