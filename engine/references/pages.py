"""Figures, report and verdict of a reference, and single figures lent to other reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from engine.figures import acceptance, catalogue, confirmatory, mechanism
from engine.preparation.files import write_json
from engine.references.record import Record
from engine.references.study import Analysed, frozen_study, older_modes, read_reference
from engine.report import render
from engine.report.comparison import Chain
from engine.report.evidence import gather

# Colours of a picture that git keeps: flat figures lose nothing that an eye could see.
_COLOURS = 128


def draw_all(done: Analysed, folder: Path) -> None:
    """Write `verdict.json`, `report.html` and its figures: small PNGs, since git keeps them."""
    verdict, published = done.study.verdict, done.study.published
    figures = folder / "figures"
    figures.mkdir(parents=True)
    names = ("confirmatory", "confirmatory_wide", "acceptance")
    inside = {name: figures / f"{name}.png" for name in names}
    confirmatory.draw(
        done.ratios,
        verdict,
        published,
        inside["confirmatory"],
        inside["confirmatory_wide"],
        None,
    )
    acceptance.draw(done.ratios, verdict, None, inside["acceptance"])
    said = {}
    for entry in catalogue.wanted(done.record.filled):
        # The study's trace and predictions do not come with a design that is measured in part.
        if all(table in done.study.tables for table in entry.tables):
            inside[entry.name] = figures / f"{entry.name}.png"
            said[entry.name] = mechanism.plot(entry.name, done.study, None, inside[entry.name])
    for picture in inside.values():
        _shrink(picture)
    if "waterfall" in said:
        # Of one context, which a README has room for.
        short = figures / "waterfall_first.png"
        mechanism.plot("waterfall", done.study.at(done.study.contexts[0]), None, short)
        _shrink(short)
    write_json(verdict, folder / "verdict.json")
    render(
        verdict,
        done.ratios,
        done.gates,
        done.tokens,
        published,
        inside,
        folder / "report.html",
        gather(done.record.filled, said, done.record.design),
        [Chain("", verdict["synthetic"], done.study.tables["chain"].to_dict("records"))],
    )


def draw_lent(
    name: str, record: Record, published: pd.DataFrame, svg: Path, png: Path
) -> dict[str, Any]:
    """One figure of a reference; what `plot` returns, with `origin`: whose rows it shows."""
    study = frozen_study(record, published)
    origin = study.verdict["reference"]["label"]
    told = {"origin": origin, "synthetic": study.verdict["synthetic"]}
    return mechanism.plot(name, study, svg, png) | told


def lent_chain(record: Record) -> Chain:
    """The published numbers beside a reference's, as they were judged when it was published."""
    older = older_modes(read_reference(record), record.design)
    return Chain(record.label(older), record.synthetic, record.tables["chain"])


def _shrink(png: Path) -> None:
    with Image.open(png) as picture:
        small = picture.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    small.save(png, optimize=True)
