"""Joules a token, where the device counts energy and a run is long enough to be read."""

from __future__ import annotations

import pandas as pd

from engine.analysis.blocks import measured_runs

# A counter that ticks every 20 to 100 ms says nothing about a shorter run.
_LEAST_S = 1.0


def energy_per_token(rows: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Median J per committed token of each (context, mode) that has runs of at least a second."""
    runs = measured_runs(rows)
    runs = runs[runs["energy_j"].notna() & runs["decode_s"].ge(_LEAST_S)]
    joules = runs["energy_j"] / runs["new_tokens"]
    return joules.groupby([runs["context"], runs["mode"]]).median().to_dict()
