"""R with the target's own judgement and with every proposal accepted, one panel a context."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from engine.figures import context_panels, marks, published
from engine.figures.message import outcome, span
from engine.figures.study import NothingToShow, Study, qualified, ratio_of


def draw(study: Study) -> tuple[Figure, str]:
    """The figure and its message."""
    oracles = study.modes_that(lambda m: m["drafter"] == "model" and m["acceptance"] == "all")
    # Not by the baseline alone: a mode that graphs only a part owes its R to that.
    ways = {(study.modes[mode]["runtime"], study.modes[mode]["baseline"]) for mode in oracles}
    shown = study.modes_that(
        lambda m: (
            m["drafter"] == "model"
            and m["acceptance"] in ("exact", "all")
            and (m["runtime"], m["baseline"]) in ways
        )
    )
    # Elsewhere there is nothing to hold an oracle against.
    places = {entry["context"] for entry in study.entries(oracles)}
    entries = [entry for entry in study.entries(shown) if entry["context"] in places]
    said = message(entries, oracles)
    panels, theirs = {}, []
    for context in study.contexts:
        here = [entry for entry in entries if str(entry["context"]) == context]
        if here:
            beside = [
                published.beside(study.published, f"{entry['mode']}_ratio", context)
                for entry in here
            ]
            theirs += [at for found in beside for at, _ in found]
            panels[context] = [
                marks.verdict_row(entry, [ratio for _, ratio in found])
                for entry, found in zip(here, beside, strict=True)
            ]
    notes = [published.note(study.contexts, theirs)] if theirs else []
    return context_panels.draw(study, panels, said, notes), said


def message(entries: list[dict[str, Any]], oracles: list[str]) -> str:
    """R with and without the oracle, and whether even that is slower or already faster."""
    found = [(entry, ratio) for entry in entries if (ratio := ratio_of(entry))]
    best = [(entry, ratio) for entry, ratio in found if entry["mode"] in oracles]
    exact = [ratio.r for entry, ratio in found if entry["mode"] not in oracles]
    if not best:
        raise NothingToShow("no mode that accepts all was measured with its baseline")
    sentence = f"With every proposal accepted, R is {span(ratio.r for _, ratio in best)}"
    if exact:
        sentence += f" instead of {span(exact)}"
    if not all(ratio.gated for _, ratio in found):
        return qualified(sentence, gated=False)
    words = {outcome(entry) for entry, _ in best}
    if words == {"SLOWER"}:
        return f"{sentence}: slower even so"
    return f"{sentence}: faster then" if words == {"FASTER"} else sentence
