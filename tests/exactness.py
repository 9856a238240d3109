"""Modes against Hugging Face greedy generate, on the embedded pair, fp32.

`python -m tests.exactness` compares 64 prompts of 64 tokens over all 16 families and prints a
table: AR, spec and its folded form by default, or the modes that are named (`all` for all of
MODES). With `--temperature 0.7` all of them sample, coupled, and are held against AR. On 2 cores it
takes about ten minutes with the three. The test suite runs a shorter form.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from tokenizers import Tokenizer

from engine.composition import ROOT
from engine.decoding import resources
from engine.decoding.loop import Generation, Trace, decode
from engine.design import load_design
from engine.models.fetching import fetch
from engine.models.loading import load_decoder
from engine.models.ranking import read_ranking
from engine.modes import Mode
from engine.preparation.chat import chat_turn
from engine.prompts import PromptBuilder, read_sources

_SPEC = {"drafter": "model", "k": 4, "round": "repair"}
_FOLDED = {**_SPEC, "round": "folded", "bonus": True}
# Every exact policy and drafter, in the forms where they differ.
MODES = {
    "ar": {"drafter": "none"},
    "spec": _SPEC,
    "folded": _FOLDED,
    "adaptive": {**_FOLDED, "k": 8, "policy": "adaptive"},
    "adaptive_repair": {**_SPEC, "k": 8, "policy": "adaptive"},
    "confidence": {**_FOLDED, "k": 8, "policy": "confidence", "threshold": 0.5},
    "confidence_repair": {**_SPEC, "k": 8, "policy": "confidence", "threshold": 0.5},
    "first_plain": {**_SPEC, "policy": "first_plain"},
    "guarded": {**_FOLDED, "k": 2, "policy": "guarded"},
    "ngram": {**_FOLDED, "drafter": "ngram"},
    "ngram_repair": {**_SPEC, "drafter": "ngram"},
    "hybrid": {**_FOLDED, "drafter": "hybrid"},
    "hybrid_repair": {**_SPEC, "drafter": "hybrid"},
    "head8k": {**_FOLDED, "k": 1, "draft_vocabulary": 8192},
    "window_64": {**_FOLDED, "draft_window": 64},
    "nocache": {**_FOLDED, "target_cache": "recomputed"},
}
DEFAULT = ("ar", "spec", "folded")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Tokens of one prompt as they should be and by every mode, and what these did.

    `expected` is Hugging Face's greedy text, or, in sampling, plain decoding's.
    """

    family: str
    prompt_tokens: int
    expected: list[int]
    traces: dict[str, Trace]

    @property
    def different(self) -> list[str]:
        """Modes that did not commit the expected tokens."""
        return [name for name, trace in self.traces.items() if trace.tokens != self.expected]

    @property
    def equal(self) -> bool:
        return not self.different


def compare(
    lengths: list[int],
    new_tokens: int,
    families: list[str] | None = None,
    modes: Sequence[str] = DEFAULT,
    temperature: float = 0,
) -> Iterator[Comparison]:
    """One comparison a length (prompt tokens) and family; prompts of a length share one batch."""
    design = load_design(ROOT / "config" / "config.yaml")
    sources = read_sources(design.prompts, ROOT)
    families = families or list(sources)
    design = design.model_copy(update={"families": families, "new_tokens": new_tokens})
    fetched = fetch(design.models.target, ROOT)
    student = fetch(design.models.draft, ROOT)
    tokenizer = Tokenizer.from_file(f"{fetched.folder}/tokenizer.json")
    builder = PromptBuilder(design, sources, tokenizer, chat_turn(fetched.folder))
    target = load_decoder(fetched, "cpu", torch.float32)
    draft = load_decoder(student, "cpu", torch.float32, target)
    drawn = {"sampling": {"temperature": temperature}} if temperature else {}
    plans = {name: Mode(**MODES[name], **drawn, **_rule(name, drawn), baseline="ar").composition()
             for name in dict.fromkeys(["ar", *modes])}  # fmt: skip
    drafts = {
        kept: draft.trimmed(read_ranking(student.folder, kept)) if kept else draft
        for kept in {plan["draft_vocabulary"] for plan in plans.values()}
    }
    with torch.inference_mode():
        for length in lengths:
            prompts = [builder.build(str(length + new_tokens), f)["tokens"] for f in families]
            expected = (
                [None] * len(prompts) if drawn else _generated(fetched.folder, prompts, new_tokens)
            )
            for family, prompt, tokens in zip(families, prompts, expected, strict=True):
                traces = {
                    name: decode_prompt(target, drafts[plan["draft_vocabulary"]], prompt,
                                        new_tokens, plan)
                    for name, plan in plans.items()
                }  # fmt: skip
                yield Comparison(family, length, tokens or traces["ar"].tokens, traces)


def _rule(name: str, drawn: Mapping[str, Any]) -> dict[str, str]:
    return {"acceptance": "coupled"} if drawn and MODES[name]["drafter"] != "none" else {}


def _generated(folder: str, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
    """Hugging Face's greedy text after each prompt; all are of one length."""
    theirs = _transformers_model(folder)
    ids = torch.tensor(prompts)
    return theirs.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        min_new_tokens=new_tokens,
        max_new_tokens=new_tokens,
        eos_token_id=None,
        pad_token_id=0,
    )[:, ids.shape[1] :].tolist()


@functools.cache
def _transformers_model(folder: str):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def decode_prompt(target_model, draft, prompt: list[int], budget: int, mode: Mapping[str, Any]):
    """One generation of a mode, built as a timing cell builds it."""
    runtime = resources.build_runtime(mode, torch.device("cpu"), [])
    capacity = len(prompt) + budget
    policy = resources.build_policy(mode)
    ids = torch.tensor(prompt)
    voice, draft_voice = resources.build_voices(mode, 1, ids, runtime)
    target = resources.build_target(mode, target_model, capacity)
    parts = resources.Resources(
        runtime, capacity, lambda: draft, None, draft_voice, policy, mode["draft_window"]
    )
    drafter = resources.build_drafter(mode, parts)
    for reader in filter(None, (target, drafter)):
        reader.prefill(ids, 2048)
    generation = Generation(
        target,
        runtime,
        budget,
        drafter=drafter,
        rule=resources.acceptance_rule(mode),
        bonus=mode["bonus"],
        voice=voice,
        policy=policy,
    )
    return decode(generation, mode["round"], mode["k"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modes", nargs="*", default=list(DEFAULT), choices=[*MODES, "all"])
    parser.add_argument("--temperature", type=float, default=0)
    asked = parser.parse_args()
    modes = list(MODES) if "all" in asked.modes else asked.modes
    other = "plain sampling" if asked.temperature else "generate"
    done = equal = 0
    lengths = [128, 192, 256, 320]
    for comparison in compare(lengths, 64, modes=modes, temperature=asked.temperature):
        done, equal = done + 1, equal + comparison.equal
        outcome = "equal" if comparison.equal else f"DIFFERENT: {', '.join(comparison.different)}"
        calls = ", ".join(f"{name} {t.target_calls}" for name, t in comparison.traces.items())
        print(
            f"{comparison.prompt_tokens:4d} {comparison.family:20s} {outcome}; target calls: "
            f"{calls}",
            flush=True,
        )
    print(f"{equal} of {done} prompts: {', '.join(modes)} and {other} commit the same 64 tokens")
    sys.exit(equal != done)


if __name__ == "__main__":
    main()
