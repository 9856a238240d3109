"""RMS norm with the rounding of Hugging Face models."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def rms_norm(values: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale the last axis of values [..., n] to mean square 1, then by weight [n] or [heads, n].

    Accumulates in float32. The weight is multiplied after the cast back, not inside F.rms_norm,
    which rounds once where transformers rounds twice and so differs in half precision.
    Source: Zhang and Sennrich 2019.
    """
    return F.rms_norm(values, values.shape[-1:], None, eps) * weight
