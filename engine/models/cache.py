"""Keys and values of the tokens that a decoder has read: one buffer, and a length that moves."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.models.attention import causal_mask


class CacheError(RuntimeError):
    """The cache does not cover what the caller takes for granted; the text is one sentence."""


class Cache:
    """Preallocated keys and values of every layer, batch 1.

    Rows at or beyond `length` are leftovers of rejected tokens: never read, later overwritten.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        capacity: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        # Zeros, not empty: on a CPU the pages must exist before a timed step writes to them.
        self._buffer = torch.zeros(
            (layers, 2, kv_heads, capacity, head_dim), dtype=dtype, device=device
        )
        self._layers = [tuple(layer.unbind(0)) for layer in self._buffer.unbind(0)]
        self.capacity = capacity
        self.length = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the whole buffer, used or not."""
        return self._buffer.nbytes

    def reserve(self, rows: int) -> None:
        """Raise CacheError unless `rows` more tokens, at least one, fit."""
        if rows < 1:
            raise CacheError(f"a step needs at least one token, not {rows}")
        if self.length + rows > self.capacity:
            raise CacheError(
                f"the cache holds {self.length} of at most {self.capacity} tokens, "
                f"so {rows} more do not fit"
            )

    def expect_room(self, length: int) -> None:
        """Raise CacheError unless `length` tokens in all would fit."""
        if length > self.capacity:
            raise CacheError(f"the cache has room for {self.capacity} tokens, not for {length}")

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write M rows of one layer behind the current length, which stays as it is.

        Takes keys and values as [M, kv_heads, head_dim]; returns views of all rows up to and
        including the new ones, [kv_heads, length + M, head_dim]. Raises CacheError on overflow.
        """
        rows = keys.shape[0]
        self.reserve(rows)
        all_keys, all_values = self._layers[layer]
        all_keys.narrow(1, self.length, rows).copy_(keys.transpose(0, 1))
        all_values.narrow(1, self.length, rows).copy_(values.transpose(0, 1))
        return self.view(layer, self.length + rows)

    def view(self, layer: int, rows: int) -> tuple[Tensor, Tensor]:
        """The first `rows` keys and values of one layer, [kv_heads, rows, head_dim] each."""
        keys, values = self._layers[layer]
        return keys.narrow(1, 0, rows), values.narrow(1, 0, rows)

    def columns(self, rows: int) -> int:
        """Keys that a step of `rows` tokens attends to, its own included."""
        return self.length + rows

    def mask(self, rows: int, like: Tensor) -> Tensor | None:
        """Additive mask [rows, columns] of a step of `rows` tokens; None if it hides nothing."""
        return causal_mask(rows, self.columns(rows), like)

    def to_read(self, length: int) -> list[tuple[int, int]]:
        """Stretches (start, end) of the text to read so that the cache covers `length` tokens."""
        return [(self.length, length)] if length > self.length else []

    def skip(self, start: int) -> None:
        """Go on reading at token `start`; this cache leaves none out."""
        self.expect(start)

    def advance(self, rows: int) -> None:
        """Count `rows` appended tokens in, once every layer has its own; CacheError on overflow."""
        self.reserve(rows)
        self.length += rows

    def trim(self, length: int) -> None:
        """Forget the tokens from `length` on; CacheError unless 0 <= length <= self.length."""
        if not 0 <= length <= self.length:
            raise CacheError(
                f"cannot trim the cache to {length} tokens: it holds {self.length}, "
                "and trimming only removes"
            )
        self.length = length

    def expect(self, length: int) -> None:
        """Raise CacheError unless the cache holds exactly `length` tokens."""
        if self.length != length:
            raise CacheError(f"the cache holds {self.length} tokens where {length} were expected")
