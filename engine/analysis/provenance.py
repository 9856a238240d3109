"""Where the figures come from: models, software, machine, commit and time, as the rows say."""

from __future__ import annotations

from typing import Any

import pandas as pd

from engine.design import Design
from engine.pair import ModelSource


def provenance(design: Design, rows: pd.DataFrame, frozen: dict[str, Any]) -> dict[str, Any]:
    """One value where all rows agree, else every value, comma-separated; times are ISO, UTC."""
    dirty = rows["dirty"].dropna()
    return {
        "models": {
            "target": _model(design.models.target, rows, "target"),
            "draft": _model(design.models.draft, rows, "draft"),
        },
        **{
            name: _value(rows, name)
            for name in ("torch", "cuda", "python", "driver", "device_name", "git_commit")
        },
        "dirty": bool(dirty.any()) if len(dirty) else None,
        "engine_sha256": _value(rows, "engine_sha256"),
        "frozen_at": frozen.get("frozen_at"),
        "frozen_sha256": frozen.get("frozen_sha256"),
        "measured_from": _moment(rows["started_at"].min()),
        "measured_to": _moment(rows["ended_at"].max()),
    }


def _model(source: ModelSource | None, rows: pd.DataFrame, arm: str) -> dict[str, Any] | None:
    if source is None:
        return None
    found = {"name": _value(rows, f"{arm}_model"), "weights_sha256": _value(rows, f"{arm}_sha256")}
    return source.model_dump(mode="json") | found


def _value(rows: pd.DataFrame, column: str) -> str | None:
    return ", ".join(sorted(map(str, rows[column].dropna().unique()))) or None


def _moment(when: pd.Timestamp) -> str | None:
    return None if pd.isna(when) else when.isoformat(timespec="seconds")
