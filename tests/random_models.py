"""Random decoders of every family on any device, without files and without transformers."""

from __future__ import annotations

import torch

from engine.models.architecture import DecoderConfig
from engine.models.decoder import Decoder
from engine.models.layout import model_shapes

_SMALL = {
    "hidden_size": 192,
    "intermediate_size": 320,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 517,
    "max_position_embeddings": 4096,
}
FAMILIES = {
    "llama": {"model_type": "llama"},
    "llama-bias": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "smollm2": {
        "model_type": "llama",
        "hidden_size": 576,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "tie_word_embeddings": True,
    },
    "qwen2": {
        "model_type": "qwen2",
        "head_dim": 128,
        "num_attention_heads": 7,
        "num_key_value_heads": 1,
    },
    "qwen3": {"model_type": "qwen3", "head_dim": 48},
    "mistral": {"model_type": "mistral", "sliding_window": None, "intermediate_size": 1048},
}


def random_decoder(family: str, device, dtype, seed: int = 0, **overrides) -> Decoder:
    """A decoder of a family in FAMILIES, whose logits spread as a real model's do."""
    config = DecoderConfig.from_hf({**_SMALL, **FAMILIES[family], **overrides})
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in model_shapes(config).items():
        value = torch.randn(shape, generator=generator)
        if "norm" in name:
            tensors[name] = 1 + 0.2 * value
        elif "embed" in name or len(shape) == 1:
            tensors[name] = 0.5 * value
        else:
            tensors[name] = value * (2 / shape[1] ** 0.5)
    return Decoder(config, tensors, device, dtype)
