"""Tables between rules: pandas frames as Parquet, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa

from engine.measure.rows import write_table
from engine.preparation.files import DamagedFile


def write_frame(frame: pd.DataFrame, path: str | Path) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for index, field in enumerate(table.schema):
        if kind := _typed(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(kind))
    write_table(table, path)


def read_frame(path: str | Path) -> pd.DataFrame:
    """A table. Raises DamagedFile if the file is none, OSError if it cannot be read."""
    try:
        return pd.read_parquet(path)
    except (pa.ArrowException, OSError) as error:
        if is_of_the_system(error):
            raise
        raise DamagedFile(path) from None


def is_of_the_system(error: Exception) -> bool:
    """Whether a file could not be read, rather than decoded.

    pyarrow calls a page that it cannot decode an OSError as well, without kind or number.
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None)


def _typed(kind: pa.DataType) -> pa.DataType | None:
    """What a column of nothing but missing values becomes: numbers, which read back as NaN.

    Where every cell of a study failed, there is not one value to infer a type from, and a column
    without a type reads back as None, which no arithmetic takes.
    """
    if pa.types.is_null(kind):
        return pa.float64()
    if pa.types.is_list(kind) and pa.types.is_null(kind.value_type):
        return pa.list_(pa.float64())
    return None
