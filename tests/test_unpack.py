"""A reference as a study's folder again: the same is published of it, and nothing that is stale."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.analysis.divergence import distinct_outputs
from engine.analysis.prediction import Predictor
from engine.analysis.tokens import compare_tokens
from engine.composition import ROOT
from engine.measure.rows import SCHEMA, read_rows
from engine.preparation.files import read_json
from engine.references import publish as publishing
from engine.references import unpack as unpacking
from engine.references.publish import publish
from engine.references.record import (
    ReferenceFault,
    as_json,
    read_record,
)
from engine.references.study import as_rows, read_reference
from engine.references.unpack import unpack
from engine.tables import write_frame
from tests.reference_archives import NAMES, PUBLISHED, gpu_design, published_in_part, write_archive
from tests.synthetic_mechanism import components_of, modes, trace_of
from tests.synthetic_rows import FAMILIES


def test_an_unpacked_reference_is_published_as_the_same(tmp_path):
    first, _, _ = published_in_part(tmp_path)
    record = read_record(first / "results/reference/made-up.json")
    folder, root = tmp_path / "a study" / "made-up", tmp_path / "again"
    assert unpack(record, folder) == len(list(folder.rglob("r*.parquet"))) == 6 * len(NAMES)
    with pytest.raises(ReferenceFault, match="is there already"):
        unpack(record, folder)
    publish(folder, root, PUBLISHED)
    again = read_record(root / "results/reference/made-up.json")
    told = [
        {k: v for k, v in as_json(one).items() if k in ("design", "frozen", "measured", "outcomes")}
        for one in (record, again)
    ]
    # The card's identifier is hashed once, not twice.
    assert told[0] == told[1]
    pd.testing.assert_frame_equal(read_reference(record), read_reference(again))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(a study's folder that the workflow brought to its end, its reference's record)."""
    folder = tmp_path_factory.mktemp("finished")
    part = {name: modes()[name] for name in ("ar", "spec", "spec_folded")}
    design = gpu_design(families=FAMILIES[:4], modes=part, components={"families": 2})
    results = write_archive(folder, design)
    rows = as_rows(pa.concat_tables(map(pq.read_table, sorted(results.rglob("r?.parquet")))))
    texts = {(r.context, r.family): r.tokens for r in rows[rows["mode"] == "ar"].itertuples()}
    trace = trace_of(design, 0.77)
    trace["token"] = [texts[r.context, r.family][r.position] for r in trace.itertuples(index=False)]
    outputs = {key: found[0] for key, found in distinct_outputs(rows).items() if found}
    write_frame(compare_tokens(rows, outputs, design), results / "tokens.parquet")
    write_frame(trace, results / "trace.parquet")
    predictor = Predictor(trace, components_of(design), design)
    write_frame(predictor.table(), results / "predicted.parquet")
    first = folder / "first"
    publish(results, first, PUBLISHED)
    verdict = read_json(first / f"reports/reference/{design.design}/verdict.json")
    write_frame(predictor.beside(verdict["verdicts"]), results / "compared.parquet")
    publish(results, folder / "root", PUBLISHED)
    return results, read_record(folder / f"root/results/reference/{design.design}.json")


def test_tables_that_rows_do_not_give_come_back_with_them(finished, tmp_path):
    _, record = finished
    assert set(record.found_sha256) == {"tokens", "trace", "predicted", "compared"}
    folder, root = tmp_path / "again", tmp_path / "root"
    unpack(record, folder)
    publish(folder, root, PUBLISHED)
    again = read_record(root / f"results/reference/{record.design.design}.json")
    told = []
    for one in (record, again):
        said = as_json(one)
        # How Parquet lays equal rows out is not promised.
        for name in ("published_at", "sha256", "verdict_sha256", "rows_sha256"):
            del said[name]
        told.append(said)
    assert told[0] == told[1]
    pd.testing.assert_frame_equal(read_reference(record), read_reference(again))
    figures = [
        {path.name for path in (one.verdict_path.parent / "figures").iterdir()}
        for one in (record, again)
    ]
    assert {"diagnosis.png", "predicted.png"} <= figures[0] == figures[1]


