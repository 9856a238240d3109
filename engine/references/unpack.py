"""From a published reference back to the study's folder, to measure a part of it again."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from engine.analysis.blocks import CELL
from engine.preparation.files import write_json
from engine.references.record import Record, ReferenceFault, as_json


def unpack(record: Record, folder: Path) -> int:
    """Write the timing files of a reference below `folder`, and its design; return how many.

    `publish` makes the same reference of them. Rows that replace some of these files keep their own
    commit and device, and the record names both. Raises ReferenceFault if the folder holds
    something already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ReferenceFault(f"{folder} is there already; name a folder that is not, or is empty")
    table = pq.read_table(record.rows_path)
    cells = table.select(CELL).to_pandas().groupby(CELL, sort=False).indices
    for (context, family, mode, replicate), rows in cells.items():
        path = folder / f"timing/{context}/{family}/{mode}/r{replicate}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.take(rows), path)
    # Last, and what makes it a study's folder.
    write_json({**record.frozen, "design": as_json(record)["design"]}, folder / "frozen.json")
    return len(cells)
