"""A small made-up study with one planted fault, and what the gates say of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from engine.analysis.gates import judge
from engine.design import Design
from tests.synthetic_rows import Row, as_frame, small_design, study

# (family, mode, replicate)
Place = tuple[str, str, int]
ARGUMENT = "--configfile config/paper.yaml"


def tiny_design(**overrides: Any) -> Design:
    """One family at one context, so that a test takes a tenth of a second."""
    return small_design(**{"contexts": [2048], "families": ["news"], **overrides})


def two_families(**overrides: Any) -> Design:
    """The least in which a block has neighbours."""
    return tiny_design(families=["news", "sql"], **overrides)


def where(change: Callable[[Row], Row | None], **columns: Any) -> Callable[[Row], Row | None]:
    """A fault for `study(alter=...)`: changes the rows that have these values, warm-ups never."""

    def alter(row: Row) -> Row | None:
        hit = all(row[name] == value for name, value in columns.items())
        return change(row) if hit and not row["warmup"] else row

    return alter


def having(**columns: Any) -> Callable[[Row], Row]:
    """A change that sets columns."""
    return lambda row: {**row, **columns}


def retimed(row: Row, round_s: list[float]) -> Row:
    """The row with other round times, and all that follows from them."""
    total = sum(round_s)
    scale = total / row["decode_s"]
    phases = ("draft_s", "verify_s", "repair_s", "control_s", "decode_event_s")
    scaled = {name: row[name] and row[name] * scale for name in phases}
    return {**row, **scaled, "round_s": round_s, "decode_s": total}


def scheduled(rows: list[Row], order: list[Place], pauses: dict[Place, float]) -> list[Row]:
    """The rows as if cells of 10 s had run in this order; `pauses` in seconds before a cell."""
    begins, clock = {}, 1000.0
    for place in order:
        begins[place] = clock + pauses.get(place, 0.5)
        clock = begins[place] + 10
    moved = []
    for row in rows:
        begin = begins[row["family"], row["mode"], row["replicate"]]
        moved.append({**row, "cell_monotonic_start": begin, "cell_monotonic_end": begin + 10})
    return moved


def verdicts(rows: list[Row], design: Design, mode: str = "spec") -> dict[str, Any]:
    """Clause -> its verdict on this mode of the family `news`."""
    gates = judge(as_frame(rows), design, ARGUMENT)
    own = gates[gates["family"].eq("news") & gates["mode"].eq(mode)]
    return {verdict.clause: verdict for verdict in own.itertuples()}


def failures(gates: pd.DataFrame) -> set[tuple[str, str]]:
    """(gate, clause) of all that failed."""
    failed = gates[gates["applicable"] & ~gates["passed"]]
    return set(failed[["gate", "clause"]].itertuples(index=False, name=None))


def failures_with(design: Design, alter: Callable[[Row], Row | None], **made: Any) -> set:
    return failures(judge(as_frame(study(design, alter=alter, **made)), design, ARGUMENT))
