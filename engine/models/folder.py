"""A model as a folder in the Hugging Face layout: what must lie in it, and what it weighs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
RECIPE = "synthetic.json"  # in place of weights
_UNSAFE = (".bin", ".pt", ".pth", ".ckpt", ".gguf")


class ModelError(ValueError):
    """A model cannot be fetched or read; the text is one sentence that says what to do."""


@dataclass(frozen=True)
class FetchedModel:
    """A model that lies on this machine.

    `vocabulary` counts the token ids of its tokenizer; None marks a student, whose folder holds
    blocks only and which cannot run without a target. A synthetic model has no weights and no
    tokenizer, but a recipe.
    """

    name: str
    folder: str
    sha256: str
    vocabulary: int | None


def describe_folder(name: str, folder: Path, vocabulary: int | None) -> FetchedModel:
    """Check that a folder can be loaded from, and hash its weights; ModelError if it cannot."""
    files = weight_files(folder)
    read_json(folder / "config.json")
    return FetchedModel(name, str(folder), _weights_sha256(files), vocabulary)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, sorted by name.

    Raises ModelError if there are none, naming what is there instead.
    """
    if not folder.is_dir():
        raise ModelError(f"there is no model folder {folder}")
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if not (folder / INDEX).is_file():
        raise ModelError(f"{folder} {_what_is_there_instead(folder)}")
    shards = set(read_json(folder / INDEX).get("weight_map", {}).values())
    missing = sorted(name for name in shards if not (folder / name).is_file())
    if missing or not shards:
        raise ModelError(
            f"{folder} lacks {', '.join(missing) or 'shards'} of its {INDEX}: download it again"
        )
    return [folder / name for name in sorted(shards)]


def read_json(path: Path) -> dict[str, Any]:
    """A parsed file of a model folder; ModelError if it is missing or not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path.parent} lacks {path.name}, which every model needs") from None
    except ValueError:
        raise ModelError(f"{path} is not valid JSON: download the model again") from None


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _weights_sha256(files: list[Path]) -> str:
    if len(files) == 1:
        return file_sha256(files[0])
    lines = "".join(f"{file_sha256(path)}  {path.name}\n" for path in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def _what_is_there_instead(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    if "adapter_config.json" in names:
        return (
            "holds an adapter (adapter_config.json), not a model: merge it into its base model "
            "and save that as safetensors"
        )
    unsafe = ", ".join([name for name in names if name.endswith(_UNSAFE)][:3])
    return (
        f"holds {f'only {unsafe}' if unsafe else f'neither {SINGLE} nor {INDEX}'}: weights are "
        "read from safetensors alone, so save the model again with save_pretrained"
    )
