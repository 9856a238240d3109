"""Modes that promise their baseline's tokens, on the embedded pair in fp32.

Greedy ones are held against Hugging Face greedy generate, sampled ones against plain sampling with
the same settings and seed. `python -m tests.exactness` compares 64 prompts of 32 tokens over all 16
families and prints a table: the ways to judge by default, or the modes that are named (`all`: every
one, in about an hour on 2 cores). The test suite runs a shorter form of it.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Sequence

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

_SPEC = {"drafter": "model", "k": 4, "round": "repair", "baseline": "ar"}
_FOLDED = {**_SPEC, "round": "folded", "bonus": True}
_COLD, _WARM = {"sampling": {"temperature": 0.0}}, {"sampling": {"temperature": 0.7}}
_DOUBT = {"k": 8, "policy": "confidence", "threshold": 0.5}
# What decides how much is drafted, and who drafts; each is tried greedily and in coupled sampling.
_DRAFTING = {
    "adaptive": {**_FOLDED, "k": 8, "policy": "adaptive"},
    "adaptive, repair": {**_SPEC, "k": 8, "policy": "adaptive"},
    "confidence": {**_FOLDED, **_DOUBT},
    "confidence, repair": {**_SPEC, **_DOUBT},
    "first_plain": {**_SPEC, "policy": "first_plain"},
    "guarded": {**_FOLDED, "k": 2, "policy": "guarded"},
    "ngram": {**_FOLDED, "drafter": "ngram"},
    "ngram, repair": {**_SPEC, "drafter": "ngram"},
    "hybrid": {**_FOLDED, "drafter": "hybrid"},
    "hybrid, repair": {**_SPEC, "drafter": "hybrid"},
    "head8k": {**_FOLDED, "k": 1, "draft_vocabulary": 8192},
    "doubting head16k": {**_FOLDED, **_DOUBT, "draft_vocabulary": 16384},
    "window_64": {**_FOLDED, "draft_window": 64},
    # Longer than the prompts, so that nothing leaves it.
    "window_512": {**_FOLDED, "draft_window": 512},
    "nocache": {**_FOLDED, "target_cache": "recomputed"},
}
# By the baseline that each must repeat; a new way to draft or to judge joins by a line.
WAYS = {
    "ar": {
        "ar": {"drafter": "none", "baseline": "ar"},
        "spec": _SPEC,
        "folded": _FOLDED,
        "rejection, repair": {**_SPEC, **_COLD, "acceptance": "rejection"},
        "rejection, folded": {**_FOLDED, **_COLD, "acceptance": "rejection"},
        **_DRAFTING,
    },
    "ar at 0.7": {
        "ar at 0.7": {"drafter": "none", "baseline": "ar", **_WARM},
        "coupled, repair": {**_SPEC, **_WARM, "acceptance": "coupled"},
        "coupled, folded": {**_FOLDED, **_WARM, "acceptance": "coupled"},
        **{
            f"coupled, {name}": {**mode, **_WARM, "acceptance": "coupled"}
            for name, mode in _DRAFTING.items()
        },
    },
}
MODES = {name: Mode(**mode).composition() for ways in WAYS.values() for name, mode in ways.items()}
# The ways to judge; the ways to draft take their time.
DEFAULT = tuple(name for name in MODES if name.removeprefix("coupled, ") not in _DRAFTING)


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
            if name in self.traces
            and self.traces[name].tokens
            != (self.generate if baseline == "ar" else self.traces[baseline].tokens)
        ]


def compare(
    lengths: list[int],
    new_tokens: int,
    families: list[str] | None = None,
    modes: Sequence[str] = DEFAULT,
) -> Iterator[Comparison]:
    """One comparison a length (prompt tokens) and family; prompts of a length share one batch.

    The baselines of the modes are always among them.
    """
    from transformers import AutoModelForCausalLM

    design = load_design(ROOT / "config" / "config.yaml")
    sources = read_sources(design.prompts, ROOT)
    families = families or list(sources)
    design = design.model_copy(update={"families": families, "new_tokens": new_tokens})
    fetched = fetch(design.models.target, ROOT)
    tokenizer = Tokenizer.from_file(f"{fetched.folder}/tokenizer.json")
    builder = PromptBuilder(design, sources, tokenizer, chat_turn(fetched.folder))
    target = load_decoder(fetched, "cpu", torch.float32)
    student = fetch(design.models.draft, ROOT)
    draft = load_decoder(student, "cpu", torch.float32, target)
    plans = {name: MODES[name] for name in MODES if name in WAYS or name in modes}
    heads = {
        kept: draft.trimmed(read_ranking(student.folder, kept)) if kept else draft
        for kept in {plan["draft_vocabulary"] for plan in plans.values()}
    }
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
                ids = torch.tensor(prompt)
                readers = {}
                for mode in plans.values():
                    if mode["target_cache"] not in readers:
                        reader = resources.build_target(mode, target, length + new_tokens)
                        reader.prefill(ids, 2048)
                        readers[mode["target_cache"]] = reader
                traces = {
                    name: decode(
                        generation(
                            readers[mode["target_cache"]],
                            heads[mode["draft_vocabulary"]],
                            ids,
                            new_tokens,
                            mode,
                            design.seed,
                        ),
                        mode["round"],
                        mode["k"],
                    )
                    for name, mode in plans.items()
                }
                yield Comparison(family, length, tokens, traces)


def generation(
    target, draft, prompt, budget: int, mode: dict, seed: int, policy=None, **more
) -> Generation:
    """A mode at the end of a prompt (LongTensor [P]) that the target has read.

    `policy` is the mode's own unless another is given; `more` are fields of the generation.
    """
    runtime = resources.build_runtime(mode, torch.device("cpu"), ())
    voice, draft_voice = resources.build_voices(mode, seed, prompt, runtime)
    target.restart()
    policy = policy or resources.build_policy(mode)
    capacity, window = target.cache.capacity, mode["draft_window"]
    parts = resources.Resources(runtime, capacity, lambda: draft, None, draft_voice, policy, window)
    drafter = resources.build_drafter(mode, parts)
    if drafter:
        drafter.prefill(prompt, 2048)
    return Generation(
        target,
        runtime,
        budget,
        drafter=drafter,
        rule=resources.acceptance_rule(mode),
        bonus=mode["bonus"],
        voice=voice,
        policy=policy,
        **more,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modes", nargs="*", default=DEFAULT, help=f"all, or {'; '.join(MODES)}")
    parser.add_argument("--families", nargs="*", help="these only, to share the work out")
    parser.add_argument("--lengths", nargs="*", type=int, default=[72, 96, 128, 256])
    parser.add_argument("--tokens", type=int, default=32)
    options = parser.parse_args()
    asked, tokens = options.modes, options.tokens
    if unknown := set(asked) - {*MODES, "all"}:
        sys.exit(f"error: unknown mode {unknown.pop()!r}; there is {'; '.join(MODES)}")
    modes = list(MODES) if "all" in asked else list(asked)
    done = equal = 0
    for comparison in compare(options.lengths, tokens, options.families, modes):
        apart = comparison.apart
        done, equal = done + 1, equal + (not apart)
        accepted = {
            name: f"{sum(trace.round_m) / sum(trace.round_k):.2f}"
            for name, trace in comparison.traces.items()
            if sum(trace.round_k)
        }
        told = f"DIFFERENT: {', '.join(apart)}" if apart else "equal"
        print(f"{comparison.prompt_tokens:4d} {comparison.family:20s} {told}; accepted {accepted}",
              flush=True)  # fmt: skip
    print(f"{equal} of {done} prompts: {'; '.join(modes)} commit their baseline's {tokens} tokens")
    sys.exit(equal != done)


if __name__ == "__main__":
    main()
