"""Phase O with the draft's steps as captured graphs; all else runs as there.

A diagnosis: what graphs do for drafting alone. The chain is as long as the round asks for, so a
graph is one step, of one token or of the two that follow full acceptance.
"""

from __future__ import annotations

from engine.decoding.captured import CapturedStep
from engine.decoding.loop import Generation
from engine.decoding.runtimes import device

NEEDS_ACCELERATOR = "CUDA graphs exist on an NVIDIA GPU only"
DRAFTERS = ("model",)
PLAIN = "device"
CAPTURES = True

_MOST = 2  # tokens that a draft may be behind


class Runtime(device.Runtime):
    def prepare(self, generation: Generation, k: int) -> None:
        drafter = generation.drafter
        drafter.step = CapturedStep(drafter.model, drafter.cache, _MOST)
        self.built = drafter.step.built
