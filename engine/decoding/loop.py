"""One loop for all modes: plain steps, and the two forms of a speculative round.

Read beside METHODS section 3. t is the number of tokens that are committed, prompt included.
The loop decides; the runtime says where tokens live and judges them; the drafter proposes. A token
is whatever the runtime makes of it (`Token`): the loop passes it on and never looks inside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.decoding.acceptance import Case
from engine.decoding.policies import fixed
from engine.decoding.protocols import (
    Drafter,
    Judged,
    Policy,
    Rule,
    Runtime,
    Stopwatch,
    Token,
    Unwatched,
    Voice,
)
from engine.decoding.sampling.voice import Greedy
from engine.decoding.target import Target


@dataclass
class Trace:
    """What one generation did. By-position lists count over rounds, position 0 first."""

    tokens: list[int] = field(default_factory=list)
    stopped: bool = False
    round_k: list[int] = field(default_factory=list)
    round_m: list[int] = field(default_factory=list)
    target_calls: int = 0
    draft_calls: int = 0
    repairs: int = 0
    catchups: int = 0
    proposed_by_position: list[int] = field(default_factory=list)
    judged_by_position: list[int] = field(default_factory=list)
    accepted_by_position: list[int] = field(default_factory=list)

    def record_round(self, k: int, m: int) -> None:
        self.round_k.append(k)
        self.round_m.append(m)
        for counts, reached in (
            (self.proposed_by_position, k),
            (self.judged_by_position, min(m + 1, k)),
            (self.accepted_by_position, m),
        ):
            counts.extend([0] * (k - len(counts)))
            for position in range(reached):
                counts[position] += 1


@dataclass
class Generation:
    """One generation in progress: the committed tokens and all that touches them.

    `budget` is the number of tokens to commit. With `ignore_stop` the stop check is paid for, as
    a user would, but does not end the generation: every timing run commits the same number.
    """

    target: Target
    runtime: Runtime
    budget: int
    ignore_stop: bool = False
    drafter: Drafter | None = None
    rule: Rule | None = None
    bonus: bool = False
    voice: Voice = field(default_factory=Greedy)
    policy: Policy = field(default_factory=fixed.Policy)
    watch: Stopwatch = field(default_factory=Unwatched)
    trace: Trace = field(default_factory=Trace)
    committed: list[Token] = field(default_factory=list)

    @property
    def length(self) -> int:
        return self.target.prompt_length + len(self.committed)

    @property
    def remaining(self) -> int:
        return self.budget - len(self.committed)

    @property
    def done(self) -> bool:
        return self.trace.stopped or self.remaining == 0

    def commit(self, block: list[Token], values: list[int]) -> int:
        """Append a block, cut at the first end-of-sequence token; returns how many were kept."""
        stop = self.runtime.first_stop(values)
        if stop is not None and not self.ignore_stop:
            block, values = block[: stop + 1], values[: stop + 1]
            self.trace.stopped = True
        self.committed.extend(block)
        self.trace.tokens.extend(values)
        self.watch.arrived(len(values))
        return len(values)

    def commit_choice(self, logits: Tensor, name: str) -> None:
        """Append the target's own choice from logits [vocabulary]."""
        token = self.runtime.take(self.voice.choose(logits[None], self.committed), name)
        self.commit([token], self.runtime.values([token], name))


def decode(generation: Generation, form: str, k: int) -> Trace:
    """Run a prefilled generation to its budget or to an end-of-sequence token.

    `form` is a mode's `round`: step (no drafter), repair or folded. A round drafts at most k
    tokens, fewer where the policy says so. Caches must stand at the end of the prompt. Batch 1.
    """
    if generation.budget:
        generation.policy.begin(k)
        if generation.runtime.whole_rounds:
            generation.runtime.whole_rounds(generation, k)
        else:
            _FORMS[form](generation)
    trace = generation.trace
    trace.target_calls = generation.target.calls
    if generation.drafter:
        trace.draft_calls = generation.drafter.calls
        trace.catchups = generation.drafter.catchups
    return trace


def _steps(g: Generation) -> None:
    """Plain autoregressive decoding: one forward a token, the first token from the prefill."""
    logits = g.target.saved_next
    while True:
        g.watch.enter("control")
        g.commit_choice(logits, "token")
        g.runtime.round_end()
        g.watch.lap()
        if g.done:
            return
        g.watch.enter("verify")
        logits = g.target.forward(g.runtime.upload(g.committed[-1:]))[-1]
        g.target.cache.expect(g.length)


def _repair_rounds(g: Generation) -> None:
    if g.remaining == 1:
        _last_from_saved(g)
    while not g.done:
        _repair_round(g)
        g.runtime.round_end()
        g.watch.lap()


