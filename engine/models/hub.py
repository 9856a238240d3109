"""A model of the Hugging Face hub at a pinned commit, in the hub's own cache."""

from __future__ import annotations

import textwrap
from pathlib import Path

from engine.models.folder import ModelError, read_json, weight_files
from engine.pair import HubModel

# No *.bin (pickles run code), no *.py; "consolidated" is a second copy of Mistral's weights.
_WANTED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
_UNWANTED = ["consolidated*", "*/*"]


def fetch_hub(source: HubModel) -> Path:
    """The snapshot's folder; no network if it is complete already. ModelError, one sentence."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
    except ImportError:
        raise ModelError(
            f"fetching {source.repo} needs the package huggingface_hub: install the packages of "
            "requirements.lock"
        ) from None

    pinned = {
        "repo_id": source.repo,
        "revision": source.revision,
        "allow_patterns": _WANTED,
        "ignore_patterns": _UNWANTED,
    }
    try:
        kept = Path(snapshot_download(**pinned, local_files_only=True))
        if _complete(kept):
            return kept
    except OSError:
        pass  # not there yet
    what = f"{source.repo} at {source.revision[:12]}"
    try:
        return Path(snapshot_download(**pinned))
    except GatedRepoError:
        raise ModelError(
            f"{what} is gated: accept its terms on huggingface.co, run 'hf auth login', and run "
            "again"
        ) from None
    except RepositoryNotFoundError:
        raise ModelError(f"the hub has no {what}, or none that this account may read") from None
    except Exception as error:  # the hub's client raises those of its HTTP library as well
        reason = textwrap.shorten(str(error), 160, placeholder=" ...")
        raise ModelError(
            f"cannot download {what} ({reason}): check the network and the disk, or download it "
            "elsewhere and name its folder with source: folder"
        ) from error


def _complete(folder: Path) -> bool:
    # The client returns a snapshot that an interrupted download left half full as well.
    try:
        weight_files(folder)
        read_json(folder / "config.json")
        read_json(folder / "tokenizer.json")
    except ModelError:
        return False
    return True
