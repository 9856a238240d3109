"""One CUDA graph for every position, over growing caches, a private pool each: as published.

The study that this project reproduces captured its rounds so and ran out of memory. Lengths are
fixed when a graph is captured, so every round of a generation needs a graph of its own, and each
pool holds the keys and values of its length again. A plain run first shows which rounds there
will be: greedy runs repeat them. How many graphs were captured, of how many, and what their pools
hold, is in the row even where memory ends before they do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.decoding.crossings import Built, pool_bytes
from engine.decoding.growing import GrowingCache
from engine.decoding.loop import Generation, Trace, decode
from engine.decoding.marks import marks_on
from engine.decoding.runtimes import device

NEEDS_ACCELERATOR = "CUDA graphs exist on an NVIDIA GPU only"
WHOLE_ROUNDS = True
CAPTURES = True
PLAIN = "device"
ROUNDS = ("folded",)
ACCEPTANCE = ("exact",)
DRAFTERS = ("model",)


class RoundsDiffer(RuntimeError):
    """A run took another course than the one whose rounds were captured."""


@dataclass(frozen=True)
class Position:
    """A round at one length: t tokens committed, k proposed, `lag` of them new to the draft."""

    length: int
    k: int
    lag: int


class Runtime(device.Runtime):
    """Replays the round of each position; the host reads once a round."""

    def __init__(self, device_, stop_ids=()):
        super().__init__(device_, stop_ids)
        self._marks = marks_on(device_)
        self._graphs: dict[Position, torch.cuda.CUDAGraph] = {}

        def zeros(count: int) -> Tensor:
            return torch.zeros(count, dtype=torch.long, device=device_)

        # pending tokens of the draft; the block, then what the target chooses after each of it
        self._pending, self._block, self._choices = zeros(2), zeros(66), zeros(66)

    def prepare(self, generation: Generation, k: int) -> None:
        """Run once as the device runtime does, then capture the rounds that came.

        Where memory ends, raises torch's OutOfMemoryError; `built` says how far it came.
        """
        positions = self._positions(generation, k)
        self.built = Built(planned=len(positions))
        self._restart(generation)
        torch.cuda.empty_cache()  # what the prefill left is of no use to a private pool
        for position in reversed(positions):  # largest first
            self._graphs[position] = self._captured(generation, position)
            graphs = self._graphs.values()
            self.built = replace(self.built, graphs=len(graphs), pool_bytes=pool_bytes(graphs))
        self.whole_rounds = self._replayed

    def _positions(self, g: Generation, k: int) -> list[Position]:
        self._restart(g)
        trace = decode(replace(g, trace=Trace(), committed=[]), "folded", k)
        positions, length, lag = [], g.target.prompt_length + 1, 1
        for n, m in zip(trace.round_k, trace.round_m, strict=True):
            positions.append(Position(length, n, lag))
            length += m + (m < n or g.bonus)
            lag = 2 if m == n and g.bonus else 1
        return positions

    def _restart(self, g: Generation) -> None:
        g.target.restart()
        g.drafter.restart()

    def _captured(self, g: Generation, at: Position) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # a pool of its own
            self._round(g, at)
        return graph

    def _round(self, g: Generation, at: Position) -> None:
        """The draft's chain and the target's step at fixed lengths."""
        target, drafter = g.target, g.drafter
        block, choices = self._block[: at.k + 1], self._choices[: at.k + 1]
        # A cache has room for these lengths, whatever it holds while graphs are captured.
        drafter.cache.length, target.cache.length = at.length - at.lag, at.length - 1
        if at.k:
            own = GrowingCache(drafter.cache, drafter.model.config.layers)
            token = self._pending[: at.lag]
            for j in range(1, at.k + 1):
                token = drafter.model.forward(token, own)[-1].argmax(-1, keepdim=True)
                block[j : j + 1] = token
            own.write_back()
        own = GrowingCache(target.cache, target.model.config.layers)
        read = block if g.bonus else block[: max(at.k, 1)]
        logits = target.model.forward(read, own, len(read))
        choices[: len(read)] = logits.argmax(-1)
        own.write_back()
        self._restart(g)

    def _replayed(self, g: Generation, k: int) -> None:
        marks = self._marks
        marks.restart()
        marks.mark()
        g.commit_choice(g.target.saved_next, "first_token")
        lag, behind = 1, 0
        while not g.done:
            n = min(k, g.remaining - 1 if g.bonus else g.remaining)
            # A run with a smaller budget proposes less at a length; what it does not ask is unread.
            fits = (p for p in self._graphs if (p.length, p.lag) == (g.length, lag) and p.k >= n)
            at = next(fits, None)
            if at is None:
                raise RoundsDiffer(
                    f"no graph was captured for {g.length} tokens: the run took another course"
                )
            recent = g.committed[-lag:]
            self._pending[:lag] = torch.cat(recent)
            self._block[:1] = recent[-1]
            self._graphs[at].replay()
            marks.mark()
            both = torch.cat((self._block[1 : n + 1], self._choices[: n + 1]))
            ids = self._read("round_outcome", both)
            block, choices = ids[:n], ids[n:]
            m = next((i for i in range(n) if block[i] != choices[i]), n)
            own = m < n or g.bonus
            tokens = [t.view(1) for t in both[:m].clone().split(1)] if m else []
            if own:
                tokens.append(both[n + m : n + m + 1].clone())
            kept = g.commit(tokens, block[:m] + choices[m : m + own])
            held = g.length - own
            g.target.cache.length = held
            g.drafter.cache.length = min(at.length - 1 + n, held)
            behind += lag == 2
            g.trace.record_round(min(n, kept) if g.trace.stopped else n, min(m, kept))
            lag = 2 if m == n and g.bonus else 1
        g.watch.ended()
        g.target.calls, g.drafter.calls = len(g.trace.round_k), sum(g.trace.round_k)
        g.drafter.catchups = behind
        self.wait()
        # A graph holds the whole round, so that there are no phases to time.
        g.watch.on_stream(marks.seconds(), {})
