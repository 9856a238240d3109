"""The speed of memory that gate `closed` holds a step's bytes a second against."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_SWEEPS = 7
_TOO_SMALL = 1024  # numbers: reading them takes less than asking for it


def peak_read_bandwidth(weights: Sequence[Tensor], wait: Callable[[], None], cuda: bool) -> float:
    """Bytes per second of the best read-only sweep over a model's own weights.

    `wait` returns once the device has done what was asked. On a GPU by one kernel over a buffer of
    its own, where one can be compiled and has room: the gaps between a kernel a matrix would cost
    more than a fast runtime's whole step has.
    """
    if cuda:
        from torch import OutOfMemoryError

        from engine.kernels.nvrtc import KernelError
        from engine.kernels.sweep import read_bandwidth

        for gib in (4, 1):  # the more it reads, the less the start of a launch weighs
            with contextlib.suppress(KernelError, OutOfMemoryError):
                return read_bandwidth(gib)
    read = [weight for weight in weights if weight.numel() > _TOO_SMALL]
    best = float("inf")
    for _ in range(_SWEEPS):
        wait()
        start = time.perf_counter()
        for weight in read:
            weight.sum()
        wait()
        best = min(best, time.perf_counter() - start)
    return sum(weight.nbytes for weight in read) / best
