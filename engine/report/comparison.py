"""This study beside the published one, where both have the same quantity at the same context."""

from __future__ import annotations

from typing import Any

import pandas as pd

from engine.figures.published import context_name, lookup

# Field of a verdict's entry -> how the published table calls it ({mode} is filled in).
_QUANTITIES = {
    "r": ("R", "{mode}_ratio"),
    "baseline_median_s": ("median seconds of {baseline}", "{baseline}_median_latency"),
    "mode_median_s": ("median seconds of {mode}", "{mode}_median_latency"),
    "acceptance_median": ("median acceptance of {mode}", "acceptance_median"),
}
# The published acceptance belongs to one mode; other modes have their own or none.
_ACCEPTANCE = {"spec": "acceptance_median", "relaxed": "relaxed_acceptance"}


def shared(verdict: dict[str, Any], published: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of context, mode, quantity, ours and theirs (a published.Figure)."""
    rows = []
    for entry in verdict["verdicts"]:
        for field, (label, quantity) in _QUANTITIES.items():
            if field == "acceptance_median":
                quantity = _ACCEPTANCE.get(entry["mode"], "")
            theirs = lookup(published, quantity.format(**entry), str(entry["context"]))
            if theirs:
                rows.append(
                    {
                        "context": entry["context"],
                        "mode": entry["mode"],
                        "quantity": label.format(**entry),
                        "ours": entry[field],
                        "interval": entry["interval"] if field == "r" else None,
                        "theirs": theirs,
                    }
                )
    return rows


def listing(published: pd.DataFrame) -> list[dict[str, Any]]:
    """The whole published table, with names that read as words."""
    table = published.fillna({"unit": "", "note": ""})
    return [
        {
            **row,
            "quantity": row["quantity"].replace("_", " "),
            "context": context_name(row["context"]),
        }
        for row in table.to_dict("records")
    ]
