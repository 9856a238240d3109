"""Published model shapes, as keys of a Hugging Face config without its vocabulary."""

from __future__ import annotations

_QWEN = {"model_type": "qwen2", "max_position_embeddings": 32_768, "rope_theta": 1e6}
SHAPES = {
    "qwen2.5-1.5b": _QWEN
    | {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
    "qwen2.5-0.5b": _QWEN
    | {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
}
