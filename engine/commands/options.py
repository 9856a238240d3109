"""What the subcommands share: the application, their options, and what several of them read."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from engine.composition import ROOT
from engine.design import Design
from engine.preparation.files import read_json

_HELP = "`python -m engine`: one subcommand per rule."
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=_HELP)

DesignFile = Annotated[Path, typer.Option("--design", help="The design, YAML or JSON.")]
ModelsFile = Annotated[Path, typer.Option("--models", help="Made by fetch-model.")]
RowsFile = Annotated[Path, typer.Option("--rows", help="All rows, made by check-timing.")]
GatesFile = Annotated[Path, typer.Option("--gates", help="Made by check-timing.")]
RatiosFile = Annotated[Path, typer.Option("--ratios", help="Made by estimate-speedup.")]
VerdictFile = Annotated[Path, typer.Option("--verdict", help="Made by estimate-speedup.")]
PublishedFile = Annotated[Path, typer.Option("--published", help="config/published.csv.")]
Context = Annotated[str, typer.Option("--context")]
Family = Annotated[str, typer.Option("--family")]
Output = Annotated[Path, typer.Option("--output", help="File to write.")]


def read_prompts(plan: Design) -> list[dict]:
    """All prompts of a design, as `build-prompt` wrote them."""
    return [
        read_json(ROOT / plan.prompt_path(context, family))
        for context in plan.contexts
        for family in plan.family_slugs
    ]


def restored(plan: Design, models: dict) -> dict:
    """The recorded models, fetched again if the cache was emptied in the meantime."""
    from engine.models.fetching import fetch

    for role, source in (("target", plan.models.target), ("draft", plan.models.draft)):
        if models[role] and not Path(models[role]["folder"]).is_dir():
            models[role] = vars(fetch(source, ROOT))
    return models


def say(line: str) -> None:
    """A line for the terminal and the log."""
    # A terminal that went away must not cost what was measured.
    with contextlib.suppress(BrokenPipeError):
        print(line, file=sys.stderr, flush=True)
