"""The first round is a plain step, so that the user's first token waits for no draft.

What it saves: drafting and verification of a block in the repair form, and the draft's prefill in
both, which can follow the first token (analysis/latency.py counts it there).
"""

from __future__ import annotations

from engine.decoding.policies import fixed


class Policy(fixed.Policy):
    def begin(self, most: int) -> None:
        super().begin(most)
        self._started = False

    def plan(self) -> int:
        return self.most if self._started else 0

    def observe(self, proposed: int, accepted: int, committed: int) -> None:
        self._started = True
