"""Phase O with the target's steps as captured graphs; all else runs as there.

A diagnosis: what graphs do for verification, and for the repair forward, alone. A graph for each
number of rows, since the budget cuts blocks.
"""

from __future__ import annotations

from engine.decoding.captured import CapturedStep
from engine.decoding.loop import Generation
from engine.decoding.runtimes import device

NEEDS_ACCELERATOR = "CUDA graphs exist on an NVIDIA GPU only"
DRAFTERS = ("model", "reference")
PLAIN = "device"
CAPTURES = True


class Runtime(device.Runtime):
    def prepare(self, generation: Generation, k: int) -> None:
        target = generation.target
        target.step = CapturedStep(target.model, target.cache, k + 1)
        self.built = target.step.built
