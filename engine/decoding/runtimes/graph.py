"""Whole rounds on the device: drafting, verification, acceptance and trimming are one replay.

The host starts a round and, while it runs, reads the tokens of the one before from a mailbox: it
waits once a round, for a mark on the stream, and never keeps the device waiting. A stop token is
seen one round late, and what the device did beyond it is forgotten.

On a GPU a round is one CUDA graph, captured once for all positions. On a CPU, and where the fused
kernel cannot run a model (float32, an older GPU), the kernels' plain twins run: the same tokens,
slower, and the row says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from engine.decoding import acceptance
from engine.decoding.crossings import Built, Crossings, pool_bytes
from engine.decoding.loop import Generation
from engine.decoding.marks import marks_on
from engine.decoding.static import StaticRound
from engine.kernels.step import why_not_fused

# What a mode can ask of this runtime.
ROUNDS = ("step", "folded")
ACCEPTANCE = ("exact", "all")
DRAFTERS = ("none", "model", "reference")
WHOLE_ROUNDS = True
CAPTURES = True

_PHASES = {"propose": "draft", "verify": "verify", "commit": "control"}


class Runtime(Crossings):
    """Runs generations over static buffers, built once for all runs of a cell."""

    # Steps write whole blocks, even where the budget cuts them. The same for every k, so that
    # plain and speculative steps run over buffers of one size and add in one order.
    slack = 65

    def __init__(self, device: torch.device, stop_ids: Sequence[int] = ()):
        super().__init__(device)
        self._stop_ids = frozenset(stop_ids)
        self._marks = marks_on(device)
        # Rounds queued while the host waits for one; on a CPU they would be done at once.
        self._ahead = 1 if device.type == "cuda" else 0
        self._built_for: tuple = ()
        self._rounds: StaticRound | None = None

    def prepare(self, generation: Generation, k: int) -> None:
        """Allocate the buffers and capture the graphs of such a generation, largest first."""
        rounds = self._static(generation, k)
        if self.device.type == "cuda" and not rounds.graphs:
            rounds.capture("round", *self._parts(rounds))
            self.built = Built(
                len(rounds.graphs), pool_bytes(rounds.graphs.values()), self.built.kernels
            )

    def whole_rounds(self, g: Generation, k: int) -> None:
        """Run a prefilled generation to its budget or to an end-of-sequence token."""
        rounds, marks = self._static(g, k), self._marks
        parts = self._parts(rounds) if g.watch.by_phase else ["round"]
        tokens, ends = self._run(g, rounds, parts)
        g.watch.ended()
        round_k, round_m = rounds.finish()
        _record(g, tokens, k, round_k, round_m)
        held = g.length - 1
        for cache in filter(None, (g.target.cache, rounds.draft_cache)):
            cache.trim(min(cache.length, held))
        # All rounds were waited for by now; those queued beyond the end took part in nothing.
        seconds = marks.seconds()[: ends[len(round_k)]]
        g.watch.on_stream(*_durations(seconds, parts, plain=not k))

    def first_stop(self, values: Sequence[int]) -> int | None:
        """Index of the first end-of-sequence token, or None."""
        return next((i for i, value in enumerate(values) if value in self._stop_ids), None)

    def _run(
        self, g: Generation, rounds: StaticRound, parts: Sequence[str]
    ) -> tuple[list[int], list[int]]:
        """Tokens as they reach the host, and the mark at the end of the prefill and each round."""
        marks, tokens = self._marks, []
        marks.restart()
        marks.mark()
        # The state of a fresh generation: six numbers, none of them a token.
        self.h2d_copies += 1
        rounds.begin(g.target.prompt_length, g.target.saved_next, g.budget)
        ends = [marks.mark()]
        # The first token comes with the first round, so that nobody waits for it alone.
        seen = 0 if g.budget == 1 else 1
        while True:
            # Every round under way commits at least one token.
            under_way = len(ends) - seen
            if under_way <= self._ahead and max(len(tokens), 1) + under_way < g.budget:
                for part in parts:
                    rounds.replay(part) if rounds.graphs else getattr(rounds, part)()
                    end = marks.mark()
                ends.append(end)
                continue
            marks.wait_for(ends[seen])
            self.syncs["round"] += 1
            seen += 1
            new = rounds.committed()[len(tokens) :]
            tokens += new
            g.watch.arrived(len(new))
            stopped = self.first_stop(new) is not None and not g.ignore_stop
            if len(tokens) == g.budget or stopped:
                return tokens, ends

    def _static(self, g: Generation, k: int) -> StaticRound:
        """The buffers for such a generation; made anew only if another kind is asked for."""
        if g.rule not in (None, acceptance.exact, acceptance.all):
            raise ValueError("whole rounds judge by acceptance 'exact' or 'all' and nothing else")
        kind = (id(g.target), id(g.drafter), k, g.bonus, g.rule)
        if self._built_for[:-1] == kind and g.budget <= self._built_for[-1]:
            return self._rounds
        self._rounds = None  # free the old buffers before there are new ones
        draft = getattr(g.drafter, "model", None)
        draft_cache = g.drafter.cache if draft else None
        for cache in filter(None, (g.target.cache, draft_cache)):
            # On the device nothing would stop a write beyond the end.
            cache.expect_room(g.target.prompt_length + g.budget + k + 1)
        reference = None
        if g.drafter and draft is None:
            said = g.drafter.propose([], g.budget)
            reference = torch.tensor(said, dtype=torch.long, device=self.device)
        fused = not why_not_fused(g.target.model, k + 1) and not (draft and why_not_fused(draft, 2))
        self._rounds = StaticRound(
            g.target.model,
            g.target.cache,
            k,
            g.budget,
            draft=draft,
            draft_cache=draft_cache,
            reference=reference,
            bonus=g.bonus,
            accept_all=g.rule is acceptance.all,
            fused=fused,
            apart=g.target.invariant,
        )
        self._built_for = (*kind, g.budget)
        self.built = Built(kernels="fused" if fused else "twins")
        return self._rounds

    def _parts(self, rounds: StaticRound) -> list[str]:
        """The parts of a round that have something to do."""
        return ["propose"] * (rounds.draft_steps is not None) + ["verify", "commit"]


def _record(
    g: Generation, tokens: list[int], k: int, round_k: list[int], round_m: list[int]
) -> None:
    """What the rounds did, as the loop would have written it down; cut at an end of sequence."""
    trace = g.trace
    own = [1, *(m + (m < n or g.bonus or not k) for n, m in zip(round_k, round_m, strict=True))]
    ends = list(itertools.accumulate(own))
    stop = None if g.ignore_stop else g.runtime.first_stop(tokens)
    kept = len(tokens) if stop is None else stop + 1
    trace.stopped = stop is not None
    trace.tokens = g.committed = tokens[:kept]
    # A stop inside a block cuts that block; later ones never were.
    count = next((i for i, end in enumerate(ends) if end >= kept), len(round_k))
    rounds = [*zip(round_k, round_m, ends, strict=False)][:count]
    g.target.calls = len(rounds)
    if not k:
        return
    for index, (n, m, before) in enumerate(rounds):
        if trace.stopped and index == len(rounds) - 1:
            n, m = min(n, kept - before), min(m, kept - before)
        trace.record_round(n, m)
    if getattr(g.drafter, "model", None):
        g.drafter.calls = sum(n for n, *_ in rounds)
        # Behind a block that was accepted whole, the draft's first step reads two tokens.
        g.drafter.catchups = sum(
            m == n and after[0] > 0 for (n, m, _), after in itertools.pairwise(rounds)
        )


def _durations(
    seconds: list[float], parts: Sequence[str], plain: bool
) -> tuple[list[float], dict[str, float]]:
    """Seconds of each round and of each phase, from those between marks.

    The first token's own share, from the end of the prefill, is a round of plain decoding and a
    part of the first round of speculation, as in the loop.
    """
    first, rest = seconds[:1], seconds[1:]
    rounds = [sum(rest[i : i + len(parts)]) for i in range(0, len(rest), len(parts))]
    if plain or not rounds:
        rounds = first + rounds
    else:
        rounds[0] += first[0]
    phases = dict.fromkeys([*_PHASES.values(), "repair"], 0.0)
    for part, taken in zip(itertools.cycle(parts), rest, strict=False):
        phases[_PHASES.get(part, "control")] += taken
    phases["control"] += sum(first)
    return rounds, phases
