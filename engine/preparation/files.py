"""Small JSON files between rules: whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_json(data: Any, path: str | Path) -> None:
    """Write under a temporary name beside the target, then rename."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


class DamagedFile(ValueError):
    """A file between rules cannot be read; the text names it and says what to do."""

    def __init__(self, path: str | Path):
        super().__init__(f"{path} is damaged: delete it, and the workflow makes it again")


def read_json(path: str | Path) -> Any:
    """What a JSON file holds. Raises DamagedFile if it is none, OSError if it cannot be read."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise DamagedFile(path) from None
