"""A synthetic model as a folder: what it is made of, in place of weights.

The folder holds config.json, as every model's does, and the recipe; whoever loads it makes the
weights on the device, which takes less time there than reading them from a disk would.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from engine.models.architecture import DecoderConfig
from engine.models.decoder import Decoder
from engine.models.folder import RECIPE, read_json
from engine.models.synthetic import EASY, Plan, hard_norm, synthetic_decoder


def read_recipe(folder: Path) -> dict[str, Any] | None:
    """The recipe of a folder, or None where weights lie in it."""
    return read_json(folder / RECIPE) if (folder / RECIPE).is_file() else None


def cook(recipe: Mapping[str, Any], device: torch.device | str, dtype: torch.dtype) -> Decoder:
    """The decoder that a recipe describes: the same weights for the same device and torch."""
    plan, shape = draw_plan(recipe["plan"]), recipe["shape"]
    target = recipe["role"] == "target"
    norm = EASY
    if recipe["variant"] == "hard":
        norm = hard_norm(shape["hidden_size"], len(plan.target_successors))
    return synthetic_decoder(
        shape,
        plan.target_successors if target else plan.draft_successors,
        recipe["plan"]["seed"] + (not target),
        device,
        dtype,
        norm,
    )


def draw_plan(keys: Mapping[str, Any]) -> Plan:
    """The plan of a design's `plan` keys; special ids are the last ones of the vocabulary."""
    return _drawn(json.dumps(keys, sort_keys=True))


@functools.lru_cache(maxsize=2)
def _drawn(text: str) -> Plan:
    keys = json.loads(text)
    vocabulary = keys["vocabulary"]
    return Plan.draw(
        vocabulary,
        keys["families"],
        keys["acceptance"],
        keys["k"],
        keys["spread"],
        range(vocabulary - keys["special"], vocabulary),
        keys["seed"],
    )


def build_prompt(keys: Mapping[str, Any], context: str, family: int, length: int) -> list[int]:
    """`length` token ids that end where the context's part of the family's cycle begins."""
    region = keys["contexts"].index(int(context))
    return draw_plan(keys).prompt(family, region, length).tolist()


def config_of(recipe: Mapping[str, Any]) -> DecoderConfig:
    return DecoderConfig.from_hf(hf_config(recipe))


def hf_config(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """config.json; the first special id ends a text, which no cycle ever does."""
    plan = recipe["plan"]
    return {
        **recipe["shape"],
        "vocab_size": plan["vocabulary"],
        "tie_word_embeddings": False,
        "eos_token_id": plan["vocabulary"] - plan["special"],
    }


def recipe_sha256(recipe: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()
