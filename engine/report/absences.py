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
