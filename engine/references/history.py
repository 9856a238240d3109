"""What git knows of the commit that measured: its version, and whether rows can be of it."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from engine.references.record import ReferenceFault


def version_at(commit: str | None, root: Path) -> str | None:
    """specscale's version at a commit, or at each of several; None where the history has none."""
    found = []
    for name in (commit or "").split(", "):
        text = _git(root, "show", f"{name}:pyproject.toml") if name else None
        found += re.findall(rb'^version = "([^"]+)"', text or b"", re.MULTILINE)
    return ", ".join(dict.fromkeys(version.decode() for version in found)) or None


def commit_of(name: str, engine_sha256: str, root: Path) -> str:
    """The full commit that `name` means, held against the hash that the rows carry.

    For rows of a machine without the history, which could not write it down. Raises
    ReferenceFault if there is no such commit, or if its measurement core is another one.
    """
    commit = _git(root, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    if commit is None:
        raise ReferenceFault(f"--commit {name!r}: this repository has no such commit")
    full = commit.decode().strip()
    if core_at(full, root) != engine_sha256:
        raise ReferenceFault(
            f"--commit {name!r}: the rows were not measured by the engine of that commit; name the "
            "commit whose tree was on the machine that measured, or leave it out"
        )
    return full


def core_at(commit: str, root: Path) -> str | None:
    """Hash of the measurement core of a commit, by that commit's own rule."""
    archive = _git(root, "archive", "--format=tar", commit, "engine")
    if archive is None:
        return None
    program = "from engine.composition import engine_sha256; print(engine_sha256())"
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        command = [sys.executable, "-c", program]
        told = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return told.stdout.strip() or None


def _git(root: Path, *words: str) -> bytes | None:
    try:
        told = subprocess.run(["git", "-C", str(root), *words], capture_output=True)
    except OSError:
        return None
    return told.stdout if told.returncode == 0 else None
