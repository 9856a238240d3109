"""What the loop asks of whoever drafts, chooses, judges, decides and measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from engine.decoding.acceptance import Case, Ruling

if TYPE_CHECKING:
    from engine.decoding.loop import Generation

Token = Any  # an int where tokens live on the host, a LongTensor [1] where they stay on the device
Rule = Callable[[Case], Ruling]


class Stopwatch(Protocol):
    """What the loop tells whoever measures it. Phases: draft, verify, repair, control.

    Where rounds are timed on the device's stream, `ended` stops the host's clock and `on_stream`
    brings their seconds afterwards; `by_phase` asks for the phases' as well.
    """

    by_phase: bool

    def enter(self, phase: str) -> None: ...
    def arrived(self, tokens: int) -> None: ...
    def lap(self) -> None: ...
    def ended(self) -> None: ...
    def on_stream(self, round_s: list[float], phase_s: dict[str, float]) -> None: ...


class Unwatched:
    """For decoding that nobody times."""

    by_phase = False

    def enter(self, phase: str) -> None: ...
    def arrived(self, tokens: int) -> None: ...
    def lap(self) -> None: ...
    def ended(self) -> None: ...
    def on_stream(self, round_s: list[float], phase_s: dict[str, float]) -> None: ...


@dataclass(frozen=True)
class Judged:
    """What became of a block: m tokens accepted, and the token after them if there is one.

    `values` are the ids of the accepted tokens and, last, of `token`: what the host must know.
    """

    accepted: int
    token: Token | None
    values: list[int]


class Runtime(Protocol):
    """Where tokens live, and what each crossing between host and device costs."""

    whole_rounds: Callable[[Generation, int], None] | None

    def upload(self, tokens: Sequence[Token]) -> Tensor: ...
    def take(self, choice: Tensor, name: str) -> Token: ...
    def values(self, tokens: Sequence[Token], name: str) -> list[int]: ...
    def hold(self, values: Sequence[int]) -> list[Token]: ...
    def decided(self, flag: Tensor, name: str) -> bool: ...
    def judge(self, rule: Rule, proposal: Sequence[Token], case: Case) -> Judged: ...
    def first_stop(self, values: Sequence[int]) -> int | None: ...
    def round_end(self) -> None: ...


class Policy(Protocol):
    """How much a round drafts; fixed.py says what each verb means."""

    looks: bool

    def begin(self, most: int) -> None: ...
    def plan(self) -> int: ...
    def goes_on(self, logits: Tensor) -> Tensor: ...
    def observe(self, proposed: int, accepted: int, committed: int) -> None: ...


class Voice(Protocol):
    """How the target's own tokens are chosen: see sampling/voice.py."""

    def choose(
        self, logits: Tensor, committed: Sequence[Token], block: Tensor | None = None
    ) -> Tensor: ...


class Drafter(Protocol):
    """Two verbs matter, propose and update; the rest keeps its cache honest.

    `probabilities` is what each token of the last proposal was sampled from (float64
    [k, vocabulary]); None for a drafter that does not sample.

    `propose` returns at most k tokens; fewer, or none, where it has nothing better to offer.
    `expect` raises CacheError unless, after a proposal, the cache covers that many tokens; a
    drafter with another coverage (a window, no cache) translates the number or ignores it.
    """

    calls: int
    catchups: int
    probabilities: Tensor | None

    def prefill(self, prompt: Tensor, chunk: int) -> None: ...
    def restart(self) -> None: ...
    def propose(self, committed: Sequence[Token], k: int) -> list[Token]: ...
    def catch_up(self, committed: Sequence[Token]) -> None: ...
    def update(self, kept: int) -> None: ...
    def expect(self, length: int) -> None: ...
