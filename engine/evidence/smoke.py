"""The smoke ladder: five rungs to climb before a new machine or a new pair measures anything.

Each rung stands on the ones before it, so the first that breaks names what is wrong. None of them
judges speed: the last one times a single pair to show that cells can be measured here at all.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine.analysis.divergence import only_equality_passes
from engine.decoding import resources
from engine.decoding.loop import Generation, Trace, decode
from engine.design import Design
from engine.measure.cell import time_cell
from engine.models.loading import FetchedModel, load_decoder
from engine.models.ranking import read_ranking

TOKENS = 24
# Of the largest logit: what a change of the number of rows may move a logit by.
_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.06, "float16": 0.02}


class SmokeFault(RuntimeError):
    """A rung broke; the text is one sentence."""


class Bench:
    """The design's pair on its device, and one prompt."""

    def __init__(self, design: Design, models: dict[str, Any], prompt: list[int]):
        torch.set_num_threads(design.cpu_threads)
        self.design, self.models, self.prompt = design, models, prompt
        self.device = torch.device(design.device)
        self.dtype, self.vocabulary = getattr(torch, design.dtype), models["target"]["vocabulary"]
        self.tolerance = _TOLERANCE[design.dtype]

    # Loaded where a rung asks for them: the last one leaves the memory to the cells it starts.
    @functools.cached_property
    def target(self):
        model = FetchedModel(**self.models["target"])
        return load_decoder(model, self.device, self.dtype, vocabulary=self.vocabulary)

    @functools.cached_property
    def draft(self):
        if not self.models["draft"]:
            return None
        model = FetchedModel(**self.models["draft"])
        return load_decoder(model, self.device, self.dtype, self.target, self.vocabulary)

    def ids(self, tokens: list[int]) -> Tensor:
        return torch.tensor(tokens, dtype=torch.long, device=self.device)

    def prefilled(self, model, room: int):
        """A cache that holds the prompt, and the logits [vocabulary] after it."""
        cache = model.new_cache(len(self.prompt) + room)
        return cache, model.prefill(self.ids(self.prompt), cache, self.design.prefill_chunk)

    def decode(self, name: str) -> Trace:
        """TOKENS new tokens in the way of one of the design's modes."""
        mode = self.design.modes[name].composition()
        runtime = resources.build_runtime(mode, self.device, self.models["stop_ids"])
        capacity = len(self.prompt) + TOKENS + runtime.slack
        target = resources.build_target(mode, self.target, capacity)
        target.prefill(self.ids(self.prompt), self.design.prefill_chunk)
        policy = resources.build_policy(mode)
        voice, draft_voice = resources.build_voices(
            mode, self.design.seed, self.ids(self.prompt), runtime
        )
        drafter = resources.build_drafter(
            mode,
            resources.Resources(
                runtime,
                target.cache.capacity,
                lambda: self.drafting(mode["draft_vocabulary"]),
                lambda: self.decode(mode["baseline"]).tokens,
                draft_voice,
                policy,
                mode["draft_window"],
            ),
        )
        if drafter:
            drafter.prefill(self.ids(self.prompt), self.design.prefill_chunk)
        generation = Generation(
            target,
            runtime,
            TOKENS,
            ignore_stop=True,
            drafter=drafter,
            rule=resources.acceptance_rule(mode),
            bonus=mode["bonus"],
            voice=voice,
            policy=policy,
        )
        # Peers build their models and graph runtimes capture here, as in a timed cell.
        runtime.prepare(generation, mode["k"])
        return decode(generation, mode["round"], mode["k"])

    def drafting(self, vocabulary: int | None):
        """The draft, with its head trimmed as a mode asks."""
        if vocabulary is None:
            return self.draft
        return self.draft.trimmed(read_ranking(self.models["draft"]["folder"], vocabulary))

    def closeness(self, one: Tensor, other: Tensor) -> float:
        """Largest difference of logits, as a share of the largest logit."""
        return float((one - other).abs().max() / other.abs().max())


def environment(bench: Bench) -> str:
    """The machine, and a pair that loads and gives finite logits."""
    for name, model in (("target", bench.target), ("draft", bench.draft)):
        if model is not None and not bool(bench.prefilled(model, 1)[1].isfinite().all()):
            raise SmokeFault(
                f"the {name} gives logits that are not finite in {bench.design.dtype}; try "
                "another dtype, or fetch the model again"
            )
    gib = (bench.target.weights_bytes + (bench.draft.weights_bytes if bench.draft else 0)) / 2**30
    return f"torch {torch.__version__} on {bench.design.device}; the pair takes {gib:.2f} GiB"


