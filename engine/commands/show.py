"""Figures and the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.commands.options import (
    DesignFile,
    GatesFile,
    Output,
    PublishedFile,
    RatiosFile,
    VerdictFile,
    app,
)
from engine.design import load_design
from engine.preparation.files import read_json, write_json


@app.command()
def plot_confirmatory(
    ratios: RatiosFile,
    verdict: VerdictFile,
    published: PublishedFile,
    svg: Annotated[Path, typer.Option(help="Tall, for a phone.")],
    wide: Annotated[Path, typer.Option(help="Wide, for a desktop.")],
    png: Annotated[Path, typer.Option(help="Wide, for the README.")],
) -> None:
    """The forest plot of ratios by family."""
    import pandas as pd

    from engine.figures.confirmatory import draw
    from engine.tables import read_frame

    draw(read_frame(ratios), read_json(verdict), pd.read_csv(published), svg, png, wide)


@app.command()
def plot_acceptance(
    ratios: RatiosFile,
    verdict: VerdictFile,
    svg: Annotated[Path, typer.Option()],
    png: Annotated[Path, typer.Option()],
) -> None:
    """Acceptance by position in the block."""
    from engine.figures.acceptance import draw
    from engine.tables import read_frame

    draw(read_frame(ratios), read_json(verdict), svg, png)


@app.command()
def plot_mechanism(
    figure: Annotated[str, typer.Option(help="A name of engine/figures/catalogue.py.")],
    verdict: VerdictFile,
    published: PublishedFile,
    svg: Annotated[Path, typer.Option()],
    png: Annotated[Path, typer.Option()],
    output: Annotated[Path, typer.Option(help="What the figure says, for the report.")],
    tables: Annotated[
        list[Path] | None, typer.Argument(help="The study's tables that it reads, if any.")
    ] = None,
) -> None:
    """One figure of the mechanism."""
    import pandas as pd

    from engine.figures.mechanism import plot
    from engine.figures.study import Study
    from engine.tables import read_frame

    found = {path.stem: read_frame(path) for path in tables or []}
    study = Study(read_json(verdict), pd.read_csv(published), found)
    write_json(plot(figure, study, svg, png), output)


@app.command()
def render_report(
    design: DesignFile,
    ratios: RatiosFile,
    gates: GatesFile,
    tokens: Annotated[Path, typer.Option()],
    verdict: VerdictFile,
    published: PublishedFile,
    confirmatory: Annotated[Path, typer.Option()],
    confirmatory_wide: Annotated[Path, typer.Option()],
    acceptance: Annotated[Path, typer.Option()],
    chain: Annotated[Path, typer.Option(help="Made by judge-chain.")],
    output: Output,
    reference: Annotated[
        list[Path] | None, typer.Option(help="A record of a reference whose chain is shown too.")
    ] = None,
    mechanism: Annotated[
        list[Path] | None, typer.Argument(help="SVG files of plot-mechanism, JSON beside them.")
    ] = None,
) -> None:
    """One self-contained HTML page."""
    import pandas as pd

    from engine.references.pages import lent_chain
    from engine.references.record import read_record
    from engine.report import render
    from engine.report.comparison import Chain
    from engine.report.evidence import gather
    from engine.tables import read_frame

    plan = load_design(design)
    said = {path.stem: read_json(path.with_suffix(".json")) for path in mechanism or []}

    judged = read_json(verdict)
    render(
        judged,
        read_frame(ratios),
        read_frame(gates),
        read_frame(tokens),
        pd.read_csv(published),
        {
            "confirmatory": confirmatory,
            "confirmatory_wide": confirmatory_wide,
            "acceptance": acceptance,
            **{path.stem: path for path in mechanism or []},
        },
        output,
        gather(plan, said),
        [
            Chain("", judged["synthetic"], read_frame(chain).to_dict("records")),
            *(lent_chain(read_record(path)) for path in reference or []),
        ],
    )
