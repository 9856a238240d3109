"""The graph runtime on a GPU machine, in one call: tests, timing cells, and a table printed last.

    python -m tests.gpu_runtime [--skip-tests] [--families 2] [--json FILE]

Needs no workflow and no network (the embedded pair's weights, once fetched, are in the cache).
Cells of config/h200.yaml are measured one by one, as `time-cell` does, 8192 tokens first. The table
says what is wanted beside what was seen.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import torch
import yaml

from engine.analysis.gates import judge, summary
from engine.composition import ROOT
from engine.design import Design, parse_design
from engine.measure.cell import time_cell
from engine.measure.rows import to_table
from engine.models.fetching import fetch
from engine.models.shapes import SHAPES
from engine.models.synthetic import synthetic_decoder
from engine.prompts import synthetic_prompt
from tests.gpu_invariance import embedded_pair, hard_pair, invariance

CONTEXTS = [8192, 2048]
# Near the middle of the designed acceptances.
FAMILIES = ["reviews", "recipes", "legal", "translation"]
TESTS = ["tests/test_kernels.py", "tests/test_static.py", "tests/test_cuda.py"]
PARTS = ("ar", "ar_device", "phase_o", "graph_draft", "graph_verify", "graph_naive", "ar_invariant")


def reduced(families: int) -> Design:
    """config/h200.yaml on fewer prompts; what explains on one of them."""
    data = yaml.safe_load((ROOT / "config/h200.yaml").read_text(encoding="utf-8"))
    modes = {name: data["modes"][name] for name in ("ar_graph", "graph")}
    only = {"only": {"contexts": 1, "families": 1}}
    modes |= {name: data["modes"][name] | only for name in PARTS}
    changed = {"contexts": CONTEXTS, "families": FAMILIES[:families], "modes": modes}
    return parse_design(data | changed | {"components": None})


def measure(design: Design) -> pd.DataFrame:
    """All rows of the design's cells, in the planned order."""
    models = {role: vars(fetch(getattr(design.models, role), ROOT)) for role in ("target", "draft")}
    models["stop_ids"] = [design.models.target.plan.vocabulary - design.models.target.plan.special]
    rows, cells = [], list(design.cells())
    for index, cell in enumerate(cells, 1):
        began = time.perf_counter()
        name = design.family_slugs[cell.family]
        made = time_cell(design, cell, models, synthetic_prompt(design, cell.context, name))
        rows += made
        took = time.perf_counter() - began
        print(
            f"[{index}/{len(cells)}] {cell.context} {cell.family} {cell.mode} r{cell.replicate}: "
            f"{made[0]['status']} in {took:.1f} s {made[0]['error'][-300:]}",
            flush=True,
        )
    return to_table(rows).to_pandas()


def spread(values) -> tuple[float, float]:
    """Median and median absolute deviation."""
    values = list(values)
    middle = statistics.median(values)
    return middle, statistics.median(abs(v - middle) for v in values)


def told(values, scale: float = 1.0, digits: int = 3) -> str:
    values = [v * scale for v in values]
    if not values:
        return "-"
    middle, deviation = spread(values)
    return f"{middle:.{digits}f} ({deviation:.{digits}f})"


