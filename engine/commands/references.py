"""References: rows of a finished study that git keeps, and what others draw of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.commands.options import Output, PublishedFile, app, say
from engine.composition import ROOT
from engine.design import DesignError
from engine.figures.catalogue import named
from engine.preparation.files import write_json


@app.command()
def publish_reference(
    results: Annotated[Path, typer.Argument(help="results/DESIGN, wherever it lies.")],
    commit: Annotated[
        str | None, typer.Option(help="That measured, for rows that could not write it down.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a published one.")] = False,
) -> None:
    """Put the rows of a study's whole blocks, with report and figures, where git keeps them."""
    from engine.references.publish import publish

    for line in publish(results, ROOT, ROOT / "config" / "published.csv", commit, force):
        say(line)


@app.command()
def unpack_reference(
    reference: Annotated[Path, typer.Argument(help="The record, results/reference/DESIGN.json.")],
    folder: Annotated[Path, typer.Argument(help="Where to: a folder that is not there yet.")],
) -> None:
    """Make a study's folder of a published reference, to measure a part of it again."""
    from engine.references.record import read_record
    from engine.references.unpack import unpack

    say(f"wrote {unpack(read_record(reference), folder)} timing files to {folder}")


@app.command()
def plot_reference(
    figure: Annotated[str, typer.Option(help="A name of engine/figures/catalogue.py.")],
    reference: Annotated[Path, typer.Option(help="The record, results/reference/DESIGN.json.")],
    published: PublishedFile,
    svg: Annotated[Path, typer.Option()],
    png: Annotated[Path, typer.Option()],
    output: Output,
) -> None:
    """A figure that needs a GPU, from the rows of a published reference."""
    import pandas as pd

    from engine.references.pages import draw_lent
    from engine.references.record import read_record

    if not named(figure).lent:
        raise DesignError(f"figure {figure!r} is not lent: it reads tables that no record holds")
    record = read_record(reference)
    write_json(draw_lent(figure, record, pd.read_csv(published), svg, png), output)
