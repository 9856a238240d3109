"""Rows that do not depend on their number, on a GPU: tokens in every family, and bits.

    python -m tests.gpu_invariance [hard] [embedded]

A whole generation by plain rounds and one by speculative rounds must leave the same tokens, keys
and values; logits along that text must be the same bits by steps of one row and of five. The eager
decoder is put to the same check: where its logits never differ, the check proves nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.composition import ROOT
from engine.decoding.static import StaticRound
from engine.design import load_design
from engine.kernels.step import FusedStep, Ports
from engine.models.decoder import Decoder
from engine.models.fetching import fetch
from engine.models.loading import load_decoder
from engine.models.recipe import draw_plan
from engine.models.shapes import SHAPES
from engine.models.synthetic import hard_norm, synthetic_decoder
from engine.preparation.chat import chat_turn
from engine.prompts import PromptBuilder, read_sources

NEW_TOKENS, K = 64, 4


@dataclass(frozen=True)
class Pair:
    """Models on the GPU, and prompts for them: LongTensor [context - NEW_TOKENS], on the CPU."""

    name: str
    target: Decoder
    draft: Decoder
    contexts: list[int]
    families: list[str]
    prompt: Callable[[int, str], Tensor]


def hard_pair() -> Pair:
    """The published shapes, with a target whose best two logits are often nearly the same."""
    design = load_design(ROOT / "config/h200.yaml")
    plan = draw_plan(keys := design.models.target.plan.model_dump(mode="json"))
    norm = hard_norm(1536, keys["vocabulary"])
    target = synthetic_decoder(
        SHAPES["qwen2.5-1.5b"], plan.target_successors, 3, "cuda", torch.bfloat16, norm
    )
    draft = synthetic_decoder(
        SHAPES["qwen2.5-0.5b"], plan.draft_successors, 2, "cuda", torch.bfloat16
    )
    families = list(design.families)

    def prompt(context: int, family: str) -> Tensor:
        region = keys["contexts"].index(context)
        return plan.prompt(families.index(family), region, context - NEW_TOKENS)

    return Pair("hard target", target, draft, list(keys["contexts"]), families, prompt)


def embedded_pair() -> Pair:
    """Real weights in bf16, and the texts of their design."""
    from tokenizers import Tokenizer

    design = load_design(ROOT / "config/h200-embedded.yaml")
    fetched = fetch(design.models.target, ROOT)
    target = load_decoder(fetched, "cuda", torch.bfloat16)
    draft = load_decoder(fetch(design.models.draft, ROOT), "cuda", torch.bfloat16, target)
    tokenizer = Tokenizer.from_file(f"{fetched.folder}/tokenizer.json")
    sources = read_sources(design.prompts, ROOT)
    builder = PromptBuilder(design, sources, tokenizer, chat_turn(fetched.folder))
    contexts = sorted(int(context) for context in design.contexts)

    def prompt(context: int, family: str) -> Tensor:
        return torch.tensor(builder.build(str(context), family)["tokens"])

    return Pair("embedded pair", target, draft, contexts, list(design.families), prompt)


@torch.inference_mode()
def invariance(pair: Pair) -> list[str]:
    """One sentence a context."""
    target, draft, lines = pair.target, pair.draft, []
    for context in pair.contexts:
        caches = [model.new_cache(context + 8) for model in (target, draft)]
        plain = StaticRound(target, caches[0], 0, NEW_TOKENS)
        spec = StaticRound(target, caches[0], K, NEW_TOKENS, draft=draft, draft_cache=caches[1])
        for rounds in (plain, spec):
            rounds.capture("round")
        equal = accepted = proposed = same = apart = 0
        for family in pair.families:
            prompt = pair.prompt(context, family).cuda()
            for cache in caches:
                cache.trim(0)
            logits = target.prefill(prompt, caches[0], 2048)
            draft.prefill(prompt, caches[1], 2048)
            tokens, kept = [], []
            for rounds in (plain, spec):
                rounds.begin(len(prompt), logits, NEW_TOKENS)
                for _ in range(NEW_TOKENS):
                    rounds.replay()
                torch.cuda.synchronize()
                ks, ms = rounds.finish()
                tokens.append(rounds.committed())
                held = [
                    part[:, len(prompt) :].clone()
                    for layer in range(target.config.layers)
                    for part in caches[0].view(layer, context - 1)
                ]
                kept.append(held)
            equal += tokens[0] == tokens[1]
            accepted, proposed = accepted + sum(ms), proposed + sum(ks)
            bits = all(a.equal(b) for a, b in zip(*kept, strict=True))
            text = torch.tensor(tokens[0], device="cuda")
            fused, eager = (
                _forced(target, caches[0], len(prompt), text, way) for way in (True, False)
            )
            same += bits and fused[0].equal(fused[1])
            apart += not eager[0].equal(eager[1])
        count = len(pair.families)
        lines.append(
            f"{pair.name}, {context} tokens: tokens of plain and speculative rounds equal in "
            f"{equal} of {count} families ({accepted} of {proposed} accepted); logits of 1 and "
            f"{K + 1} rows, keys and values bitwise equal in {same}; the eager decoder's logits "
            f"differ in {apart}"
        )
        print(lines[-1], flush=True)
    return lines


def _forced(target: Decoder, cache, prompt: int, text: Tensor, fused: bool) -> list[Tensor]:
    """Logits along a text (LongTensor [n]) by steps of one row and of K + 1."""
    found = []
    for rows in (1, K + 1):
        cache.length = prompt
        step, logits = FusedStep(target, cache, rows, keep_logits=True) if fused else None, []
        for piece in text[: len(text) // (K + 1) * (K + 1)].split(rows):
            if fused:
                number = torch.tensor([len(piece)], device="cuda")
                start = torch.tensor([cache.length], device="cuda")
                step(Ports(piece, number, start, torch.zeros_like(piece)))
                logits.append(step.logits[: len(piece)].clone())
                cache.advance(len(piece))
            else:
                logits.append(target.forward(piece, cache, len(piece)))
        found.append(torch.cat(logits))
    return found


if __name__ == "__main__":
    asked = sys.argv[1:] or ["hard", "embedded"]
    for name in asked:
        invariance({"hard": hard_pair, "embedded": embedded_pair}[name]())
