"""Does sampled speculation write the target's distribution? Tokens of one position, counted.

The pair reads a prompt once. Then the acceptance step is repeated: the draft draws a token from
its q, the mode's rule passes it or puts another in its place. Only the noise differs between the
draws, as it does between positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from engine.decoding import resources
from engine.decoding.acceptance import Case
from engine.design import Design
from engine.models.loading import FetchedModel, load_decoder

DRAWS = 20_480
_AT_ONCE = 8  # more rows of a vocabulary in float64 leave the cache


def count_tokens(
    design: Design, models: dict[str, Any], prompts: dict[tuple[str, str], list[int]]
) -> Iterator[dict[str, Any]]:
    """One dict a sampling mode that draws, on its first prompt.

    context, family, mode, probs (float64 [vocabulary], the target's own, warped) and counts
    (int64 [vocabulary], of DRAWS draws). `prompts` maps (context, family) to token ids.
    """
    names = design.drawing_modes()
    if not names:
        return
    torch.set_num_threads(design.cpu_threads)
    device, dtype = torch.device(design.device), getattr(torch, design.dtype)
    vocabulary = models["target"]["vocabulary"]
    target = load_decoder(FetchedModel(**models["target"]), device, dtype, vocabulary=vocabulary)
    draft = load_decoder(FetchedModel(**models["draft"]), device, dtype, target, vocabulary)
    with torch.inference_mode():
        for name in names:
            place = design.contexts_of(name)[0], design.families_of(name)[0]
            ids = torch.tensor(prompts[place], dtype=torch.long, device=device)
            logits = [
                model.prefill(ids, model.new_cache(len(ids)), design.prefill_chunk)
                for model in (target, draft)
            ]
            mode = design.modes[name].composition()
            probs, counts = draw_again(mode, design.seed, ids, *logits)
            yield {
                "context": place[0],
                "family": place[1],
                "mode": name,
                "probs": probs.cpu().numpy(),
                "counts": counts.cpu().numpy(),
            }


def draw_again(
    mode: dict[str, Any], seed: int, prompt: Tensor, target: Tensor, draft: Tensor
) -> tuple[Tensor, Tensor]:
    """p (float64 [vocabulary]) and how often each token came up.

    `prompt` is LongTensor [P]; `target` and `draft` are each model's logits [vocabulary] after it.
    """
    runtime = resources.build_runtime(mode, prompt.device, ())
    rule = resources.acceptance_rule(mode)
    voice, draft_voice = resources.build_voices(mode, seed, prompt, runtime)
    probs = _once(voice, target)
    _once(draft_voice, draft)
    counts = torch.zeros(len(target), dtype=torch.long, device=prompt.device)
    for done in range(0, DRAWS, _AT_ONCE):
        # Each row is a position of its own, as if so many tokens had been committed.
        committed = range(done)
        block, drafted = draft_voice.draw(draft.expand(_AT_ONCE, -1), committed, [])
        case = Case(block, target.expand(_AT_ONCE, -1), committed, voice, drafted)
        ruling = rule(case)
        for row in (~ruling.passes).nonzero()[:, 0].tolist():
            block[row : row + 1] = ruling.own(row)
        counts += torch.bincount(block, minlength=len(counts))
    return probs, counts


def _once(voice: Any, logits: Tensor) -> Tensor:
    """Work out a voice's distribution [vocabulary] once; from here on all its rows have it."""
    row = voice.probs(logits[None], [])
    voice.probs = lambda logits, *_: row.expand(len(logits), -1)
    return row[0]