@pytest.mark.parametrize(
    ("name", "alter", "said"),
    [
        ("trace", lambda t: t.assign(token=t["token"] + 1), "is of another text at 2048"),
        ("compared", lambda t: t.assign(measured=t["measured"] * 1.1), "has another R of spec"),
        ("tokens", lambda t: t.assign(outcome=t["outcome"].replace("equal", "near_tie")),
         "calls .* near tie at 2048 .*, and the timing rows are equal"),
    ],
)  # fmt: skip
def test_a_table_that_other_rows_date_is_refused(finished, tmp_path, name, alter, said):
    folder = tmp_path / "again"
    unpack(finished[1], folder)
    write_frame(alter(pd.read_parquet(folder / f"{name}.parquet")), folder / f"{name}.parquet")
    with pytest.raises(ReferenceFault, match=rf"{name}.parquet {said}.*or remove {name}.parquet"):
        publish(folder, tmp_path / "root", PUBLISHED)
    assert not (tmp_path / "root/reports").exists()


def test_a_table_that_is_not_the_published_one_is_not_unpacked(finished, tmp_path):
    for path in finished[1].path.parent.iterdir():
        shutil.copy2(path, tmp_path / path.name)
    other = tmp_path / finished[1].path.name
    other.with_suffix(".trace.parquet").write_bytes(b"")
    with pytest.raises(ReferenceFault, match="is not the table that was published"):
        unpack(read_record(other), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_rows_of_an_older_schema_are_unpacked_in_the_columns_of_today(finished, tmp_path):
    record = finished[1]
    table = pq.read_table(record.rows_path).drop_columns(["kernels"]).replace_schema_metadata(None)
    older = dataclasses.replace(record, path=tmp_path / record.path.name, found_sha256={})
    pq.write_table(table, older.rows_path)
    unpack(older, tmp_path / "folder")
    files = list((tmp_path / "folder").rglob("r?.parquet"))
    assert all(read_rows(path).column("kernels").null_count > 0 for path in files)


def test_a_commit_is_given_to_rows_that_do_not_say_theirs(monkeypatch):
    asked = []
    monkeypatch.setattr(publishing, "commit_of", lambda *words: asked.append(words) or "e" * 40)
    columns = {
        "git_commit": ["a" * 40, None, "b" * 40], "dirty": [False, None, True],
        "engine_sha256": ["old", "new", "new"],
    }  # fmt: skip
    table = pa.table(
        [pa.array(columns.get(f.name, [None] * 3), f.type) for f in SCHEMA], names=SCHEMA.names
    )
    named = publishing._committed(table, "main", ROOT)
    assert named.column("git_commit").to_pylist() == ["a" * 40, "e" * 40, "e" * 40]
    assert named.column("dirty").to_pylist() == [False, False, False]
    # The hash that the commit is held against is that of the rows which get it.
    assert [words[1] for words in asked] == ["new"]
    with pytest.raises(ReferenceFault, match="leave out --commit"):
        publishing._committed(table.slice(0, 1), "main", ROOT)


@pytest.mark.parametrize("name", ["timing/2048/dialogue/spec/r0.parquet", "trace.parquet"])
def test_a_file_that_is_damaged_in_the_middle_is_named(finished, tmp_path, name):
    folder = tmp_path / "again"
    unpack(finished[1], folder)
    whole = (folder / name).read_bytes()
    turned = bytes(byte ^ 0xA5 for byte in whole[4:1500])
    (folder / name).write_bytes(whole[:4] + turned + whole[1500:])
    with pytest.raises(ReferenceFault, match=f"{name} (cannot be read|is damaged)") as caught:
        publish(folder, tmp_path / "root", PUBLISHED)
    assert "copy" in str(caught.value)


def test_an_empty_folder_is_filled_wherever_it_lies(finished, tmp_path, monkeypatch):
    count = len(list(finished[0].rglob("r?.parquet")))
    for name in ("disk", "here", "killed"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    monkeypatch.chdir(tmp_path / "here")
    # What an earlier try left that was killed.
    (tmp_path / "killed" / ".unpack-1").mkdir()
    for folder in (tmp_path / "link", Path(), tmp_path / "killed"):
        assert unpack(finished[1], folder) == count
        assert (folder / "frozen.json").is_file()
        assert len(list(folder.rglob("r?.parquet"))) == count


def test_an_unpacking_that_breaks_off_leaves_no_folder(finished, tmp_path, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(unpacking.shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space"):
        unpack(finished[1], tmp_path / "parent" / "folder")
    assert not (tmp_path / "parent").exists()
