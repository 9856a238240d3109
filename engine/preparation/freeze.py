"""The design as it was before the first cell, and every change after that."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.design import Design
from engine.preparation.files import DamagedFile, read_json, write_json


class FreezeFault(ValueError):
    """The record of the frozen design cannot be read; the text is one sentence."""


def freeze(design: Design, overrides: list[str], path: Path) -> dict[str, Any]:
    """Write the resolved design with time and hash; a later change is appended, never hidden.

    Returns the record: `design` (as it is now), `frozen_at`, `frozen_sha256` (of the first one),
    `overrides` from the command line, and `changes` [{at, sha256, keys: {key: [old, new]}}].
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    resolved = json.loads(design.to_json())
    try:
        record = read_freeze(path)
    except FileNotFoundError:
        record = {
            "frozen_at": now,
            "frozen_sha256": design.sha256,
            "sha256": design.sha256,
            "changes": [],
        }
    else:
        changed = _differences(record["design"], resolved)
        if changed:
            record["changes"].append({"at": now, "sha256": design.sha256, "keys": changed})
    record |= {"design": resolved, "sha256": design.sha256, "overrides": overrides}
    write_json(record, path)
    return record


def read_freeze(path: Path) -> dict[str, Any]:
    """The record; raises FreezeFault if it is damaged, and OSError if it cannot be read."""
    try:
        record = read_json(path)
        if isinstance(record["design"], dict) and isinstance(record["changes"], list):
            return record
    except (DamagedFile, KeyError, TypeError):
        pass
    raise FreezeFault(
        f"{path} is damaged, so changes since the freeze cannot be told: restore it, or delete "
        f"it together with {path.parent / 'timing'} to start the study afresh"
    )


def change_lines(record: dict[str, Any]) -> list[str]:
    """One line a changed key, for the report."""
    return [
        f"{change['at']}: {key} changed from {json.dumps(old)} to {json.dumps(new)}"
        for change in record["changes"]
        for key, (old, new) in change["keys"].items()
    ]


def _differences(old: Any, new: Any, prefix: str = "") -> dict[str, list[Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        found: dict[str, list[Any]] = {}
        for key in [*old, *(k for k in new if k not in old)]:
            name = f"{prefix}.{key}" if prefix else key
            found |= _differences(old.get(key), new.get(key), name)
        return found
    return {} if old == new else {prefix: [old, new]}
