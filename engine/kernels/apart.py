"""The twin of the fused step, one row after another: row i is bitwise what a step of one row gives.

The library's products and its attention add in another order for another number of rows; the
fused kernel does not, and this is what stands for it where it cannot run. It costs M steps.
"""

from __future__ import annotations

import torch

from engine.kernels.step import Ports, TwinStep
from engine.models.cache import Cache
from engine.models.decoder import Decoder


class RowsApart:
    """As TwinStep, which every row passes by itself."""

    def __init__(self, decoder: Decoder, cache: Cache, max_rows: int) -> None:
        self._step = TwinStep(decoder, cache, 1)
        self.logits = torch.zeros(
            (max_rows, decoder.vocabulary), dtype=decoder.dtype, device=decoder.device
        )

    def __call__(self, ports: Ports) -> None:
        for row in range(ports.tokens.shape[0]):
            here = slice(row, row + 1)
            counts = (ports.rows - row).clamp(0, 1)
            self._step(Ports(ports.tokens[here], counts, ports.start + row, ports.choices[here]))
            self.logits[here] = self._step.logits
        if ports.last is not None:
            ports.last.copy_(ports.choices.gather(0, (ports.rows - 1).clamp(min=0)))
