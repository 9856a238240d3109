"""A figure's title claims what the verdicts say, and no more."""

from __future__ import annotations

import pytest

from engine.figures.message import message


def entry(context, word, mode="spec", baseline="ar", **more):
    return {"context": context, "mode": mode, "baseline": baseline, "verdict": word, **more}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([entry(2048, "SLOWER")], "spec is slower than ar at 2048 tokens"),
        (
            [entry("2048", "SLOWER"), entry("4096", "SLOWER")],
            "spec is slower than ar at both contexts",
        ),
        (
            [entry(c, "FASTER", m) for c in "123" for m in ("spec", "graph")],
            "spec and graph are faster than ar at all 3 contexts",
        ),
        (
            [entry("natural", "INCONCLUSIVE")],
            "No firm verdict on spec against ar at natural length",
        ),
        ([entry("512", "SAME")], "spec is about as fast as ar at 512 tokens"),
        ([entry("512", "NOT JUDGED")], "spec is not judged against ar at 512 tokens"),
        (
            [entry("512", "NOT JUDGED", not_applicable="no GPU")],
            "spec cannot run on this device at 512 tokens",
        ),
        (
            [entry("512", "INCONCLUSIVE", faster_baseline="ar_graph")],
            "spec is faster than ar, but not than the fastest plain mode, at 512 tokens",
        ),
        (
            [entry("1", "SLOWER"), entry("2", "FASTER"), entry("3", "SLOWER")],
            "spec against ar: slower at 1 and 3 tokens, faster at 2 tokens",
        ),
        ([], "Nothing was judged"),
    ],
)
def test_message_claims_what_the_verdicts_say(entries, expected):
    assert message({"verdicts": entries}) == expected


def test_message_of_many_modes_counts_words():
    words = ["FASTER", "SLOWER", "SAME", "NOT JUDGED"]
    entries = [entry("512", word, f"mode-{n}") for n, word in enumerate(words)]
    expected = "4 modes, 4 comparisons: 1 faster, 1 slower, 1 about as fast, 1 not judged"
    assert message({"verdicts": entries}) == expected
