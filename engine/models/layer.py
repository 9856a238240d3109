"""The weights of one block, fused for few and large matrix products, and the work around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.architecture import DecoderConfig
from engine.models.norm import rms_norm
from engine.models.weights import own_matrix, own_rows


@dataclass(frozen=True)
class Layer:
    """One block: attention and gated feed-forward, each behind an RMS norm and a residual.

    qkv [(heads + 2 kv_heads) * head_dim, hidden] and gate_up [2 intermediate, hidden] are
    stacked from the checkpoint's matrices; absent biases and norms are None.
    """

    head_dim: int
    eps: float
    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    head_norm: Tensor | None
    output: Tensor
    output_bias: Tensor | None
    post_norm: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None

    @classmethod
    def load(
        cls,
        config: DecoderConfig,
        tensors: Mapping[str, Tensor],
        index: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> Layer:
        """Copy and fuse the tensors of block `index`, under their Hugging Face names."""

        def parts(*names: str) -> list[Tensor]:
            return [tensors[f"model.layers.{index}.{name}"] for name in names]

        def matrix(*names: str) -> Tensor:
            return own_matrix(parts(*(f"{name}.weight" for name in names)), device, dtype)

        def vector(*names: str) -> Tensor:
            return own_rows(parts(*names), device, dtype)

        def bias(present: bool, *names: str) -> Tensor | None:
            return vector(*(f"{name}.bias" for name in names)) if present else None

        head_norm = None
        if config.qk_norm:
            query = vector("self_attn.q_norm.weight").expand(config.heads, -1)
            key = vector("self_attn.k_norm.weight").expand(config.kv_heads, -1)
            head_norm = torch.cat((query, key))
        projections = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
        gated = ("mlp.gate_proj", "mlp.up_proj")
        return cls(
            head_dim=config.head_dim,
            eps=config.norm_eps,
            input_norm=vector("input_layernorm.weight"),
            qkv=matrix(*projections),
            qkv_bias=bias(config.qkv_bias, *projections),
            head_norm=head_norm,
            output=matrix("self_attn.o_proj"),
            output_bias=bias(config.output_bias, "self_attn.o_proj"),
            post_norm=vector("post_attention_layernorm.weight"),
            gate_up=matrix(*gated),
            gate_up_bias=bias(config.mlp_bias, *gated),
            down=matrix("mlp.down_proj"),
            down_bias=bias(config.mlp_bias, "mlp.down_proj"),
        )

    @property
    def tensors(self) -> list[Tensor]:
        """All of its weights."""
        return [value for value in vars(self).values() if isinstance(value, Tensor)]

    def project(self, hidden: Tensor) -> Tensor:
        """Queries, keys and values of hidden [M, hidden]: [M, heads + 2 kv_heads, head_dim]."""
        normed = rms_norm(hidden, self.input_norm, self.eps)
        return F.linear(normed, self.qkv, self.qkv_bias).view(hidden.shape[0], -1, self.head_dim)

    def normed(self, heads: Tensor) -> Tensor:
        """Queries and keys [M, heads + kv_heads, head_dim] after Qwen3's norm of each head."""
        if self.head_norm is None:
            return heads
        return rms_norm(heads, self.head_norm, self.eps)

    def finish(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """Residual stream after the block, from attention's output [M, heads * head_dim]."""
        hidden = hidden + F.linear(attended, self.output, self.output_bias)
        normed = rms_norm(hidden, self.post_norm, self.eps)
        gate, up = F.linear(normed, self.gate_up, self.gate_up_bias).chunk(2, -1)
        return hidden + F.linear(F.silu(gate) * up, self.down, self.down_bias)
