"""The two models as Hugging Face classes: the whole target, and a draft that borrows its ends."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM


def load_target(folder: Path, device: str) -> LlamaForCausalLM:
    """A Hugging Face folder's Llama in fp32, frozen."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.requires_grad_(False).eval().to(device)


def load_draft(folder: Path, target: LlamaForCausalLM) -> LlamaForCausalLM:
    """A shipped draft in fp32, frozen, its embeddings and head taken from the target.

    Raises ValueError if the folder's tensors are not exactly the draft's blocks and final norm.
    """
    draft = LlamaForCausalLM(LlamaConfig.from_pretrained(folder)).float().to(target.device)
    weights = load_file(Path(folder) / "model.safetensors")
    missing, unexpected = draft.load_state_dict(weights, strict=False)
    if unexpected or set(missing) != {"model.embed_tokens.weight", "lm_head.weight"}:
        raise ValueError(
            f"{folder} is not a draft of this target: unexpected {unexpected}, missing {missing}"
        )
    draft.model.embed_tokens.weight = target.model.embed_tokens.weight
    draft.lm_head.weight = target.model.embed_tokens.weight
    return draft.requires_grad_(False).eval()
