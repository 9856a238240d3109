"""One self-contained HTML file: no network, no script, all foreign text escaped."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from engine.design import slug_of
from engine.figures.message import lengths, message, outcome, short_word
from engine.figures.published import SETTING
from engine.figures.study import main_verdict
from engine.report import absences, comparison, evidence, formats, gate_matrix

_TEMPLATES = Path(__file__).parent / "templates"


def render(
    verdict: dict[str, Any],
    ratios: pd.DataFrame,
    gates: pd.DataFrame,
    tokens: pd.DataFrame,
    published: pd.DataFrame,
    figures: Mapping[str, str | Path],
    out_html: str | Path,
    exhibits: Sequence[evidence.Exhibit] = (),
    chains: Sequence[comparison.Chain] = (),
) -> None:
    """Write the report.

    Parameters
    ----------
    verdict : the contents of verdict.json.
    ratios, gates, tokens : tables of the analysis, one row per (context, family, mode), clause
        and (context, family, mode).
    published : config/published.csv, as `pandas.read_csv` gives it.
    figures : SVG or PNG files by name: `confirmatory`, `acceptance`, and `confirmatory_wide`, which
        stands in for the tall one where the screen has room. A figure left out is not shown.
    exhibits : the mechanism figures from `evidence.gather`; `figures` holds the drawn ones by name.
    chains : the published numbers beside this study's, and beside those of references.
    """
    settings = verdict["settings"]
    contexts = [str(context) for context in settings["contexts"]]
    modes = list(settings["modes"])
    names = {slug_of(name): name for name in settings["families"]}
    families = list(names)
    page = _environment(names).get_template("report.html.j2")
    html = page.render(
        verdict=verdict,
        headline=message(main_verdict(verdict)),
        judged=main_verdict(verdict)["verdicts"],
        reasons=evidence.reasons(verdict),
        explaining=evidence.beside(verdict),
        exhibits=[exhibit for exhibit in exhibits if not exhibit.missing],
        lacking=[exhibit for exhibit in exhibits if exhibit.missing],
        contexts=contexts,
        modes=modes,
        families=families,
        ratios=ratios.to_dict("records"),
        gate_counts=gate_matrix.counts(gates),
        gate_failures=gate_matrix.failing(gates),
        gate_matrices=gate_matrix.matrices(gates, contexts, families, modes),
        gate_clauses=gate_matrix.clauses(gates, contexts, modes),
        tokens=tokens.to_dict("records"),
        families_out=absences.families_out(verdict),
        failed_cells=absences.failed_cells(verdict),
        changes=verdict["changes_after_freeze"],
        frozen_late=_frozen_late(verdict["provenance"]),
        chains=[chain for chain in chains if chain.rows],
        published=comparison.listing(published),
        published_setting=SETTING,
        figures={name: _data_uri(path) for name, path in figures.items()},
    )
    out = Path(out_html)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(html, encoding="utf-8")


def _environment(names: Mapping[str, str]) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=formats.plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": formats.number,
        "count_of": formats.count,
        "short": formats.short,
        "seconds": formats.seconds,
        "ratio_of_log": formats.ratio_of_log,
        "interval": formats.interval,
        "breakable": formats.breakable,
        "length_name": lambda context: lengths([str(context)]),
        # The tables hold path-safe names; people gave their families others.
        "family_name": lambda family: names.get(family, family),
        "word": lambda entry: short_word(outcome(entry)),
        "outcome_class": lambda entry: outcome(entry).lower().replace(" ", "-"),
    }
    return environment


def _data_uri(path: str | Path) -> str:
    """An image of its own document: its style rules and ids stay out of the page's."""
    kind = {".svg": "svg+xml", ".png": "png"}[Path(path).suffix]
    coded = base64.b64encode(Path(path).read_bytes()).decode("ascii")
    return f"data:image/{kind};base64,{coded}"


def _frozen_late(provenance: dict[str, Any]) -> bool:
    """Whether the record of the design is younger than the rows: it was lost and made again."""
    times = [provenance[name] for name in ("frozen_at", "measured_from")]
    if not all(times):
        return False
    frozen, measured = map(datetime.fromisoformat, times)
    return frozen > measured
