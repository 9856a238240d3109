"""The rows of a study's whole order blocks, as they may leave the machine that measured them."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from engine.analysis.collect import read_cell
from engine.analysis.divergence import distinct_outputs
from engine.analysis.tokens import compare_tokens
from engine.design import Cell, Design
from engine.measure.rows import SCHEMA, RowsError
from engine.references.found import refuse_other_outcomes
from engine.tables import is_of_the_system

_HASHED = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Blocks:
    """Rows of whole blocks, `whole` of `planned` ones, those measured in part, and why files of
    them could not be read.
    """

    rows: pa.Table
    whole: int
    planned: int
    left_out: tuple[str, ...]
    faults: tuple[str, ...]


def whole_blocks(design: Design, folder: Path) -> Blocks:
    """What `folder` (a study's `results/{design}`) holds of each block, if it holds all of it.

    A block whose modes were not all measured has no order, so its rows say nothing in pairs.
    """
    cells: dict[str, list[Cell]] = defaultdict(list)
    for cell in design.cells():
        cells[cell.block].append(cell)
    tables, left_out, faults = [], [], []
    for block, planned in cells.items():
        paths = {cell: folder / cell.path.split("/", 2)[2] for cell in planned}
        there = [cell for cell in planned if paths[cell].exists()]
        read = []
        for cell in there:
            try:
                _refuse_damaged(paths[cell])
                read.append(read_cell(cell, paths[cell]))
            except RowsError as error:
                faults.append(str(error))
        if len(read) == len(planned):
            tables += read
        elif there:
            left_out.append(block)
    whole = len({name for table in tables for name in table.column("block").to_pylist()})
    rows = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
    return Blocks(_without_machine(rows), whole, len(cells), tuple(left_out), tuple(faults))


def _refuse_damaged(path: Path) -> None:
    """The reader renames such a file, for a workflow to measure it again; here nothing would."""
    try:
        pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        if is_of_the_system(error):
            raise
        raise RowsError(f"{path} cannot be read ({str(error).splitlines()[0]})") from None


def outcomes_of(rows: pd.DataFrame, design: Design, table: pd.DataFrame | None) -> pd.DataFrame:
    """What check-tokens says of the places that these rows hold: `table`, if it has run.

    It has not where a design is measured in part. Then equality shows in the rows alone, and
    whether a divergence is a near-tie only the model could say.
    """
    outputs = {key: found[0] for key, found in distinct_outputs(rows).items() if found}
    tokens = compare_tokens(rows, outputs, design)
    if table is not None:
        refuse_other_outcomes(table, tokens)
    open_ = tokens["outcome"].eq("failed") & tokens["exact"]
    tokens.loc[open_, "text"] += "; the certificates of the finished study would say why"
    tokens.loc[open_, "outcome"] = "missing"
    if table is None:
        return tokens
    keys = ["context", "family", "mode"]
    here = set(rows[keys].drop_duplicates().itertuples(index=False, name=None))

    def of_rows(frame: pd.DataFrame) -> pd.Series:
        return frame[keys].apply(tuple, axis=1).isin(here)

    return pd.concat([table[of_rows(table)], tokens[~of_rows(tokens)]], ignore_index=True)


def _without_machine(rows: pa.Table) -> pa.Table:
    """The device's identifier as a hash, and of an error its last line: the rest names folders."""
    hashed = [text and _hash(text) for text in rows.column("device_uuid").to_pylist()]
    errors = [text.strip().splitlines()[-1:] for text in rows.column("error").to_pylist()]
    for name, values in (("device_uuid", hashed), ("error", ["".join(e) for e in errors])):
        index = SCHEMA.get_field_index(name)
        column = pa.array(values, SCHEMA.field(name).type)
        rows = rows.set_column(index, SCHEMA.field(name), column)
    return rows


def _hash(text: str) -> str:
    """A card's identifier as 16 digits; of rows that were published before, it is that already."""
    if _HASHED.fullmatch(text):
        return text
    return hashlib.sha256(text.encode()).hexdigest()[:16]
