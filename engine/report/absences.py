"""What is missing from the verdict and why: families out, cells without a measurement."""

from __future__ import annotations

from typing import Any


def families_out(verdict: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a (context, mode, family) out of the inference; modes that cannot run are not."""
    return [
        {"context": entry["context"], "mode": entry["mode"], **out}
        for entry in verdict["verdicts"]
        if not entry.get("not_applicable")
        for out in entry["families_out"]
    ]


def failed_cells(verdict: dict[str, Any]) -> list[dict[str, Any]]:
    """Cells without a measurement; those of one mode that failed alike stand together."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for cell in verdict["failures"]:
        groups.setdefault((cell["mode"], cell["status"], cell["error"]), []).append(cell)
    return [
        {"mode": mode, "status": status.replace("_", " "), "error": error, "cells": cells}
        for (mode, status, error), cells in groups.items()
    ]


def changes(verdict: dict[str, Any]) -> list[str]:
    """Changes after the freeze as text, whether recorded as sentences or as changed keys."""
    return [_change(change) for change in verdict["changes_after_freeze"]]


def _change(change: str | dict[str, Any]) -> str:
    if isinstance(change, str):
        return change
    parts = [f"{name.replace('_', ' ')}: {_listed(value)}" for name, value in change.items()]
    return "; ".join(parts)


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
