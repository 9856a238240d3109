"""Stop drafting where the draft itself is in doubt.

The draft's distribution is looked at before a token is taken from it, so that whether a position is
drafted depends on the text before it alone. Dropping a token after its own probability was seen
would bias what is committed.
"""

from __future__ import annotations

from torch import Tensor

from engine.decoding.policies import fixed

TAKES = ("threshold",)


class Policy(fixed.Policy):
    """Goes on while the draft's most probable token has at least probability `threshold`.

    By the model's own distribution, over the ids that its head scores: a temperature of the mode
    changes what is drawn, not how much.
    """

    looks = True

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self._threshold = threshold

    def goes_on(self, logits: Tensor) -> Tensor:
        return logits.float().softmax(-1).amax() >= self._threshold
