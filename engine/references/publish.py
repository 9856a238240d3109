"""From the results of a study, wherever it was measured, to the reference that git keeps."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from engine.analysis.provenance import provenance
from engine.design import Design, parse_design
from engine.measure.rows import SCHEMA
from engine.preparation.files import DamagedFile, read_json, write_json
from engine.references.blocks import Blocks, outcomes_of, whole_blocks
from engine.references.found import refuse_other_rows, refuse_other_text
from engine.references.history import commit_of, version_at
from engine.references.pages import draw_all
from engine.references.record import (
    FOLDER,
    FOUND,
    REPORTS,
    Record,
    ReferenceFault,
    as_json,
    file_sha256,
)
from engine.references.study import analyse, as_rows
from engine.strict import DesignError
from engine.tables import read_frame

# Bytes of all references together: every clone carries them.
ROWS_MOST, REPORTS_MOST = 5_000_000, 16_000_000
_DURATIONS = ("round_s", "token_arrival_s")


def publish(
    folder: Path, root: Path, published: Path, commit: str | None = None, force: bool = False
) -> list[str]:
    """Write a study's reference below `root`; return what was done, a line each.

    `folder` is its `results/{design}`, unpacked anywhere. `commit` is for rows that do not say
    theirs, or say one with changes. Nothing is written unless all of it can be: ReferenceFault says
    why not.
    """
    record = _frozen(folder)
    design = record["design"]
    beside = root / FOLDER
    found = {name: table for name in FOUND if (table := _frame(folder, name)) is not None}
    ends = ("parquet", "json", *(f"{name}.parquet" for name in found))
    own = [beside / f"{design.design}.{end}" for end in ends]
    own.append(root / REPORTS / design.design)
    old = [path for path in beside.glob(f"{design.design}.*") if path.is_file()]
    if not force and (there := [*old, *(path for path in own[-1:] if path.exists())]):
        raise ReferenceFault(
            f"{there[0].relative_to(root)} is there already; add --force to replace what it holds"
        )
    blocks = whole_blocks(design, folder)
    if blocks.faults:
        raise ReferenceFault(
            f"{blocks.faults[0]} ({len(blocks.faults)} of the study's files cannot be used): copy "
            f"{folder} once more, or delete the file and measure its block again"
        )
    if not blocks.whole:
        raise ReferenceFault(
            f"{folder} holds no order block with all modes of design {design.design!r}: copy its "
            "timing folder there, or measure it"
        )
    table = _committed(blocks.rows, commit, root)
    with _beside(beside) as scratch:
        rows = as_rows(table)
        files = [scratch / path.name for path in own]
        _write_rows(table, files[0])
        for name, path in zip(found, files[2:-1], strict=True):
            shutil.copyfile(folder / f"{name}.parquet", path)
        # Before the minute that the analysis takes; the record's few bytes are counted below.
        _refuse_beyond(beside, [*files[:1], *files[2:-1]], old, ROWS_MOST)
        tokens = outcomes_of(rows, design, found.pop("tokens", None))
        refuse_other_text(found.get("trace"), rows, design)
        made = _record(record, blocks, rows, tokens, files, root)
        done = analyse(made, rows, pd.read_csv(published), tokens, found)
        refuse_other_rows(found.get("compared"), done.study.verdict)
        kept = {name: _plain(done.study.tables[name]) for name in ("steps", "chain")}
        draw_all(done, files[-1])
        sealed = file_sha256(files[-1] / "verdict.json")
        made = dataclasses.replace(made, tables=kept, verdict_sha256=sealed)
        write_json(as_json(made), files[1])
        _refuse_beyond(beside, files[:-1], old, ROWS_MOST)
        _refuse_beyond(root / REPORTS, files[-1:], own[-1:], REPORTS_MOST)
        sizes = [_size(path) for path in files]
        for source, target in zip(files, own, strict=True):
            _put(source, target)
        for path in set(old) - set(own):
            path.unlink()
    wrote = zip(own, sizes, strict=True)
    return [
        done.label,
        *(f"wrote {path.relative_to(root)} ({size / 1e6:.2f} MB)" for path, size in wrote),
        *([f"left out, measured in part: {', '.join(blocks.left_out)}"] if blocks.left_out else []),
    ]


def _frozen(folder: Path) -> dict[str, Any]:
    """The record of freeze-design, its design parsed; without one, the design alone."""
    try:
        if (folder / "frozen.json").exists():
            record = read_json(folder / "frozen.json")
        else:
            record = {"design": read_json(folder / "design.json"), "changes": [], "overrides": []}
        return {**record, "design": parse_design(record["design"])}
    except FileNotFoundError:
        raise ReferenceFault(
            f"{folder} holds neither frozen.json nor design.json: name the results/DESIGN folder "
            "of a study"
        ) from None
    except (DamagedFile, KeyError, TypeError, RecursionError):
        raise ReferenceFault(f"the design in {folder} is damaged: copy it once more") from None
    except DesignError as error:
        raise ReferenceFault(f"this version does not understand {folder}'s design: {error}") from (
            None
        )


def _record(
    frozen: dict[str, Any],
    blocks: Blocks,
    rows: pd.DataFrame,
    tokens: pd.DataFrame,
    files: list[Path],
    root: Path,
) -> Record:
    design: Design = frozen["design"]
    measured = provenance(design, rows, frozen)
    devices = rows["device_uuid"].dropna().unique()
    names = ("device_name", "driver", "torch", "cuda", "python", "git_commit", "dirty")
    kept = {n: measured[n] for n in (*names, "engine_sha256", "measured_from", "measured_to")}
    kept["device_uuid_sha256"] = ", ".join(sorted(devices)) or None
    there = set(rows["mode"])
    kept["modes"] = [name for name in design.modes if name in there]
    kept["specscale"] = version_at(measured["git_commit"], root)
    counts = {"whole": blocks.whole, "planned": blocks.planned, "left_out": list(blocks.left_out)}
    outcomes: dict[str, dict[str, dict[str, str]]] = {}
    for context, family, mode, outcome in tokens[
        ["context", "family", "mode", "outcome"]
    ].itertuples(index=False, name=None):
        outcomes.setdefault(mode, {}).setdefault(context, {})[family] = outcome
    frozen_at = {name: frozen.get(name) for name in ("frozen_at", "frozen_sha256")}
    frozen_at |= {name: frozen.get(name) or [] for name in ("overrides", "changes")}
    return Record(
        path=files[1],
        design=design,
        measured=kept,
        blocks=counts,
        frozen=frozen_at,
        outcomes=outcomes,
        tables={},
        synthetic=design.synthetic or bool(rows["synthetic"].any()),
        rows_sha256=file_sha256(files[0]),
        verdict_sha256="",
        found_sha256={path.name.split(".")[1]: file_sha256(path) for path in files[2:-1]},
        published_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _committed(table: pa.Table, name: str | None, root: Path) -> pa.Table:
    """The rows with the commit that measured them, where they could not say it themselves.

    Rows that say a commit without changes keep it. A tree with changes that were committed only
    afterwards, or elsewhere, could not: the hash of its measurement core says whether it was that
    commit's.
    """
    if name is None:
        return table
    columns = ("git_commit", "dirty", "engine_sha256")
    commits, changed, engines = (table.column(n).to_pylist() for n in columns)
    silent = [not c or bool(other) for c, other in zip(commits, changed, strict=True)]
    if not any(silent):
        raise ReferenceFault(
            f"the rows say that commit {min(commits)[:7]} measured them; leave out --commit"
        )
    theirs = {engine for engine, mute in zip(engines, silent, strict=True) if mute}
    if len(theirs) > 1:
        raise ReferenceFault(
            "the rows were measured by several versions of the engine; leave out --commit"
        )
    full = commit_of(name, theirs.pop(), root)
    for column, said, value in (("git_commit", commits, full), ("dirty", changed, False)):
        index = SCHEMA.get_field_index(column)
        values = [value if mute else old for old, mute in zip(said, silent, strict=True)]
        array = pa.array(values, SCHEMA.field(index).type)
        table = table.set_column(index, SCHEMA.field(index), array)
    return table


def _write_rows(table: pa.Table, path: Path) -> None:
    """As small as it gets without losing a digit; git keeps every version."""
    durations = [f"{name}.list.element" for name in _DURATIONS]
    others = [name for name in table.schema.names if name not in _DURATIONS]
    pq.write_table(
        table.replace_schema_metadata(SCHEMA.metadata),
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=others,
        use_byte_stream_split=durations,
    )


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A folder on the same disk, so that a finished file is moved, and gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".publish-", dir=folder) as scratch:
        yield Path(scratch)


def _refuse_beyond(folder: Path, new: list[Path], old: list[Path], most: int) -> None:
    replaced = {file for path in old for file in _files(path)}
    kept = [f for f in _files(folder) if f not in replaced and ".publish-" not in str(f)]
    size = sum(file.stat().st_size for file in kept) + sum(map(_size, new))
    if size > most:
        raise ReferenceFault(
            f"all references together would take {size / 1e6:.1f} MB of {folder.parent.name}/"
            f"{folder.name}, and at most {most / 1e6:.0f} MB are kept in git: remove one, or "
            "publish a smaller design"
        )


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in _files(path))


def _put(source: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)


def _frame(folder: Path, name: str) -> pd.DataFrame | None:
    path = folder / f"{name}.parquet"
    try:
        return read_frame(path) if path.is_file() else None
    except DamagedFile:
        raise ReferenceFault(f"{path} is damaged: copy it once more, or remove it") from None


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Records as JSON can hold them: null for what is not a number."""
    return json.loads(table.to_json(orient="records", double_precision=15))
