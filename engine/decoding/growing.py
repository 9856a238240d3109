"""A cache that grows by concatenation: every step leaves a new tensor of its own length."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.models.attention import causal_mask
from engine.models.cache import Cache


class GrowingCache:
    """Stands for a cache during the steps of one capture; begins with what the cache holds.

    The steps' graph then works at this length only, and its pool keeps every tensor that it made:
    what a graph over a cache of the usual library kind costs.
    """

    def __init__(self, cache: Cache, layers: int) -> None:
        self._cache = cache
        self._begin = self.length = cache.length
        self._layers = [cache.view(layer, cache.length) for layer in range(layers)]

    def reserve(self, rows: int) -> None:
        self._cache.expect_room(self.length + rows)

    def mask(self, rows: int, like: Tensor) -> Tensor | None:
        """As Cache.mask."""
        return causal_mask(rows, self.length + rows, like)

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """As Cache.append."""
        held = self._layers[layer]
        grown = [
            torch.cat((old, new.transpose(0, 1)), 1)
            for old, new in zip(held, (keys, values), strict=True)
        ]
        self._layers[layer] = (grown[0], grown[1])
        return self._layers[layer]

    def advance(self, rows: int) -> None:
        self.length += rows

    def write_back(self) -> None:
        """Copy what was appended to the cache that it stands for, whose length stays."""
        added = self.length - self._begin
        for layer, grown in enumerate(self._layers):
            for place, tensor in zip(self._cache.view(layer, self.length), grown, strict=True):
                place.narrow(1, self._begin, added).copy_(tensor.narrow(1, self._begin, added))
