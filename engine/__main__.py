"""`python -m engine`: one subcommand per rule, each a thin call; the work is elsewhere."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from engine.composition import ROOT
from engine.design import Design, load_design
from engine.preparation.files import read_json, write_json

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)

DesignFile = Annotated[Path, typer.Option("--design", help="The design, YAML or JSON.")]
ModelsFile = Annotated[Path, typer.Option("--models", help="Made by fetch-model.")]
RowsFile = Annotated[Path, typer.Option("--rows", help="All rows, made by check-timing.")]
RatiosFile = Annotated[Path, typer.Option("--ratios", help="Made by estimate-speedup.")]
VerdictFile = Annotated[Path, typer.Option("--verdict", help="Made by estimate-speedup.")]
PublishedFile = Annotated[Path, typer.Option("--published", help="config/published.csv.")]
Context = Annotated[str, typer.Option("--context")]
Family = Annotated[str, typer.Option("--family")]
Output = Annotated[Path, typer.Option("--output", help="File to write.")]


@app.command()
def freeze_design(
    design: DesignFile,
    output: Output,
    overrides: Annotated[str, typer.Option(help="JSON list of key=value.")] = "[]",
) -> None:
    """Record the design before the first cell; later changes are appended to --output."""
    from engine.preparation.freeze import freeze

    freeze(load_design(design), json.loads(overrides), output)


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
            "turn": chat_turn(folder),
        },
        output,
    )


@app.command()
def build_prompt(
    design: DesignFile, models: ModelsFile, context: Context, family: Family, output: Output
) -> None:
    """Write one cell's prompt as token ids."""
    from tokenizers import Tokenizer

    from engine.prompts import PromptBuilder, read_sources

    plan = load_design(design)
    fetched = _restored(plan, read_json(models))
    tokenizer = Tokenizer.from_file(str(Path(fetched["target"]["folder"]) / "tokenizer.json"))
    builder = PromptBuilder(plan, read_sources(plan.prompts, ROOT), tokenizer, fetched["turn"])
    write_json(builder.build(context, plan.family_slugs[family]), output)


@app.command()
def check_inputs(design: DesignFile, models: ModelsFile, output: Output) -> None:
    """Refuse, in one sentence, what cannot be measured here."""
    from engine.preparation import checks

    plan = load_design(design)
    fetched = _restored(plan, read_json(models))
    write_json(checks.check_inputs(plan, fetched, _read_prompts(plan), ROOT), output)


@app.command()
def decode_reference(design: DesignFile, models: ModelsFile, output: Output) -> None:
    """Decode every prompt once with each baseline, untimed."""
    import pandas as pd

    from engine.evidence.reference import decode_references
    from engine.measure.lock import machine_lock
    from engine.measure.workflow_life import end_with_workflow
    from engine.tables import write_frame

    plan = load_design(design)
    fetched = _restored(plan, read_json(models))
    total = len(plan.reference_places())
    rows = []
    end_with_workflow()
    with machine_lock():
        for row in decode_references(plan, fetched, _read_prompts(plan)):
            rows.append(row)
            _say(f"reference [{len(rows)}/{total}] {row['context']} {row['family']}")
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
    rows = time_cell(plan, cell, _restored(plan, read_json(models)), read_json(prompt))
    from engine.measure.rows import write_rows

    write_rows(rows, output)
    _say(progress_line(cell, rows, started))


@app.command()
def check_timing(
    design: DesignFile,
    rows: Annotated[Path, typer.Option(help="All rows of the design in one file, to write.")],
    output: Output,
    config_argument: Annotated[str, typer.Option(help="For commands in messages.")] = "",
) -> None:
    """Collect the design's rows and judge the six gates."""
    from engine.analysis.collect import collect
    from engine.analysis.gates import judge, summary
    from engine.tables import write_frame

    plan = load_design(design)
    collected = collect(plan, ROOT)
    gates = judge(collected, plan, config_argument=config_argument)
    write_frame(collected, rows)
    write_frame(gates, output)
    passed = summary(gates)["passed"]
    _say(f"gates: {int(passed.sum())} of {len(passed)} (context, family, mode) pass all six")


