"""What a study found, in one sentence for a figure's title; it follows the verdicts and no more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_CLAIMS = {
    "FASTER": "{modes} {be} faster than {baseline} {where}",
    "SLOWER": "{modes} {be} slower than {baseline} {where}",
    "SAME": "{modes} {be} about as fast as {baseline} {where}",
    "INCONCLUSIVE": "no firm verdict on {modes} against {baseline} {where}",
    "NOT JUDGED": "{modes} {be} not judged against {baseline} {where}",
    "RIVALLED": "{modes} {be} faster than {baseline}, but not than the fastest plain mode, {where}",
    "NOT APPLICABLE": "{modes} cannot run on this device {where}",
}
_SHORT = {
    "FASTER": "faster",
    "SLOWER": "slower",
    "SAME": "about as fast",
    "INCONCLUSIVE": "no firm verdict",
    "NOT JUDGED": "not judged",
    "RIVALLED": "faster than its baseline only",
    "NOT APPLICABLE": "not applicable",
}
_MOST_GROUPS = 3


def outcome(entry: dict[str, Any]) -> str:
    """The verdict's word, told apart further where the bare word would mislead a title."""
    if entry.get("not_applicable"):
        return "NOT APPLICABLE"
    return "RIVALLED" if entry.get("faster_baseline") else entry["verdict"]


def short_word(word: str) -> str:
    """An outcome as it reads inside a sentence."""
    return _SHORT.get(word, word.lower())


def message(verdict: dict[str, Any]) -> str:
    """One sentence over all (context, mode) verdicts; modes that fared alike share a clause."""
    fared: dict[tuple[str, str], dict[str, str]] = {}
    for entry in verdict["verdicts"]:
        key = entry["mode"], entry["baseline"]
        fared.setdefault(key, {})[str(entry["context"])] = outcome(entry)
    if not fared:
        return "Nothing was judged"
    alike: dict[tuple, list[str]] = {}
    for (mode, baseline), words in fared.items():
        alike.setdefault((baseline, tuple(words.items())), []).append(mode)
    if len(alike) > _MOST_GROUPS:
        return _tally([outcome(entry) for entry in verdict["verdicts"]], len(fared))
    sentence = "; ".join(_clause(modes, *group) for group, modes in alike.items())
    # Elsewhere the sentence begins with a mode's name, which keeps its own letters.
    return f"N{sentence[1:]}" if sentence.startswith("no firm verdict") else sentence


def _clause(modes: list[str], baseline: str, words: tuple[tuple[str, str], ...]) -> str:
    names = joined(modes)
    by_word: dict[str, list[str]] = {}
    for context, word in words:
        by_word.setdefault(word, []).append(context)
    if len(by_word) == 1:
        (word, contexts), be = *by_word.items(), "is" if len(modes) == 1 else "are"
        claim = _CLAIMS.get(word, "{modes} against {baseline}: " + word.lower() + " {where}")
        return claim.format(modes=names, be=be, baseline=baseline, where=_where(contexts))
    parts = [f"{short_word(word)} at {lengths(at)}" for word, at in by_word.items()]
    return f"{names} against {baseline}: {', '.join(parts)}"


def _where(contexts: list[str]) -> str:
    if len(contexts) == 1:
        return f"at {lengths(contexts)}"
    return "at both contexts" if len(contexts) == 2 else f"at all {len(contexts)} contexts"


def _tally(words: list[str], modes: int) -> str:
    counts = [f"{words.count(word)} {short_word(word)}" for word in _SHORT if word in words]
    return f"{modes} modes, {len(words)} comparisons: {', '.join(counts)}"


def lengths(contexts: list[str]) -> str:
    """Context lengths as words: '2048 and 4096 tokens', 'natural length'."""
    numbers = [context for context in contexts if context.isdigit()]
    phrases = [f"{joined(numbers)} tokens"] if numbers else []
    phrases += [f"{context} length" for context in contexts if not context.isdigit()]
    return joined(phrases)


def joined(names: list[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def span(values: Iterable[float], digits: int = 2) -> str:
    """'0.49', or '0.49-0.53' where the ends differ in the digits shown."""
    values = list(values)
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low}-{high}"


def families_of(numbers: Iterable[int]) -> str:
    """'1 family', '8 families', or '4 to 8 families' where the numbers differ."""
    found = sorted(set(numbers)) or [0]
    if found == [1]:
        return "1 family"
    return f"{' to '.join(str(n) for n in dict.fromkeys((found[0], found[-1])))} families"


def of_two_machines(steps: Iterable[Mapping[str, Any]]) -> list[str]:
    """A note of the steps between phases that were timed on two machines, if there are any."""
    names = dict.fromkeys(f"{s['before']} → {s['after']}" for s in steps if s["apart"] > 0)
    return [f"Measured on two machines: {joined(list(names))}."] if names else []
