"""When a user sees tokens: the first one, the gaps between them, the longest wait."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd

from engine.analysis.blocks import measured_runs

FIGURES = ("first_token_s", "gap_p50_s", "gap_p95_s", "longest_gap_s")
Place = tuple[str, str, str]


def arrivals(rows: pd.DataFrame) -> dict[Place, dict[str, float]]:
    """(context, family, mode) -> the figures, in seconds, each the median over measured runs.

    The time to the first token counts from the prompt: prefill of the target, and of the draft,
    which this engine does before it decodes. Where the first round is plain decoding the draft
    reads the prompt behind the first token, so its prefill stands in the gap that follows. Tokens
    that are committed together arrive together, with gaps of nothing between them.
    """
    runs: dict[Place, list[list[float]]] = defaultdict(list)
    for run in measured_runs(rows).to_dict("records"):
        at = run["token_arrival_s"]
        if at is not None and len(at) > 1:
            runs[run["context"], run["family"], run["mode"]].append(_figures(run, np.asarray(at)))
    return {
        place: dict(zip(FIGURES, map(float, np.median(found, axis=0)), strict=True))
        for place, found in runs.items()
    }


def latency(rows: pd.DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """(context, mode) -> the figures, each the median over the families that were measured."""
    by_mode: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for (context, _, mode), figures in arrivals(rows).items():
        by_mode[context, mode].append(figures)
    return {
        key: {name: float(np.median([f[name] for f in found])) for name in FIGURES}
        for key, found in by_mode.items()
    }


def _figures(run: dict[str, Any], at: np.ndarray) -> list[float]:
    draft = run["draft_prefill_s"]
    draft_s = 0.0 if draft is None or np.isnan(draft) else draft
    gaps = np.diff(at)
    first = run["target_prefill_s"] + at[0]
    if run["policy"] == "first_plain":
        gaps[0] += draft_s
    else:
        first += draft_s
    return [first, np.quantile(gaps, 0.5), np.quantile(gaps, 0.95), gaps.max()]
