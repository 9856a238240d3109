"""Collecting a study: the cells of the design and no others, and all faults in one message."""

from __future__ import annotations

import itertools

import pytest

from engine.analysis.collect import collect, failed_files
from engine.measure.rows import RowsError, write_rows
from tests.planted_faults import tiny_design, two_families, where
from tests.synthetic_rows import failed_cell, study


@pytest.fixture
def design():
    return two_families()


def _write(design, root, rows):
    cells = {(c.context, c.family, c.mode, c.replicate): c for c in design.cells()}
    by_cell = itertools.groupby(
        rows, lambda row: (row["context"], row["family"], row["mode"], row["replicate"])
    )
    for key, own in by_cell:
        write_rows(list(own), root / cells[key].path)


@pytest.fixture
def measured(design, tmp_path):
    _write(design, tmp_path, study(design))
    return tmp_path


def test_all_rows_come_in_the_planned_order(design, measured):
    frame = collect(design, measured)
    assert len(frame) == len(study(design))
    assert frame["order_index"].is_monotonic_increasing
    assert frame["tokens"].map(len).eq(design.new_tokens).all()


def test_a_stale_cell_outside_the_design_does_not_enter(design, measured):
    larger = tiny_design(families=["news", "sql", "logs"], contexts=[2048, 4096])
    _write(larger, measured, study(larger))
    frame = collect(design, measured)
    assert set(frame["context"]) == {"2048"}
    assert set(frame["family"]) == {"news", "sql"}


def test_every_fault_is_named_in_one_message(design, measured):
    missing, cut, foreign, *_, last = [measured / cell.path for cell in design.cells()]
    missing.unlink()
    cut.write_bytes(cut.read_bytes()[:100])
    foreign.write_bytes(last.read_bytes())
    with pytest.raises(RowsError) as error:
        collect(design, measured)
    text = str(error.value)
    assert text.startswith("3 of the design's 8 timing files cannot be used:")
    for path in (missing, cut, foreign):
        assert str(path) in text
    assert "which is not its own" in text
    assert not cut.exists()
    assert cut.with_name(cut.name + ".damaged").exists()


def test_failed_files_are_those_worth_another_try(design, tmp_path):
    statuses = {"ar": "crashed", "spec": "not_applicable"}

    def fail(row):
        return failed_cell(row, statuses[row["mode"]])

    alter = where(fail, family="news", replicate=1)
    rows = [row for row in study(design, alter=alter) if not row["warmup"]]
    _write(design, tmp_path, rows)
    assert failed_files(design, tmp_path) == [
        "results/made-up/timing/2048/news/ar/r1.parquet",
    ]


def test_missing_files_are_not_called_failed(design, tmp_path):
    assert failed_files(design, tmp_path) == []
