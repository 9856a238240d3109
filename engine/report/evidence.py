"""The chain of evidence: the mechanism figures of the report, and why it lacks the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.design import Design
from engine.figures import catalogue
from engine.figures.study import main_verdict

_UNKNOWN = "No cost is named, because no instrumented run was measured with its baseline."


@dataclass(frozen=True)
class Exhibit:
    """One figure of the catalogue: what it `says`, or why it is `missing`.

    `origin` says whose rows it shows, if not the study's; these may be `synthetic`.
    """

    name: str
    title: str
    caption: str
    says: str = ""
    missing: str = ""
    origin: str = ""
    synthetic: bool = False


def gather(
    design: Design, said: Mapping[str, Mapping[str, Any]], planned: Design | None = None
) -> list[Exhibit]:
    """All figures of the catalogue in order; `said` holds what `plot` returned, by name.

    `planned` is the whole design where `design` is only what was measured of it.
    """
    exhibits = []
    for entry in catalogue.CATALOGUE:
        told = said.get(entry.name)
        if told is None:
            missing = entry.lacks(design) or "what it reads is not kept with published rows"
            if entry.lacks(design) and planned and not entry.lacks(planned):
                missing = "its modes were not measured"
            exhibits.append(Exhibit(entry.name, entry.title, entry.caption, missing=missing))
        else:
            says = "" if told["missing"] else told["message"]
            lent = told.get("origin", ""), told.get("synthetic", False)
            exhibits.append(
                Exhibit(entry.name, entry.title, entry.caption, says, told["missing"], *lent)
            )
    return exhibits


def reasons(verdict: dict[str, Any]) -> list[dict[str, Any]]:
    """Per entry that the study set out to judge: what holds it back, or why that is not known."""
    told = []
    for entry in main_verdict(verdict)["verdicts"]:
        if entry["not_applicable"]:
            continue
        why = entry["why"] or _UNKNOWN
        told.append({"context": entry["context"], "mode": entry["mode"], "why": why})
    return told


def beside(verdict: dict[str, Any]) -> list[dict[str, Any]]:
    """Entries of the modes that explain: measured on a part of the grid, not what is judged."""
    main: Sequence[dict[str, Any]] = main_verdict(verdict)["verdicts"]
    return [entry for entry in verdict["verdicts"] if entry not in main]
