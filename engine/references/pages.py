"""Figures, report and verdict of a reference, and single figures lent to other reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from engine.figures import acceptance, catalogue, confirmatory, mechanism
from engine.preparation.files import write_json
from engine.references.record import Record
from engine.references.study import Analysed, analyse, read_reference
from engine.report import render
from engine.report.evidence import gather

# Colours of a picture that git keeps: flat figures lose nothing that an eye could see.
_COLOURS = 128


def draw_all(done: Analysed, folder: Path) -> None:
    """Write `verdict.json`, `report.html` (its figures inside) and the figures as small PNGs."""
    verdict, published = done.study.verdict, done.study.published
    figures = folder / "figures"
    figures.mkdir(parents=True)
    names = ("confirmatory", "confirmatory_wide", "acceptance")
    inside = {name: figures / f"{name}.svg" for name in names}
    confirmatory.draw(
        done.ratios,
        verdict,
        published,
        inside["confirmatory"],
        figures / "confirmatory.png",
        inside["confirmatory_wide"],
    )
    acceptance.draw(done.ratios, verdict, inside["acceptance"], figures / "acceptance.png")
    said = {}
    for entry in catalogue.wanted(done.record.design):
        # The study's trace and predictions do not come with a design that is measured in part.
        if all(table in done.study.tables for table in entry.tables):
            inside[entry.name] = figures / f"{entry.name}.svg"
            png = figures / f"{entry.name}.png"
            said[entry.name] = mechanism.plot(entry.name, done.study, inside[entry.name], png)
    write_json(verdict, folder / "verdict.json")
    render(
        verdict,
        done.ratios,
        done.gates,
        done.tokens,
        published,
        inside,
        folder / "report.html",
        gather(done.record.design, said),
    )
    for svg in figures.glob("*.svg"):
        svg.unlink()
    for png in figures.glob("*.png"):
        _shrink(png)


def draw_lent(
    name: str, record: Record, published: pd.DataFrame, svg: Path, png: Path
) -> dict[str, Any]:
    """One figure of a reference; what `plot` returns, with `origin`: whose rows it shows."""
    done = analyse(record, read_reference(record), published)
    return mechanism.plot(name, done.study, svg, png) | {"origin": done.label}


def _shrink(png: Path) -> None:
    with Image.open(png) as picture:
        small = picture.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    small.save(png, optimize=True)
