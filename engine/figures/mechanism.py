"""Draws one mechanism figure by name, and leaves what it says beside it for the report."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from engine.figures import catalogue, style
from engine.figures.sheet import Grid, lay_out
from engine.figures.study import NothingToShow, Study


def plot(
    name: str, study: Study, out_svg: str | Path | None, out_png: str | Path
) -> dict[str, Any]:
    """Write the figure; return its name, title, message, and what is `missing` ('' if drawn).

    A path of None is not written.
    Where a study holds nothing to show, because its cells failed, the files hold that sentence:
    the workflow needs them, and the report prints the sentence in their place.
    """
    entry = catalogue.named(name)
    drawing = importlib.import_module(f"engine.figures.{name}")
    with style.look():
        missing = ""
        try:
            figure, message = drawing.draw(study)
        except NothingToShow as why:
            message = missing = str(why)
            grid = Grid(1, 0.1, style.TALL_IN - 0.2, 0)
            figure, _ = lay_out(grid, [], f"{entry.title}: {why}", study.banners, [], [])
        style.save(figure, out_svg, out_png)
    return {"name": name, "title": entry.title, "message": message, "missing": missing}
