"""Causal attention of the newest M tokens over all tokens in the cache.

Two shapes of the same sum: a few rows over a long cache (decoding, verification), where reading
the keys is the cost, and a chunk of many rows (prefill), where arithmetic is.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

# cuDNN's fused attention first, where the device has it; torch takes the next that fits.
_PREFILL_ORDER = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]


def causal_mask(rows: int, length: int, like: Tensor) -> Tensor | None:
    """Additive mask [rows, length]: row i, at position length - rows + i, sees none after itself.

    None for a single row, which sees everything. `is_causal` of torch aligns to the upper left,
    which is wrong unless rows == length.
    """
    if rows == 1:
        return None
    mask = torch.full((rows, length), float("-inf"), dtype=like.dtype, device=like.device)
    return mask.triu_(length - rows + 1)


def attend_rows(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of a few rows, each group of query heads folded into rows of its one key head.

    queries [M, heads, head_dim], keys and values [kv_heads, n, head_dim], mask [group * M, n]
    (the causal mask once per head of a group) or None for M = 1; returns [M, heads * head_dim].
    Keys are read once and never repeated; on a CPU faster than `enable_gqa`.
    """
    rows, heads, head_dim = queries.shape
    kv_heads = keys.shape[0]
    folded = _by_key_head(queries, kv_heads).reshape(1, kv_heads, -1, head_dim)
    out = F.scaled_dot_product_attention(folded, keys[None], values[None], attn_mask=mask)
    out = out.view(kv_heads, heads // kv_heads, rows, head_dim)
    return out.permute(2, 0, 1, 3).reshape(rows, heads * head_dim)


def attend_chunk(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of a chunk; shapes as in `attend_rows`, but mask [M, n], and None if M = n.

    Key heads stand where a batch would, so that fused kernels see them shared by stride and
    need no grouped-query support of their own.
    """
    rows, heads, head_dim = queries.shape
    kv_heads, length, _ = keys.shape
    shared = (kv_heads, heads // kv_heads, length, head_dim)
    out = F.scaled_dot_product_attention(
        _by_key_head(queries, kv_heads),
        keys[:, None].expand(shared),
        values[:, None].expand(shared),
        attn_mask=mask,
        is_causal=rows == length,
    )
    return out.permute(2, 0, 1, 3).reshape(rows, heads * head_dim)


def prefill_kernels() -> AbstractContextManager[None]:
    """Context in which attention picks its kernel in the order that suits prefill."""
    return sdpa_kernel(_PREFILL_ORDER, set_priority=True)


def _by_key_head(queries: Tensor, kv_heads: int) -> Tensor:
    rows, heads, head_dim = queries.shape
    return queries.view(rows, kv_heads, heads // kv_heads, head_dim).permute(1, 2, 0, 3)
