"""The correctness gate: does an exact mode commit the tokens that its baseline commits?

It stands beside the six timing gates and is not one of them (METHODS section 5).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from engine.analysis.divergence import (
    Divergence,
    Key,
    Tokens,
    distinct_outputs,
    divergences,
    first_divergence,
    only_equality_passes,
)
from engine.design import Design

__all__ = ["Divergence", "compare_tokens", "divergences"]

Certificates = dict[tuple[str, str, str, int], Mapping[str, Any]]


@dataclass(frozen=True)
class Outcome:
    """One verdict; `first_divergence` counts new tokens from 0, -1 if there is none.

    `gap` and `bound` are logits of the certificate, NaN without one.
    """

    outcome: str
    first_divergence: int
    gap: float
    bound: float
    text: str


def compare_tokens(
    rows: pd.DataFrame,
    reference: pd.DataFrame | Mapping[Key, Tokens],
    design: Design,
    certificates: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """One row a (context, family, mode) of the design: context, family, mode, baseline, exact,
    outcome, first_divergence, gap, bound, text.

    `reference` holds the tokens that each baseline must commit: a dict keyed (context, family,
    baseline), or a frame with these columns and `tokens`. An exact mode is held against its
    baseline and against the reference, a baseline against the reference. `outcome` is `equal`;
    `near_tie` if the first divergence from the baseline is certified; `failed`; `missing` where
    there are no tokens to compare; `not_applicable` for modes without that promise, and for
    those that the device or the pair cannot run.

    `certificates` (context, family, mode, position, token_baseline, token_mode, gap_fp32, bound,
    top_two) excuse a divergence at that very position and between these very tokens, if the two
    are each path's top two and their gap in fp32 is at most the bound. In fp32 on a CPU nothing
    but equality passes, and nowhere may a baseline leave its own reference.
    """
    outputs, expected = distinct_outputs(rows), _reference_by_key(reference)
    filed = _certificates_by_place(certificates)
    table = []
    for context, family, name in design.planned():
        mode = design.modes[name]
        identity = {
            "context": context,
            "family": family,
            "mode": name,
            "baseline": mode.baseline,
            "exact": mode.exact,
        }
        outcome = _judge(identity, outputs, expected, filed, design)
        table.append(identity | asdict(outcome))
    return pd.DataFrame(table)


def _judge(
    cell: Mapping[str, Any],
    outputs: Mapping[Key, list[Tokens]],
    expected: Mapping[Key, Tokens],
    certificates: Certificates,
    design: Design,
) -> Outcome:
    place, name, baseline = (cell["context"], cell["family"]), cell["mode"], cell["baseline"]
    if why := design.not_applicable(name):
        return _without_logits("not_applicable", why)
    if not cell["exact"]:
        mode = design.modes[name]
        text = f"acceptance {mode.acceptance!r} does not promise the baseline's tokens"
        if mode.promise == "distribution":
            text += " but their distribution, which check_distribution tests"
        return _without_logits("not_applicable", text)
    for arm in dict.fromkeys([name, baseline]):
        found = outputs.get((*place, arm), [])
        if not found:
            return _without_logits("missing", f"{arm} has no run with tokens")
        if len(found) > 1:
            at = first_divergence(*found[:2])
            text = f"the runs of {arm} differ among themselves, first at new token {at}"
            return _without_logits("failed", text, at)
    if (*place, baseline) not in expected:
        return _without_logits("missing", f"there are no reference tokens of {baseline}")
    own, base, wanted = (
        outputs[*place, name][0],
        outputs[*place, baseline][0],
        expected[*place, baseline],
    )
    if own != base:
        at, text = _apart(own, base, baseline)
        if only_equality_passes(design):
            return _without_logits("failed", f"{text}; in fp32 on a CPU only equality passes", at)
        if at == min(len(own), len(base)):
            return _without_logits("failed", text, at)
        return _certified(certificates.get((*place, name, at)), (base[at], own[at]), at, text)
    if own != wanted:
        at, text = _apart(own, wanted, "the reference")
        who = baseline if name == baseline else f"{name} equals {baseline}, but that"
        return _without_logits("failed", f"{who} leaves its own reference: {text}", at)
    return _without_logits("equal", f"all {len(own)} tokens are equal")


def _certified(
    certificate: Mapping[str, Any] | None, pair: tuple[int, int], at: int, text: str
) -> Outcome:
    if certificate is None:
        return _without_logits("failed", f"{text}; no certificate calls it a near-tie", at)
    if (certificate["token_baseline"], certificate["token_mode"]) != pair:
        return _without_logits("failed", f"{text}; the certificate is of other tokens", at)
    gap, bound = float(certificate["gap_fp32"]), float(certificate["bound"])
    if not certificate["top_two"]:
        return Outcome("failed", at, gap, bound, f"{text}; they are not each path's top two")
    outcome, relation = ("near_tie", "within") if gap <= bound else ("failed", "over")
    text += f"; in fp32 the two are {gap:.3g} apart, {relation} the bound of {bound:.3g}"
    return Outcome(outcome, at, gap, bound, text)


def _without_logits(outcome: str, text: str, at: int = -1) -> Outcome:
    return Outcome(outcome, at, math.nan, math.nan, text)


def _apart(own: Tokens, other: Tokens, whose: str) -> tuple[int, str]:
    """The first divergence, and the sentence that shows it."""
    at = first_divergence(own, other)
    if at == min(len(own), len(other)):
        return at, f"{len(own)} tokens, where {whose} has {len(other)}"
    return at, f"new token {at} is {own[at]}, where {whose} has {other[at]}"


def _reference_by_key(reference: pd.DataFrame | Mapping[Key, Tokens]) -> dict[Key, Tokens]:
    if isinstance(reference, pd.DataFrame):
        columns = (reference[name] for name in ("context", "family", "baseline", "tokens"))
        reference = {(c, f, b): tokens for c, f, b, tokens in zip(*columns, strict=True)}
    return {
        (str(context), family, baseline): [int(token) for token in tokens]
        for (context, family, baseline), tokens in reference.items()
    }


def _certificates_by_place(certificates: pd.DataFrame | None) -> Certificates:
    if certificates is None:
        return {}
    return {
        (str(c["context"]), c["family"], c["mode"], int(c["position"])): c
        for c in certificates.to_dict("records")
    }
