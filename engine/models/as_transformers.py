"""A decoder as a model of transformers, over the same memory: no weight is copied.

What is fused here is split there by views, and matrices stay in the order that the device reads
fastest (weights.py), which helps both sides alike.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.models.architecture import DecoderConfig
from engine.models.decoder import Decoder
from engine.models.layer import Layer

_CLASSES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral"}


def as_transformers(decoder: Decoder):
    """The `ForCausalLM` of the decoder's family, in eval mode, over the decoder's own tensors.

    Its vocabulary is the decoder's, padding rows cut; a student has the embedding and the head of
    its target here as well. transformers is imported here and by no other kind of cell.
    """
    import transformers

    name = _CLASSES[decoder.config.family]
    config = getattr(transformers, f"{name}Config")(**_settings(decoder))
    config._attn_implementation = "sdpa"
    with torch.device("meta"):
        model = getattr(transformers, f"{name}ForCausalLM")(config)
    model.requires_grad_(False).eval()
    model.load_state_dict(_state(decoder), assign=True)
    # Its table of frequencies is no weight: made anew, where there is memory behind it.
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(decoder.device)
    return model


def _settings(decoder: Decoder) -> dict[str, Any]:
    config = decoder.config
    settings = {
        "vocab_size": decoder.vocabulary,
        "hidden_size": config.hidden,
        "intermediate_size": config.intermediate,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_eps,
        "rope_parameters": _rope(config),
        "tie_word_embeddings": decoder.head is decoder.embedding,
        "attention_bias": config.output_bias,
        "mlp_bias": config.mlp_bias,
        "sliding_window": None,
        "dtype": decoder.dtype,
        # No token ends a generation: every run commits its whole budget.
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    if config.family == "qwen2":
        settings["use_sliding_window"] = False
    return settings


def _rope(config: DecoderConfig) -> dict[str, Any]:
    scaling = config.rope_scaling
    if scaling is None:
        return {"rope_type": "default", "rope_theta": config.rope_theta}
    return {
        "rope_type": "llama3",
        "rope_theta": config.rope_theta,
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_positions,
    }


def _state(decoder: Decoder) -> dict[str, Tensor]:
    """Views of the decoder's tensors under their names in a checkpoint (layout.py)."""
    state = {
        "model.embed_tokens.weight": decoder.embedding,
        "lm_head.weight": decoder.head,
        "model.norm.weight": decoder.norm,
    }
    for index, layer in enumerate(decoder.layers):
        block = _block(decoder.config, layer)
        state |= {f"model.layers.{index}.{name}": value for name, value in block.items()}
    return state


def _block(config: DecoderConfig, layer: Layer) -> dict[str, Tensor]:
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    attention, gated = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
    block = {
        "input_layernorm.weight": layer.input_norm,
        "post_attention_layernorm.weight": layer.post_norm,
        "self_attn.o_proj.weight": layer.output,
        "self_attn.o_proj.bias": layer.output_bias,
        "mlp.down_proj.weight": layer.down,
        "mlp.down_proj.bias": layer.down_bias,
    }
    for part, names, sizes, weight, bias in (
        ("self_attn", attention, (queries, keys, keys), layer.qkv, layer.qkv_bias),
        ("mlp", gated, (config.intermediate,) * 2, layer.gate_up, layer.gate_up_bias),
    ):
        for kind, fused in (("weight", weight), ("bias", bias)):
            pieces = (None,) * len(names) if fused is None else fused.split(sizes)
            for name, piece in zip(names, pieces, strict=True):
                block[f"{part}.{name}.{kind}"] = piece
    if layer.head_norm is not None:
        block["self_attn.q_norm.weight"] = layer.head_norm[0]
        block["self_attn.k_norm.weight"] = layer.head_norm[config.heads]
    return {name: value for name, value in block.items() if value is not None}
