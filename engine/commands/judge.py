"""From rows to a verdict."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from engine.commands.options import (
    DesignFile,
    GatesFile,
    ModelsFile,
    Output,
    PublishedFile,
    RatiosFile,
    RowsFile,
    VerdictFile,
    app,
    read_prompts,
    restored,
    say,
)
from engine.composition import ROOT
from engine.design import DesignError, load_design
from engine.preparation.files import read_json, write_json


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
    say(f"gates: {int(passed.sum())} of {len(passed)} (context, family, mode) pass all six")


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

        prompts = {(p["context"], p["family"]): p["tokens"] for p in read_prompts(plan)}
        end_with_workflow()
        with machine_lock():
            fetched = restored(plan, read_json(models))
            certificates = pd.DataFrame(certify(plan, fetched, prompts, open_cases))
    tokens = compare_tokens(collected, made, plan, certificates)
    write_frame(tokens, output)
    say(f"tokens: {tokens['outcome'].value_counts().to_dict()}")


@app.command()
def estimate_speedup(
    design: DesignFile,
    rows: RowsFile,
    gates: GatesFile,
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
    from engine.preparation.freeze import change_lines, read_freeze
    from engine.tables import read_frame, write_frame

    plan, collected = load_design(design), read_frame(rows)
    judged, compared, record = read_frame(gates), read_frame(tokens), read_freeze(frozen)
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
def check_designed(
    design: DesignFile,
    rows: RowsFile,
    trace: Annotated[Path, typer.Option(help="Made by trace-acceptance.")],
    output: Output,
) -> None:
    """Hold a synthetic pair's agreement and acceptance against the designed ones."""
    from engine.analysis.designed import compare_designed, sentence
    from engine.tables import read_frame, write_frame

    plan = load_design(design)
    if plan.models.target.source != "synthetic":
        raise DesignError(f"design {plan.design!r} has a pair that nobody designed: models.target")
    table = compare_designed(plan, read_frame(rows), read_frame(trace))
    write_frame(table, output)
    say(f"synthetic pair: {sentence(table)}")


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
def judge_claims(
    design: DesignFile, rows: RowsFile, ratios: RatiosFile, gates: GatesFile, output: Output
) -> None:
    """Hold what a second source claims against what was measured."""
    from engine.analysis.claims import judge_claims
    from engine.tables import read_frame, write_frame

    found = [read_frame(path) for path in (rows, ratios, gates)]
    table = judge_claims(*found, load_design(design))
    write_frame(table, output)
    for sentence in table["sentence"]:
        say(f"claim: {sentence}")


@app.command()
def judge_chain(
    design: DesignFile,
    rows: RowsFile,
    ratios: RatiosFile,
    tokens: Annotated[Path, typer.Option(help="Made by check-tokens.")],
    published: PublishedFile,
    output: Output,
    trace: Annotated[Path | None, typer.Option(help="Made by trace-acceptance.")] = None,
) -> None:
    """Hold the published chain of numbers against what was measured."""
    import pandas as pd

    from engine.analysis.chain import judge_chain
    from engine.tables import read_frame, write_frame

    table = judge_chain(
        read_frame(rows),
        read_frame(ratios),
        read_frame(tokens),
        read_frame(trace) if trace else None,
        load_design(design),
        pd.read_csv(published),
    )
    write_frame(table, output)
    counts = table["outcome"].value_counts().to_dict()
    if counts:
        say(f"published numbers: {', '.join(f'{n} {word}' for word, n in counts.items())}")


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

    from engine.analysis.prediction import Predictor, score
    from engine.tables import read_frame, write_frame

    plan = load_design(design)
    places = plan.component_places()
    if not places:
        raise DesignError(f"design {plan.design!r} times no components, so nothing is predicted")
    parts = pd.concat([read_frame(ROOT / plan.component_path(*place)) for place in places])
    predictor = Predictor(read_frame(trace), parts, plan)
    compared = predictor.beside(read_json(verdict)["verdicts"])
    write_frame(predictor.table(), predicted)
    write_frame(compared, output)
    inside, of, width = score(compared)
    said = f" (median half-width {100 * width:.0f}%)" if of else ""
    say(f"prediction: {inside} of {of} measured R lie inside their interval{said}")


@app.command()
def require_verdict(verdict: VerdictFile) -> None:
    """Exit non-zero if a planned inference is missing."""
    from engine.analysis.verdict import strict_failures

    missing = strict_failures(read_json(verdict))
    if missing:
        sys.exit("error: " + "; ".join(missing))
    say("every planned inference is there")


@app.command()
def list_failed(
    design: DesignFile = Path("results/embedded/design.json"),
) -> None:
    """Print the files of all cells that failed to measure, for `snakemake -R`."""
    from engine.analysis.collect import failed_files

    failed = failed_files(load_design(design), ROOT)
    if not failed:
        print("no cell failed", file=sys.stderr)  # standard output goes to snakemake -R
    for path in failed:
        print(path)
