"""The rounds of greedy speculative decoding, walked and not run.

Greedy decoding commits the reference text whatever the drafter proposes, so which proposals pass
is known beforehand: from each position of that text, how many draft tokens in a row would match.
The walk repeats decoding/loop.py to the last cut; tests hold it to the loop, round by round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Round:
    """One round: k proposed, m accepted, and the forwards that it makes.

    `rows` tokens go through the target for verification, one more if `repaired`. The draft reads
    `behind` committed tokens in one forward that its cache lacks (0: none), and `drafted` tokens
    one after another. It reads what it lacks at the end of a repair round, and at the beginning of
    a folded one: the sum over a generation is the same.
    """

    k: int
    m: int
    rows: int
    repaired: bool
    behind: int
    drafted: int


def walk(matches: Sequence[int], k: int, form: str, bonus: bool) -> list[Round]:
    """All rounds of one generation of len(matches) tokens.

    `matches[i]` is how many draft tokens would match from new token i on; `form` is a mode's
    `round`, repair or folded.
    """
    return _FORMS[form](matches, k, bonus)


def full_rounds(new_tokens: int, k: int, form: str, bonus: bool) -> int:
    """Rounds in which every proposal is accepted."""
    return len(walk([new_tokens] * new_tokens, k, form, bonus))


def _repair(matches: Sequence[int], k: int, bonus: bool) -> list[Round]:
    rounds: list[Round] = []
    tokens, done = len(matches), 0
    while tokens - done > 1:
        block = min(k, tokens - done)
        ends = block == tokens - done
        m = min(matches[done], block)
        more = m < block or (bonus and not ends)
        done += m + more
        # What the draft's cache lacks is read at the round's end, if another round comes.
        behind = (2 if m == block and more else 1) if tokens - done > 1 else 0
        repaired = more and done < tokens
        rounds.append(Round(block, m, block - ends, repaired, behind, block - 1))
    return rounds


def _folded(matches: Sequence[int], k: int, bonus: bool) -> list[Round]:
    rounds: list[Round] = []
    tokens, done, behind = len(matches), 1, 1
    while done < tokens:
        block = min(k, tokens - done - bonus)
        m = min(matches[done], block) if block else 0
        more = m < block or bonus
        read = behind if block else 0
        rounds.append(Round(block, m, block + bonus, False, read, max(0, block - 1)))
        done += m + more
        behind = 2 if m == block and more and block else 1
    return rounds


_FORMS = {"repair": _repair, "folded": _folded}
