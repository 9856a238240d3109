"""The tokens that a text most likely needs, for a draft with a trimmed head.

Two witnesses with equal weight: how often a token stands in the documents of the corpus rule (text
files on this machine's disk) and in the topics file, and the tokenizer's own order. The documents
are source code and its prose; a byte-pair vocabulary is sorted by merges, the most frequent pair of
its own training text first, which Zipf's law makes a frequency. The project's evaluation prompts
are not read. Tokens that no text may lack come first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from engine.models.ranking import FILE
from engine.models.tokenizers import read_tokens

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_ZIPF_SHIFT = 50  # Mandelbrot's: the first merges are nearly equally frequent


def indispensable(folder: Path, special: Iterable[int]) -> list[int]:
    """Special tokens, and every token of one character or byte, so that any text can be written."""
    tokens = read_tokens(folder)
    single = {i for i, text in tokens.items() if len(text) == 1 or _BYTE.fullmatch(text)}
    return sorted(single | set(special))


def rank_tokens(texts: Iterable[list[int]], first: list[int], vocabulary: int) -> list[int]:
    """All ids below `vocabulary`: the `first` ones, then by falling weight; texts as ids."""
    counts = Counter(token for text in texts for token in text)
    total = max(1, counts.total())
    zipf = sum(1 / (token + _ZIPF_SHIFT) for token in range(vocabulary))

    def weight(token: int) -> float:
        return counts[token] / total + 1 / (token + _ZIPF_SHIFT) / zipf

    rest = set(range(vocabulary)) - set(first)
    return [*first, *sorted(rest, key=lambda token: (-weight(token), token))]


def write_ranking(ranking: list[int], provenance: list[str], folder: Path) -> None:
    """One id a line, below comment lines that say where the order comes from."""
    lines = [*(f"# {line}" for line in provenance), *map(str, ranking)]
    (folder / FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
