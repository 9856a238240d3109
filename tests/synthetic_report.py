"""A made-up study carried to the end of the analysis: what figures and report are given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from engine.analysis.chain import judge_chain
from engine.analysis.speedup import family_ratios
from engine.analysis.tokens import compare_tokens
from engine.analysis.verdict import build_verdict
from engine.design import Design
from engine.figures import acceptance, catalogue, confirmatory, mechanism
from engine.figures.study import Study
from engine.report import render
from engine.report.comparison import Chain
from engine.report.evidence import gather
from tests.synthetic_judgements import Cells, gates_frame, tokens_frame
from tests.synthetic_rows import as_frame, study

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Tables:
    """The arguments of `draw` and `render`."""

    verdict: dict[str, Any]
    ratios: pd.DataFrame
    gates: pd.DataFrame
    tokens: pd.DataFrame
    rows: pd.DataFrame


def study_tables(
    design: Design,
    failed: dict[Cells, str] | None = None,
    outcomes: dict[Cells, str] | None = None,
    overrides: tuple[str, ...] = (),
    frozen: dict[str, Any] | None = None,
    distribution: pd.DataFrame | None = None,
    **made: Any,
) -> Tables:
    """Analyse a study made with `made`; `failed` and `outcomes` plant judgements of its gates."""
    rows = as_frame(study(design, **made))
    gates = gates_frame(design, failed)
    tokens = tokens_frame(design, outcomes)
    if tokens.empty:
        tokens = compare_tokens(rows, {}, design)
    ratios = family_ratios(rows, gates, tokens, design)
    verdict = build_verdict(
        design, rows, gates, tokens, ratios, list(overrides), frozen or {}, distribution
    )
    return Tables(verdict, ratios, gates, tokens, rows)


def write_report(
    tables: Tables, folder: Path, study: Study | None = None, design: Design | None = None
) -> Path:
    """Draw the figures, render the report, and return the page's path.

    With `study` and its `design` the mechanism figures are in it, with `design` the chain.
    """
    published = pd.read_csv(REPOSITORY / "config/published.csv")
    figures = {
        name: folder / f"{name}.svg" for name in ("confirmatory", "confirmatory_wide", "acceptance")
    }
    confirmatory.draw(
        tables.ratios,
        tables.verdict,
        published,
        figures["confirmatory"],
        folder / "confirmatory.png",
        figures["confirmatory_wide"],
    )
    acceptance.draw(tables.ratios, tables.verdict, figures["acceptance"], folder / "acceptance.png")
    exhibits, chains = [], []
    if design:
        trace = study.tables["trace"] if study else None
        chain = judge_chain(tables.rows, tables.ratios, tables.tokens, trace, design, published)
        chains = [Chain("", tables.verdict["synthetic"], chain.to_dict("records"))]
    if study and design:
        said = {}
        for entry in catalogue.wanted(design):
            figures[entry.name] = folder / f"{entry.name}.svg"
            png = folder / f"{entry.name}.png"
            said[entry.name] = mechanism.plot(entry.name, study, figures[entry.name], png)
        exhibits = gather(design, said)
    page = folder / "report.html"
    render(
        tables.verdict, tables.ratios, tables.gates, tables.tokens, published, figures, page,
        exhibits, chains,
    )  # fmt: skip
    return page
