"""Near-tie certificates: was a divergence in low precision a coin toss, or a fault?

METHODS section 5: the two tokens must be the top two on each path, and their gap in float32 at
most twice the 99.9% quantile of |logit(M=1) - logit(M=k+1)| measured on the same prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from engine.analysis.divergence import Divergence
from engine.design import Design
from engine.models.loading import FetchedModel, load_decoder

_QUANTILE = 0.999
_MARGIN = 2.0


def certify(
    design: Design,
    models: dict[str, Any],
    prompts: dict[tuple[str, str], list[int]],
    divergences: list[Divergence],
) -> Iterator[dict[str, Any]]:
    """Yield one certificate per divergence: gap_fp32, bound (both in logits), top_two.

    `prompts` maps (context, family) to token ids. Loads the target twice, in the design's dtype
    and in float32.
    """
    torch.set_num_threads(design.cpu_threads)
    device = torch.device(design.device)
    target = FetchedModel(**models["target"])

    def load(dtype: torch.dtype):
        return load_decoder(target, device, dtype, vocabulary=target.vocabulary)

    working, exact = load(getattr(torch, design.dtype)), load(torch.float32)
    with torch.inference_mode():
        for d in divergences:
            rows = design.modes[d.mode].k + 1
            prompt = prompts[d.context, d.family]
            chunk = design.prefill_chunk
            singles = _teacher_forced(working, prompt, d.tokens, 1, chunk)
            blocks = _teacher_forced(working, prompt, d.tokens, rows, chunk)
            precise = _teacher_forced(exact, prompt, d.tokens, rows, chunk)[-1]
            noise = (singles.float() - blocks.float()).abs().flatten()
            rank = max(1, round(_QUANTILE * noise.numel()))
            pair = {d.token_baseline, d.token_mode}
            yield {
                "context": d.context,
                "family": d.family,
                "mode": d.mode,
                "position": d.position,
                "token_baseline": d.token_baseline,
                "token_mode": d.token_mode,
                "gap_fp32": float((precise[d.token_baseline] - precise[d.token_mode]).abs()),
                "bound": _MARGIN * float(noise.kthvalue(rank).values),
                "top_two": all(_top_two(path[-1]) == pair for path in (singles, blocks)),
            }


def _teacher_forced(model, prompt: list[int], tokens: list[int], rows: int, chunk: int) -> Tensor:
    """Logits [len(tokens) + 1, vocabulary] before each token and after the last, M = rows."""

    def on_device(ids: list[int]) -> Tensor:
        return torch.tensor(ids, dtype=torch.long, device=model.device)

    cache = model.new_cache(len(prompt) + len(tokens) + 1)
    # The first row comes from the prompt's last token, run as its own block like all others.
    if len(prompt) > 1:
        model.prefill(on_device(prompt[:-1]), cache, chunk)
    stream = on_device([prompt[-1], *tokens])
    parts = [model.forward(part, cache, rows=part.shape[0]) for part in stream.split(rows)]
    return torch.cat(parts)


def _top_two(logits: Tensor) -> set[int]:
    return set(logits.topk(2).indices.tolist())
