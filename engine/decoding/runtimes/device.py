"""Phase O: tokens, acceptance and the count of kept tokens stay on the device.

The published study moved its control plane there and kept everything else. A token is a LongTensor
[1] on the device, so drafted and committed tokens enter the next forward without a copy from the
host. A round waits twice:

    round_outcome  one read of the accepted count, the next token and the block: what the host needs
                   to move the caches' lengths and to hand the tokens to the user
    round_end      the host waits for the round's last forward before it reads the clock

A plain step waits as often: token, round_end. Stop tokens are compared on the host, which has the
ids by then.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.decoding.acceptance import Case
from engine.decoding.crossings import Crossings
from engine.decoding.loop import Judged, Rule

NEEDS_ACCELERATOR = "on a CPU there is no synchronisation between host and device to remove"


class Runtime(Crossings):
    """Reads one packed tensor a round, and counts each crossing by name."""

    def __init__(self, device: torch.device, stop_ids: Sequence[int] = ()):
        super().__init__(device)
        self._stop_ids = frozenset(stop_ids)

    def upload(self, tokens: Sequence[Tensor]) -> Tensor:
        """Tokens as one LongTensor [M]; they are on the device already."""
        return torch.cat(list(tokens))

    def take(self, choice: Tensor, name: str) -> Tensor:
        """A choice (LongTensor [1]) as a token: it is one; nobody waits for it."""
        return choice

    def values(self, tokens: Sequence[Tensor], name: str) -> list[int]:
        """Ids of tokens, on the host."""
        return self._read(name, torch.cat(list(tokens)))

    def hold(self, values: Sequence[int]) -> list[Tensor]:
        """Ids that the host made up, as tokens: one copy to the device for all of them."""
        self.h2d_copies += bool(values)
        return list(torch.tensor(values, dtype=torch.long, device=self.device).split(1))

    def judge(self, rule: Rule, proposal: Sequence[Tensor], case: Case) -> Judged:
        """As in the eager runtime, with all choices made on the device and read at once."""
        k, ruling = len(proposal), rule(case)
        leading = ruling.passes.long().cumprod(0).sum().view(1)
        # Without a bonus token nothing follows full acceptance; the index must exist all the same.
        token = ruling.own(leading.clamp(max=len(case.logits) - 1))
        m, value, *ids = self._read("round_outcome", torch.cat([leading, token, case.block]))
        if m == k and not case.bonus:
            return Judged(m, None, ids[:m])
        return Judged(m, token, [*ids[:m], value])

    def first_stop(self, values: Sequence[int]) -> int | None:
        """Index of the first end-of-sequence token in a committed block, or None."""
        return next((i for i, value in enumerate(values) if value in self._stop_ids), None)

    def _read(self, name: str, values: Tensor) -> list[int]:
        self.syncs[name] += 1
        return values.tolist()
