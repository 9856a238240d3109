"""Moments of a run where the host does not wait for them: durations are read afterwards."""

from __future__ import annotations

import itertools
import time

import torch


class StreamMarks:
    """Events on the current stream of a GPU, used again by the next run."""

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []
        self._used = 0

    def restart(self) -> None:
        self._used = 0

    def mark(self) -> int:
        """Mark what has been queued so far; returns the mark's number."""
        if self._used == len(self._events):
            self._events.append(torch.cuda.Event(enable_timing=True))
        self._events[self._used].record()
        self._used += 1
        return self._used - 1

    def wait_for(self, number: int) -> None:
        self._events[number].synchronize()

    def seconds(self) -> list[float]:
        """From each mark to the next, once the device has passed them all."""
        pairs = itertools.pairwise(self._events[: self._used])
        return [before.elapsed_time(after) / 1000 for before, after in pairs]


class HostMarks:
    """The same on a CPU, where what was queued is done."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def restart(self) -> None:
        self._times.clear()

    def mark(self) -> int:
        self._times.append(time.perf_counter())
        return len(self._times) - 1

    def wait_for(self, number: int) -> None: ...

    def seconds(self) -> list[float]:
        return [after - before for before, after in itertools.pairwise(self._times)]


def marks_on(device: torch.device) -> StreamMarks | HostMarks:
    return StreamMarks() if device.type == "cuda" else HostMarks()
