"""The timing row: one Parquet schema, one writer, one reader.

A cell's file holds one row per run. Times are seconds (float64), `*_at` are UTC timestamps,
`monotonic_*` come from the machine's monotonic clock and compare only within one `boot_id`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

VERSION = 3

_TEXT, _INT, _REAL, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_INTS, _REALS = pa.list_(pa.int64()), pa.list_(pa.float64())

# name -> (type, required). A required column is never null, not even in a failed cell's row.
_COLUMNS: dict[str, tuple[pa.DataType, bool]] = {
    # identity
    "design": (_TEXT, True),
    "context": (_TEXT, True),
    "family": (_TEXT, True),
    "mode": (_TEXT, True),
    "block": (_TEXT, True),
    "replicate": (_INT, True),
    "order_index": (_INT, True),
    "run": (_INT, True),
    "warmup": (_FLAG, True),
    "instrumented": (_FLAG, True),
    "synthetic": (_FLAG, True),
    "status": (_TEXT, True),
    "error": (_TEXT, True),
    "cell_sha256": (_TEXT, True),
    "engine_sha256": (_TEXT, True),
    # composition
    "drafter": (_TEXT, True),
    "k": (_INT, True),
    "acceptance": (_TEXT, True),
    "delta": (_REAL, False),  # logits, of relaxed acceptance
    "epsilon": (_REAL, False),  # a probability, of typical acceptance
    "sampling": (_TEXT, False),  # JSON of the mode's block; null where it decodes greedily
    "draft_sampling": (_TEXT, False),  # null where the draft samples as the target does
    "bonus": (_FLAG, True),
    "policy": (_TEXT, True),
    "threshold": (_REAL, False),  # probability, of the confidence policy
    "draft_window": (_INT, False),  # tokens that the draft sees; null: all
    "draft_vocabulary": (_INT, False),  # token ids that the draft scores; null: all
    "target_cache": (_TEXT, True),
    "round": (_TEXT, True),
    "runtime": (_TEXT, True),
    "numerics": (_TEXT, True),
    "baseline": (_TEXT, True),
    "kernels": (_TEXT, False),  # of a step: fused, twins; "" for the library's own
    # time
    "started_at": (pa.timestamp("us", "UTC"), True),
    "ended_at": (pa.timestamp("us", "UTC"), True),
    "boot_id": (_TEXT, True),
    "monotonic_start": (_REAL, True),
    "monotonic_end": (_REAL, True),
    "cell_monotonic_start": (_REAL, True),  # the whole measuring process, lock held
    "cell_monotonic_end": (_REAL, True),
    "startup_s": (_REAL, False),  # lock held to models loaded, in the three parts below
    "startup_import_s": (_REAL, False),  # process and imports
    "startup_device_s": (_REAL, False),  # telemetry and the device's context
    "startup_weights_s": (_REAL, False),  # both models and their caches
    "target_prefill_s": (_REAL, False),
    "draft_prefill_s": (_REAL, False),
    "decode_s": (_REAL, False),
    "decode_event_s": (_REAL, False),
    "round_s": (_REALS, False),  # per round; AR: per token
    "draft_s": (_REAL, False),  # instrumented runs only, as the three below
    "verify_s": (_REAL, False),
    "repair_s": (_REAL, False),
    "control_s": (_REAL, False),
    "capture_s": (_REAL, False),  # kernels compiled or read, buffers, graphs
    "token_arrival_s": (_REALS, False),  # since decode start, one per committed token
    # work
    "prompt_tokens": (_INT, False),
    "planned_tokens": (_INT, True),
    "planned_runs": (_INT, True),
    "new_tokens": (_INT, False),
    "rounds": (_INT, False),
    "round_k": (_INTS, False),
    "round_m": (_INTS, False),
    "target_calls": (_INT, False),
    "draft_calls": (_INT, False),
    "repairs": (_INT, False),
    "catchups": (_INT, False),
    "proposed": (_INT, False),
    "judged": (_INT, False),
    "accepted": (_INT, False),
    "proposed_by_position": (_INTS, False),
    "judged_by_position": (_INTS, False),
    "accepted_by_position": (_INTS, False),
    "host_syncs": (_INT, False),
    "h2d_copies": (_INT, False),
    "bytes_moved": (_INT, False),
    "tokens": (_INTS, False),
    "token_sha256": (_TEXT, False),
    "prompt_sha256": (_TEXT, False),
    # memory, bytes
    "weights_bytes": (_INT, False),
    "kv_bytes": (_INT, False),
    "peak_bytes": (_INT, False),
    "memory_total": (_INT, False),
    "memory_available": (_INT, False),
    "graph_pool_bytes": (_INT, False),
    "graphs_captured": (_INT, False),
    "graphs_planned": (_INT, False),
    "timed_allocator_growth": (_INT, False),
    "timed_compiles": (_INT, False),
    "timed_captures": (_INT, False),
    # device
    "device": (_TEXT, True),
    "device_name": (_TEXT, False),
    "device_uuid": (_TEXT, False),
    "driver": (_TEXT, False),
    "sm_clock": (_REAL, False),  # MHz
    "sm_clock_reference": (_REAL, False),
    "temperature": (_REAL, False),  # degrees Celsius
    "power": (_REAL, False),  # W
    "energy_j": (_REAL, False),
    "throttle_reasons": (_TEXT, False),  # names of slowdown bits, comma-separated; "" for none
    "foreign_processes": (_INT, False),
    "steal_s": (_REAL, False),
    "stalled_share": (_REAL, False),
    "disturbed": (_FLAG, False),  # kept, but replaced by a repeat
    "peak_read_bw": (_REAL, False),  # bytes per second
    "step_bytes": (_INT, False),  # least bytes of one AR step of this cell's target
    "last_level_cache": (_INT, False),  # bytes
    # provenance
    "target_model": (_TEXT, False),
    "target_sha256": (_TEXT, False),
    "draft_model": (_TEXT, False),
    "draft_sha256": (_TEXT, False),
    "torch": (_TEXT, False),
    "cuda": (_TEXT, False),
    "python": (_TEXT, False),
    "git_commit": (_TEXT, False),
    "dirty": (_FLAG, False),
    "host_hash": (_TEXT, False),
    "pid": (_INT, False),
    "seed": (_INT, False),
    "cpu_threads": (_INT, False),
    "dtype": (_TEXT, False),
}

SCHEMA = pa.schema(
    [pa.field(name, kind, nullable=not required) for name, (kind, required) in _COLUMNS.items()],
    metadata={"specscale_rows_version": str(VERSION)},
)

# What became of the run. A failed cell is one row with one of the last four.
STATUSES = ("ok", "crashed", "out_of_memory", "timed_out", "not_applicable")


class RowsError(ValueError):
    """A rows file cannot be used; the text is one sentence that says what to do."""


def to_table(rows: list[dict[str, Any]]) -> pa.Table:
    """Validate rows against the schema.

    Raises RowsError for an unknown column, a missing required value, a wrong type or status.
    """
    if not rows:
        raise RowsError("a rows file needs at least one row")
    for row in rows:
        unknown = sorted(set(row) - set(_COLUMNS))
        if unknown:
            raise RowsError(f"unknown column {unknown[0]!r} in a timing row")
        for name, (_, required) in _COLUMNS.items():
            if required and row.get(name) is None:
                raise RowsError(f"timing row lacks the required column {name!r}")
        if row["status"] not in STATUSES:
            raise RowsError(f"unknown status {row['status']!r}; there is {', '.join(STATUSES)}")
    try:
        return pa.Table.from_pylist(rows, schema=SCHEMA)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise RowsError(f"a timing row does not fit the schema: {error}") from None


def write_rows(rows: list[dict[str, Any]], path: str | Path) -> None:
    """Write a cell's rows; the file appears whole or not at all."""
    write_table(to_table(rows), path)


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write any Parquet table under a temporary name beside it, then rename."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        pq.write_table(table, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_rows(path: str | Path) -> pa.Table:
    """Read one cell's rows, columns in schema order.

    An unreadable file is renamed to `*.damaged`, so that the next run of the workflow measures
    that cell again. Raises RowsError for such a file and for one of another schema version.
    """
    path = Path(path)
    try:
        table = pq.ParquetFile(path).read()
    except FileNotFoundError:
        raise RowsError(
            f"{path} is missing; run the same snakemake command again to measure it"
        ) from None
    except PermissionError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        damaged = path.with_name(path.name + ".damaged")
        path.replace(damaged)
        raise RowsError(
            f"{path} cannot be read ({str(error).splitlines()[0]}); it was renamed to "
            f"{damaged.name}: run the same snakemake command again, and that cell alone is "
            "measured again"
        ) from None
    version = (table.schema.metadata or {}).get(b"specscale_rows_version", b"?").decode()
    if version != str(VERSION):
        raise RowsError(
            f"{path} has rows of schema version {version}, this engine reads {VERSION}; "
            "delete the file and run the same snakemake command again"
        )
    if table.schema.names != SCHEMA.names or table.schema.types != SCHEMA.types:
        raise RowsError(
            f"{path} does not have the columns of schema version {VERSION}; "
            "delete the file and run the same snakemake command again"
        )
    return table
