"""Names and shapes of the tensors that a config asks for, as Hugging Face checkpoints have them."""

from __future__ import annotations

from engine.models.architecture import DecoderConfig

Shapes = dict[str, tuple[int, ...]]


def block_shapes(config: DecoderConfig) -> Shapes:
    """Tensors of all blocks and of the last norm: all that a student has of its own."""
    shapes: Shapes = {"model.norm.weight": (config.hidden,)}
    for index in range(config.layers):
        for name, shape in _one_block(config).items():
            shapes[f"model.layers.{index}.{name}"] = shape
    return shapes


def model_shapes(config: DecoderConfig) -> Shapes:
    """Tensors of a whole model."""
    table = (config.vocabulary_rows, config.hidden)
    shapes = {"model.embed_tokens.weight": table, **block_shapes(config)}
    if not config.tied_head:
        shapes["lm_head.weight"] = table
    return shapes


def _one_block(config: DecoderConfig) -> Shapes:
    hidden, inner = config.hidden, config.intermediate
    queries = config.heads * config.head_dim
    keys = config.kv_heads * config.head_dim
    shapes: Shapes = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    matrices = {
        "self_attn.q_proj": (queries, hidden, config.qkv_bias),
        "self_attn.k_proj": (keys, hidden, config.qkv_bias),
        "self_attn.v_proj": (keys, hidden, config.qkv_bias),
        "self_attn.o_proj": (hidden, queries, config.output_bias),
        "mlp.gate_proj": (inner, hidden, config.mlp_bias),
        "mlp.up_proj": (inner, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, inner, config.mlp_bias),
    }
    for name, (rows, columns, bias) in matrices.items():
        shapes[f"{name}.weight"] = (rows, columns)
        if bias:
            shapes[f"{name}.bias"] = (rows,)
    if config.qk_norm:
        shapes["self_attn.q_norm.weight"] = (config.head_dim,)
        shapes["self_attn.k_norm.weight"] = (config.head_dim,)
    return shapes
