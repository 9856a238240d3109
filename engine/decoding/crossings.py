"""Counting what passes between host and device: shared by the runtimes that the host drives."""

from __future__ import annotations

from collections import Counter

import torch


class Crossings:
    """Waits by name and copies of host tokens, since the last reset."""

    def __init__(self, device: torch.device):
        self.device = device
        self.syncs: Counter[str] = Counter()
        self.h2d_copies = 0

    def reset_counts(self) -> None:
        self.syncs.clear()
        self.h2d_copies = 0

    def round_end(self) -> None:
        self.syncs["round_end"] += 1
        self.wait()

    def decided(self, flag: torch.Tensor, name: str) -> bool:
        """A BoolTensor [] on the device, as a decision of the host's: a crossing `name`."""
        self.syncs[name] += 1
        return bool(flag)

    def wait(self) -> None:
        """Wait for the device without counting: for instrumented runs and prefill."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