def plain(bench: Bench) -> str:
    """Plain decoding, one token in the cache a step, with the logits of one long prefill."""
    cache, logits = bench.prefilled(bench.target, TOKENS)
    tokens: list[int] = []
    for step in range(TOKENS):
        cache.expect(len(bench.prompt) + step)
        tokens.append(int(logits.argmax()))
        if step < TOKENS - 1:
            logits = bench.target.forward(bench.ids(tokens[-1:]), cache)[-1]
    whole = [*bench.prompt, *tokens[:-1]]
    fresh = bench.target.new_cache(len(whole))
    at_once = bench.target.prefill(bench.ids(whole), fresh, bench.design.prefill_chunk)
    apart = bench.closeness(logits, at_once)
    if not apart <= bench.tolerance:
        raise SmokeFault(
            f"after {TOKENS} plain steps the logits differ from one prefill of the same text by "
            f"{apart:.2g} of the largest (at most {bench.tolerance:g}): the cache is wrong"
        )
    return (
        f"{TOKENS} plain steps, cache length right at each, logits within {apart:.1g} of a prefill"
    )


def rollback(bench: Bench) -> str:
    """Blocks of several rows are aligned, and trimming leaves no trace."""
    tokens = bench.decode(bench.design.baselines[0]).tokens
    worst = 0.0
    for rows in (2, 5, 9):
        cache, _ = bench.prefilled(bench.target, TOKENS)
        block = bench.target.forward(bench.ids(tokens[:rows]), cache, rows=rows)
        for keep in (rows - 1, rows // 2, 0):
            cache.trim(len(bench.prompt) + keep)
            row = bench.target.forward(bench.ids(tokens[keep : keep + 1]), cache)[-1]
            worst = max(worst, bench.closeness(row, block[keep]))
    if not worst <= bench.tolerance:
        raise SmokeFault(
            f"a row of a block and the same step alone differ by {worst:.2g} of the largest logit "
            f"(at most {bench.tolerance:g}): the causal mask or the rollback is wrong here"
        )
    return f"rows of blocks of 2, 5 and 9 equal single steps within {worst:.1g}, after rollbacks"


def tokens(bench: Bench) -> str:
    """Every exact mode of the design gives its baseline's tokens."""
    equal, apart = [], []
    for name, mode in bench.design.modes.items():
        if mode.speculative and mode.exact and not bench.design.not_applicable(name):
            same = bench.decode(name).tokens == bench.decode(mode.baseline).tokens
            (equal if same else apart).append(name)
    if apart and only_equality_passes(bench.design):
        raise SmokeFault(
            f"{', '.join(apart)} does not give the baseline's tokens in float32 on a CPU, where "
            "only equality passes"
        )
    near = f"; {', '.join(apart)} differs, which {bench.design.dtype} may" if apart else ""
    return f"{', '.join(equal) or 'no mode'} gives the baseline's {TOKENS} tokens{near}"


def pair(bench: Bench) -> str:
    """One plain cell and one speculative cell, measured as the study measures them."""
    design, names = bench.design, bench.design.baselines[:1]
    for name, mode in design.modes.items():
        if mode.speculative and not design.not_applicable(name):
            names = [mode.baseline, name]
            break
    seconds = {}
    for name in names:
        cell = next(c for c in design.cells() if c.mode == name)
        rows = time_cell(design, cell, bench.models, {"tokens": bench.prompt, "sha256": ""})
        if rows[0]["status"] != "ok":
            raise SmokeFault(f"a cell of {name} ended as {rows[0]['status']}: {rows[0]['error']}")
        runs = [r for r in rows if not (r["warmup"] or r["instrumented"] or r["disturbed"])]
        seconds[name] = statistics.median(run["decode_s"] for run in runs)
    told = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    if len(seconds) < 2:
        return f"{told}; the design has no mode with a drafter that runs here"
    plain_s, own_s = seconds.values()
    return f"{told}, R {plain_s / own_s:.2f} of one pair, which is no verdict"


RUNGS: dict[str, Callable[[Bench], str]] = {
    rung.__name__: rung for rung in (environment, plain, rollback, tokens, pair)
}
