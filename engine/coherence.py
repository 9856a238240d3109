"""What the keys of a design must say of each other.

What a key may be by itself is said where it stands: design.py, modes.py, pair.py. Every fault is a
ValueError with one sentence that names the keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import composition
from engine.claims import claims, misused
from engine.strict import SLUG, slug_of

if TYPE_CHECKING:
    from engine.design import Design
    from engine.modes import Mode


def check_coherence(design: Design) -> None:
    """Raise ValueError for the first thing that cannot be meant."""
    _check_name(design)
    _check_families(design)
    _check_lengths(design)
    _check_synthetic(design)
    for name, mode in design.modes.items():
        _check_mode(design, name, mode)
    _check_claims(design)


def _check_families(design: Design) -> None:
    slugs: dict[str, str] = {}
    for name in design.families:
        if design.prompts.source == "packaged" and not SLUG.fullmatch(name):
            raise ValueError(
                f"families: {name!r} names no file of packaged prompts; for texts of your own use "
                "prompts.source: jsonl"
            )
        other = slugs.setdefault(slug_of(name), name)
        if other != name:
            raise ValueError(f"families {other!r} and {name!r} would share one file name")


def _check_lengths(design: Design) -> None:
    planned, blocks = len(design.instrumented_runs), len(design.replicates)
    if planned != blocks:
        raise ValueError(
            f"instrumented has {planned} entries for {blocks} order blocks: give one for each"
        )
    for context in design.contexts:
        if context == "natural":
            if design.prompts.source != "jsonl":
                raise ValueError(
                    "contexts: [natural] needs your own prompts (prompts.source: jsonl)"
                )
        elif context <= design.new_tokens:
            raise ValueError(
                f"context {context} counts prompt plus new tokens, so it must exceed "
                f"new_tokens ({design.new_tokens})"
            )


# results/reference/ and reports/reference/ hold what git keeps of finished studies.
_TAKEN = ("reference",)


def _check_name(design: Design) -> None:
    if design.design in _TAKEN:
        raise ValueError(
            f"design {design.design!r} would write where references are kept: choose another name"
        )


def _check_synthetic(design: Design) -> None:
    pair = design.models.target
    if (pair.source == "synthetic") != (design.prompts.source == "synthetic"):
        raise ValueError(
            "a synthetic pair says nothing but its own plan, and only it can read that: "
            "prompts.source must be synthetic with it, and with no other"
        )
    if pair.source != "synthetic":
        return
    if not design.synthetic:
        raise ValueError("models.target is made up, so the design must say synthetic: true")
    if missing := [c for c in design.contexts if c not in pair.plan.contexts]:
        raise ValueError(f"context {missing[0]} is not in the plan of the synthetic pair")
    if len(design.families) > pair.plan.families:
        raise ValueError(
            f"the plan of the synthetic pair has {pair.plan.families} families, fewer than "
            f"the design ({len(design.families)})"
        )


def _check_mode(design: Design, name: str, mode: Mode) -> None:
    """The mode's baseline is one, and there is a draft for it."""
    baseline = design.modes.get(mode.baseline)
    if baseline is None:
        raise ValueError(
            f"mode {name!r} names the unknown baseline {mode.baseline!r}; "
            f"there is {', '.join(design.modes)}"
        )
    if baseline.speculative:
        raise ValueError(f"the baseline of mode {name!r} must have drafter: none")
    runtime = composition.plain_runtime(mode.runtime)
    if (baseline.runtime, baseline.numerics) != (runtime, mode.numerics):
        same = "the same runtime" if runtime == mode.runtime else f"runtime {runtime}"
        raise ValueError(f"the baseline of mode {name!r} must have {same} and numerics")
    if baseline.sampling != mode.sampling:
        raise ValueError(
            f"the baseline of mode {name!r} must have the same sampling, so that the two "
            "write the same kind of text"
        )
    if composition.needs_draft_model(mode.drafter) and design.models.draft is None:
        raise ValueError(f"mode {name!r} drafts with a model, but models.draft is not set")
    if mode.draft_vocabulary and design.models.draft.source == "synthetic":
        raise ValueError(
            f"mode {name!r}: a synthetic draft has no list of frequent tokens to trim its head by: "
            "leave out draft_vocabulary"
        )
    if not _covers(design, mode.baseline, name):
        raise ValueError(
            f"the baseline of mode {name!r} is not measured on all prompts of the mode: "
            "widen its only"
        )


def _covers(design: Design, other: str, mode: str) -> bool:
    """Whether another mode is measured on all prompts that the mode is measured on."""
    return set(design.contexts_of(mode)) <= set(design.contexts_of(other)) and set(
        design.families_of(mode)
    ) <= set(design.families_of(other))


def _check_claims(design: Design) -> None:
    """Each claim is asked once, of two modes that can be compared with each other."""
    for count, asked in enumerate(design.claims):
        what, mode, against = f"claim {asked.claim!r}", asked.mode, asked.against
        for name in (mode, against):
            if name not in design.modes:
                raise ValueError(
                    f"{what} names the unknown mode {name!r}; there is {', '.join(design.modes)}"
                )
        if asked in design.claims[:count]:
            raise ValueError(f"{what} on {mode!r} against {against!r} is listed twice")
        if mode == against:
            raise ValueError(f"{what} compares {mode!r} with itself: name another mode in against")
        claim = claims()[asked.claim]
        if not design.modes[mode].speculative and not claim.of_plain_modes:
            raise ValueError(f"{what} is about {mode!r}, a plain mode")
        if not _covers(design, against, mode):
            raise ValueError(
                f"{what}: {against!r} is not measured on all prompts of {mode!r}: widen its only"
            )
        if claim.needs_drafts and not design.modes[against].speculative:
            raise ValueError(
                f"{what} is about {claim.quantity}, which the plain mode {against!r} has none of: "
                "name a mode with a drafter in against"
            )
        if claim.quantity == "speed":
            _check_speed(design, what, mode, against)
        if claim.quantity == "formula" and against != design.modes[mode].baseline:
            raise ValueError(
                f"{what} is about {mode!r} and its baseline: write against: "
                f"{design.modes[mode].baseline}"
            )
        if claim.needs_phases and not any(design.instrumented_runs):
            raise ValueError(
                f"{what} rests on phase times, but instrumented asks for no runs: give at least one"
            )
        if wanted := misused(asked.claim, design.modes[mode], design.modes[against]):
            raise ValueError(f"{what} needs {wanted}, which {mode!r} against {against!r} is not")


def _check_speed(design: Design, what: str, mode: str, against: str) -> None:
    """R over R says which is faster only if both R are against plain decoding done alike."""
    own, other = (design.modes[design.modes[name].baseline] for name in (mode, against))
    if not design.modes[against].speculative and other != own:
        raise ValueError(
            f"{what} holds R of {mode!r} against its own baseline: write against: "
            f"{design.modes[mode].baseline}"
        )
    if (own.runtime, own.numerics) != (other.runtime, other.numerics):
        raise ValueError(
            f"{what}: {mode!r} and {against!r} have baselines of different runtime or numerics, so "
            "their R are of different things: name two modes of one runtime"
        )
