"""Acceptance rules: which proposed tokens the target lets through, judged where the logits are.

Every public function here is a rule that a mode's `acceptance` can name. A rule takes the
proposal (LongTensor [k]) and the logits that judge it ([k, vocabulary]; row j judges token j)
and returns a BoolTensor [k] on the same device. The block ends at the first False.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # design parsing lists the rules and must not pay for torch
    from torch import Tensor


def exact(proposal: Tensor, judges: Tensor) -> Tensor:
    """Accept the target's own greedy choice and nothing else."""
    return judges.argmax(-1) == proposal
