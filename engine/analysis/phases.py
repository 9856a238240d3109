"""What a round costs and what it commits, from the instrumented runs of one prompt."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd

from engine.analysis.blocks import CELL, block_times, comparable
from engine.analysis.walk import full_rounds
from engine.design import Design
from engine.modes import Mode

PHASES = ("verify", "repair", "draft", "control")
_SECONDS = [f"{phase}_s" for phase in PHASES]


def phase_table(rows: pd.DataFrame, design: Design) -> pd.DataFrame:
    """One row a block (context, family, replicate) and mode with a drafter that was instrumented.

    `committed` tokens a round (METHODS section 6: E, a cut last round included); `verify_s`,
    `repair_s`, `draft_s`, `control_s` are seconds a round and `step_s` seconds a token of the
    baseline's plain runs. `log_r` is that block's ratio, `log_closure` = log(phases / whole) of
    the instrumented run and `log_instrumentation` = log(instrumented / plain): with them

        log_r = log(committed * step_s / sum of the phases) + log_closure + log_instrumentation

    holds exactly. `most` is what a round commits if all is accepted, the budget's end included: k
    tokens and the bonus where every round proposes k, else as many as were really proposed.
    """
    blocks = {tuple(b[key] for key in CELL): b for b in block_times(rows).to_dict("records")}
    timed = rows[rows["status"].eq("ok") & ~rows["warmup"].eq(True)]
    cells = defaultdict(list)
    for run in timed[timed["instrumented"].eq(True)].to_dict("records"):
        if not any(pd.isna(run[name]) for name in _SECONDS) and run["rounds"]:
            cells[tuple(run[key] for key in CELL)].append(run)
    table = []
    for cell in design.cells():
        key = (cell.context, cell.family, cell.mode, cell.replicate)
        if key not in cells:
            continue
        mode = design.modes[cell.mode]
        baseline = blocks.get((key[0], key[1], mode.baseline, key[3]))
        if mode.speculative and comparable(baseline, blocks[key]):
            identity = dict(zip(CELL, key, strict=True))
            table.append(
                identity | _round(cells[key], blocks[key], baseline, design.new_tokens, mode)
            )
    return pd.DataFrame(table, columns=_COLUMNS) if table else pd.DataFrame(columns=_COLUMNS)


def speaking(phases: pd.DataFrame, ratios: pd.DataFrame, design: Design) -> pd.DataFrame:
    """The phases of families that passed the gates, or of all where too few of them did.

    Column `gated` says which of the two it is for a (context, mode). The gates protect a verdict;
    where there is none, the costs of all families still say where the time went. Column
    `family_log_r` is the family's own log R, of all its blocks.
    """
    if phases.empty:
        return phases.assign(gated=False, family_log_r=math.nan)
    place = ["context", "family", "mode"]
    said = ratios[[*place, "admitted", "log_r"]].rename(columns={"log_r": "family_log_r"})
    marked = phases.merge(said, on=place, how="left")
    marked["gated"] = marked.pop("admitted").eq(True)
    chosen = []
    for _, group in marked.groupby(["context", "mode"], sort=False):
        enough = group.loc[group["gated"], "family"].nunique() >= design.inference.student_t_from
        chosen.append(group[group["gated"]] if enough else group.assign(gated=False))
    return pd.concat(chosen, ignore_index=True)


_COLUMNS = [
    *CELL, "rounds", "committed", "most", "step_s", *_SECONDS, "log_r", "log_closure",
    "log_instrumentation",
]  # fmt: skip


def _most(run: dict[str, Any], tokens: int, mode: Mode) -> float:
    if mode.proposes_k:
        return tokens / full_rounds(tokens, mode.k, mode.round, mode.bonus)
    rounds, proposed = int(run["rounds"]), int(run["proposed"])
    if mode.bonus:
        # A repair round that ends the text has none.
        passed = proposed + rounds - (mode.round == "repair")
    else:
        # A round without a proposal commits a token all the same.
        passed = proposed + rounds - sum(run["proposed_by_position"][:1])
    # Repair rounds commit the first token as well, which else comes of the prompt.
    by_rounds = tokens if mode.round == "repair" else max(tokens - 1, 1)
    return tokens / rounds * max(passed / by_rounds, 1.0)


def _round(
    runs: list[dict[str, Any]],
    block: dict[str, Any],
    baseline: dict[str, Any],
    tokens: int,
    mode: Mode,
) -> dict[str, Any]:
    rounds = int(runs[0]["rounds"])
    seconds = {name: float(np.median([run[name] for run in runs])) for name in _SECONDS}
    phases, whole = sum(seconds.values()), float(np.median([run["decode_s"] for run in runs]))
    return {
        "rounds": rounds,
        "committed": tokens / rounds,
        "most": _most(runs[0], tokens, mode),
        "step_s": baseline["block_s"] / tokens,
        **{name: value / rounds for name, value in seconds.items()},
        "log_r": math.log(baseline["block_s"] / block["block_s"]),
        "log_closure": math.log(phases / whole),
        "log_instrumentation": math.log(whole / block["block_s"]),
    }