def _repair_round(g: Generation) -> None:
    """Both caches hold t; `saved_next` judges d_1, and the last row becomes the next one.

    Where the block may end the generation, nobody would read the last row: d_k is not run.
    """
    t = g.length
    proposal = _proposal(g, min(g.policy.plan(), g.remaining))
    k = len(proposal)
    if k:
        judged, rows = _verify_block(g, proposal)
    else:
        g.watch.enter("control")
        # One row and nothing to judge: the rule says what the target commits by itself.
        nothing = g.target.saved_next.new_empty(0, dtype=torch.long)
        judged = _judge(g, [], nothing, g.target.saved_next[None])
        rows = None
    kept = _commit_judged(g, t, k, proposal, judged)
    if g.done:
        return
    if judged.token is None:
        g.target.saved_next = rows[-1]
    else:
        # Without a proposal the forward repairs nothing: it is the plain step's own.
        g.watch.enter("repair" if k else "verify")
        g.target.saved_next = g.target.forward(g.runtime.upload([judged.token]))[-1]
        g.trace.repairs += bool(k)
    g.watch.enter("control")
    g.target.cache.expect(g.length)
    if g.remaining == 1:
        _last_from_saved(g)
        return
    g.policy.observe(k, judged.accepted, kept)
    if g.policy.plan():
        g.watch.enter("draft")
        g.drafter.catch_up(g.committed)
        g.watch.enter("control")


def _verify_block(g: Generation, proposal: list[Token]) -> tuple[Judged, Tensor]:
    """Judge a proposal by `saved_next` and the rows of its own forward, which are returned too."""
    ends = len(proposal) == g.remaining
    g.watch.enter("verify")
    block = g.runtime.upload(proposal)
    rows = g.target.forward(block[:-1] if ends else block)
    logits = torch.cat([g.target.saved_next[None], rows if ends or g.bonus else rows[:-1]])
    g.watch.enter("control")
    return _judge(g, proposal, block, logits), rows


def _proposal(g: Generation, k: int) -> list[Token]:
    """At most k drafted tokens; none is asked for where the policy plans a plain step."""
    if not k:
        return []
    t = g.length
    g.watch.enter("draft")
    proposal = g.drafter.propose(g.committed, k)
    # Nobody has read the last proposed token yet.
    g.drafter.expect(t + max(len(proposal) - 1, 0))
    return proposal


def _last_from_saved(g: Generation) -> None:
    """The last token of the budget is known already; a round for it would run unread forwards."""
    g.watch.enter("control")
    g.commit_choice(g.target.saved_next, "last_token")


def _folded_rounds(g: Generation) -> None:
    """The first token comes with the prefill; from there the target's cache holds t - 1."""
    g.watch.enter("control")
    g.commit_choice(g.target.saved_next, "first_token")
    while not g.done:
        _folded_round(g)
        g.runtime.round_end()
        g.watch.lap()


def _folded_round(g: Generation) -> None:
    """The block is x_t, d_1..d_k: row j judges d_{j+1}, the row after gives the next x_t.

    Without a bonus token nobody would read the row after d_k: d_k is not run. Without a proposal
    the round is a plain step.
    """
    t = g.length
    room = g.remaining - 1 if g.bonus else g.remaining
    proposal = _proposal(g, min(g.policy.plan(), room))
    k = len(proposal)
    whole = g.bonus or not k
    g.watch.enter("verify")
    block = g.runtime.upload([g.committed[-1], *proposal])
    rows = g.target.forward(block if whole else block[:-1])
    g.watch.enter("control")
    judged = _judge(g, proposal, block[1:], rows)
    kept = _commit_judged(g, t, k, proposal, judged)
    if not g.done:
        g.target.cache.expect(g.length - 1)
        g.policy.observe(k, judged.accepted, kept)


def _judge(g: Generation, proposal: list[Token], block: Tensor, logits: Tensor) -> Judged:
    drafted = g.drafter.probabilities if proposal else None
    case = Case(block, logits, g.committed, g.voice, drafted)
    return g.runtime.judge(g.rule, proposal, case)


def _commit_judged(g: Generation, t: int, k: int, proposal: list[Token], judged: Judged) -> int:
    """Commit; no rejected token, and none beyond the end, stays in a cache; record the round.

    Returns how many tokens were committed.
    """
    m = judged.accepted
    own = [] if judged.token is None else [judged.token]
    kept = g.commit([*proposal[:m], *own], judged.values)
    held = t + min(m, kept)
    g.target.cache.trim(min(g.target.cache.length, held))
    g.drafter.update(held)
    if g.trace.stopped:
        # Tokens behind the cut were never judged for the user: they do not count as proposed.
        k, m = min(k, kept), min(m, kept)
    g.trace.record_round(k, m)
    return kept


_FORMS = {"step": _steps, "repair": _repair_rounds, "folded": _folded_rounds}