def table_of(frame: pd.DataFrame) -> Iterator[tuple[str, dict[int, str], str]]:
    """(what, by context, wanted)."""
    ok = frame[frame["status"].eq("ok") & ~frame["warmup"].eq(True)]

    def of(context: int, mode: str, instrumented: bool = False) -> pd.DataFrame:
        here = ok[(ok["context"] == str(context)) & (ok["mode"] == mode)]
        return here[here["instrumented"].eq(instrumented)]

    def line(what: str, wanted: str, figure) -> tuple[str, dict[int, str], str]:
        return what, {context: figure(context) for context in CONTEXTS}, wanted

    def step_s(context: int, mode: str = "ar_graph") -> pd.Series:
        runs = of(context, mode)
        return runs["decode_s"] / runs["target_calls"]

    def share(context: int) -> str:
        runs = of(context, "ar_graph")
        return told(runs["step_bytes"] / step_s(context) / runs["peak_read_bw"])

    def first_and_rest(context: int) -> str:
        rounds = of(context, "ar_graph")["round_s"]
        first, rest = ([r[0] for r in rounds], [statistics.median(r[1:]) for r in rounds])
        return f"{told(first, 1e3)}; {told(rest, 1e3)}"

    def phase(context: int, mode: str, name: str, count: str) -> pd.Series:
        runs = of(context, mode, instrumented=True)
        return runs[f"{name}_s"] / runs[count]

    def ratio(context: int) -> str:
        verify = phase(context, "graph", "verify", "rounds")
        step = statistics.median(step_s(context)) if len(step_s(context)) else float("nan")
        return told(verify / step)

    def beyond(context: int) -> str:
        runs = of(context, "graph")
        return told(runs["peak_bytes"] - runs["weights_bytes"] - runs["kv_bytes"], 2**-20, 0)

    def gain(mode: str, name: str, count: str):
        def figure(context: int) -> str:
            with_, without = (phase(context, m, name, count) for m in (mode, "phase_o"))
            return told([without.median() / value for value in with_], digits=2)

        return figure

    def naive(context: int) -> str:
        here = frame[(frame["context"] == str(context)) & (frame["mode"] == "graph_naive")]
        if not len(here):
            return "-"
        row = here.iloc[0]
        return (
            f"{row['status']}: {row['graphs_captured']:.0f} of {row['graphs_planned']:.0f}, "
            f"{row['graph_pool_bytes'] / 2**30:.2f} GiB"
            if row["graphs_captured"] == row["graphs_captured"]
            else f"{row['status']}: {row['error'][-80:]}"
        )

    def startup(context: int) -> str:
        runs = of(context, "graph")
        names = ("startup_import_s", "startup_device_s", "startup_weights_s", "capture_s")
        parts = [runs[name].median() for name in names]
        return f"{sum(parts):.2f} = " + " + ".join(f"{part:.2f}" for part in parts)

    def speed(context: int) -> str:
        mode, plain = (of(context, m).groupby("family")["decode_s"] for m in ("graph", "ar_graph"))
        return told(plain.median() / mode.median())

    def chain(context: int) -> str:
        return told(phase(context, "graph", "draft", "proposed"), 4e3)

    def waits(context: int) -> str:
        return ", ".join(
            told(of(context, mode)["host_syncs"] / of(context, mode)["rounds"], digits=2)
            for mode in ("ar_graph", "graph")
        )

    def accepted(context: int) -> str:
        runs = of(context, "graph")
        return told(runs["accepted"] / runs["proposed"])

    yield line("AR step, ms, host included", "0.99 / 0.94", lambda c: told(step_s(c), 1e3))
    yield line("... the first token's share, ms; rounds on the stream", "", first_and_rest)
    yield line("... of the read-only sweep", ">= 0.80", share)
    yield line("sweep, TB/s", "", lambda c: told(of(c, "ar_graph")["peak_read_bw"], 1e-12, 2))
    yield line("verification, ms", "", lambda c: told(phase(c, "graph", "verify", "rounds"), 1e3))
    yield line("... in AR steps", "<= 1.10", ratio)
    yield line("draft chain of 4, ms", "<= 1.6", chain)
    yield line("R of graph against ar_graph", "", speed)
    yield line("acceptance (designed 0.49 / 0.54, spread 0.05)", "", accepted)
    yield line("MiB beside weights and caches, most", "<= 256", beyond)
    yield line("waits a round, ar_graph and graph", "<= 1", waits)
    yield line("start-up, s: import, device, weights, kernels and graphs", "<= 6", startup)
    yield line("prefill of the target, ms", "", lambda c: told(
        frame[(frame["context"] == str(c))]["target_prefill_s"].dropna().unique(), 1e3, 1
    ))  # fmt: skip
    yield line("eager AR step, ms", "", lambda c: told(step_s(c, "ar"), 1e3))
    yield line("... with invariant numerics", "", lambda c: told(step_s(c, "ar_invariant"), 1e3))
    yield line("graph_draft: drafting, times as fast", "published 3.7-6.0",
               gain("graph_draft", "draft", "proposed"))  # fmt: skip
    yield line("graph_verify: verification, times as fast", "published 1.4-2.6",
               gain("graph_verify", "verify", "rounds"))  # fmt: skip
    yield line("graph_naive within 8 GiB", "published 8 of 26", naive)


