"""What the guard costs on real weights: `python -m tests.guard_bound`, three quarters of an hour.

Cells of their own run seconds to minutes apart, and a shared machine changes its pace by 5 to 30%
in between, which hides a bound of 3%. Here plain decoding, the guard, and the guard where nothing
that is drafted passes decode a prompt at the same time, a round each in turn, and each is timed by
a clock that stands still while the others have theirs. What is left of the noise is 1 to 2% of a
reading, so a family's R is the geometric mean of a few. It checks the policy on all 16 families of
the packaged prompts; it is no study, with gates and a verdict.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch
from greenlet import greenlet
from tokenizers import Tokenizer

from engine.composition import ROOT
from engine.decoding import resources
from engine.decoding.loop import Generation, Trace, decode
from engine.decoding.policies import guarded
from engine.decoding.protocols import Unwatched
from engine.design import load_design
from engine.models.fetching import fetch
from engine.models.loading import load_decoder
from engine.models.ranking import read_ranking
from engine.preparation.chat import chat_turn
from engine.prompts import PromptBuilder, read_sources
from tests.exactness import generation

_BOUND = 0.97
_MODES = ("guarded", "guarded_never")


class Turn(Unwatched):
    """Seconds of one generation among others; `lap` gives the machine to the next one."""

    def __init__(self) -> None:
        self.round_s: list[float] = []
        self._waited = 0.0
        self._last = 0.0

    def __call__(self) -> float:
        return time.perf_counter() - self._waited

    def start(self) -> None:
        self._last = self()

    def lap(self) -> None:
        self.round_s.append(self() - self._last)
        before = time.perf_counter()
        greenlet.getcurrent().parent.switch()
        self._waited += time.perf_counter() - before
        self._last = self()


class Bench:
    """The embedded pair and the prompts of config/guarded.yaml."""

    def __init__(self, families: list[str], modes: list[str]):
        design = load_design(ROOT / "config" / "guarded.yaml")
        torch.set_num_threads(design.cpu_threads)
        sources = read_sources(design.prompts, ROOT)
        self.families = families or list(sources)
        self.design = design.model_copy(update={"families": self.families})
        self.modes = {name: design.modes[name].composition() for name in ("ar", *modes)}
        fetched, student = (fetch(m, ROOT) for m in (design.models.target, design.models.draft))
        self._target = load_decoder(fetched, "cpu", torch.float32)
        draft = load_decoder(student, "cpu", torch.float32, self._target)
        (kept,) = {self.modes[name]["draft_vocabulary"] for name in modes}
        ranking = read_ranking(student.folder, kept)
        self._draft = draft.trimmed(ranking)
        tokenizer = Tokenizer.from_file(f"{fetched.folder}/tokenizer.json")
        self._prompts = PromptBuilder(self.design, sources, tokenizer, chat_turn(fetched.folder))

    def decode(self, family: str) -> dict[str, tuple[Turn, Trace]]:
        """Decode a family's prompt by all modes in turn: what each took, and did."""
        built = self._prompts.build(str(self.design.contexts[0]), family)
        prompt = torch.tensor(built["tokens"])
        step_s = self._plain_steps(prompt)
        watches = {name: Turn() for name in self.modes}
        traces: dict[str, Trace] = {}

        def run(name: str) -> None:
            begun = self._generation(name, prompt, watches[name], step_s)
            watches[name].start()
            mode = self.modes[name]
            traces[name] = decode(begun, mode["round"], mode["k"])

        at_work = {name: greenlet(run) for name in self.modes}
        while at_work:
            for name, work in list(at_work.items()):
                work.switch(name)
                if work.dead:
                    del at_work[name]
        return {name: (watches[name], traces[name]) for name in self.modes}

    def _plain_steps(self, prompt: torch.Tensor) -> list[float]:
        """Seconds of plain steps beforehand, as a cell times them for the policy."""
        watch = Turn()
        work = greenlet(lambda: decode(self._generation("ar", prompt, watch, [], 32), "step", 0))
        while not work.dead:
            work.switch()
        # The first token came with the prefill.
        return watch.round_s[1:]

    def _generation(self, name, prompt, watch: Turn, step_s, tokens: int = 0) -> Generation:
        mode, design = self.modes[name], self.design
        target = resources.build_target(mode, self._target, design.contexts[0])
        target.prefill(prompt, design.prefill_chunk)
        policy = None
        if mode["policy"] == "guarded":
            policy = guarded.Policy(watch)
            policy.calibrate(step_s)
        return generation(
            target,
            self._draft,
            prompt,
            tokens or design.new_tokens,
            mode,
            design.seed,
            policy,
            watch=watch,
            ignore_stop=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", help="default: all")
    parser.add_argument("--modes", nargs="+", choices=_MODES, default=_MODES)
    parser.add_argument("--readings", type=int, default=3)
    asked = parser.parse_args()
    bench = Bench(asked.families, list(asked.modes))
    found = {}
    with torch.inference_mode():
        for family in bench.families:
            readings = [bench.decode(family) for _ in range(asked.readings)]
            for name in asked.modes:
                ratios = [_plain_over(done, name) for done in readings]
                r = statistics.geometric_mean(ratios)
                drafted = [sum(k > 0 for k in done[name][1].round_k) for done in readings]
                each = ", ".join(f"{ratio:.3f}" for ratio in ratios)
                print(f"{family:20s} {name:14s} R {r:.3f} of {each}; rounds drafted: {drafted}",
                      flush=True)  # fmt: skip
                found[family, name] = r
    (family, name), least = min(found.items(), key=lambda one: one[1])
    print(f"the lowest R over {bench.design.new_tokens} tokens is {least:.3f}: {name}, {family}")
    sys.exit(least < _BOUND)


def _plain_over(done: dict[str, tuple[Turn, Trace]], name: str) -> float:
    """R of one reading: seconds of plain decoding over those of the mode."""
    return sum(done["ar"][0].round_s) / sum(done[name][0].round_s)


if __name__ == "__main__":
    main()
