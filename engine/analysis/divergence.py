"""What each mode committed, and where it leaves its baseline's tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from engine.analysis.blocks import measured_runs
from engine.design import Design

Tokens = list[int]
# (context, family, mode)
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Divergence:
    """A mode's first token that is not its baseline's.

    `position` counts new tokens from 0; `tokens` are the new tokens that the two have in common.
    """

    context: str
    family: str
    mode: str
    position: int
    token_baseline: int
    token_mode: int
    tokens: Tokens


def divergences(rows: pd.DataFrame, design: Design) -> list[Divergence]:
    """The divergences that a certificate could excuse: of exact modes, each path deterministic.

    None in fp32 on a CPU, where nothing but equality passes.
    """
    if only_equality_passes(design):
        return []
    outputs, found = distinct_outputs(rows), []
    for (context, family, name), own in outputs.items():
        mode = design.modes.get(name)
        if mode is None or not mode.exact or name == mode.baseline:
            continue
        base = outputs.get((context, family, mode.baseline), [])
        if len(own) != 1 or len(base) != 1:
            continue
        at = first_divergence(base[0], own[0])
        if at < min(len(base[0]), len(own[0])):
            pair = base[0][at], own[0][at]
            found.append(Divergence(context, family, name, at, *pair, own[0][:at]))
    return found


def distinct_outputs(rows: pd.DataFrame) -> dict[Key, list[Tokens]]:
    """The different token sequences of each mode's runs: one, if it is deterministic."""
    outputs = {}
    for key, runs in measured_runs(rows).groupby(["context", "family", "mode"]):
        distinct = {tuple(map(int, tokens)) for tokens in runs["tokens"] if tokens is not None}
        outputs[key] = [list(tokens) for tokens in sorted(distinct)]
    return outputs


def first_divergence(one: Tokens, other: Tokens) -> int:
    """Index of the first difference; the shorter length if one is the beginning of the other."""
    shared = min(len(one), len(other))
    differs = np.flatnonzero(np.not_equal(one[:shared], other[:shared]))
    return int(differs[0]) if differs.size else shared


def only_equality_passes(design: Design) -> bool:
    """METHODS section 5: fp32 on a CPU has no excuse of reduction order."""
    return design.device == "cpu" and design.dtype == "float32"
