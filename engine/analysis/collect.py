"""The rows of a whole study in one frame: the files that the design names, and no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from engine.cells import Cell
from engine.composition import by_the_clock, policies
from engine.design import Design
from engine.measure.rows import RowsError, read_rows

_IDENTITY = ("design", "context", "family", "mode", "replicate")


def collect(design: Design, root: str | Path) -> pd.DataFrame:
    """All timing rows of a design, in its planned order, columns as in measure/rows.py.

    `root` is the folder that holds `results/`. A file of a cell that the design does not name is
    never read. Raises RowsError with one message that names every missing or unusable file; a
    damaged one has then been renamed by the reader, so that the next run measures its cell.
    """
    tables, faults = [], []
    for cell in design.cells():
        try:
            tables.append(read_cell(cell, Path(root) / cell.path))
        except RowsError as error:
            faults.append(str(error))
    if faults:
        total = len(tables) + len(faults)
        raise RowsError(
            f"{len(faults)} of the design's {total} timing files cannot be used:\n"
            + "\n".join(f"- {fault}" for fault in faults)
        )
    rows = pa.concat_tables(tables).to_pandas()
    return whole_runs(rows, [name for name in policies() if by_the_clock(name)])


def whole_runs(rows: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """The rows, those of the named policies with one round a run: the whole of it.

    A policy that goes by the clock drafts differently in every run, so that its rounds cannot be
    compared one by one as those of other modes are.
    """
    moving = rows["policy"].isin(names) & rows["round_s"].notna()

    def changed(column: str, whole: Callable[[Any], Any]) -> pd.Series:
        kept = zip(rows[column], moving, strict=True)
        # One by one, since pandas takes an array of one for its only element.
        return pd.Series([whole(x) if moves else x for x, moves in kept], rows.index, object)

    rows["round_s"] = changed("round_s", lambda seconds: np.array([np.sum(seconds)]))
    rows["round_m"] = changed("round_m", lambda _: None)
    return rows


def failed_files(design: Design, root: str | Path) -> list[str]:
    """Files, relative to `root`, of cells that crashed or ran out of memory or time.

    Left out are missing files, which are measured without being asked for, and cells that the
    device cannot run, which it will not be able to run next time either.
    """
    failed = []
    for cell in design.cells():
        if not (Path(root) / cell.path).exists():
            continue
        statuses = set(read_cell(cell, Path(root) / cell.path)["status"].to_pylist())
        if statuses - {"ok", "not_applicable"}:
            failed.append(cell.path)
    return failed


def read_cell(cell: Cell, path: Path) -> pa.Table:
    """The rows of one cell's file; RowsError if it cannot be read or holds those of another."""
    table = read_rows(path)
    for name in _IDENTITY:
        strangers = set(table[name].to_pylist()) - {getattr(cell, name)}
        if strangers:
            raise RowsError(
                f"{path} holds rows of {name} {strangers.pop()!r}, which is not its own; delete "
                "the file and run the same snakemake command again"
            )
    return table
