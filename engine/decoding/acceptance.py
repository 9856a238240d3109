"""Acceptance rules: which proposed tokens the target lets through, judged where the logits are.

Every public function here is a rule that a mode's `acceptance` can name. A rule takes the
proposal (LongTensor [k]) and the logits that judge it ([k, vocabulary]; row j judges token j)
and returns a BoolTensor [k] on the same device. The block ends at the first False. The
one thing that a rule may take beyond these two is `delta`, a key of the mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # design parsing lists the rules and must not pay for torch
    from torch import Tensor


def exact(proposal: Tensor, judges: Tensor) -> Tensor:
    """Accept the target's own greedy choice and nothing else."""
    return judges.argmax(-1) == proposal


def relaxed(proposal: Tensor, judges: Tensor, delta: float) -> Tensor:
    """Accept a token whose logit is at most `delta` below the target's best; exactness is lost.

    With `delta` 0 only the greedy choice passes, and tokens that tie with it bit by bit.
    """
    own = judges.gather(-1, proposal[:, None])[:, 0]
    return judges.amax(-1) - own <= delta


def all(proposal: Tensor, judges: Tensor) -> Tensor:
    """Accept everything: an oracle, which asks what perfect acceptance would be worth."""
    return proposal == proposal


def none(proposal: Tensor, judges: Tensor) -> Tensor:
    """Accept nothing, not even what the target would have said: the worst that can happen.

    The text is the target's own all the same, one token a round.
    """
    return proposal != proposal
