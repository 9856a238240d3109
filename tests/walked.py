"""The acceptance trace of the embedded pair, walked for every k, against the rounds really taken.

`python -m tests.walked` compares k = 1 to 8 in both forms on 8 families and prints a table; on 2
cores it takes about five minutes. The test suite runs a shorter form of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from engine.analysis.walk import walk
from engine.composition import ROOT
from engine.decoding import acceptance
from engine.decoding.drafters.model import Drafter
from engine.decoding.loop import Generation, Trace, decode
from engine.decoding.resources import Resources
from engine.decoding.runtimes.eager import Runtime
from engine.decoding.target import Target
from engine.design import load_design
from engine.evidence.agreement import trace_acceptance
from engine.models.fetching import fetch
from engine.models.loading import load_decoder
from engine.preparation.chat import chat_turn
from engine.prompts import PromptBuilder, read_sources

FORMS = {"repair": False, "folded": True}


@dataclass(frozen=True)
class Walked:
    """Rounds as walked and as taken: (k, m) of each."""

    family: str
    k: int
    form: str
    walked: list[tuple[int, int]]
    taken: list[tuple[int, int]]


def compare(families: list[str], ks: list[int], context: int = 192) -> Iterator[Walked]:
    """One comparison a family, form and k, on the default design's pair and prompts."""
    design = load_design(ROOT / "config" / "config.yaml")
    design = design.model_copy(update={"families": families})
    models = {role: vars(fetch(getattr(design.models, role), ROOT)) for role in ("target", "draft")}
    folder = models["target"]["folder"]
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    sources = read_sources(design.prompts, ROOT)
    builder = PromptBuilder(design, sources, tokenizer, chat_turn(folder))
    prompts = [builder.build(str(context), family) for family in families]
    target = load_decoder(fetch(design.models.target, ROOT), "cpu", torch.float32)
    draft = load_decoder(fetch(design.models.draft, ROOT), "cpu", torch.float32, target)
    for prompt in prompts:
        plain = _decode(target, None, prompt["tokens"], design.new_tokens, "step", 0)
        place = (prompt["context"], prompt["family"])
        trace = trace_acceptance(design, models, [prompt], {place: plain.tokens})
        matches = [row["matches"] for row in trace]
        for form, bonus in FORMS.items():
            for k in ks:
                taken = _decode(target, draft, prompt["tokens"], design.new_tokens, form, k)
                rounds = walk(matches, k, form, bonus)
                yield Walked(
                    prompt["family"],
                    k,
                    form,
                    [(r.k, r.m) for r in rounds],
                    list(zip(taken.round_k, taken.round_m, strict=True)),
                )


@torch.inference_mode()
def _decode(target_model, draft_model, prompt, budget: int, form: str, k: int) -> Trace:
    runtime, capacity = Runtime(torch.device("cpu")), len(prompt) + budget
    target, ids, drafter = Target(target_model, capacity), torch.tensor(prompt), None
    target.prefill(ids, 2048)
    if draft_model:
        drafter = Drafter(Resources(runtime, capacity, lambda: draft_model))
        drafter.prefill(ids, 2048)
    return decode(
        Generation(
            target,
            runtime,
            budget,
            ignore_stop=True,
            drafter=drafter,
            rule=acceptance.exact,
            bonus=FORMS.get(form, False),
        ),
        form,
        k,
    )


def main() -> None:
    families = load_design(ROOT / "config" / "config.yaml").families
    done = equal = 0
    for case in compare(families, list(range(1, 9))):
        same = case.walked == case.taken
        done, equal = done + 1, equal + same
        told = "as walked" if same else "DIFFERENT"
        print(f"{case.family:20s} {case.form:6s} k={case.k}: {len(case.taken)} rounds, {told}",
              flush=True)  # fmt: skip
    print(f"{equal} of {done}: the walk predicts every round")
    sys.exit(equal != done)


if __name__ == "__main__":
    main()
