"""Random tiny checkpoints in the Hugging Face layout, written by transformers itself."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

VOCABULARY = 300
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TEXT = """The quick brown fox jumps over the lazy dog while the other animals of the forest
look on and wonder what there is to gain. In the beginning there was nothing, and then there was
the thing that they had been told of: a number, a name, and the reason for the difference."""

_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 16_384,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_FAMILY = {"mistral": {"sliding_window": None}}


def tiny_model(family: str, seed: int = 0, **overrides) -> PreTrainedModel:
    """A random model whose attention, biases and norms all matter to its logits."""
    settings = {**_COMMON, **_FAMILY.get(family, {}), **overrides}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **settings)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.dim() == 1:
                weight.copy_(noise * 0.2 + (1 if "norm" in name else 0))
            elif "embed" in name:
                weight.copy_(noise)
            else:
                weight.copy_(noise * 1.5 / weight.shape[1] ** 0.5)
    return model


def tiny_checkpoint(folder: Path, family: str, seed: int = 0, **overrides) -> Path:
    """Write a random model of a family with a byte-level tokenizer; overrides are config keys."""
    return save_checkpoint(tiny_model(family, seed, **overrides), folder)


def save_checkpoint(model: PreTrainedModel, folder: Path, **how) -> Path:
    """Write a model and the tiny tokenizer; `how` goes to save_pretrained."""
    model.save_pretrained(folder, **how)
    (folder / "tokenizer.json").write_text(_tokenizer_json(), encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[0],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 16_384,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def tiny_pair(folder: Path) -> tuple[Path, Path]:
    """A target of three layers and a draft of its first: they agree on a part of the tokens."""
    target = tiny_model("llama", num_hidden_layers=3)
    draft = tiny_model("llama", num_hidden_layers=1)
    with torch.no_grad():
        for layer in target.model.layers[1:]:
            layer.self_attn.o_proj.weight.mul_(0.3)
            layer.mlp.down_proj.weight.mul_(0.3)
    names = draft.state_dict().keys()
    draft.load_state_dict({name: target.state_dict()[name] for name in names})
    return (
        save_checkpoint(target, folder / "target"),
        save_checkpoint(draft, folder / "draft"),
    )


@functools.cache
def _tokenizer_json() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_TEXT], trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY
    return tokenizer.to_str()
