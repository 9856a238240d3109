"""Modes that promise their baseline's tokens, on the embedded pair in fp32.

Greedy ones are held against Hugging Face greedy generate, sampled ones against plain sampling with
the same settings and seed. `python -m tests.exactness` compares 64 prompts of 64 tokens over all 16
families and prints a table; on 2 cores it takes about half an hour. The test suite runs a shorter
form of it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator

import torch
from tokenizers import Tokenizer

from engine.composition import ROOT
from engine.decoding import resources
from engine.decoding.loop import Generation, Target, Trace, decode
from engine.design import load_design
from engine.models.fetching import fetch
from engine.models.loading import load_decoder
from engine.modes import Mode
from engine.preparation.chat import chat_turn
from engine.prompts import PromptBuilder, read_sources

_SPEC = {"drafter": "model", "k": 4, "round": "repair", "baseline": "ar"}
_FOLDED = {**_SPEC, "round": "folded", "bonus": True}
_COLD, _WARM = {"sampling": {"temperature": 0.0}}, {"sampling": {"temperature": 0.7}}
# By the baseline that each must repeat; a new way to draft or to judge joins by a line.
WAYS = {
    "ar": {
        "ar": {"drafter": "none", "baseline": "ar"},
        "spec": _SPEC,
        "folded": _FOLDED,
        "rejection, repair": {**_SPEC, **_COLD, "acceptance": "rejection"},
        "rejection, folded": {**_FOLDED, **_COLD, "acceptance": "rejection"},
    },
    "ar at 0.7": {
        "ar at 0.7": {"drafter": "none", "baseline": "ar", **_WARM},
        "coupled, repair": {**_SPEC, **_WARM, "acceptance": "coupled"},
        "coupled, folded": {**_FOLDED, **_WARM, "acceptance": "coupled"},
    },
}
MODES = {name: Mode(**mode).composition() for ways in WAYS.values() for name, mode in ways.items()}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Tokens of one prompt by generate and by each way, and what the speculative ones did."""

    family: str
    prompt_tokens: int
    generate: list[int]
    traces: dict[str, Trace]

    @property
    def apart(self) -> list[str]:
        """The ways that do not repeat their baseline; the greedy baseline repeats generate."""
        return [
            name
            for baseline, ways in WAYS.items()
            for name in ways
            if self.traces[name].tokens
            != (self.generate if baseline == "ar" else self.traces[baseline].tokens)
        ]


def compare(
    lengths: list[int], new_tokens: int, families: list[str] | None = None
) -> Iterator[Comparison]:
    """One comparison a length (prompt tokens) and family; prompts of a length share one batch."""
    from transformers import AutoModelForCausalLM

    design = load_design(ROOT / "config" / "config.yaml")
    sources = read_sources(design.prompts, ROOT)
    families = families or list(sources)
    design = design.model_copy(update={"families": families, "new_tokens": new_tokens})
    fetched = fetch(design.models.target, ROOT)
    tokenizer = Tokenizer.from_file(f"{fetched.folder}/tokenizer.json")
    builder = PromptBuilder(design, sources, tokenizer, chat_turn(fetched.folder))
    target = load_decoder(fetched, "cpu", torch.float32)
    draft = load_decoder(fetch(design.models.draft, ROOT), "cpu", torch.float32, target)
    theirs = AutoModelForCausalLM.from_pretrained(fetched.folder, dtype=torch.float32)
    with torch.inference_mode():
        for length in lengths:
            prompts = [builder.build(str(length + new_tokens), f)["tokens"] for f in families]
            generated = theirs.generate(
                torch.tensor(prompts),
                attention_mask=torch.ones(len(prompts), length, dtype=torch.long),
                do_sample=False,
                min_new_tokens=new_tokens,
                max_new_tokens=new_tokens,
                eos_token_id=None,
                pad_token_id=0,
            )[:, length:].tolist()
            for family, prompt, tokens in zip(families, prompts, generated, strict=True):
                ids, read = torch.tensor(prompt), Target(target, length + new_tokens)
                read.prefill(ids, 2048)
                traces = {
                    name: _decode(read, draft, ids, new_tokens, mode, design.seed)
                    for name, mode in MODES.items()
                }
                yield Comparison(family, length, tokens, traces)


def _decode(target: Target, draft, prompt, budget: int, mode: dict, seed: int) -> Trace:
    """What a mode does from the end of a prompt (LongTensor [P]) that the target has read."""
    runtime = resources.build_runtime(mode, torch.device("cpu"), ())
    voice, draft_voice = resources.build_voices(mode, seed, prompt, runtime)
    target.restart()
    drafter = resources.build_drafter(
        mode,
        resources.Resources(runtime, target.cache.capacity, lambda: draft, None, draft_voice),
    )
    if drafter:
        drafter.prefill(prompt, 2048)
    return decode(
        Generation(
            target,
            runtime,
            budget,
            drafter=drafter,
            rule=resources.acceptance_rule(mode),
            bonus=mode["bonus"],
            voice=voice,
        ),
        mode["round"],
        mode["k"],
    )


def main() -> None:
    done = equal = 0
    for comparison in compare([128, 192, 256, 320], 64):
        apart = comparison.apart
        done, equal = done + 1, equal + (not apart)
        accepted = {
            name: f"{sum(trace.round_m) / sum(trace.round_k):.2f}"
            for name, trace in comparison.traces.items()
            if trace.round_k
        }
        told = f"DIFFERENT: {', '.join(apart)}" if apart else "equal"
        print(f"{comparison.prompt_tokens:4d} {comparison.family:20s} {told}; accepted {accepted}",
              flush=True)  # fmt: skip
    print(f"{equal} of {done} prompts: {', '.join(MODES)} commit their baseline's 64 tokens")
    sys.exit(equal != done)


if __name__ == "__main__":
    main()
