"""Component times: what each forward of a round costs by itself, at one prompt's length.

A process of its own, like a timing cell. The prediction for any k is made of these and of the
acceptance trace, so no mode that it predicts has any part in them.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.measure.job import CellRun, die_with_parent


def measure_components(job: dict[str, Any]) -> list[dict[str, Any]]:
    """One dict a part and number of rows: part, rows, seconds (list, one a repeat).

    Parts: `step` (a whole plain step, control included), `verify` (the target reads that many
    tokens), `control` (judging that many proposals, the stop check, the round's end), `draft` (the
    draft reads that many tokens and one is chosen). Repeats are interleaved, so that a drift of the
    machine meets all parts alike.
    """
    run = CellRun(job)
    run.prefill()
    most, repeats = job["most"], job["repeats"]
    parts = {("step", 1): _step(run)}
    parts |= {("verify", rows): _verify(run, rows) for rows in range(1, most + 2)}
    parts |= {("control", k): _control(run, k) for k in range(1, most + 1)}
    if run.draft:
        parts |= {("draft", rows): _draft(run, rows) for rows in (1, 2)}
    seconds: dict[tuple[str, int], list[float]] = {part: [] for part in parts}
    for repeat in range(repeats + 1):
        order = list(parts) if repeat % 2 else list(reversed(parts))
        for part in order:
            run.target.restart()
            if run.drafter:
                run.drafter.restart()
            run.runtime.wait()
            start = time.perf_counter()
            parts[part]()
            run.runtime.wait()
            # The first round touches everything for the first time and is not counted.
            if repeat:
                seconds[part].append(time.perf_counter() - start)
    return [{"part": p, "rows": rows, "seconds": s} for (p, rows), s in seconds.items()]


def _step(run: CellRun) -> Callable[[], None]:
    token = _tokens(run, 1)

    def step() -> None:
        logits = run.target.forward(run.runtime.upload(token))[-1]
        chosen = run.runtime.take(run.voice.choose(logits[None], []), "token")
        run.runtime.first_stop(run.runtime.values([chosen], "token"))
        run.runtime.round_end()

    return step


def _verify(run: CellRun, rows: int) -> Callable[[], None]:
    tokens = _tokens(run, rows)
    return lambda: run.target.forward(run.runtime.upload(tokens))


def _control(run: CellRun, k: int) -> Callable[[], None]:
    from engine.decoding import acceptance

    tokens = _tokens(run, k)
    block = run.runtime.upload(tokens)
    logits = run.target.saved_next[None].expand(k + 1, -1).contiguous()

    def control() -> None:
        case = acceptance.Case(block, logits, [], run.voice)
        judged = run.runtime.judge(acceptance.exact, tokens, case)
        run.runtime.first_stop(judged.values)
        run.runtime.round_end()

    return control


def _draft(run: CellRun, rows: int) -> Callable[[], None]:
    tokens, drafter = _tokens(run, rows), run.drafter

    def draft() -> None:
        logits = drafter.model.forward(run.runtime.upload(tokens), drafter.cache)[-1]
        run.runtime.take(drafter.voice.draw(logits[None], [], [])[0], "draft_token")

    return draft


def _tokens(run: CellRun, count: int) -> list:
    """Real tokens, as the runtime holds them: the target's own choice, again and again."""
    choice = run.voice.choose(run.target.saved_next[None], [])
    return [run.runtime.take(choice, "token")] * count


def main() -> None:
    gc.disable()
    job = json.load(sys.stdin)
    die_with_parent(job["parent"])
    import torch

    with torch.inference_mode():
        rows = measure_components(job)
    Path(job["result"]).write_text(json.dumps(rows), encoding="utf-8")
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
