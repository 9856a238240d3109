"""Joules a token, where the device counts energy and a run is long enough to be read."""

from __future__ import annotations

import pandas as pd

from engine.analysis.blocks import measured_runs

# A counter that ticks every 20 to 100 ms says nothing about a shorter run.
_LEAST_S = 1.0


def energy_per_token(rows: pd.DataFrame, context: str, mode: str, families: list[str]) -> float:
    """Median J per committed token over runs of at least a second; NaN if there are none."""
    runs = measured_runs(rows)
    runs = runs[(runs["context"] == context) & (runs["mode"] == mode)]
    runs = runs[runs["family"].isin(families) & runs["decode_s"].ge(_LEAST_S)]
    return float((runs["energy_j"].astype(float) / runs["new_tokens"]).median())
