"""Decoding over static buffers: a round, with or without a draft, is a fixed list of launches.

Everything that changes from round to round (tokens, lengths, how many tokens are left) lies on
the device, so the list can be captured once, as one CUDA graph, and replayed for every position.
The host reads, at most once a round, a mailbox that the round's last kernel fills.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.apart import RowsApart
from engine.kernels.commit import DRAFTED, LENGTH, ROUNDS, Board, FusedCommit, TwinCommit
from engine.kernels.step import FusedStep, Ports, TwinStep
from engine.models.cache import Cache
from engine.models.decoder import Decoder


class StaticRound:
    """Plain steps (k = 0), or folded speculative rounds by a draft model or reference tokens.

    `draft` and `draft_cache` propose; without them `reference` (int64 [n], on the device) does,
    beginning with the first token after the prompt. `fused` picks the kernels, else their twins
    run, row by row if rows must not depend on each other (`apart`; those of the kernels never do).
    Capacity: each cache needs room for prompt, new tokens and k + 1 more.
    """

    def __init__(
        self,
        target: Decoder,
        cache: Cache,
        k: int,
        tokens: int,
        *,
        draft: Decoder | None = None,
        draft_cache: Cache | None = None,
        reference: Tensor | None = None,
        bonus: bool = True,
        accept_all: bool = False,
        fused: bool = True,
        apart: bool = False,
        keep_logits: bool = False,
    ) -> None:
        self.k, self.cache, self.draft_cache = k, cache, draft_cache
        self.board = board = Board.empty(target.device, k, tokens, reference)
        twin = RowsApart if apart else TwinStep
        step, commit = (FusedStep, FusedCommit) if fused else (twin, TwinCommit)
        options = {"keep_logits": keep_logits} if fused else {}
        self.target_step = step(target, cache, k + 1, **options)
        # The first step of a chain may read two tokens; the others are cheaper where they cannot.
        self.draft_steps = None
        if draft is not None:
            self.draft_steps = [step(draft, draft_cache, rows, **options) for rows in (2, 1)[:k]]
        self._judging = k + 1 if bonus else max(k, 1)
        self._commit = commit(board, k, bonus or k == 0, accept_all)
        self._scratch = torch.zeros(2, dtype=torch.long, device=target.device)
        self.graphs: dict[str, torch.cuda.CUDAGraph] = {}

    def begin(self, prompt_length: int, logits: Tensor, budget: int) -> None:
        """Commit the first token, from a prefill's logits [vocabulary]; caches hold the prompt."""
        self.board.begin(prompt_length, logits.argmax(-1, keepdim=True), budget)
        self._commit()

    def propose(self) -> None:
        """The draft's k steps; the first reads one or two tokens."""
        b = self.board
        if self.draft_steps is None:
            return
        for j in range(self.k):
            self.draft_steps[j > 0](
                Ports(
                    tokens=b.pending if j == 0 else b.block[j : j + 1],
                    rows=b.draft_rows[j : j + 1],
                    start=b.draft_start[j : j + 1],
                    choices=self._scratch if j == 0 else self._scratch[:1],
                    last=b.block[j + 1 : j + 2],
                )
            )

    def verify(self) -> None:
        """The target's step over the block."""
        b, n = self.board, self._judging
        self.target_step(Ports(b.block[:n], b.rows, b.start, b.choices[:n]))

    def commit(self) -> None:
        """Judge, commit, trim and plan the next round."""
        self._commit()

    def round(self) -> None:
        """One round, launch by launch. After the last round it does nothing."""
        self.propose()
        self.verify()
        self._commit()

    def capture(self, *names: str) -> None:
        """Make graphs of `round`, `propose`, `verify` or `commit`, replayed by `replay`.

        All share one memory pool; name the largest first. Nothing is committed meanwhile.
        """
        planned = [self.board.rows, self.board.draft_rows]
        kept = [tensor.clone() for tensor in planned]
        for tensor in planned:
            tensor.zero_()
        pool = torch.cuda.graph_pool_handle()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.round()
        torch.cuda.current_stream().wait_stream(side)
        for name in names:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                getattr(self, name)()
            self.graphs[name] = graph
        for tensor, value in zip(planned, kept, strict=True):
            tensor.copy_(value)

    def replay(self, name: str = "round") -> None:
        """Start a captured part again; returns at once."""
        self.graphs[name].replay()

    def run(self, budget: int, ahead: int = 2) -> int:
        """Replay rounds until `budget` tokens are committed; how many were replayed.

        The device never waits for the host: rounds that must come are started at once, and after
        those the host waits, once a round, for the round `ahead` of the last one it started.
        Rounds past the end do nothing. A plain step commits one token, so there it waits once.
        """
        surely = -(-(budget - 1) // (self.k + 1))
        ahead = ahead if self.k else 0
        marks = []
        while len(marks) < surely or int(self.board.mailbox[0]) < budget:
            self.replay()
            marks.append(torch.cuda.Event())
            marks[-1].record()
            if len(marks) >= max(surely, ahead + 1):
                marks[-1 - ahead].synchronize()
        return len(marks)

    def committed(self) -> list[int]:
        """Tokens that the mailbox holds by now: never more than are committed, no wait."""
        count = int(self.board.mailbox[0])
        return self.board.mailbox[1 : 1 + count].tolist()

    def finish(self) -> tuple[list[int], list[int]]:
        """Wait; give the caches the lengths that the device reached; k and m of all rounds."""
        state = self.board.state.tolist()
        rounds = state[ROUNDS]
        self.cache.length = state[LENGTH] - 1
        if self.draft_cache is not None:
            self.draft_cache.length = state[DRAFTED]
        return self.board.round_k[:rounds].tolist(), self.board.round_m[:rounds].tolist()
