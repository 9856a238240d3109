"""From a published reference back to the study's folder, to measure a part of it again."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from engine.analysis.blocks import CELL
from engine.preparation.files import write_json
from engine.references.record import Record, ReferenceFault, as_json, file_sha256
from engine.references.study import as_table

_SCRATCH = ".unpack-"
_MARK = "frozen.json"


def unpack(record: Record, folder: Path) -> int:
    """Write the timing files of a reference below `folder`, its tables and its design.

    Returns how many timing files there are. `publish` makes the same reference of them. Rows that
    replace some keep their own commit and device, and the record names both; tables that the new
    rows contradict are refused by `publish`. Raises ReferenceFault if the folder holds something
    already, or if a table beside the reference is not the one that was published.
    """
    # What an earlier try left that was killed is no study.
    if folder.exists() and (
        not folder.is_dir() or any(not path.name.startswith(_SCRATCH) for path in folder.iterdir())
    ):
        raise ReferenceFault(f"{folder} is there already; name a folder that is not, or is empty")
    for name, published in record.found_sha256.items():
        path = record.found_path(name)
        if not path.is_file() or file_sha256(path) != published:
            raise ReferenceFault(
                f"{path} is not the table that was published with {record.path.name}: restore "
                "both files together"
            )
    folder = folder.resolve()
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        # All of it or nothing, should the disk be full: moved up when it is whole.
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder) as scratch:
            count = _write(record, Path(scratch))
            # What makes it a study's folder comes last.
            for path in sorted(Path(scratch).iterdir(), key=lambda path: path.name == _MARK):
                path.replace(folder / path.name)
    except BaseException:
        for path in made:
            path.rmdir()
        raise
    return count


def _write(record: Record, folder: Path) -> int:
    table = as_table(pq.read_table(record.rows_path))
    cells = table.select(CELL).to_pandas().groupby(CELL, sort=False).indices
    for (context, family, mode, replicate), rows in cells.items():
        path = folder / f"timing/{context}/{family}/{mode}/r{replicate}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.take(rows), path)
    for name in record.found_sha256:
        shutil.copyfile(record.found_path(name), folder / f"{name}.parquet")
    write_json({**record.frozen, "design": as_json(record)["design"]}, folder / _MARK)
    return len(cells)
