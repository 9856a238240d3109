"""Reference tokens: what the baseline's own decoding gives, made once per prompt, untimed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from engine.decoding import resources
from engine.decoding.loop import Generation, decode
from engine.decoding.target import Target
from engine.design import Design
from engine.models.loading import FetchedModel, load_decoder


def decode_references(
    design: Design, models: dict[str, Any], prompts: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield {context, family, baseline, tokens} for every plain text of the design.

    Decoding ignores end-of-sequence, as timing runs do: `tokens` has exactly `new_tokens` ids.
    """
    torch.set_num_threads(design.cpu_threads)
    device = torch.device(design.device)
    dtype = getattr(torch, design.dtype)
    model = load_decoder(
        FetchedModel(**models["target"]), device, dtype, vocabulary=models["target"]["vocabulary"]
    )
    by_place = {(prompt["context"], prompt["family"]): prompt["tokens"] for prompt in prompts}
    with torch.inference_mode():
        for context, family, baseline in design.reference_places():
            mode = design.modes[baseline].composition()
            prompt = by_place[context, family]
            runtime = resources.build_runtime(mode, device, models["stop_ids"])
            capacity = len(prompt) + design.new_tokens + runtime.slack
            target = Target(model, capacity, mode["numerics"] == "invariant")
            ids = torch.tensor(prompt, dtype=torch.long, device=device)
            target.prefill(ids, design.prefill_chunk)
            voice, _ = resources.build_voices(mode, design.seed, ids, runtime)
            generation = Generation(
                target, runtime, design.new_tokens, ignore_stop=True, voice=voice
            )
            runtime.prepare(generation, 0)
            trace = decode(generation, mode["round"], 0)
            yield {
                "context": context,
                "family": family,
                "baseline": baseline,
                "tokens": trace.tokens,
            }
