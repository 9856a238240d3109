"""Hardly slower than plain decoding: climbs from it as long as each further drafted token pays.

Level 0 is plain decoding, level k drafts up to k tokens. The guard knows what a plain step costs
from a table made beforehand (`calibrate`), and from its own plain steps once it has some. A level
is tried for a few rounds and kept if a committed token costs less there than on the level below. If
not, or when a level that was kept has become dearer than plain decoding, the guard goes back and
waits before the next trial: twice as long each time, and at least until the loss, with the draft's
catch-up in it, is a hundredth of the plain time in between.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

from engine.decoding.policies import fixed

# Its runs differ in their rounds, so they are compared as wholes.
BY_THE_CLOCK = True

_TRIAL = 4  # rounds that decide on a level
_WINDOW = 16  # rounds that a level is judged by once it is kept
_FIRST_WAIT = 16  # tokens between the first lost trial and the next
_LOSS = 0.01  # share of the plain time that lost trials may cost
_CATCH_UP = 4  # plain steps; what takes longer was no catching up but a stall


class Level:
    """What the latest rounds of one level cost: the median of seconds, so that a stall is one.

    The first round stands apart, because the draft may have had to catch up in it: it says what a
    trial has cost, and nothing of what the level costs.
    """

    def __init__(self) -> None:
        self.first = math.nan
        self.seconds: deque[float] = deque(maxlen=_WINDOW)  # without the first
        self.tokens: deque[int] = deque(maxlen=_WINDOW)

    def add(self, seconds: float, tokens: int) -> None:
        if math.isnan(self.first):
            self.first = seconds
        else:
            self.seconds.append(seconds)
        self.tokens.append(tokens)

    @property
    def usual(self) -> float:
        """Seconds of a round."""
        return statistics.median(self.seconds or [self.first])

    @property
    def price(self) -> float:
        """Seconds of a committed token."""
        return self.usual * len(self.tokens) / sum(self.tokens)


class Policy(fixed.Policy):
    """`clock` gives seconds; tests bring their own."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self._clock = clock
        self._plain_step = math.inf

    def calibrate(self, step_s: Sequence[float]) -> None:
        """Take the price of plain decoding from steps that were timed beforehand, in seconds."""
        self._plain_step = statistics.median(step_s)

    def begin(self, most: int) -> None:
        """Start with a trial of one drafted token; plain, if nothing says what plain costs."""
        super().begin(most)
        self._plain = Level()
        self._below = self._plain_step
        self._trying = math.isfinite(self._plain_step)
        self._behind = False  # whether the draft had plain tokens to read before this trial
        self._level = int(self._trying)
        self._rounds = Level()
        self._wait = _FIRST_WAIT
        self._waited = 0
        self._last = self._clock()

    def plan(self) -> int:
        return self._level

    def observe(self, proposed: int, accepted: int, committed: int) -> None:
        now = self._clock()
        seconds, self._last = now - self._last, now
        if proposed:
            self._rounds.add(seconds, committed)
        elif not self._level:
            self._plain.add(seconds, committed)
        self._waited += committed
        if self._trying:
            # A drafter that has nothing to propose has not been tried.
            if proposed:
                self._judge_trial()
        elif len(self._rounds.seconds) >= _TRIAL and self._rounds.price >= self._plain_price:
            self._go_back(0, self._plain_price)
        elif self._waited >= self._wait and self._level < self.most:
            self._try_next()

    @property
    def _plain_price(self) -> float:
        return self._plain.price if len(self._plain.seconds) >= _TRIAL else self._plain_step

    def _judge_trial(self) -> None:
        if len(self._rounds.tokens) < _TRIAL:
            return
        if self._rounds.price >= self._below:
            self._go_back(self._level - 1, self._below)
        else:
            self._trying = False
            self._wait, self._waited = _FIRST_WAIT, 0

    def _try_next(self) -> None:
        self._behind = not self._level
        self._below = self._rounds.price if self._rounds.seconds else self._plain_price
        self._level += 1
        self._trying = True
        self._rounds = Level()

    def _go_back(self, level: int, price: float) -> None:
        """To a lower level, where a token costs less: `price`."""
        rounds = self._rounds
        loss = rounds.usual * len(rounds.tokens) - price * sum(rounds.tokens)
        catch_up = rounds.first - rounds.usual
        if self._behind and 0 < catch_up <= _CATCH_UP * self._plain_price:
            loss += catch_up
        self._wait = max(2 * self._wait, loss / (_LOSS * self._plain_price))
        self._waited = 0
        self._level = level
        self._trying = False
        self._rounds = Level()
