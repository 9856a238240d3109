"""The published numbers beside this study's, and all that was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from engine.figures.published import context_name


@dataclass(frozen=True)
class Chain:
    """Rows of analysis/chain.py as the report shows them; `label` says whose, '' for its own."""

    label: str
    synthetic: bool
    rows: Sequence[Mapping[str, Any]]


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
