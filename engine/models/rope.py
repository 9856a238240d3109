"""Rotary position embedding: a table of cosines and sines, and its use on heads.

Source: Su et al. 2021, in the half-split layout of Hugging Face checkpoints; the stretching of
Llama 3.1 as in transformers' `_compute_llama3_parameters`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.models.architecture import DecoderConfig


def inverse_frequencies(config: DecoderConfig) -> Tensor:
    """Radians per position of each pair of elements, [head_dim / 2], float32 on the CPU."""
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    plain = 1.0 / config.rope_theta**steps
    scaling = config.rope_scaling
    if scaling is None:
        return plain
    wavelength = 2 * math.pi / plain
    smooth = (scaling.original_positions / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    # Below 0 a wave is long and fully stretched, above 1 it is short and left alone.
    smooth = smooth.clamp(0, 1)
    return (1 - smooth) * plain / scaling.factor + smooth * plain


class RopeTable:
    """Cosines and signed sines of every position so far asked for, grown on demand."""

    def __init__(self, config: DecoderConfig, dtype: torch.dtype, device: torch.device) -> None:
        self._frequencies = inverse_frequencies(config)
        self._dtype = dtype
        self._device = device
        self.grow(0)

    def grow(self, positions: int) -> None:
        """Cover at least `positions`; computed in float32, then cast as transformers does."""
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * self._frequencies
        cosines, sines = angles.cos(), angles.sin()
        self._cosines = torch.cat((cosines, cosines), -1).to(self._device, self._dtype)[:, None]
        # The sign of the half turn is kept in the table, so that rotating needs no negation.
        self._sines = torch.cat((-sines, sines), -1).to(self._device, self._dtype)[:, None]

    def rows(self, start: int, count: int) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of `count` positions, [count, 1, head_dim] each."""
        if start + count > self._cosines.shape[0]:
            self.grow(start + count)
        return self._cosines.narrow(0, start, count), self._sines.narrow(0, start, count)


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn heads [M, heads, head_dim] to their positions, by tables of [M, 1, head_dim]."""
    return torch.addcmul(heads * cosines, heads.roll(heads.shape[-1] // 2, -1), sines)
