"""Does the interval keep its promise? Studies of a known truth, judged by the engine's own code.

`python -m tests.simulation` prints the table and writes tests/simulation.csv, which is committed;
tests/test_simulation.py computes it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from engine.analysis.intervals import bootstrap_bounds, headline_bounds, headline_method
from engine.analysis.judgement import FASTER, SLOWER, judge
from engine.limits import Inference

CSV = Path(__file__).with_name("simulation.csv")
STUDIES, SEEDS = 1000, 20
FAMILIES = (16, 8, 4)
FAMILY_SD, BLOCK_SD, BLOCKS = 0.12, 0.03, 2
OUTLIERS, OUTLIER_SCALE = 0.05, 5.0
SEED = 20_260_105
GAIN, POWER = 1.10, "faster_at_1.10"
# The intervals beside the headline are shown, not judged by: fewer resamples will do for them.
BESIDE = Inference(resamples=2000)

# Spreads of log R over families, each with mean 0 and sd 1.
SPREADS: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "t3": lambda rng, size: rng.standard_t(3, size) / math.sqrt(3),
    # Skewness -1, a few families much slower than the rest, ...
    "left_skewed": lambda rng, size: (4 - rng.gamma(4, size=size)) / 2,
    # ... and -2, which is beyond what is asked of the interval.
    "strongly_left_skewed": lambda rng, size: 1 - rng.exponential(size=size),
}


def simulated_log_r(spread: str, families: int, rng: np.random.Generator) -> np.ndarray:
    """log R [STUDIES, families] at R = 1: a family's own, and the mean noise of its blocks.

    5% of the blocks are outliers, 5 times as wide; with them the noise has an sd of 0.03.
    """
    truth = FAMILY_SD * SPREADS[spread](rng, (STUDIES, families))
    size = (STUDIES, families, BLOCKS)
    width = np.where(rng.random(size) < OUTLIERS, OUTLIER_SCALE, 1.0)
    width *= BLOCK_SD / math.sqrt(1 - OUTLIERS + OUTLIERS * OUTLIER_SCALE**2)
    return truth + (width * rng.standard_normal(size)).mean(axis=2)


def simulate() -> pd.DataFrame:
    """One row a spread and number of families: shares of the studies, and median widths of R."""
    grid = [(spread, families) for spread in SPREADS for families in FAMILIES]
    table = pd.DataFrame([_cell(*cell, [SEED, at]) for at, cell in enumerate(grid)])
    return table.assign(missed=[missed_bounds(row) for row in table.to_dict("records")])


def missed_bounds(row: dict[str, Any]) -> str:
    """Columns that do not keep what is asked of the interval; '' if all do.

    Asked: coverage of 91.5 to 97.5%, for skewed spreads at least 90% (85% with 4 families); a
    wrong word in at most 5%, not judged for skewed spreads below 8 families; FASTER in at least
    80% at R = 1.10 with 16 families and a normal spread.
    """
    skewed, families = row["spread"].endswith("skewed"), row["families"]
    low, high = ((0.85 if families < 8 else 0.90), 1.0) if skewed else (0.915, 0.975)
    kept = {
        "coverage": low <= row["coverage"] <= high,
        "wrong_at_1": row["wrong_at_1"] <= 0.05 or (skewed and families < 8),
        POWER: row[POWER] >= 0.80 or (row["spread"], families) != ("normal", 16),
    }
    return " ".join(name for name, keeps in kept.items() if not keeps)


def _cell(spread: str, families: int, seed: list[int]) -> dict[str, object]:
    inference = Inference()
    log_r = simulated_log_r(spread, families, np.random.default_rng(seed))
    low, high = _headline(log_r, inference)
    words = judge(np.exp(low), np.exp(high), inference)
    # A gain for all families shifts the interval by as much (test_intervals holds it to that).
    gained = judge(np.exp(low) * GAIN, np.exp(high) * GAIN, inference)
    beside = {
        f"{name.lower()}_coverage": _covers(*bootstrap_bounds(log_r, BESIDE, SEED, name))
        for name in ("percentile", "BCa")
    }
    return {
        "spread": spread,
        "families": families,
        "method": headline_method(families, inference),
        "studies": STUDIES,
        "coverage": _covers(low, high),
        **beside,
        "faster_at_1": _share(words, FASTER),
        "slower_at_1": _share(words, SLOWER),
        "wrong_at_1": _share(words, FASTER, SLOWER),
        POWER: _share(gained, FASTER),
        "slower_at_1.10": _share(gained, SLOWER),
        "median_width": round(float(np.median(np.exp(high) - np.exp(low))), 4),
    }


def _headline(log_r: np.ndarray, inference: Inference) -> np.ndarray:
    """Bounds [2, STUDIES], over several seeds: one's resamples alone would colour all studies."""
    parts = np.split(log_r, SEEDS)
    bounds = [headline_bounds(part, inference, SEED + at) for at, part in enumerate(parts)]
    return np.concatenate(bounds, axis=1)


def _share(words: np.ndarray, *wanted: str) -> float:
    return float(np.isin(words, wanted).mean())


def _covers(low: np.ndarray, high: np.ndarray) -> float:
    return float(((low <= 0) & (high >= 0)).mean())


if __name__ == "__main__":
    table = simulate()
    table.to_csv(CSV, index=False)
    print(table.to_string(index=False))
