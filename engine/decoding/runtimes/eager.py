"""The host-driven runtime: tokens live on the host, every decision is made there.

This is the published baseline. A round of k = 4 that ends in a replacement waits for the device
at eight points, each where a simple engine has it:

    draft_token (4 times)  the drafted token comes to the host, which embeds it in the next step
    accepted_count         the host needs the number to trim its caches
    replacement_token      the target's own token, which the host commits
    stop_check             the stopping criterion, evaluated over the committed block
    round_end              the host waits for the round's last forward before it reads the clock

A plain step waits at three: token, stop_check, round_end. On a CPU the same points exist and are
counted, but nothing is in flight that could be waited for.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.decoding.acceptance import Case
from engine.decoding.crossings import Crossings
from engine.decoding.loop import Judged, Rule


class Runtime(Crossings):
    """Moves tokens between host and device, and counts each crossing by name."""

    def __init__(self, device: torch.device, stop_ids: Sequence[int] = ()):
        super().__init__(device)
        self._stop_ids = torch.tensor(list(stop_ids), dtype=torch.long, device=device)

    def upload(self, tokens: Sequence[int]) -> Tensor:
        """Host tokens as a LongTensor [M] on the device: the one place of such a copy."""
        self.h2d_copies += 1
        return torch.tensor(tokens, dtype=torch.long, device=self.device)

    def take(self, choice: Tensor, name: str) -> int:
        """A choice (LongTensor [1]) as a token: on the host."""
        return self._read(name, choice)

    def values(self, tokens: Sequence[int], name: str) -> list[int]:
        """Ids of tokens, which the host has already; a runtime that waits here counts `name`."""
        return list(tokens)

    def hold(self, values: Sequence[int]) -> list[int]:
        """Ids that the host made up, as tokens."""
        return list(values)

    def judge(self, rule: Rule, proposal: Sequence[int], case: Case) -> Judged:
        """Judge k proposed tokens, which the case holds on the device.

        The token after the accepted ones is the target's own where the block broke off, or,
        after full acceptance, the bonus token, if there is one.
        """
        k, m, token = len(proposal), 0, None
        ruling = rule(case)
        if k:
            m = self._read("accepted_count", ruling.passes.long().cumprod(0).sum())
        if m < k:
            token = self.take(ruling.own(m), "replacement_token")
        elif case.bonus:
            token = self.take(ruling.own(m), "bonus_token")
        own = [] if token is None else [token]
        return Judged(m, token, [*proposal[:m], *own])

    def first_stop(self, tokens: Sequence[int]) -> int | None:
        """Index of the first end-of-sequence token in a committed block, or None."""
        flags = torch.isin(self.upload(tokens), self._stop_ids)
        self.syncs["stop_check"] += 1
        return next((i for i, flag in enumerate(flags.tolist()) if flag), None)

    def _read(self, name: str, value: Tensor) -> int:
        self.syncs[name] += 1
        return int(value.item())
