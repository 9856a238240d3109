"""A GGUF file as a Hugging Face folder: float32 weights, config, tokenizer, chat template."""

from __future__ import annotations

import json
from pathlib import Path

from engine.models.folder import SINGLE, ModelError


def dequantise(gguf: Path, folder: Path) -> None:
    """Write the model of a GGUF file to an empty folder; ModelError if a package is missing."""
    try:
        import accelerate  # noqa: F401 - transformers wants it to read GGUF
        import gguf as _  # noqa: F401
        import torch
        from safetensors.torch import save_file
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise ModelError(
            f"reading {gguf.name} needs the package {error.name}: install the packages of "
            "requirements.lock"
        ) from None

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    tensors = model.state_dict()
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    save_file(tensors, folder / SINGLE, metadata={"format": "pt"})
    # Without notes of this process and of the quantisation: the weights are plain floats now.
    config = {k: v for k, v in model.config.to_dict().items() if not k.startswith("_")}
    config.pop("quantization_config", None)
    config["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    model.generation_config.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
