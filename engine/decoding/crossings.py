"""What all runtimes share: counts of what passes between host and device, and what was built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from engine.decoding.loop import Generation


@dataclass(frozen=True)
class Built:
    """What a runtime made before the first run: CUDA graphs, bytes of their memory pools, whose
    kernels a step runs ('fused', 'twins'; '' for the decoder's own), and, where memory may end
    before they are all there, how many graphs it set out to make.
    """

    graphs: int = 0
    pool_bytes: int = 0
    kernels: str = ""
    planned: int | None = None


class Crossings:
    """Waits by name and copies of host tokens, since the last reset.

    `slack` is how many tokens a cache must hold beyond the budget, `whole_rounds` a method that
    runs a generation in place of the loop's forms.
    """

    slack = 0  # blocks are cut to what remains of the budget, so nothing ever lies beyond it
    whole_rounds = None

    def __init__(self, device: torch.device):
        self.device = device
        self.syncs: Counter[str] = Counter()
        self.h2d_copies = 0
        self.built = Built()

    def prepare(self, generation: Generation, k: int) -> None:
        """Build what runs like this one need, before any of them is timed; models are prefilled."""

    def rewind(self) -> None:
        """Back to the end of the prompt, of what the runtime itself keeps; never timed."""

    def counts(self) -> dict[str, int | None]:
        """Columns of a row: all waits and copies since the last reset; None where not known."""
        return {"host_syncs": self.syncs.total(), "h2d_copies": self.h2d_copies}

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


def pool_bytes(graphs: Iterable[torch.cuda.CUDAGraph]) -> int:
    """Device memory that the private pools of graphs hold."""
    pools = {tuple(graph.pool()) for graph in graphs}
    segments = torch.cuda.memory_snapshot()
    return sum(s["total_size"] for s in segments if tuple(s["segment_pool_id"]) in pools)
