"""The acceptance trace: what the draft would have said at every position of the reference text.

Greedy proposals are accepted exactly as long as they repeat the reference, and until then the
draft reads the reference itself. One teacher-forced pass of each model therefore tells, for every
position, how many proposals from there would pass (METHODS section 6).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from engine.design import Design
from engine.models.loading import FetchedModel, load_decoder
from engine.models.ranking import read_ranking


def trace_acceptance(
    design: Design, models: dict[str, Any], prompts: list[dict[str, Any]], reference: dict
) -> Iterator[dict[str, Any]]:
    """One dict a prompt and new token, in order.

    `reference` maps (context, family) to the tokens that follow the prompt; a prompt without is
    left out. Each dict holds
    context, family, position (new tokens before it), token, draft_token, rank (of the draft's
    token in the target's logits, 1 is best), gap (logits below the target's best), entropy (nats,
    of the target), matches (draft tokens in a row that equal the reference from here on), and
    device: where it was traced.
    """
    torch.set_num_threads(design.cpu_threads)
    device, dtype = torch.device(design.device), getattr(torch, design.dtype)
    vocabulary = models["target"]["vocabulary"]
    target = load_decoder(FetchedModel(**models["target"]), device, dtype, vocabulary=vocabulary)
    draft = load_decoder(FetchedModel(**models["draft"]), device, dtype, target, vocabulary)
    if design.draft_vocabulary:
        draft = draft.trimmed(read_ranking(models["draft"]["folder"], design.draft_vocabulary))
    with torch.inference_mode():
        for prompt in prompts:
            place = (prompt["context"], prompt["family"])
            if place not in reference:
                continue
            tokens = list(reference[place])
            ids = torch.tensor([*prompt["tokens"], *tokens], dtype=torch.long, device=device)
            rows = [
                _forced(model, ids, len(tokens), design.prefill_chunk) for model in (target, draft)
            ]
            for found in _positions(place, tokens, *rows):
                yield found | {"device": design.device}


def _forced(model, ids: torch.Tensor, count: int, chunk: int) -> torch.Tensor:
    """Logits [count, vocabulary] that judge the last `count` of `ids`."""
    cache = model.new_cache(len(ids))
    first = model.prefill(ids[:-count], cache, chunk)[None]
    if count == 1:
        return first
    return torch.cat([first, model.forward(ids[-count:-1], cache, rows=count - 1)])


def _positions(
    place: tuple[str, str], tokens: list[int], judges: torch.Tensor, drafts: torch.Tensor
) -> Iterator[dict[str, Any]]:
    judges = judges.float()
    proposed = drafts.argmax(-1)
    own = judges.gather(-1, proposed[:, None])[:, 0]
    ranks = (judges > own[:, None]).sum(-1) + 1
    gaps = judges.amax(-1) - own
    logp = judges.log_softmax(-1)
    entropies = -(logp.exp() * logp).sum(-1)
    proposed = proposed.tolist()
    matches = [0] * (len(tokens) + 1)
    for i in reversed(range(len(tokens))):
        matches[i] = matches[i + 1] + 1 if proposed[i] == tokens[i] else 0
    for i, token in enumerate(tokens):
        yield {
            "context": place[0],
            "family": place[1],
            "position": i,
            "token": token,
            "draft_token": proposed[i],
            "rank": int(ranks[i]),
            "gap": float(gaps[i]),
            "entropy": float(entropies[i]),
            "matches": matches[i],
        }
