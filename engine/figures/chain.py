"""R of the published study's modes, then and here, and of whole rounds as graphs beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from engine.figures import context_panels, marks, published, style
from engine.figures.forest_rows import LABEL_MOST
from engine.figures.message import joined, span
from engine.figures.published import Figure as Published
from engine.figures.study import NothingToShow, Ratio, Study, qualified


def draw(study: Study) -> tuple[Figure, str]:
    """The figure and its message."""
    told = study.tables["chain"]
    told = told[told["quantity"].str.endswith("_ratio") & told["families"].gt(0)]
    exact = study.modes_that(lambda m: m["runtime"] == "graph" and m["acceptance"] == "exact")
    graphs = study.entries(exact)
    panels: dict[str, list[marks.Row]] = {}
    for context in study.contexts:
        here = told[told["context"].astype(str).eq(context)]
        if len(here):
            whole = [marks.verdict_row(e) for e in graphs if str(e["context"]) == context]
            panels[context] = [*map(_row, here.to_dict("records")), *whole]
    rows = [row for panel in panels.values() for row in panel]
    said = message(rows)
    notes = [*_unlike(told), published.note(list(panels), [])]
    return context_panels.draw(study, panels, said, notes), said


def message(rows: list[marks.Row]) -> str:
    """R of the published form, then and here, and the best that whole rounds as graphs reach."""
    spec = [row for row in rows if row.mode == "spec" and row.beside and row.ratio]
    if not spec:
        raise NothingToShow("no mode that the published study has was measured at its contexts")
    theirs = span(row.beside[0].value for row in spec)
    ours = span(row.ratio.r for row in spec)
    sentence = qualified(
        f"Done as published, R was {theirs} and, measured again, {ours}",
        gated=all(row.ratio.gated for row in spec),
    )
    firm = [row for row in rows if not row.beside and row.ratio and row.ratio.gated]
    if not firm:
        return sentence
    best = max(firm, key=lambda row: row.ratio.r).mode
    reached = span(row.ratio.r for row in firm if row.mode == best)
    return f"{sentence}; {best}, whole rounds as graphs, reaches {reached}"


def _unlike(told: pd.DataFrame) -> list[str]:
    """A note on modes that run by graphs here, which the published ones did not."""
    unlike = told[told["what"].str.endswith("by graphs")]["quantity"]
    names = list(dict.fromkeys(unlike.str.removesuffix("_ratio")))
    return [f"{joined(names)}: by graphs here, launch by launch there."] if names else []


def _row(told: dict[str, Any]) -> marks.Row:
    mode = told["quantity"].removesuffix("_ratio")
    # As of a verdict: no interval is drawn where families failed the gates.
    ends = (told["low"], told["high"]) if told["gated"] and not np.isnan(told["low"]) else None
    ratio = Ratio(told["value"], ends, int(told["families"]), bool(told["gated"]))
    bounds = (told["published_low"], told["published_high"])
    low, high = (None if np.isnan(end) else end for end in bounds)
    label = style.printable(mode, mode, LABEL_MOST)
    return marks.Row(label, mode, ratio, (Published(told["published"], low, high),))
