"""Near-tie certificates: was a divergence in low precision a coin toss, or a fault?

METHODS section 5: the two tokens must be the top two on each path, and their gap in float32 at
most twice the 99.9% quantile of |logit(M=1) - logit(M=k+1)| measured on the same prompt. Where a
mode samples, the score that decides takes the logit's place: the warped logit and its noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from engine.analysis.divergence import Divergence
from engine.decoding import resources
from engine.design import Design
from engine.models.loading import FetchedModel, load_decoder

_QUANTILE = 0.999
_MARGIN = 2.0


def certify(
    design: Design,
    models: dict[str, Any],
    prompts: dict[tuple[str, str], list[int]],
    divergences: list[Divergence],
) -> list[dict[str, Any]]:
    """One certificate per divergence: gap_fp32, bound (both in logits), top_two.

    `prompts` maps (context, family) to token ids. The target is loaded in the design's dtype and
    then in float32, never in both at once: a card that just holds the pair holds this too.
    """
    torch.set_num_threads(design.cpu_threads)
    with torch.inference_mode():
        model = _load(design, models, getattr(torch, design.dtype))
        noises = [_noise(model, design, d, prompts[d.context, d.family]) for d in divergences]
        del model
        if design.device == "cuda":
            torch.cuda.empty_cache()
        model = _load(design, models, torch.float32)
        gaps = [_gap(model, design, d, prompts[d.context, d.family]) for d in divergences]
    return [
        {
            "context": d.context,
            "family": d.family,
            "mode": d.mode,
            "position": d.position,
            "token_baseline": d.token_baseline,
            "token_mode": d.token_mode,
            "gap_fp32": gap,
            "bound": _MARGIN * quantile,
            "top_two": top_two,
        }
        for d, (quantile, top_two), gap in zip(divergences, noises, gaps, strict=True)
    ]


def _load(design: Design, models: dict[str, Any], dtype: torch.dtype):
    target = FetchedModel(**models["target"])
    device = torch.device(design.device)
    return load_decoder(target, device, dtype, vocabulary=target.vocabulary)


def _noise(model, design: Design, d: Divergence, prompt: list[int]) -> tuple[float, bool]:
    """The quantile of |logit(M=1) - logit(M=k+1)|, and whether both paths have the pair on top."""
    singles, blocks = (
        _scores(model, design, d, prompt, m) for m in (1, design.modes[d.mode].k + 1)
    )
    noise = (singles.float() - blocks.float()).abs().flatten()
    # Tokens that may not follow have no finite score.
    noise = noise[noise.isfinite()]
    rank = max(1, round(_QUANTILE * noise.numel()))
    pair = {d.token_baseline, d.token_mode}
    return float(noise.kthvalue(rank).values), all(
        set(path[-1].topk(2).indices.tolist()) == pair for path in (singles, blocks)
    )


def _gap(model, design: Design, d: Divergence, prompt: list[int]) -> float:
    scores = _scores(model, design, d, prompt, design.modes[d.mode].k + 1)[-1]
    return float((scores[d.token_baseline] - scores[d.token_mode]).abs())


def _scores(model, design: Design, d: Divergence, prompt: list[int], rows: int) -> Tensor:
    """What decides, [len(tokens) + 1, vocabulary]: logits, or where the mode samples, scores."""

    def on_device(ids: Sequence[int]) -> Tensor:
        return torch.tensor(ids, dtype=torch.long, device=model.device)

    mode = design.modes[d.mode].composition()
    runtime = resources.build_runtime(mode, model.device, ())
    voice, _ = resources.build_voices(mode, design.seed, on_device(prompt), runtime)
    logits = _teacher_forced(model, prompt, d.tokens, rows, design.prefill_chunk)
    return voice.scores(logits, [], on_device(d.tokens))


def _teacher_forced(model, prompt: list[int], tokens: list[int], rows: int, chunk: int) -> Tensor:
    """Logits [len(tokens) + 1, vocabulary] before each token and after the last, M = rows.

    What does not fill a block comes first, so that the last row, which is judged, is in a full one.
    """

    def on_device(ids: list[int]) -> Tensor:
        return torch.tensor(ids, dtype=torch.long, device=model.device)

    stream = [prompt[-1], *tokens]
    before = prompt[:-1]
    cache = model.new_cache(len(before) + len(stream))
    if before:
        model.prefill(on_device(before), cache, chunk)
    odd = len(stream) % rows
    parts = [stream[:odd]] if odd else []
    parts += [stream[i : i + rows] for i in range(odd, len(stream), rows)]
    return torch.cat([model.forward(on_device(p), cache, rows=len(p)) for p in parts])
