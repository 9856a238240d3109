"""What runs a model on the device."""

from __future__ import annotations

import time
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
from engine.design import DesignError, load_design
from engine.preparation.files import read_json


@app.command()
def decode_reference(design: DesignFile, models: ModelsFile, output: Output) -> None:
    """Decode every prompt once with each baseline, untimed."""
    import pandas as pd

    from engine.evidence.reference import decode_references
    from engine.measure.lock import machine_lock
    from engine.measure.workflow_life import end_with_workflow
    from engine.tables import write_frame

    plan = load_design(design)
    fetched = restored(plan, read_json(models))
    total = len(plan.reference_places())
    rows = []
    end_with_workflow()
    with machine_lock():
        for row in decode_references(plan, fetched, read_prompts(plan)):
            rows.append(row)
            say(f"reference [{len(rows)}/{total}] {row['context']} {row['family']}")
    write_frame(pd.DataFrame(rows), output)


@app.command()
def time_cell(
    design: DesignFile,
    context: Context,
    family: Family,
    mode: Annotated[str, typer.Option()],
    replicate: Annotated[int, typer.Option()],
    models: ModelsFile,
    prompt: Annotated[Path, typer.Option()],
    output: Output,
) -> None:
    """Measure one cell in a process of its own and write its rows."""
    from engine.measure.cell import time_cell
    from engine.preparation.checks import check_device
    from engine.progress import progress_line

    plan = load_design(design)
    cell = plan.cell(context, family, mode, replicate)
    # Cells can be asked for alone, past the rule that checks the inputs.
    check_device(plan)
    started = time.time()
    rows = time_cell(plan, cell, restored(plan, read_json(models)), read_json(prompt))
    from engine.measure.rows import write_rows

    write_rows(rows, output)
    say(progress_line(cell, rows, started))


@app.command()
def time_components(
    design: DesignFile,
    context: Context,
    family: Family,
    mode: Annotated[str, typer.Option(help="The plain mode whose runtime is measured.")],
    models: ModelsFile,
    prompt: Annotated[Path, typer.Option()],
    output: Output,
) -> None:
    """Time the forwards of a round by themselves."""
    from engine.evidence.component_cell import time_components
    from engine.tables import write_frame

    plan = load_design(design)
    plan.refuse_unknown(context, family)
    if plan.components is None or mode not in plan.baselines:
        raise DesignError(
            f"design {plan.design!r} times no components of {mode!r}: name a plain mode of a "
            "design with components"
        )
    fetched = restored(plan, read_json(models))
    table = time_components(plan, context, family, mode, fetched, read_json(prompt))
    write_frame(table, output)
    say(f"components of {context} {family} {mode}: {len(table)} parts")


@app.command()
def trace_acceptance(
    design: DesignFile,
    models: ModelsFile,
    reference: Annotated[Path, typer.Option(help="Made by decode-reference.")],
    output: Output,
) -> None:
    """At every position of the reference text: would the draft's token pass?"""
    import pandas as pd

    from engine.evidence.agreement import trace_acceptance
    from engine.measure.lock import machine_lock
    from engine.measure.workflow_life import end_with_workflow
    from engine.tables import read_frame, write_frame

    plan = load_design(design)
    fetched = restored(plan, read_json(models))
    # All greedy baselines decode the same text, up to near-ties; a prompt's first speaks for it.
    texts: dict[tuple[str, str], list[int]] = {}
    for row in read_frame(reference).to_dict("records"):
        if plan.modes[row["baseline"]].sampling is None:
            texts.setdefault(
                (row["context"], row["family"]), [int(token) for token in row["tokens"]]
            )
    end_with_workflow()
    with machine_lock():
        rows = list(trace_acceptance(plan, fetched, read_prompts(plan), texts))
    write_frame(pd.DataFrame(rows), output)
    agreed = sum(row["matches"] > 0 for row in rows)
    say(f"acceptance trace: {agreed} of {len(rows)} positions agree ({agreed / len(rows):.3f})")


@app.command()
def check_distribution(design: DesignFile, models: ModelsFile, output: Output) -> None:
    """Hold the tokens that sampling modes draw against the target's distribution."""
    from engine.analysis.distribution import judge_counts
    from engine.evidence.distribution import count_tokens
    from engine.measure.lock import machine_lock
    from engine.measure.workflow_life import end_with_workflow
    from engine.tables import write_frame

    plan = load_design(design)
    prompts = {(str(p["context"]), p["family"]): p["tokens"] for p in read_prompts(plan)}
    end_with_workflow()
    with machine_lock():
        fetched = restored(plan, read_json(models))
        counted = list(count_tokens(plan, fetched, prompts))
    judged = judge_counts(counted, plan.seed)
    write_frame(judged, output)
    for text in judged["text"]:
        say(f"distribution: {text}")
