"""Counted tokens against the distribution that they should have.

KL is that of the counted shares from p, in nats; G = 2 n KL. Both are judged by what n draws from
p itself would show: with a vocabulary of tens of thousands most counts are 0 or 1, and the
chi-squared approximation says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

PUBLISHED_KL = 0.01  # METHODS section 2, the second source, over 1,000 generations
_LEVEL = 0.99
_SIMULATED = 1000


@dataclass(frozen=True)
class Fit:
    """How well counts fit p: `kl_limit` is the null's 99th percentile, `p_value` that of G.

    `support` is the number of tokens that p allows, `passed` whether KL is within the limit.
    """

    draws: int
    support: int
    kl: float
    kl_limit: float
    g: float
    p_value: float
    passed: bool


def fit(probs: np.ndarray, counts: np.ndarray, seed: int) -> Fit:
    """Judge counts (int [vocabulary]) by probs (float [vocabulary])."""
    draws, possible = int(counts.sum()), probs > 0
    # Likely tokens first: a multinomial draw ends where nothing is left to be drawn.
    order = np.argsort(-probs[possible], kind="stable")
    p = probs[possible][order]
    p /= p.sum()
    kl = np.inf if counts[~possible].any() else _kl(counts[possible][order], p)
    rng = np.random.default_rng(seed)
    null = np.array([_kl(rng.multinomial(draws, p), p) for _ in range(_SIMULATED)])
    limit = float(np.quantile(null, _LEVEL))
    as_far = int((null >= kl).sum())
    return Fit(
        draws=draws,
        support=int(possible.sum()),
        kl=float(kl),
        kl_limit=limit,
        g=float(2 * draws * kl),
        p_value=(1 + as_far) / (1 + _SIMULATED),
        passed=bool(kl <= limit),
    )


def judge_counts(counted: Iterable[Mapping[str, Any]], seed: int) -> pd.DataFrame:
    """One row a mode: context, family, mode, the columns of Fit, text.

    `counted` is what `count_tokens` yields.
    """
    table = []
    for case in counted:
        found = fit(case["probs"], case["counts"], seed)
        place = {name: case[name] for name in ("context", "family", "mode")}
        table.append(place | asdict(found) | {"text": sentence(case["mode"], found)})
    return pd.DataFrame(table, columns=COLUMNS)


COLUMNS = ["context", "family", "mode", *Fit.__dataclass_fields__, "text"]


def sentence(mode: str, found: Fit) -> str:
    """The finding, for people."""
    if np.isinf(found.kl):
        return f"{mode} drew, in {found.draws:,} draws, tokens that the target cannot write."
    word = "follow" if found.passed else "do NOT follow"
    relation = "within" if found.passed else "over"
    return (
        f"{found.draws:,} tokens that {mode} drew for one position {word} the target's "
        f"distribution: KL {found.kl:.4f} nats, {relation} the {found.kl_limit:.4f} that 99 of 100 "
        f"such samples of the distribution itself stay below (G {found.g:.0f}, p "
        f"{found.p_value:.3f}; the published bound is KL {PUBLISHED_KL})."
    )


def _kl(counts: np.ndarray, p: np.ndarray) -> float:
    drawn = counts > 0
    shares = counts[drawn] / counts.sum()
    return float(np.sum(shares * np.log(shares / p[drawn])))
