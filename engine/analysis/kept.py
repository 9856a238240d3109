"""How much of the baseline's text a mode keeps: the price of acceptance that is not exact."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pandas as pd

from engine.analysis.divergence import distinct_outputs, first_divergence
from engine.design import Design


def tokens_kept(rows: pd.DataFrame, design: Design) -> dict[tuple[str, str], dict[str, Any]]:
    """For each (context, mode with a drafter): families, of them `identical` to the baseline's
    tokens, and `share`, the mean share of new tokens before the first that differs.
    """
    outputs = distinct_outputs(rows)
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    for context, family, name in design.planned():
        mode = design.modes[name]
        own, base = (outputs.get((context, family, arm), []) for arm in (name, mode.baseline))
        if mode.speculative and own and base:
            alike = own[0] == base[0]
            kept = len(base[0]) if alike else first_divergence(own[0], base[0])
            shares[context, name].append(kept / len(base[0]))
    return {
        key: {
            "families": len(found),
            "identical": sum(share == 1 for share in found),
            "share": sum(found) / len(found),
        }
        for key, found in shares.items()
    }
