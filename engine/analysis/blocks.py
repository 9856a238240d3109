"""The time of a block's cell: the sum over rounds of the median over its runs.

Greedy runs repeat the same rounds, so a stall in one run is outvoted by the same round of the
other runs, which a median of run totals cannot do (METHODS section 4).
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

CELL = ["context", "family", "mode", "replicate"]
_STATION = ["boot_id", "device_uuid"]
_READ = [*CELL, *_STATION, "status", "error", "round_s", "decode_s", "target_prefill_s",
         "draft_prefill_s"]  # fmt: skip
_MADE = [
    "runs", "rounds", "block_s", "total_median_s", "target_prefill_s", "draft_prefill_s", "reason",
    "station",
]  # fmt: skip


def measured_runs(rows: pd.DataFrame) -> pd.DataFrame:
    """The runs that carry a time: ok, and no warm-up, instrumented or disturbed run."""
    return rows[_carries_time(rows)]


def block_times(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a (context, family, mode, replicate) that has rows; times in seconds.

    Columns: the four keys, `runs` and `rounds` (the time's own), `block_s`, `total_median_s`
    (the median of whole runs, beside), `target_prefill_s`, `draft_prefill_s` (0 without a
    draft), `reason`, which says why `block_s` is NaN and is '' otherwise, and `station`: the boot
    of the machine, and its GPU, if any. Times of two stations are of two machines.
    """
    cells = defaultdict(list)
    for run in rows[_READ].assign(measured=_carries_time(rows)).to_dict("records"):
        cells[tuple(run[name] for name in CELL)].append(run)
    table = [dict(zip(CELL, key, strict=True)) | _block(cells[key]) for key in sorted(cells)]
    return pd.DataFrame(table, columns=[*CELL, *_MADE])


def both_timed(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Whether two blocks of `block_times` have a time each; None is a block without rows."""
    return one is not None and other is not None and not one["reason"] and not other["reason"]


def comparable(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Whether the times of two blocks may be divided: both have one, of one boot and one GPU.

    A mode that was measured again elsewhere says nothing about times of those that were not.
    """
    return both_timed(one, other) and one["station"] == other["station"]


def _carries_time(rows: pd.DataFrame) -> pd.Series:
    spoilt = rows[["warmup", "instrumented", "disturbed"]].eq(True).any(axis=1)
    return rows["status"].eq("ok") & ~spoilt


def _block(cell: list[dict[str, Any]]) -> dict[str, Any]:
    runs = [run for run in cell if run["measured"]]
    rounds = [np.asarray(run["round_s"], dtype=float) for run in runs if run["round_s"] is not None]
    reason = _why_no_time(cell, rounds)
    # Prefill happens once in a cell, so every run of it, warm-up included, carries the same.
    ok = [run for run in cell if run["status"] == "ok"]
    draft_prefill = _median(ok, "draft_prefill_s")
    return {
        "runs": len(runs),
        "rounds": 0 if reason else rounds[0].size,
        "block_s": math.nan if reason else float(np.median(rounds, axis=0).sum()),
        "total_median_s": _median(runs, "decode_s"),
        "target_prefill_s": _median(ok, "target_prefill_s"),
        "draft_prefill_s": 0.0 if math.isnan(draft_prefill) else draft_prefill,
        "reason": reason,
        "station": " ".join(str(cell[0][name] or "") for name in _STATION),
    }


def _median(runs: list[dict[str, Any]], name: str) -> float:
    present = [run[name] for run in runs if not pd.isna(run[name])]
    return statistics.median(present) if present else math.nan


def _why_no_time(cell: list[dict[str, Any]], rounds: list[np.ndarray]) -> str:
    if not rounds:
        broken = next((run for run in cell if run["status"] != "ok"), None)
        if broken is None:
            return "no measured run"
        # A crash leaves the end of its trace, whose last line names the fault.
        return ": ".join([broken["status"], *broken["error"].strip().splitlines()[-1:]])
    sizes = sorted({r.size for r in rounds})
    if len(sizes) > 1:
        return f"its runs differ in their number of rounds ({', '.join(map(str, sizes))})"
    if any((r < 0).any() or not r.sum() > 0 for r in rounds):
        return "its rounds carry no usable durations"
    return ""
