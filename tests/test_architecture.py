"""Configs: what is read from them, by which defaults, and what is refused in which words."""

import pytest
from transformers import AutoConfig

from engine.models.architecture import SUPPORTED
from engine.models.decoder import DecoderConfig, UnsupportedModel


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_missing_keys_get_the_defaults_of_transformers(family):
    window = {"sliding_window": None} if family == "mistral" else {}
    theirs = AutoConfig.for_model(family, **window)
    ours = DecoderConfig.from_hf({"model_type": family, **window})
    assert ours == DecoderConfig.from_hf(theirs.to_dict())
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 4096 // 32)
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]
    assert ours.vocabulary_rows == theirs.vocab_size
    assert ours.tied_head == theirs.tie_word_embeddings


def test_biases_follow_the_family():
    def of(family, **keys):
        config = DecoderConfig.from_hf({"model_type": family, "sliding_window": None, **keys})
        return config.qkv_bias, config.output_bias, config.mlp_bias, config.qk_norm

    assert of("llama") == (False, False, False, False)
    assert of("llama", attention_bias=True, mlp_bias=True) == (True, True, True, False)
    assert of("qwen2") == (True, False, False, False)
    assert of("qwen2", attention_bias=True) == (True, False, False, False)
    assert of("qwen3") == (False, False, False, True)
    assert of("qwen3", attention_bias=True) == (True, True, False, True)
    assert of("mistral", attention_bias=True) == (False, False, False, False)


def test_both_layouts_of_rope_are_read():
    scaling = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    original = {"original_max_position_embeddings": 8192}
    old = {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **scaling, **original}}
    new = {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **scaling, **original}}
    of_old, of_new = (DecoderConfig.from_hf({"model_type": "llama", **keys}) for keys in (old, new))
    assert of_old == of_new
    assert (of_old.rope_theta, of_old.rope_scaling.original_positions) == (5e5, 8192)


REFUSED = [
    ({"model_type": "gemma3"}, "model type 'gemma3' is not known"),
    ({}, "model type None is not known"),
    ({"model_type": "qwen2_moe"}, "'qwen2_moe'"),
    ({"model_type": "llama", "num_local_experts": 8}, "mixture of experts"),
    ({"model_type": "llama", "hidden_act": "gelu"}, "activation is 'gelu'"),
    ({"model_type": "mistral", "sliding_window": 4096}, "sliding-window attention"),
    ({"model_type": "mistral"}, "sliding-window attention"),
    ({"model_type": "qwen2", "use_sliding_window": True}, "sliding-window attention"),
    ({"model_type": "qwen3", "layer_types": ["sliding_attention"]}, "sliding-window attention"),
    ({"model_type": "qwen2", "quantization_config": {"quant_method": "awq"}}, "quantised .awq."),
    ({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2}}, "'linear'"),
    ({"model_type": "qwen2", "rope_scaling": {"rope_type": "yarn", "factor": 4}}, "'yarn'"),
    ({"model_type": "llama", "rope_parameters": {"rope_type": "dynamic"}}, "'dynamic'"),
    ({"model_type": "llama", "rope_scaling": {"rope_type": "llama3"}}, "llama3 rope lacks factor"),
    ({"model_type": "qwen3", "rope_parameters": {"full_attention": {}}}, "rope differs by layer"),
    ({"model_type": "llama", "partial_rotary_factor": 0.5}, "turns only 0.5"),
    ({"model_type": "llama", "num_key_value_heads": 5}, "do not divide"),
]


@pytest.mark.parametrize(("config", "reason"), REFUSED)
def test_refusals_name_the_reason_and_what_is_supported(config, reason):
    with pytest.raises(UnsupportedModel, match=reason) as caught:
        DecoderConfig.from_hf(config)
    assert str(caught.value).endswith(SUPPORTED)
    assert "\n" not in str(caught.value)