def _timed(action) -> str:
    """Milliseconds of an action, warm: median and MAD of five."""
    times = []
    for _ in range(7):
        torch.cuda.synchronize()
        began = time.perf_counter()
        action()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return told(times[2:], 1e3, 1)


@torch.inference_mode()
def prefills() -> str:
    """Prefill of 8192 tokens here and by transformers, warm, same shape and random weights."""
    context, vocabulary, shape = 8192, 151_936, SHAPES["qwen2.5-1.5b"]
    tokens = torch.arange(context, device="cuda")
    model = synthetic_decoder(shape, torch.arange(vocabulary), 1, "cuda", torch.bfloat16)
    cache = model.new_cache(context)

    def own() -> None:
        cache.trim(0)
        model.prefill(tokens, cache, 2048)

    ours = _timed(own)
    try:
        from transformers import Qwen2Config, Qwen2ForCausalLM
    except ImportError:
        return f"prefill of {context} tokens, warm: {ours} ms; transformers is not here"
    keys = {key: value for key, value in shape.items() if key != "model_type"}
    config = Qwen2Config(**keys, vocab_size=vocabulary, attn_implementation="sdpa")
    with torch.device("cuda"):
        theirs = Qwen2ForCausalLM(config).to(torch.bfloat16).eval()
    taken = _timed(lambda: theirs(tokens[None], logits_to_keep=1, use_cache=True))
    return f"prefill of {context} tokens, warm: {ours} ms, transformers {taken} ms"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--skip-tests", action="store_true")
    parser.add_argument("--families", type=int, default=2)
    parser.add_argument("--json", help="file for all rows, as JSON")
    arguments = parser.parse_args()
    lines = []
    if not arguments.skip_tests:
        words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "addopts=", "-q"]
        done = subprocess.run([*words, *TESTS], cwd=ROOT, capture_output=True, text=True)
        print(done.stdout[-6000:], done.stderr[-1000:], flush=True)
        lines.append(f"tests: {(done.stdout.strip().splitlines() or ['none'])[-1]}")
    design = reduced(arguments.families)
    frame = measure(design)
    if arguments.json:
        text = frame.to_json(orient="records", date_format="iso")
        Path(arguments.json).write_text(text, encoding="utf-8")
    for question in (
        lambda: invariance(hard_pair()),
        lambda: invariance(embedded_pair()),
        lambda: [prefills()],
    ):
        try:
            lines += question()
        except Exception as error:  # what was measured is worth more than the rest
            lines.append(f"failed: {type(error).__name__}: {error}")
    try:
        gates = judge(frame, design)
        passed = summary(gates)
        here = passed[passed["mode"].isin(["ar_graph", "graph"])]
        lines.append(f"gates: {int(here['passed'].sum())} of {len(here)} (context, family, mode)")
        failed = gates[gates["applicable"].astype(bool) & ~gates["passed"].astype(bool)]
        lines += [
            f"  {row['context']} {row['family']} {row['mode']} {row['gate']}: {row['text']}"
            for row in failed.to_dict("records")
            if row["mode"] in ("ar_graph", "graph")
        ][:12]
    except Exception as error:
        lines.append(f"gates not judged: {type(error).__name__}: {error}")
    print("\n==== medians (MAD) over runs")
    print(f"| what | {' | '.join(map(str, CONTEXTS))} | wanted |")
    for what, figures, wanted in table_of(frame):
        print(f"| {what} | {' | '.join(figures[c] for c in CONTEXTS)} | {wanted} |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
