"""Logits to the distribution that the user asks for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Warp:
    """How a distribution is bent; a value of None, 1 (0 for min_p) leaves it as it is."""

    temperature: float
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


def to_probs(logits: Tensor, warp: Warp, seen: Tensor | None = None) -> Tensor:
    """Probabilities (float64 [M, vocabulary]) of the tokens that may follow each row.

    As for `to_scores`; at temperature 0 all is on the best token.
    """
    scores = to_scores(logits, warp, seen)
    if warp.temperature == 0:
        best = scores.argmax(-1, keepdim=True)
        return torch.zeros_like(scores).scatter_(-1, best, 1.0)
    return scores.softmax(-1)


def to_scores(logits: Tensor, warp: Warp, seen: Tensor | None = None) -> Tensor:
    """Warped logits (float64 [M, vocabulary]), minus infinity where a token may not follow.

    `logits` are [M, vocabulary]; `seen` (BoolTensor of that shape) marks the tokens of each row's
    own history, which the repetition penalty needs. The order is that of Hugging Face generate:
    penalty (Keskar et al. 2019), temperature, top-k, top-p (Holtzman et al. 2020), min-p (Nguyen
    et al. 2024). Tokens that tie with the k-th stay; ties at the edge of top-p go to the lower id.
    At temperature 0 only the penalty counts.
    """
    scores = _penalised(logits.double(), warp.repetition_penalty, seen)
    if warp.temperature == 0:
        return scores
    scores = scores / warp.temperature
    if warp.top_k is not None and warp.top_k < scores.shape[-1]:
        least = scores.topk(warp.top_k, dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if warp.top_p < 1:
        probs, order = scores.softmax(-1).sort(dim=-1, descending=True, stable=True)
        before = probs.cumsum(-1) - probs
        beyond = torch.empty_like(before, dtype=torch.bool).scatter_(
            -1, order, before >= warp.top_p
        )
        scores = scores.masked_fill(beyond, -torch.inf)
    if warp.min_p > 0:
        probs = scores.softmax(-1)
        scores = scores.masked_fill(probs < warp.min_p * probs.amax(-1, keepdim=True), -torch.inf)
    return scores


def _penalised(scores: Tensor, penalty: float, seen: Tensor | None) -> Tensor:
    if penalty == 1:
        return scores
    if seen is None:
        raise ValueError("a repetition penalty needs the history of every row")
    bent = torch.where(scores < 0, scores * penalty, scores / penalty)
    return torch.where(seen, bent, scores)
