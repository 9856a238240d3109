"""What a made-up cell does: its rounds, tokens and counts, and how its time falls into phases."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.cells import Cell
from engine.design import Design

# What one round spends, in steps of the baseline: per drafted token, verification, repair, control.
_DRAFT, _VERIFY, _REPAIR, _CONTROL = 0.3, 1.1, 0.9, 0.05
_GRAPHED = 4.0  # how many times as fast a graph makes drafting


def rng_of(*key: object) -> np.random.Generator:
    """A generator that depends on the key alone, so that a cell is the same in any study."""
    return np.random.default_rng(zlib.crc32("/".join(map(str, key)).encode()))


@dataclass
class _Rounds:
    """Per round: tokens proposed and accepted, tokens committed, and whether a repair ran."""

    k: list[int] = field(default_factory=list)
    m: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    repaired: list[bool] = field(default_factory=list)


def _rounds(design: Design, cell: Cell, agreement: float) -> _Rounds:
    """The rounds of METHODS section 3, as the decoding loop cuts them at the budget."""
    mode, rounds = design.modes[cell.mode], _Rounds()
    if not mode.speculative:
        return _Rounds([], [], [1] * design.new_tokens, [False] * design.new_tokens)
    folded = mode.round == "folded"
    rng = rng_of(design.seed, cell.context, cell.family, "trace")
    likelihood = 1.0 if mode.acceptance == "all" else agreement
    left = design.new_tokens - folded
    while left:
        k = min(mode.k, left - 1 if folded and mode.bonus else left)
        missed = np.flatnonzero(rng.random(mode.k)[:k] >= likelihood)
        m = int(missed[0]) if missed.size else k
        commit = m + 1 if m < k or (mode.bonus and left > k) else k
        left -= commit
        rounds.repaired.append(not folded and commit > m and left > 0)
        if left == 1 and not folded:
            # The saved logits hold the last token already.
            commit, left = commit + 1, 0
        rounds.k.append(k)
        rounds.m.append(m)
        rounds.committed.append(commit)
    # In the folded form the first token comes with the prefill.
    rounds.committed[0] += folded
    return rounds


def _by_position(counts: list[int], width: int) -> list[int]:
    return [sum(count > position for count in counts) for position in range(width)]


def cell_work(design: Design, cell: Cell, agreement: float) -> dict[str, Any]:
    """The work columns of a row, plus `committed` and `repaired`, one each a round."""
    mode = design.modes[cell.mode]
    rounds = _rounds(design, cell, agreement)
    k, m = rounds.k, rounds.m
    judged = [min(mi + 1, ki) for ki, mi in zip(k, m, strict=True)]
    full = sum(mi == ki for ki, mi in zip(k[:-1], m[:-1], strict=True))
    drafts, folded = mode.drafter == "model", mode.round == "folded"
    caught_up = (full if folded else sum(rounds.repaired[:-1])) if drafts else 0
    tokens = rng_of(cell.context, cell.family, "" if mode.acceptance != "relaxed" else cell.mode)
    ids = tokens.integers(0, 49_152, design.new_tokens).tolist()
    width = max(k, default=0)
    return {
        "committed": rounds.committed,
        "repaired": rounds.repaired,
        "rounds": len(rounds.committed),
        "round_k": k,
        "round_m": m,
        # The first token of plain decoding comes with the prefill.
        "target_calls": len(k) + sum(rounds.repaired) if k else design.new_tokens - 1,
        "draft_calls": sum(k) + (0 if folded else caught_up) if drafts else 0,
        "repairs": sum(rounds.repaired),
        "catchups": caught_up,
        "proposed": sum(k),
        "judged": sum(judged),
        "accepted": sum(m),
        "proposed_by_position": _by_position(k, width),
        "judged_by_position": _by_position(judged, width),
        "accepted_by_position": _by_position(m, width),
        "tokens": ids,
        "token_sha256": hashlib.sha256(json.dumps(ids).encode()).hexdigest(),
        "new_tokens": design.new_tokens,
    }


def phase_seconds(design: Design, cell: Cell, work: dict[str, Any], total_s: float) -> np.ndarray:
    """Seconds of [rounds, (draft, verify, repair, control)], summing to `total_s`."""
    mode = design.modes[cell.mode]
    rounds = work["rounds"]
    phases = np.zeros((rounds, 4))
    if mode.drafter == "model":
        faster = _GRAPHED if mode.runtime in ("graph", "graph_draft") else 1.0
        phases[:, 0] = _DRAFT / faster * np.array(work["round_k"])
    phases[:, 1] = _VERIFY if mode.speculative else 1.0
    if mode.runtime == "graph_verify":
        phases[:, 1] /= 2
    if not mode.speculative:
        phases[0, 1] = 0.0
    phases[:, 2] = _REPAIR * np.array(work["repaired"])
    phases[:, 3] = _CONTROL
    unevenness = rng_of(cell.context, cell.family, cell.mode, "rounds").standard_normal(rounds)
    phases *= np.exp(0.02 * unevenness)[:, None]
    return phases * (total_s / phases.sum())