@app.command()
def check_tokens(
    design: DesignFile,
    models: ModelsFile,
    rows: RowsFile,
    reference: Annotated[Path, typer.Option()],
    output: Output,
) -> None:
    """Hold every exact mode's tokens against its baseline's; certify near-ties with the model."""
    from engine.analysis.tokens import compare_tokens, divergences
    from engine.tables import read_frame, write_frame

    plan, collected, made = load_design(design), read_frame(rows), read_frame(reference)
    open_cases = divergences(collected, plan)
    certificates = None
    if open_cases:
        import pandas as pd

        from engine.evidence.certificates import certify
        from engine.measure.lock import machine_lock
        from engine.measure.workflow_life import end_with_workflow

        prompts = {(p["context"], p["family"]): p["tokens"] for p in _read_prompts(plan)}
        end_with_workflow()
        with machine_lock():
            fetched = _restored(plan, read_json(models))
            certificates = pd.DataFrame(certify(plan, fetched, prompts, open_cases))
    tokens = compare_tokens(collected, made, plan, certificates)
    write_frame(tokens, output)
    _say(f"tokens: {tokens['outcome'].value_counts().to_dict()}")


@app.command()
def check_distribution(design: DesignFile, models: ModelsFile, output: Output) -> None:
    """Hold the tokens that sampling modes draw against the target's distribution."""
    from engine.analysis.distribution import judge_counts
    from engine.evidence.distribution import count_tokens
    from engine.measure.lock import machine_lock
    from engine.measure.workflow_life import end_with_workflow
    from engine.tables import write_frame

    plan = load_design(design)
    prompts = {(str(p["context"]), p["family"]): p["tokens"] for p in _read_prompts(plan)}
    end_with_workflow()
    with machine_lock():
        fetched = _restored(plan, read_json(models))
        counted = list(count_tokens(plan, fetched, prompts))
    judged = judge_counts(counted, plan.seed)
    write_frame(judged, output)
    for text in judged["text"]:
        _say(f"distribution: {text}")


@app.command()
def estimate_speedup(
    design: DesignFile,
    rows: RowsFile,
    gates: Annotated[Path, typer.Option()],
    tokens: Annotated[Path, typer.Option()],
    frozen: Annotated[Path, typer.Option()],
    ratios: Annotated[Path, typer.Option(help="Table of ratios per family, to write.")],
    output: Output,
    distribution: Annotated[
        Path | None, typer.Option(help="Made by check-distribution, if a mode samples.")
    ] = None,
) -> None:
    """Paired ratios, intervals and the verdict."""
    from engine.analysis.speedup import family_ratios
    from engine.analysis.verdict import build_verdict
    from engine.preparation.freeze import change_lines
    from engine.tables import read_frame, write_frame

    plan, collected = load_design(design), read_frame(rows)
    judged, compared, record = read_frame(gates), read_frame(tokens), read_json(frozen)
    record["changes"] = change_lines(record)
    table = family_ratios(collected, judged, compared, plan)
    write_frame(table, ratios)
    write_json(
        build_verdict(
            plan,
            collected,
            judged,
            compared,
            table,
            record["overrides"],
            record,
            read_frame(distribution) if distribution else None,
        ),
        output,
    )


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
    fetched = _restored(plan, read_json(models))
    table = time_components(plan, context, family, mode, fetched, read_json(prompt))
    write_frame(table, output)
    _say(f"components of {context} {family} {mode}: {len(table)} parts")


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
    fetched = _restored(plan, read_json(models))
    # All greedy baselines decode the same text, up to near-ties; a prompt's first speaks for it.
    texts: dict[tuple[str, str], list[int]] = {}
    for row in read_frame(reference).to_dict("records"):
        if plan.modes[row["baseline"]].sampling is None:
            texts.setdefault(
                (row["context"], row["family"]), [int(token) for token in row["tokens"]]
            )
    end_with_workflow()
    with machine_lock():
        rows = list(trace_acceptance(plan, fetched, _read_prompts(plan), texts))
    write_frame(pd.DataFrame(rows), output)
    agreed = sum(row["matches"] > 0 for row in rows)
    _say(f"acceptance trace: {agreed} of {len(rows)} positions agree ({agreed / len(rows):.3f})")


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

    plan = load_design(design)
    check_device(plan)
    end_with_workflow()
    bench = Bench(plan, _restored(plan, read_json(models)), read_json(prompt)["tokens"])
    # The last rung starts cells, which take the machine for themselves.
    held = contextlib.nullcontext() if rung == "pair" else machine_lock()
    with held, torch.inference_mode():
        told = RUNGS[rung](bench)
    _say(f"smoke, {rung}: {told}")
    write_json({"rung": rung, "told": told}, output)


@app.command()
def explain_cost(
    design: DesignFile,
    rows: RowsFile,
    ratios: RatiosFile,
    waterfall: Annotated[Path, typer.Option(help="Terms over families, to write.")],
    output: Output,
) -> None:
    """Split log R into its terms, and into steps between phases."""
    from engine.analysis.explanation import explain
    from engine.tables import read_frame, write_frame

    terms, steps = explain(read_frame(rows), read_frame(ratios), load_design(design))
    write_frame(terms, waterfall)
    write_frame(steps, output)


