"""Every round drafts as many tokens as the mode allows: what a policy does if nothing is asked."""

from __future__ import annotations

from torch import Tensor


class Policy:
    """Decides how much a round drafts. The other policies change one of its answers each.

    A policy sees how rounds went and, if it `looks`, the draft's distribution before a token is
    taken from it; never a token before it was judged. Whatever it decides, the output is the
    target's.
    """

    looks = False

    def __init__(self) -> None:
        self.most = 0

    def begin(self, most: int) -> None:
        """A generation starts, whose rounds may draft `most` tokens; the last one is forgotten."""
        self.most = most

    def plan(self) -> int:
        """Tokens that the next round may draft, `most` or fewer; 0 makes it a plain step.

        Asked any number of times before a round, so it changes nothing.
        """
        return self.most

    def goes_on(self, logits: Tensor) -> Tensor:
        """Whether to take a token from the draft's logits [vocabulary]: a BoolTensor []."""
        raise NotImplementedError("a policy that does not look is not asked")

    def observe(self, proposed: int, accepted: int, committed: int) -> None:
        """A round is over: tokens that were proposed, accepted, and committed by it."""
