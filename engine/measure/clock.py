"""Clocks of a timed run: rounds always, phases only in instrumented runs."""

from __future__ import annotations

import time
from collections.abc import Callable


class RoundClock:
    """Durations of rounds and arrival times of tokens, in seconds of the monotonic clock.

    The runtime waits for the device before a round ends, so a lap holds the round's device work;
    or it does not wait, and brings the seconds of the rounds on the device's own clock.
    """

    by_phase = False

    def __init__(self):
        self.round_s: list[float] = []
        self.token_arrival_s: list[float] = []
        self.stream_s: float | None = None
        self._start = self._last = 0.0

    def start(self) -> None:
        self._start = self._last = time.perf_counter()

    def enter(self, phase: str) -> None: ...

    def arrived(self, tokens: int) -> None:
        self.token_arrival_s.extend([time.perf_counter() - self._start] * tokens)

    def lap(self) -> None:
        now = time.perf_counter()
        self.round_s.append(now - self._last)
        self._last = now

    def ended(self) -> None:
        self._last = time.perf_counter()

    def on_stream(self, round_s: list[float], phase_s: dict[str, float]) -> None:
        self.round_s = round_s
        self.stream_s = sum(round_s)

    @property
    def decode_s(self) -> float:
        return self._last - self._start


class PhaseClock(RoundClock):
    """Also attributes every moment to a phase, waiting for the device at each change.

    Control is what runs between the model calls; it is measured like the others and not derived
    from them, so the four need not sum to the whole (gate `closed` holds them to it).
    """

    by_phase = True

    def __init__(self, wait: Callable[[], None]):
        super().__init__()
        self.phase_s = {"draft": 0.0, "verify": 0.0, "repair": 0.0, "control": 0.0}
        self._wait = wait
        self._phase = "control"
        self._entered = 0.0

    def start(self) -> None:
        super().start()
        self._entered = self._start

    def enter(self, phase: str) -> None:
        self._wait()
        now = time.perf_counter()
        self.phase_s[self._phase] += now - self._entered
        self._phase = phase
        # A fresh reading: the bookkeeping itself belongs to no phase.
        self._entered = time.perf_counter()

    def lap(self) -> None:
        super().lap()
        self.enter("control")

    def on_stream(self, round_s: list[float], phase_s: dict[str, float]) -> None:
        super().on_stream(round_s, phase_s)
        self.phase_s = phase_s


def stalled_share(round_s: list[float]) -> float:
    """Share of a run spent in stalls: sum of max(0, round - 3 medians) over the total.

    METHODS section 5, gate `undisturbed`.
    """
    total = sum(round_s)
    if not total:
        return 0.0
    ordered = sorted(round_s)
    middle = len(ordered) // 2
    median = (ordered[middle] + ordered[~middle]) / 2
    return sum(max(0.0, r - 3 * median) for r in round_s) / total
