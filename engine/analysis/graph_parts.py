"""What CUDA graphs do for one part of a round, by family, and what they hold in memory.

`modes` are compositions by name, as verdict.json lists them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

Modes = Mapping[str, Mapping[str, Any]]
_GIB = 2.0**30
# A phase, and what one round's share of it is counted by.
_COUNTED_BY = {"draft": "proposed", "verify": "rounds"}
# The phases that a runtime's graphs hold and that can be timed apart.
_GRAPHED = {
    "graph": ("draft", "verify"),
    "graph_draft": ("draft",),
    "graph_verify": ("verify",),
}


@dataclass(frozen=True)
class Pool:
    """What the graphs of a mode hold at one context, GiB, and how many there are of how many."""

    context: str
    mode: str
    gib: float
    graphs: int
    planned: int
    ended: str

    @property
    def out_of_memory(self) -> bool:
        return self.ended == "out of memory"

    @property
    def whole(self) -> float:
        """What all planned graphs would hold, were the others like these."""
        return self.gib * self.planned / self.graphs if self.graphs else math.nan


def family_gains(
    rows: pd.DataFrame, modes: Modes, contexts: Sequence[str]
) -> dict[tuple[str, str, str], pd.Series]:
    """(mode, phase, context) -> how many times as fast by family, against the same mode with the
    loop on the device; in the order of the modes. Places without a family are left out.
    """
    timed = rows[rows["status"].eq("ok") & rows["instrumented"].eq(True)]
    found = {}
    for mode, composition in modes.items():
        without = counterpart(modes, mode) if composition["drafter"] != "none" else None
        for phase in _GRAPHED.get(composition["runtime"], ()) if without else ():
            for context in contexts:
                here = timed[timed["context"] == context]
                ratios = _per_round(here, without, phase) / _per_round(here, mode, phase)
                if len(ratios := ratios.dropna()):
                    found[mode, phase, context] = ratios
    return found


def of_two_machines(rows: pd.DataFrame, one: str, other: str) -> bool:
    """Whether any cell of a mode ran on another machine, boot or GPU than its like of the other."""
    place = ["context", "family", "replicate"]
    seen = rows[rows["status"].eq("ok") & rows["mode"].isin([one, other])]
    stations = seen[[*place, "boot_id", "device_uuid"]].drop_duplicates()
    cells = seen[[*place, "mode"]].drop_duplicates()
    shared = cells.groupby(place).size().loc[lambda count: count > 1].index
    counts = stations.groupby(place).size()
    return bool(counts.reindex(shared).gt(1).any())


def counterpart(modes: Modes, mode: str) -> str | None:
    """The mode of the design that differs in its runtime alone and keeps rounds on the device."""
    alike = [n for n, m in modes.items() if m["drafter"] != "none" and m["runtime"] == "device"]
    return next((other for other in alike if same_round(modes[other], modes[mode])), None)


def same_round(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two modes draft and judge alike, whatever runs them and wherever they are measured.

    A composition of verdict.json has `measured_on`, that of a design has not.
    """
    left_out = ("runtime", "numerics", "baseline", "measured_on")
    rest = [{k: v for k, v in mode.items() if k not in left_out} for mode in (one, other)]
    return rest[0] == rest[1]


def pools(rows: pd.DataFrame, modes: Modes, contexts: Sequence[str]) -> list[Pool]:
    """What the graphs of each mode held, plain modes included, at the context that took most."""
    found = []
    for mode, composition in modes.items():
        of_mode = []
        for context in contexts:
            here = rows[(rows["context"] == context) & (rows["mode"] == mode)]
            here = here[here["graphs_planned"].fillna(0).gt(0)]
            if composition["runtime"].startswith("graph") and len(here):
                # The row that came least far says whether memory was enough for all; of several
                # the one that held most, whatever order the rows are in.
                share = here["graphs_captured"] / here["graphs_planned"]
                least = here[share.eq(share.min())]
                row = least.sort_values(["graph_pool_bytes", "family"], ascending=False).iloc[0]
                ended = "" if row["status"] == "ok" else str(row["status"]).replace("_", " ")
                held = float(row["graph_pool_bytes"]) / _GIB
                counts = (int(row[name]) for name in ("graphs_captured", "graphs_planned"))
                of_mode.append(Pool(context, mode, held, *counts, ended))
        found += sorted(of_mode, key=lambda pool: (bool(pool.ended), pool.gib))[-1:]
    return found


def _per_round(rows: pd.DataFrame, mode: str, phase: str) -> pd.Series:
    """Seconds of a phase by family: a proposed token's for drafting, a round's for verification."""
    here = rows[rows["mode"] == mode]
    each = here[f"{phase}_s"].where(lambda s: s > 0) / here[_COUNTED_BY[phase]]
    return each.groupby(here["family"]).median()
