"""Modes that promise their baseline's tokens, on the embedded pair in fp32.

Greedy ones are held against Hugging Face greedy generate, sampled ones against plain sampling with
the same settings and seed. `python -m tests.exactness` takes 64 prompts over all 16 families and
prints a table: AR, spec and its folded form by default, or the modes that are named (`all` for all
of MODES, which takes most of an hour on 2 cores). The test suite runs a shorter form.
"""

from __future__ import annotations

import argparse
import dataclasses
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
_GREEDY = {
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
_COLD, _WARM = {"sampling": {"temperature": 0.0}}, {"sampling": {"temperature": 0.7}}
_REJECTION = {
    "rejection_repair": {**_SPEC, **_COLD, "acceptance": "rejection"},
    "rejection": {**_FOLDED, **_COLD, "acceptance": "rejection"},
}
# All of them once more with noise that draft and target share, against plain sampling.
SAMPLED = "_at_07"
_COUPLED = {
    name + SAMPLED: {**mode, **_WARM} | ({} if name == "ar" else {"acceptance": "coupled"})
    for name, mode in _GREEDY.items()
}
MODES = {
    name: Mode(**mode, baseline="ar").composition()
    for name, mode in (_GREEDY | _REJECTION | _COUPLED).items()
}
NEW_TOKENS = 32
DEFAULT = ("ar", "spec", "folded", "rejection", "ar_at_07", "spec_at_07", "folded_at_07")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Tokens of one prompt by Hugging Face and by every mode, and what these did.

    Sampled modes come with plain sampling, `ar_at_07`.
    """

    family: str
    prompt_tokens: int
    generate: list[int]
    traces: dict[str, Trace]

    @property
    def different(self) -> list[str]:
        """Modes that did not commit the tokens of generate, or of plain sampling."""
        plain = self.traces.get("ar" + SAMPLED)
        return [
            name
            for name, trace in self.traces.items()
            if trace.tokens != (plain.tokens if name.endswith(SAMPLED) else self.generate)
        ]

    @property
    def equal(self) -> bool:
        return not self.different


def compare(
    lengths: list[int],
    new_tokens: int,
    families: list[str] | None = None,
    modes: Sequence[str] = DEFAULT,
) -> Iterator[Comparison]:
    """One comparison a length (prompt tokens) and family; prompts of a length share one batch."""
    from transformers import AutoModelForCausalLM

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
    theirs = AutoModelForCausalLM.from_pretrained(fetched.folder, dtype=torch.float32)
    sampled = [name for name in modes if name.endswith(SAMPLED)]
    plans = {name: MODES[name] for name in [*modes, *(["ar" + SAMPLED] if sampled else [])]}
    drafts = {
        kept: draft.trimmed(read_ranking(student.folder, kept)) if kept else draft
        for kept in {plan["draft_vocabulary"] for plan in plans.values()}
    }
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
                traces = {
                    name: decode_prompt(target, drafts[plan["draft_vocabulary"]], prompt,
                                        new_tokens, plan, design.seed)
                    for name, plan in plans.items()
                }  # fmt: skip
                yield Comparison(family, length, tokens, traces)


def decode_prompt(
    target_model, draft, prompt: list[int], budget: int, mode: Mapping[str, Any], seed: int
) -> Trace:
    """One generation of a mode, built as a timing cell builds it."""
    runtime = resources.build_runtime(mode, torch.device("cpu"), [])
    capacity = len(prompt) + budget
    policy, ids = resources.build_policy(mode), torch.tensor(prompt)
    target = resources.build_target(mode, target_model, capacity)
    voice, draft_voice = resources.build_voices(mode, seed, ids, runtime)
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
    asked = parser.parse_args().modes
    modes = list(MODES) if "all" in asked else asked
    done = equal = 0
    # Prompts on either side of the draft's window of 64 tokens.
    for comparison in compare([32, 48, 96, 128], NEW_TOKENS, modes=modes):
        done, equal = done + 1, equal + comparison.equal
        outcome = "equal" if comparison.equal else f"DIFFERENT: {', '.join(comparison.different)}"
        calls = ", ".join(f"{name} {t.target_calls}" for name, t in comparison.traces.items())
        print(
            f"{comparison.prompt_tokens:4d} {comparison.family:20s} {outcome}; target calls: "
            f"{calls}",
            flush=True,
        )
    print(
        f"{equal} of {done} prompts: {', '.join(modes)} commit the {NEW_TOKENS} tokens of generate, "
        "or, at temperature 0.7, of plain sampling"
    )
    sys.exit(equal != done)


if __name__ == "__main__":
    main()
