"""What a Hugging Face config.json asks for, and whether the one decoder can do it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SUPPORTED = "llama, qwen2, qwen3 and mistral with full attention and default or llama3 rope"

# Defaults where they differ by family, from the configuration classes of transformers 5.24;
# None stands for "derived", as there.
_COMMON = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "head_dim": None,
}
_QWEN = {
    "vocab_size": 151_936,
    "intermediate_size": 22_016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32_768,
    "use_sliding_window": False,
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {
        "vocab_size": 32_000,
        "intermediate_size": 11_008,
        "num_key_value_heads": None,
        "max_position_embeddings": 2048,
        "attention_bias": False,
        "mlp_bias": False,
    },
    "qwen2": _QWEN,
    "qwen3": {**_QWEN, "head_dim": 128, "attention_bias": False},
    "mistral": {
        "vocab_size": 32_000,
        "intermediate_size": 14_336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    },
}
_DEFAULT_ROPE_THETA = 10_000.0


class UnsupportedModel(ValueError):
    """The checkpoint needs what the decoder does not do; the text is one sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; supported are {SUPPORTED}")


@dataclass(frozen=True)
class Llama3Scaling:
    """Frequency-dependent stretching of rope, as Llama 3.1 and later use it."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_positions: int


@dataclass(frozen=True)
class DecoderConfig:
    """Shape and flags of one dense pre-norm decoder; sizes count elements, not bytes."""

    family: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary_rows: int
    max_positions: int
    norm_eps: float
    rope_theta: float
    rope_scaling: Llama3Scaling | None
    tied_head: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool

    @classmethod
    def from_hf(cls, config: dict[str, Any]) -> DecoderConfig:
        """Read a parsed config.json; keys it lacks get the defaults of transformers.

        Raises UnsupportedModel for anything that would change the computation and is not done.
        """
        family = config.get("model_type")
        if family not in _DEFAULTS:
            raise UnsupportedModel(f"model type {family!r} is not known to the decoder")
        values = {**_COMMON, **_DEFAULTS[family], **config}
        _refuse_variants(family, values)
        heads = values["num_attention_heads"]
        kv_heads = values["num_key_value_heads"] or heads
        head_dim = values["head_dim"] or values["hidden_size"] // heads
        if heads % kv_heads or head_dim % 2:
            raise UnsupportedModel(
                f"{heads} query heads over {kv_heads} key heads of size {head_dim} do not divide"
            )
        attention_bias = bool(values.get("attention_bias", False)) and family in ("llama", "qwen3")
        theta, scaling = _rope(values)
        return cls(
            family=family,
            layers=values["num_hidden_layers"],
            hidden=values["hidden_size"],
            intermediate=values["intermediate_size"],
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            vocabulary_rows=values["vocab_size"],
            max_positions=values["max_position_embeddings"],
            norm_eps=float(values["rms_norm_eps"]),
            rope_theta=theta,
            rope_scaling=scaling,
            tied_head=bool(values["tie_word_embeddings"]),
            qkv_bias=family == "qwen2" or attention_bias,
            output_bias=attention_bias,
            mlp_bias=family == "llama" and bool(values["mlp_bias"]),
            qk_norm=family == "qwen3",
        )


def _refuse_variants(family: str, values: dict[str, Any]) -> None:
    if values.get("quantization_config"):
        method = values["quantization_config"].get("quant_method", "an unnamed method")
        raise UnsupportedModel(f"the checkpoint is quantised ({method})")
    if values["hidden_act"] != "silu":
        raise UnsupportedModel(f"the activation is {values['hidden_act']!r}, not silu")
    for key in ("num_experts", "num_local_experts", "n_routed_experts"):
        if values.get(key):
            raise UnsupportedModel(f"the model is a mixture of experts ({key}: {values[key]})")
    windowed = (
        values["sliding_window"] is not None
        if family == "mistral"
        else family != "llama" and values["use_sliding_window"]
    )
    if windowed or set(values.get("layer_types") or ()) - {"full_attention"}:
        raise UnsupportedModel("the model uses sliding-window attention")


def _rope(values: dict[str, Any]) -> tuple[float, Llama3Scaling | None]:
    # rope_scaling beside rope_theta is the older layout, rope_parameters the one of
    # transformers 5, which also prefers rope_scaling where a file has both.
    rope = values.get("rope_scaling") or values.get("rope_parameters") or {}
    if any(isinstance(value, dict) for value in rope.values()):
        raise UnsupportedModel("rope differs by layer")
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in ("default", "llama3"):
        raise UnsupportedModel(f"rope scaling {kind!r} is not known to the decoder")
    partial = rope.get("partial_rotary_factor", values.get("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        raise UnsupportedModel(f"rope turns only {partial} of each head")
    theta = float(rope.get("rope_theta") or values.get("rope_theta") or _DEFAULT_ROPE_THETA)
    if kind == "default":
        return theta, None
    missing = {"factor", "low_freq_factor", "high_freq_factor"} - rope.keys()
    if missing:
        raise UnsupportedModel(f"llama3 rope lacks {', '.join(sorted(missing))}")
    original = (
        values.get("original_max_position_embeddings")
        or rope.get("original_max_position_embeddings")
        or values["max_position_embeddings"]
    )
    return theta, Llama3Scaling(
        factor=float(rope["factor"]),
        low_freq_factor=float(rope["low_freq_factor"]),
        high_freq_factor=float(rope["high_freq_factor"]),
        original_positions=int(original),
    )
