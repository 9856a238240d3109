"""The most frequent tokens of the training corpus' documents, for a draft with a trimmed head.

The documents are those of the corpus rule (text files on this machine's disk) and the topics file;
the project's evaluation prompts are not read. Tokens that no text may lack come first, and among
equally frequent ones the tokenizer's own order decides: a byte-pair vocabulary is sorted by merges,
the most frequent pair first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from engine.models.ranking import FILE
from engine.models.tokenizers import read_tokens

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def indispensable(folder: Path, special: Iterable[int]) -> list[int]:
    """Special tokens, and every token of one character or byte, so that any text can be written."""
    tokens = read_tokens(folder)
    single = {i for i, text in tokens.items() if len(text) == 1 or _BYTE.fullmatch(text)}
    return sorted(single | set(special))


def rank_tokens(texts: Iterable[list[int]], first: list[int], vocabulary: int) -> list[int]:
    """All ids below `vocabulary`: `first` ones first, then by falling frequency in the texts."""
    counts = Counter(token for text in texts for token in text)
    rest = set(range(vocabulary)) - set(first)
    return [*first, *sorted(rest, key=lambda token: (-counts[token], token))]


def write_ranking(ranking: list[int], provenance: list[str], folder: Path) -> None:
    """One id a line, below comment lines that say where the order comes from."""
    lines = [*(f"# {line}" for line in provenance), *map(str, ranking)]
    (folder / FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
