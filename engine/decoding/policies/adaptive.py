"""Draft more while all is accepted, less after a rejection.

The schedule of Hugging Face's assisted generation ("heuristic"): two more after full acceptance,
one less after a rejection. It starts with one token, so that a bad draft costs little; the mode's k
bounds it from above.
"""

from __future__ import annotations

from engine.decoding.policies import fixed


class Policy(fixed.Policy):
    def begin(self, most: int) -> None:
        super().begin(most)
        self._k = 1

    def plan(self) -> int:
        return self._k

    def observe(self, proposed: int, accepted: int, committed: int) -> None:
        if accepted < proposed:
            self._k = max(1, self._k - 1)
        elif proposed:
            self._k = min(self.most, self._k + 2)
