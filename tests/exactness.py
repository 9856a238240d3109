"""AR, spec and its folded form against Hugging Face greedy generate, on the embedded pair, fp32.

`python -m tests.exactness` compares 64 prompts of 64 tokens over all 16 families and prints a
table; on 2 cores it takes about ten minutes. The test suite runs a shorter form of it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator

import torch
from tokenizers import Tokenizer

from engine.composition import ROOT
from engine.decoding import acceptance
from engine.decoding.drafters.model import Drafter
from engine.decoding.loop import Generation, Target, Trace, decode
from engine.decoding.resources import Resources
from engine.decoding.runtimes.eager import Runtime
from engine.design import load_design
from engine.models.fetching import fetch
from engine.models.loading import load_decoder
from engine.preparation.chat import chat_turn
from engine.prompts import PromptBuilder, read_sources

FORMS = {"ar": ("step", False), "spec": ("repair", False), "folded": ("folded", True)}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Tokens of one prompt by each of the four ways, and what the speculative ones did."""

    family: str
    prompt_tokens: int
    generate: list[int]
    traces: dict[str, Trace]

    @property
    def equal(self) -> bool:
        return all(trace.tokens == self.generate for trace in self.traces.values())


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
                traces = {name: _decode(target, draft, prompt, new_tokens, name) for name in FORMS}
                yield Comparison(family, length, tokens, traces)


def _decode(target_model, draft_model, prompt: list[int], budget: int, name: str) -> Trace:
    form, bonus = FORMS[name]
    runtime = Runtime(torch.device("cpu"))
    capacity = len(prompt) + budget + 5
    ids = torch.tensor(prompt)
    target = Target(target_model, capacity)
    target.prefill(ids, 2048)
    drafter = None
    if form != "step":
        drafter = Drafter(Resources(runtime, capacity, lambda: draft_model))
        drafter.prefill(ids, 2048)
    return decode(
        Generation(target, runtime, budget, drafter=drafter, rule=acceptance.exact, bonus=bonus),
        form,
        4,
    )


def main() -> None:
    done = equal = 0
    for comparison in compare([128, 192, 256, 320], 64):
        done, equal = done + 1, equal + comparison.equal
        spec, folded = comparison.traces["spec"], comparison.traces["folded"]
        print(
            f"{comparison.prompt_tokens:4d} {comparison.family:20s} "
            f"{'equal' if comparison.equal else 'DIFFERENT'}  spec: {len(spec.round_k)} rounds + "
            f"{spec.repairs} repairs = {spec.target_calls} target calls; folded: "
            f"{folded.target_calls}",
            flush=True,
        )
    print(f"{equal} of {done} prompts: ar, spec, folded and generate commit the same 64 tokens")
    sys.exit(equal != done)


if __name__ == "__main__":
    main()
