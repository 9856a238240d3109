"""Folders that are built once, kept in the user's cache, and never trusted without their hashes."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.models.folder import file_sha256

_CONTENT = "content.json"


def store_root() -> Path:
    """$SPECSCALE_CACHE, else $XDG_CACHE_HOME/specscale, else ~/.cache/specscale."""
    if own := os.environ.get("SPECSCALE_CACHE"):
        return Path(own).absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "specscale"


def stored_folder(name: str, build: Callable[[Path], None]) -> Path:
    """The folder `name` of the store, built by `build(empty folder)` unless it is there intact.

    A second process waits for the first. The folder appears whole or not at all; what a killed
    build left is removed, and a folder that no longer has its recorded contents is built again.
    """
    root = store_root()
    folder = root / name
    root.mkdir(parents=True, exist_ok=True)
    with _only_one(root / f"{name}.lock"):
        if _intact(folder):
            return folder
        partial, damaged = root / f".{name}.partial", root / f".{name}.damaged"
        try:
            _remove(partial, damaged)
            partial.mkdir()
            build(partial)
            content = {path.name: file_sha256(path) for path in sorted(partial.iterdir())}
            (partial / _CONTENT).write_text(json.dumps(content, indent=1), encoding="utf-8")
            if folder.exists():
                folder.rename(damaged)
            partial.rename(folder)
        finally:
            _remove(partial, damaged)
    return folder


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _intact(folder: Path) -> bool:
    try:
        content = json.loads((folder / _CONTENT).read_text(encoding="utf-8"))
        return all(file_sha256(folder / name) == sha256 for name, sha256 in content.items())
    except (OSError, ValueError, AttributeError):
        return False


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
