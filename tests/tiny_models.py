"""Random tiny decoders for tests of the loop: no files, no transformers."""

from __future__ import annotations

import torch

from engine.models.decoder import Decoder, DecoderConfig

VOCABULARY = 61


def tiny_decoder(
    seed: int,
    noise_over: Decoder | None = None,
    noise: float = 0.0,
    dtype: torch.dtype = torch.float32,
) -> Decoder:
    """A random Llama of 2 layers, or a noisy copy of another one's tensors.

    A copy with noise agrees with the original on a part of the tokens, as a draft does.
    """
    config = DecoderConfig.from_hf(
        {
            "model_type": "llama",
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 512,
            "tie_word_embeddings": False,
        }
    )
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int, scale: float = 0.3) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * scale

    tensors = {
        "model.embed_tokens.weight": random(VOCABULARY, 32, scale=1.0),
        "lm_head.weight": random(VOCABULARY, 32),
        "model.norm.weight": torch.ones(32),
    }
    for i in range(2):
        prefix = f"model.layers.{i}"
        tensors |= {
            f"{prefix}.input_layernorm.weight": torch.ones(32),
            f"{prefix}.post_attention_layernorm.weight": torch.ones(32),
            f"{prefix}.self_attn.q_proj.weight": random(32, 32),
            f"{prefix}.self_attn.k_proj.weight": random(16, 32),
            f"{prefix}.self_attn.v_proj.weight": random(16, 32),
            f"{prefix}.self_attn.o_proj.weight": random(32, 32),
            f"{prefix}.mlp.gate_proj.weight": random(48, 32),
            f"{prefix}.mlp.up_proj.weight": random(48, 32),
            f"{prefix}.mlp.down_proj.weight": random(32, 48),
        }
    if noise_over is not None:
        original = noise_over.source_tensors
        tensors = {
            name: value
            + noise * value.std().nan_to_num(0.1) * torch.randn(value.shape, generator=generator)
            for name, value in original.items()
        }
    decoder = Decoder(config, tensors, dtype=dtype)
    decoder.source_tensors = tensors
    return decoder


SHAPE = {
    "model_type": "qwen2",
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}
DRAFT_SHAPE = SHAPE | {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
