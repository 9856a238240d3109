"""Tables between rules: pandas frames as Parquet, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa

from engine.measure.rows import write_table


def write_frame(frame: pd.DataFrame, path: str | Path) -> None:
    write_table(pa.Table.from_pandas(frame, preserve_index=False), path)


def read_frame(path: str | Path) -> pd.DataFrame:
    return pd.read_parquet(path)
