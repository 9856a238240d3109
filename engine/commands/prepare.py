"""What comes before the first cell."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from engine.commands.options import (
    Context,
    DesignFile,
    Family,
    ModelsFile,
    Output,
    app,
    read_prompts,
    restored,
    say,
)
from engine.composition import ROOT
from engine.design import DesignError, load_design
from engine.preparation.files import read_json, write_json


@app.command()
def freeze_design(
    design: DesignFile,
    output: Output,
    overrides: Annotated[str, typer.Option(help="JSON list of key=value.")] = "[]",
) -> None:
    """Record the design before the first cell; later changes are appended to --output."""
    from engine.preparation.freeze import freeze

    try:
        given = json.loads(overrides)
    except ValueError:
        given = None
    if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
        raise DesignError(f"--overrides {overrides}: write a JSON list of texts, each key=value")
    freeze(load_design(design), given, output)


@app.command()
def fetch_model(design: DesignFile, output: Output) -> None:
    """Bring the pair into the cache (idempotent) and record where it lies."""
    from engine.models.fetching import fetch
    from engine.preparation.chat import chat_turn, stop_ids
    from engine.preparation.checks import check_device, check_disk

    plan = load_design(design)
    check_device(plan)
    check_disk(ROOT, Path(tempfile.gettempdir()))
    target = fetch(plan.models.target, ROOT)
    draft = fetch(plan.models.draft, ROOT) if plan.models.draft else None
    folder = Path(target.folder)
    write_json(
        {
            "target": vars(target),
            "draft": vars(draft) if draft else None,
            "stop_ids": stop_ids(folder),
            "turn": None if plan.prompts.source == "synthetic" else chat_turn(folder),
        },
        output,
    )


@app.command()
def build_prompt(
    design: DesignFile, models: ModelsFile, context: Context, family: Family, output: Output
) -> None:
    """Write one cell's prompt as token ids."""
    from tokenizers import Tokenizer

    from engine.prompts import PromptBuilder, read_sources, synthetic_prompt

    plan = load_design(design)
    plan.refuse_unknown(context, family)
    if plan.prompts.source == "synthetic":
        write_json(synthetic_prompt(plan, context, plan.family_slugs[family]), output)
        return
    fetched = restored(plan, read_json(models))
    tokenizer = Tokenizer.from_file(str(Path(fetched["target"]["folder"]) / "tokenizer.json"))
    builder = PromptBuilder(plan, read_sources(plan.prompts, ROOT), tokenizer, fetched["turn"])
    write_json(builder.build(context, plan.family_slugs[family]), output)


@app.command()
def check_inputs(design: DesignFile, models: ModelsFile, output: Output) -> None:
    """Refuse, in one sentence, what cannot be measured here."""
    from engine.preparation import checks

    plan = load_design(design)
    fetched = restored(plan, read_json(models))
    write_json(checks.check_inputs(plan, fetched, read_prompts(plan), ROOT), output)


@app.command()
def climb_rung(
    design: DesignFile,
    rung: Annotated[str, typer.Option(help="environment, plain, rollback, tokens or pair.")],
    models: ModelsFile,
    prompt: Annotated[Path, typer.Option()],
    output: Output,
) -> None:
    """One rung of the smoke ladder."""
    import torch

    from engine.evidence.smoke import RUNGS, Bench
    from engine.measure.lock import machine_lock
    from engine.measure.workflow_life import end_with_workflow
    from engine.preparation.checks import check_device

    if rung not in RUNGS:
        raise DesignError(f"there is no rung {rung!r}; the ladder has {', '.join(RUNGS)}")
    plan = load_design(design)
    check_device(plan)
    end_with_workflow()
    bench = Bench(plan, restored(plan, read_json(models)), read_json(prompt)["tokens"])
    # The last rung starts cells, which take the machine for themselves.
    held = contextlib.nullcontext() if rung == "pair" else machine_lock()
    with held, torch.inference_mode():
        told = RUNGS[rung](bench)
    say(f"smoke, {rung}: {told}")
    write_json({"rung": rung, "told": told}, output)
