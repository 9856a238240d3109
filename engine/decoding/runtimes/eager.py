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

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class Runtime:
    """Moves tokens between host and device, and counts each crossing by name."""

    def __init__(self, device: torch.device, stop_ids: Sequence[int] = ()):
        self.device = device
        self.syncs: Counter[str] = Counter()
        self.h2d_copies = 0
        self._stop_ids = torch.tensor(list(stop_ids), dtype=torch.long, device=device)

    def reset_counts(self) -> None:
        self.syncs.clear()
        self.h2d_copies = 0

    def upload(self, tokens: Sequence[int]) -> Tensor:
        """Host tokens as a LongTensor [M] on the device: the one place of such a copy."""
        self.h2d_copies += 1
        return torch.tensor(tokens, dtype=torch.long, device=self.device)

    def choose(self, logits: Tensor, name: str) -> int:
        """Greedy choice from logits [vocabulary], on the host."""
        return self._read(name, logits.argmax())

    def judge(
        self,
        rule: Callable[[Tensor, Tensor], Tensor],
        block: Tensor,
        judges: Tensor,
        beyond: Tensor | None,
    ) -> tuple[int, int | None]:
        """Accepted tokens m of a block [k] under logits [k, vocabulary], and the next token.

        The next token is the target's own where the block broke off, or, after full acceptance,
        its choice from `beyond` ([vocabulary]; None: no bonus token is wanted).
        """
        k, accepted = block.shape[0], 0
        if k:
            leading = rule(block, judges).long().cumprod(0)
            accepted = self._read("accepted_count", leading.sum())
        if accepted < k:
            return accepted, self._read("replacement_token", judges[accepted].argmax())
        if beyond is not None:
            return accepted, self._read("bonus_token", beyond.argmax())
        return accepted, None

    def first_stop(self, tokens: Sequence[int]) -> int | None:
        """Index of the first end-of-sequence token in a committed block, or None."""
        flags = torch.isin(self.upload(tokens), self._stop_ids)
        self.syncs["stop_check"] += 1
        return next((i for i, flag in enumerate(flags.tolist()) if flag), None)

    def round_end(self) -> None:
        self.syncs["round_end"] += 1
        self.wait()

    def wait(self) -> None:
        """Wait for the device without counting: for instrumented runs and prefill."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _read(self, name: str, value: Tensor) -> int:
        self.syncs[name] += 1
        return int(value.item())