@app.command()
def judge_claims(design: DesignFile, rows: RowsFile, ratios: RatiosFile, output: Output) -> None:
    """Hold what a second source claims against what was measured."""
    from engine.analysis.claims import judge_claims
    from engine.tables import read_frame, write_frame

    table = judge_claims(read_frame(rows), read_frame(ratios), load_design(design))
    write_frame(table, output)
    for sentence in table["sentence"]:
        _say(f"claim: {sentence}")


@app.command()
def predict_speedup(
    design: DesignFile,
    trace: Annotated[Path, typer.Option(help="Made by trace-acceptance.")],
    verdict: VerdictFile,
    predicted: Annotated[Path, typer.Option(help="R for every k, to write.")],
    output: Output,
) -> None:
    """R for every k from walked rounds and component times, beside what was measured."""
    import pandas as pd

    from engine.analysis.prediction import Predictor
    from engine.tables import read_frame, write_frame

    plan = load_design(design)
    places = plan.component_places()
    parts = pd.concat([read_frame(ROOT / plan.component_path(*place)) for place in places])
    predictor = Predictor(read_frame(trace), parts, plan)
    compared = predictor.beside(read_json(verdict)["verdicts"])
    write_frame(predictor.table(), predicted)
    write_frame(compared, output)
    inside = int(compared["inside"].sum()) if len(compared) else 0
    _say(f"prediction: {inside} of {len(compared)} measured R lie inside their interval")


@app.command()
def require_verdict(verdict: VerdictFile) -> None:
    """Exit non-zero if a planned inference is missing."""
    from engine.analysis.verdict import strict_failures

    missing = strict_failures(read_json(verdict))
    if missing:
        sys.exit("error: " + "; ".join(missing))
    _say("every planned inference is there")


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
    gates: Annotated[Path, typer.Option()],
    tokens: Annotated[Path, typer.Option()],
    verdict: VerdictFile,
    published: PublishedFile,
    confirmatory: Annotated[Path, typer.Option()],
    confirmatory_wide: Annotated[Path, typer.Option()],
    acceptance: Annotated[Path, typer.Option()],
    output: Output,
    mechanism: Annotated[
        list[Path] | None, typer.Argument(help="SVG files of plot-mechanism, JSON beside them.")
    ] = None,
) -> None:
    """One self-contained HTML page."""
    import pandas as pd

    from engine.report import render
    from engine.report.evidence import gather
    from engine.tables import read_frame

    plan = load_design(design)
    said = {path.stem: read_json(path.with_suffix(".json")) for path in mechanism or []}

    render(
        read_json(verdict),
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
    )


@app.command()
def list_failed(
    design: DesignFile = Path("results/embedded/design.json"),
) -> None:
    """Print the files of all cells that failed to measure, for `snakemake -R`."""
    from engine.analysis.collect import failed_files

    for path in failed_files(load_design(design), ROOT):
        print(path)


def _read_prompts(plan: Design) -> list[dict]:
    return [
        read_json(ROOT / plan.prompt_path(context, family))
        for context in plan.contexts
        for family in plan.family_slugs
    ]


def _restored(plan: Design, models: dict) -> dict:
    """The recorded models, fetched again if the cache was emptied in the meantime."""
    from engine.models.fetching import fetch

    for role, source in (("target", plan.models.target), ("draft", plan.models.draft)):
        if models[role] and not Path(models[role]["folder"]).is_dir():
            models[role] = vars(fetch(source, ROOT))
    return models


def _say(line: str) -> None:
    # A terminal that went away must not cost what was measured.
    with contextlib.suppress(BrokenPipeError):
        print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Run a subcommand; every expected fault is one sentence and a non-zero exit."""
    try:
        app(standalone_mode=True)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = error.filename or Path.cwd()
            sys.exit(f"error: the disk is full at {where}; free some space and run again")
        sys.exit(f"error: cannot use {error.filename}: {error.strerror or error}")
    except Exception as error:
        if type(error).__module__.startswith("engine."):
            sys.exit(f"error: {error}")
        if os.environ.get("SPECSCALE_DEBUG"):
            raise
        first = (str(error).splitlines() or [""])[0]
        sys.exit(
            f"error: unexpected {type(error).__name__}: {first} (set SPECSCALE_DEBUG=1 for the "
            "traceback; if a file under results/ is damaged, delete it and run again)"
        )


if __name__ == "__main__":
    main()
