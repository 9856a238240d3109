"""From a model folder to a decoder; nothing here imports transformers, so that cells start fast."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.models.architecture import DecoderConfig
from engine.models.checkpoint import Checkpoint
from engine.models.decoder import Decoder
from engine.models.folder import FetchedModel, ModelError, read_json
from engine.models.layout import block_shapes, model_shapes
from engine.models.recipe import config_of, cook, read_recipe

__all__ = ["FetchedModel", "ModelError", "load_decoder"]


def load_decoder(
    model: FetchedModel,
    device: torch.device | str,
    dtype: torch.dtype,
    target: Decoder | None = None,
    vocabulary: int | None = None,
) -> Decoder:
    """Read a fetched model; a student takes embedding and head from `target`, uncopied.

    `vocabulary` is the number of ids to judge, by default the model's own; rows beyond it are
    padding and are left out. Raises ModelError or UnsupportedModel, one sentence each.
    """
    if recipe := read_recipe(Path(model.folder)):
        return cook(recipe, device, dtype)
    config, tensors = _open(model)
    if model.vocabulary is None:
        return Decoder(config, tensors, device, dtype, shared=_fitting(target, config, model))
    vocabulary = vocabulary or model.vocabulary
    if vocabulary > config.vocabulary_rows:
        raise ModelError(
            f"the tokenizer has {vocabulary} token ids, but {model.name} has embeddings for "
            f"{config.vocabulary_rows}: use the tokenizer that belongs to the model"
        )
    return Decoder(config, tensors, device, dtype, vocabulary)


def inspect_model(model: FetchedModel) -> DecoderConfig:
    """Check a fetched model's config and the shapes of its tensors, and read no weights.

    Raises ModelError or UnsupportedModel, one sentence each.
    """
    if recipe := read_recipe(Path(model.folder)):
        return config_of(recipe)
    return _open(model)[0]


def _open(model: FetchedModel) -> tuple[DecoderConfig, Checkpoint]:
    folder = Path(model.folder)
    config = DecoderConfig.from_hf(read_json(folder / "config.json"))
    tensors = Checkpoint(folder)
    tensors.check(block_shapes(config) if model.vocabulary is None else model_shapes(config))
    return config, tensors


def _fitting(target: Decoder | None, config: DecoderConfig, model: FetchedModel) -> Decoder:
    if target is None:
        raise ModelError(
            f"{model.name} is a student, which runs only beside a target: it has no embeddings"
        )
    if target.config.hidden != config.hidden:
        raise ModelError(
            f"the student {model.name} has hidden size {config.hidden}, but the target's "
            f"embeddings have {target.config.hidden}: it was trained for another target"
        )
    return target
